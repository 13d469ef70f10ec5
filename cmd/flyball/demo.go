package main

import "github.com/spf13/cobra"

func demoCommand(*global) *cobra.Command {
	return &cobra.Command{Use: "demo", Short: "Run the service on traffic it makes itself, and print the answers"}
}
