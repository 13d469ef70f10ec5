// Command flyball is the governor: the service, and the command line that asks it.
//
// Errors go to stderr as one line that says what to do. Exit codes: 0 ok, 1 failed,
// 2 wrong usage.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flyball/flyball/schema/engine"
)

// Version is set by the build.
var Version = "dev"

// usageError is a mistake in the command line.
type usageError struct{ error }

func main() {
	engine.Main()
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "flyball: "+strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if errors.As(err, &usageError{}) || strings.HasPrefix(err.Error(), "unknown command") {
		return 2
	}
	return 1
}

// rootCommand is the whole command line.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "flyball",
		Short:         "A governor for AI-agent spend",
		Long:          "Flyball measures what every agent run costs and how much work it fans out into.\nStart with `flyball serve`, or see it work with `flyball demo`.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	g := &global{}
	f := root.PersistentFlags()
	f.StringVar(&g.server, "server", "", "URL of the running server (default: listen.http of the configuration)")
	f.StringVar(&g.config, "config", "", "configuration file")
	f.StringVar(&g.key, "key", "", "key to authenticate with (or FLYBALL_KEY)")
	f.BoolVar(&g.json, "json", false, "print JSON")
	root.AddCommand(serveCommand(g), ingestCommand(g), decodeCommand(g), demoCommand(g), sqlCommand(g), callsCommand(g), runsCommand(g), spendCommand(g),
		amplificationCommand(g), retriesCommand(g), coverageCommand(g), exportCommand(g), closeCommand(g), reconcileCommand(g), moversCommand(g), pricesCommand(g), repriceCommand(g), adjustCommand(g), forgetCommand(g), guardCommand(g), enforcementCommand(g), killCommand(g), pageCommand(g), keyCommand(g), doctorCommand(g), readyCommand(g), versionCommand(g))
	root.AddCommand(tableCommands(g)...)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		// The environment's key is no default of the flag: help prints those.
		if !f.Changed("key") {
			g.key = os.Getenv("FLYBALL_KEY")
		}
		return noEmptyFlag(cmd)
	}
	wrapArgs(root)
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Run, c.RunE = nil, helpOf
		}
	}
	return root
}
