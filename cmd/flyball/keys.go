package main

import (
	"encoding/json"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/flyball/flyball/schema"
)

func keyCommand(g *global) *cobra.Command {
	c := &cobra.Command{Use: "key", Short: "Make keys"}
	var k schema.Key
	var role string
	var tenants []string
	n := &cobra.Command{Use: "new", Short: "Make a key; prints the secret once, with its line for the configuration", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		k.Role = schema.KeyRole(role)
		k.Tenants = tenants
		if k.Name == "" {
			k.Name = role
			if k.Tenant != "" {
				k.Name += "-" + k.Tenant
			}
		}
		secret, sum := schema.NewSecret()
		k.SHA256 = sum
		if err := k.Validate(); err != nil {
			return usageError{err}
		}
		line, err := yaml.MarshalWithOptions([]schema.Key{k}, yaml.Flow(true))
		if err != nil {
			return err
		}
		if g.json {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"secret": secret, "sha256": sum, "name": k.Name, "role": role, "tenant": k.Tenant, "tenants": tenants})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", secret)
		fmt.Fprintf(cmd.ErrOrStderr(), "Shown once. Send it as \"Authorization: Bearer …\" and add to the configuration:\nkeys: %s", line)
		return err
	}}
	f := n.Flags()
	f.StringVar(&role, "role", "ingest", "ingest, read, limiter or admin")
	f.StringVar(&k.Tenant, "tenant", "", "the tenant of everything sent with it")
	f.StringSliceVar(&tenants, "tenants", nil, "tenants it may carry or see, or \"*\"")
	f.StringVar(&k.Name, "name", "", "name in logs and audits")
	f.StringVar(&k.Trusted, "trusted", "", "\"gateway\" for a gateway whose claims are believed")
	c.AddCommand(n)
	return c
}
