package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func forgetCommand(g *global) *cobra.Command {
	var in struct {
		Tenant  string `json:"tenant,omitempty"`
		User    string `json:"user"`
		Reason  string `json:"reason"`
		Release bool   `json:"release,omitempty"`
	}
	var noWait bool
	c := &cobra.Command{Use: "forget", Short: "Replace a user's id by a pseudonym everywhere; no amount changes, and there is no way back", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if in.User == "" || in.Reason == "" {
			return usageError{errors.New("--user and --reason are required; want e.g. flyball forget --tenant t-1 --user u-1 --reason 'request 17'")}
		}
		data, err := g.call(cmd.Context(), http.MethodPost, "/api/v1/forget", nil, in)
		if err != nil {
			return err
		}
		var d forgetting
		if err := json.Unmarshal(data, &d); err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		said := fmt.Sprintf("the user is being forgotten; his calls are those of %s of tenant %s", d.Pseudonym, d.Tenant)
		if !noWait {
			if err := waitForgotten(cmd.Context(), g, d.Pseudonym); err != nil {
				return err
			}
			calls, err := callsOf(cmd.Context(), g, d.Tenant, d.Pseudonym)
			if err != nil {
				return fmt.Errorf("the user is forgotten, and how many calls are those of %s now is not known: %w", d.Pseudonym, err)
			}
			said = fmt.Sprintf("the user is forgotten; his %s calls are those of %s of tenant %s", calls, d.Pseudonym, d.Tenant)
			if calls == "0" {
				said = fmt.Sprintf("no call of %q of tenant %s was known: is the id spelled as calls have it? Calls that come with it from now on are not renamed", in.User, d.Tenant)
			}
		}
		if g.json {
			_, err := cmd.OutOrStdout().Write(append(data, '\n'))
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
		return err
	}}
	f := c.Flags()
	f.StringVar(&in.User, "user", "", "the user's id as calls have it")
	f.StringVar(&in.Tenant, "tenant", "", "the user's tenant; may be left out with a key for one")
	f.StringVar(&in.Reason, "reason", "", "why; it is kept, so it must not name the user")
	f.BoolVar(&in.Release, "release", false, "also if a guard refuses the user's calls, which ends")
	f.BoolVar(&noWait, "no-wait", false, "return when it is under way")
	return c
}

// forgetting is a user who is being forgotten.
type forgetting struct{ Tenant, Pseudonym, Step, Error string }

// callsOf is how many calls a user has, as far back as is kept.
func callsOf(ctx context.Context, g *global, tenant, user string) (string, error) {
	data, err := g.call(ctx, http.MethodGet, "/api/v1/spend", url.Values{"tenant": {tenant}, "user": {user}, "group_by": {""}, "from": {"1971-01-01"}}, nil)
	if err != nil {
		return "", err
	}
	var d struct {
		Total struct {
			Calls json.Number `json:"calls"`
		} `json:"total"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return "", fmt.Errorf("read answer: %w", err)
	}
	return d.Total.Calls.String(), nil
}

// waitForgotten returns when the server has forgotten who got that pseudonym. It asks
// on while the server restarts.
func waitForgotten(ctx context.Context, g *global, pseudonym string) error {
	for down := 0; ; {
		data, err := g.call(ctx, http.MethodGet, "/api/v1/forget", nil, nil)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if down++; err != nil && down > 60 {
			return fmt.Errorf("%w; it goes on when the server is back", err)
		}
		if err == nil {
			down = 0
			var d struct{ Running []forgetting }
			if err := json.Unmarshal(data, &d); err != nil {
				return fmt.Errorf("read answer: %w", err)
			}
			if len(d.Running) == 0 || d.Running[0].Pseudonym != pseudonym {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}
