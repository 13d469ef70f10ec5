package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flyball/flyball/cmd/app"
	"github.com/flyball/flyball/enforce"
	"github.com/flyball/flyball/ingest"
)

func guardCommand(g *global) *cobra.Command {
	c := &cobra.Command{Use: "guard", Short: "Budgets and what they do"}
	c.AddCommand(guardCheckCommand(g), guardListCommand(g), guardLiveCommand(g), guardBudgetsCommand(g), guardEventsCommand(g), guardReleaseCommand(g), guardApplyCommand(g), guardBacktestCommand(g), guardVerifyCommand(g),
		&cobra.Command{Use: "default", Short: "Print the policy of a service that was given none, to start from", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(enforce.DefaultPolicy)
			return err
		}})
	return c
}

// readPolicy reads FILE, or standard input where it is "-".
func readPolicy(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(os.Stdin)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	return text, nil
}

func guardCheckCommand(g *global) *cobra.Command {
	return &cobra.Command{Use: "check FILE", Short: "Look for mistakes in a policy; needs no server", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		text, err := readPolicy(args[0])
		if err != nil {
			return err
		}
		cat, cfg, err := g.catalogue()
		if err != nil {
			return err
		}
		p, doubts, err := enforce.ParsePolicy(text, app.PolicyOptions(cfg, ingest.NewPricer(cat)))
		if g.json {
			out := map[string]any{"valid": err == nil, "doubts": doubts}
			if err != nil {
				out["errors"] = strings.Split(err.Error(), "\n")
			}
			if jerr := json.NewEncoder(cmd.OutOrStdout()).Encode(out); jerr != nil {
				return jerr
			}
		}
		for _, d := range doubts {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: "+d.Error())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if !g.json {
			enforced := 0
			for i := range p.Guards {
				if p.Guards[i].Mode == "enforce" {
					enforced++
				}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %d guards, %d of them enforced\n", args[0], len(p.Guards), enforced)
		}
		return nil
	}}
}

func guardListCommand(g *global) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "The guards in force and how many scopes each acts on", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return g.ask(cmd, "/api/v1/guards", nil, func(w io.Writer, d map[string]any) error {
			rows := rowsOf(d, "guards")
			for _, r := range rows {
				r["scope"] = join(r["scope"], "+")
				r["ladder"] = join(r["ladder"], ", ")
				r["state"] = ""
				if r["warming"] == true {
					r["state"] = "warming"
				}
			}
			return table(w, rows, "guard=name", "scope", "measure", "window", "limit", "ladder", "mode", "acting on=live", "blocking", "state")
		})
	}}
}

func join(v any, sep string) string {
	list, _ := v.([]any)
	var out []string
	for _, s := range list {
		out = append(out, fmt.Sprint(s))
	}
	return strings.Join(out, sep)
}

func guardLiveCommand(g *global) *cobra.Command {
	var guard, tenant string
	c := &cobra.Command{Use: "live", Short: "What guards do now, and on whom", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return g.ask(cmd, "/api/v1/guards/live", params("guard", guard, "tenant", tenant), func(w io.Writer, d map[string]any) error {
			rows := rowsOf(d, "live")
			for _, r := range rows {
				r["mode"] = "enforce"
				if r["released"] == true {
					r["mode"] = "released"
				} else if r["shadow"] == true {
					r["mode"] = "warn"
				}
			}
			return table(w, rows, "id", "action", "mode", "scope=scope_text", "rung", "spent", "limit", "since=issued_at", "until=expires_at")
		})
	}}
	c.Flags().StringVar(&guard, "guard", "", "one guard")
	c.Flags().StringVar(&tenant, "tenant", "", "one tenant")
	return c
}

// params makes a query of name, value pairs that have a value.
func params(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

func guardBudgetsCommand(g *global) *cobra.Command {
	var v [8]string
	names := [8]string{"tenant", "guard", "user", "feature", "workflow", "agent", "model", "run_id"}
	c := &cobra.Command{Use: "budgets", Short: "How much of each budget is used, by the very numbers that decide", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var pairs []string
		for i := range names {
			pairs = append(pairs, names[i], v[i])
		}
		if slices.ContainsFunc(v[2:], func(s string) bool { return s != "" }) {
			if err := needs(cmd, "tenant"); err != nil { // a user is one tenant's
				return err
			}
		}
		return g.ask(cmd, "/api/v1/budgets", params(pairs...), func(w io.Writer, d map[string]any) error {
			rows := rowsOf(d, "budgets")
			for _, r := range rows {
				if o, ok := r["overshoot_bound"].(map[string]any); ok {
					r["bound"] = "$" + fmt.Sprint(o["usd"])
				}
			}
			return table(w, rows, "guard", "scope", "spend", "holds", "leases", "limit", "left", "mode", "overshoot bound=bound")
		})
	}}
	for i := range names {
		c.Flags().StringVar(&v[i], strings.ReplaceAll(names[i], "_", "-"), "", "one "+names[i])
	}
	return c
}

func guardEventsCommand(g *global) *cobra.Command {
	var tenant, limit string
	c := &cobra.Command{Use: "events", Short: "What enforcement did: directives, releases, kill flips, policy changes", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return g.ask(cmd, "/api/v1/enforcement", params("tenant", tenant, "limit", limit), func(w io.Writer, d map[string]any) error {
			return table(w, rowsOf(d, "events"), "at", "kind", "guard", "action", "scope", "value", "limit", "actor", "reason")
		})
	}}
	c.Flags().StringVar(&tenant, "tenant", "", "one tenant")
	c.Flags().StringVar(&limit, "limit", "", "events at the most")
	return c
}

// change sends what changes state and prints the answer.
func (g *global) change(cmd *cobra.Command, path string, body any, say func(w io.Writer, d map[string]any) error) error {
	data, err := g.call(cmd.Context(), http.MethodPost, path, nil, body)
	if err != nil {
		return err
	}
	if g.json {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(data)))
		return err
	}
	var d map[string]any
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	if err := dec.Decode(&d); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return say(cmd.OutOrStdout(), d)
}

func guardReleaseCommand(g *global) *cobra.Command {
	var reason string
	c := &cobra.Command{Use: "release ID", Short: "Take back what a guard does on one scope (ID as `guard live` shows it)", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		if err := needs(cmd, "reason"); err != nil {
			return err
		}
		return g.change(cmd, "/api/v1/guards/release", map[string]string{"id": args[0], "reason": reason}, func(w io.Writer, _ map[string]any) error {
			_, err := fmt.Fprintf(w, "released %s; the guard acts again at its next rung or in its next window\n", args[0])
			return err
		})
	}}
	c.Flags().StringVar(&reason, "reason", "", "why (required)")
	return c
}

func guardApplyCommand(g *global) *cobra.Command {
	var reason string
	c := &cobra.Command{Use: "apply FILE", Short: "Put a policy in force on the running server, without a restart", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		if err := needs(cmd, "reason"); err != nil {
			return err
		}
		text, err := readPolicy(args[0])
		if err != nil {
			return err
		}
		return g.change(cmd, "/api/v1/policy", map[string]string{"text": string(text), "reason": reason}, func(w io.Writer, d map[string]any) error {
			_, err := fmt.Fprintf(w, "policy version %s is in force\n", cell(d["version"]))
			return err
		})
	}}
	c.Flags().StringVar(&reason, "reason", "", "why (required)")
	return c
}

func guardBacktestCommand(g *global) *cobra.Command {
	var since, tenant string
	c := &cobra.Command{Use: "backtest FILE", Short: "What a policy would have done to calls of the past", Args: cobra.ExactArgs(1),
		Long: "Replays the journal through the guards of FILE, by the very code that enforces, every guard as if it were\nenforced. How agents would have reacted is not modelled. Nothing is changed.",
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readPolicy(args[0])
			if err != nil {
				return err
			}
			from, err := ago(since)
			if err != nil {
				return usageError{err}
			}
			return g.change(cmd, "/api/v1/guards/backtest", map[string]string{"text": string(text), "since": from.Format(time.RFC3339), "tenant": tenant}, func(w io.Writer, d map[string]any) error {
				rows := rowsOf(d, "guards")
				for _, r := range rows {
					fired, _ := r["fired"].(map[string]any)
					var parts []string
					for _, a := range []string{"warn", "throttle", "downgrade", "soft_block", "terminate", "halt", "on"} {
						if n, ok := fired[a]; ok {
							parts = append(parts, fmt.Sprintf("%s %v", a, n))
						}
					}
					r["fired"] = strings.Join(parts, ", ")
					if list := rowsOf(r, "scopes"); len(list) > 0 {
						r["most"] = list[0]["scope"]
					}
				}
				if err := table(w, rows, "guard", "fired", "first", "most on=most", "calls refused=refused_calls", "of them critical=refused_critical_calls", "downgraded=downgraded_calls", "usd saved=saved_usd"); err != nil {
					return err
				}
				_, err := fmt.Fprintf(w, "%s calls that cost %s USD; %s USD would have been saved. Note: %s.\n", cell(d["calls"]), cell(d["spend_usd"]), cell(d["saved_usd"]), cell(d["note"]))
				return err
			})
		}}
	c.Flags().StringVar(&since, "since", "30d", "from when: 30d, 12h, a date or RFC 3339")
	c.Flags().StringVar(&tenant, "tenant", "", "one tenant")
	return c
}

// ago reads a point in the past: a duration back from now, a date or RFC 3339.
func ago(s string) (time.Time, error) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		if d, err := time.ParseDuration(n + "h"); err == nil && d >= 0 {
			return time.Now().Add(-24 * d), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since %q: want 30d, 12h, 2026-11-01 or RFC 3339", s)
}

func guardVerifyCommand(g *global) *cobra.Command {
	var since string
	c := &cobra.Command{Use: "verify", Short: "Compare the counters that decide with the journal", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		from, err := ago(since)
		if err != nil {
			return usageError{err}
		}
		return g.change(cmd, "/api/v1/guards/verify", map[string]string{"since": from.Format(time.RFC3339)}, func(w io.Writer, d map[string]any) error {
			fmt.Fprintf(w, "%s counters compared up to chunk %s, %s differ\n", cell(d["accounts"]), cell(d["chunk"]), cell(d["drift"]))
			if n, _ := d["drift"].(json.Number); n != "0" {
				return errors.New("ledger and journal differ; see the server's log")
			}
			return nil
		})
	}}
	c.Flags().StringVar(&since, "since", "1h", "counters of windows and runs that began since: 1h, 1d, a date or RFC 3339")
	return c
}
