package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func adjustCommand(g *global) *cobra.Command {
	in := map[string]*string{}
	c := &cobra.Command{Use: "adjust", Short: "Post money that no call costs, such as a credit or a correction, with who and why", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		body := map[string]string{}
		for name, v := range in {
			if *v != "" {
				body[name] = *v
			}
		}
		for _, name := range []string{"tenant", "amount", "at", "reason"} {
			if body[name] == "" {
				return usageError{fmt.Errorf("--%s is missing; want e.g. flyball adjust --tenant t-1 --amount -12.34 --at 2026-11-30 --reason 'credit note 7'", name)}
			}
		}
		if body["id"] == "" {
			body["id"] = strings.ToLower(rand.Text())
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
		defer cancel()
		data, err := g.call(ctx, http.MethodPost, "/api/v1/adjust", nil, body)
		if err != nil {
			return fmt.Errorf("%w (--id %s)", err, body["id"])
		}
		return g.show(cmd, data, func(w io.Writer, d map[string]any) error {
			what := "posted"
			if d["already"] == true {
				what = "posted before"
			}
			_, err := fmt.Fprintf(w, "%s: %s USD for tenant %s at %s, id %s, by %s; see flyball calls explain %s\n", what, cell(d["cost_usd"]), cell(d["tenant"]), cell(d["at"]), cell(d["id"]), cell(d["by"]), cell(d["trace_id"]))
			return err
		})
	}}
	for _, f := range [][2]string{{"tenant", "tenant whose spend changes"}, {"amount", "exact decimal; below zero takes away"}, {"currency", "of the amount (default: USD)"}, {"at", "when it counts, RFC 3339 or a date of the tenant's zone"}, {"reason", "why; kept with the entry"},
		{"id", "the same id posts once (default: a new one)"}, {"provider", "provider (default: who makes the model)"}, {"model", "model"}, {"user", "user"}, {"feature", "feature"}, {"workflow", "workflow"}, {"workflow-version", "workflow version"}, {"agent", "agent"}, {"environment", "environment"}} {
		in[strings.ReplaceAll(f[0], "-", "_")] = c.Flags().String(f[0], "", f[1])
	}
	return c
}
