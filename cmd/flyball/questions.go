package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func spendCommand(g *global) *cobra.Command {
	f := &filters{}
	c := &cobra.Command{Use: "spend", Short: "What was spent, by whom and on what", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		q, err := f.query()
		if err != nil {
			return err
		}
		return g.ask(cmd, "/api/v1/spend", q, func(w io.Writer, d map[string]any) error { return printSpend(w, d, f.groupBy, f.interval != "") })
	}}
	f.flags(c, "tenant,model")
	c.Flags().StringVar(&f.interval, "interval", "", "a row per interval, e.g. 1h or 1d")
	f.known(c)
	f.converted(c)
	return c
}

func printSpend(w io.Writer, d map[string]any, by string, interval bool) error {
	var cols []string
	for _, g := range strings.Split(by, ",") {
		if g != "" {
			cols = append(cols, g)
		}
	}
	if interval {
		cols = append(cols, "at")
	}
	t, _ := d["total"].(map[string]any)
	currency, converted := d["currency"].(string)
	if converted {
		cols = append(cols, strings.ToLower(currency)+"=cost")
	}
	if err := table(w, rowsOf(d, "rows"), append(cols, "calls", "usd=cost_usd", "unpriced=unpriced_calls", "unknown=unknown_calls")...); err != nil {
		return err
	}
	if converted {
		fmt.Fprintf(w, "total %s %s; %s\n", cell(t["cost"]), currency, ratesSaid(d))
	}
	_, err := fmt.Fprintf(w, "total %s USD for %s calls; beside it %s without a price, %s of unknown usage, %s from sampled traces\n", cell(t["cost_usd"]), cell(t["calls"]), cell(t["unpriced_calls"]), cell(t["unknown_calls"]), cell(t["sampled_calls"]))
	return err
}

// ratesSaid says which rates an answer in another currency was made with.
func ratesSaid(d map[string]any) string {
	var sources []string
	carried := 0
	rates := rowsOf(d, "rates")
	for _, r := range rates {
		if r["carried"] == true {
			carried++
		}
		if s := cell(r["source"]); !slices.Contains(sources, s) {
			sources = append(sources, s)
		}
	}
	return fmt.Sprintf("rates of %d days from %s, %d of them that of an earlier day", len(rates), strings.Join(sources, ", "), carried)
}

func amplificationCommand(g *global) *cobra.Command {
	f := &filters{}
	c := &cobra.Command{Use: "amplification", Short: "How much work one user request became", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		q, err := f.query()
		if err != nil {
			return err
		}
		return g.ask(cmd, "/api/v1/amplification", q, func(w io.Writer, d map[string]any) error { return printAmplification(w, d, f.groupBy) })
	}}
	f.flags(c, "workflow")
	f.known(c)
	return c
}

func printAmplification(w io.Writer, d map[string]any, by string) error {
	return table(w, rowsOf(d, "rows"), append(strings.FieldsFunc(by, func(r rune) bool { return r == ',' }), "requests", "model=model_calls", "tools=tool_calls", "repeated=repeats", "retries", "amplification=ratio", "p99", "retry x=retry_multiplier", "cost x=cost_amplification", "usd=cost_usd", "unknown=unknown_calls")...)
}

func retriesCommand(g *global) *cobra.Command {
	f := &filters{}
	c := &cobra.Command{Use: "retries", Short: "Who retried what, and what it wasted", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		q, err := f.query()
		if err != nil {
			return err
		}
		return g.ask(cmd, "/api/v1/retries", q, func(w io.Writer, d map[string]any) error { return printRetries(w, d, f.groupBy) })
	}}
	f.flags(c, "layer,failure")
	f.known(c)
	f.converted(c)
	return c
}

func printRetries(w io.Writer, d map[string]any, by string) error {
	cols := append(strings.FieldsFunc(by, func(r rune) bool { return r == ',' }), "retries", "wasted usd=wasted_usd")
	currency, converted := d["currency"].(string)
	if converted {
		cols = append(cols, "wasted "+strings.ToLower(currency)+"=wasted")
	}
	if err := table(w, rowsOf(d, "rows"), cols...); err != nil || !converted {
		return err
	}
	_, err := fmt.Fprintln(w, ratesSaid(d))
	return err
}

func coverageCommand(g *global) *cobra.Command {
	f := &filters{}
	c := &cobra.Command{Use: "coverage", Short: "What is not known", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		q, err := f.query()
		if err != nil {
			return err
		}
		return g.ask(cmd, "/api/v1/coverage", q, printCoverage)
	}}
	f.flags(c, "")
	f.known(c)
	return c
}

func printCoverage(w io.Writer, d map[string]any) error {
	if err := table(w, rowsOf(d, "rows"), "provider", "model", "calls", "unpriced", "unknown", "estimated", "assumed basis=assumed_basis", "sampled", "usd=cost_usd"); err != nil {
		return err
	}
	for _, f := range rowsOf(d, "findings") {
		fmt.Fprintf(w, "\n%s\n", cell(f["text"]))
	}
	return nil
}

// tables are the questions whose answer is one table.
var tables = []struct {
	use, short, by string
	interval       bool
	money          []string // columns that other currencies have
	columns        []string
	after          func(w io.Writer, d map[string]any) error // prints what stands below
}{
	{use: "load", short: "How many provider calls requests became: requests x steps x retry multiplier", by: "workflow", interval: true,
		columns: []string{"requests", "steps/request=steps_per_request", "retry x=retry_multiplier", "provider calls=provider_calls", "p99=calls_p99", "usd=cost_usd", "unpriced=unpriced_calls", "unknown=unknown_calls"}},
	{use: "rate-limits", short: "How many attempts at models were refused for rate or quota (429)", by: "provider,model", interval: true,
		columns: []string{"attempts", "rate limited=rate_limited", "rate"}},
	{use: "worked-after", short: "What calls took and cost that worked after 0, 1, 2 and more retries", by: "layer",
		columns: []string{"retries", "calls", "usd=cost_usd", "uncosted=uncosted_calls", "incomplete=incomplete_calls", "compared=compared_calls", "usd of these=compared_usd", "usd at once=first_try_usd", "cost x=cost_ratio", "ms=mean_ms", "extra ms=extra_ms"}},
	{use: "loops", short: "Tools called again with arguments that the run had used; --by run_id for the worst runs", by: "workflow,agent",
		columns: []string{"requests", "looping=looping_requests", "tool calls=tool_calls", "repeats", "ratio=repeat_ratio", "most=most_repeats", "usd=cost_usd", "usd of looping=looping_cost_usd", "uncosted=looping_uncosted_calls"}},
	{use: "empty-polls", short: "Tool calls that asked again and were told nothing", by: "tool",
		columns: []string{"calls", "polls", "empty=empty_polls", "share=empty_share", "unknown=unknown_polls", "empty turns=empty_turns", "usd of these=empty_turns_usd", "uncosted=empty_turns_uncosted"}},
	{use: "payloads", short: "How much tools answered, by type, and how many tokens that became", by: "tool,payload_type",
		columns: []string{"calls", "unsized=unsized_calls", "bytes", "bytes/call=bytes_per_call", "measured=measured_calls", "bytes of these=measured_bytes", "tokens of these=measured_tokens", "tokens/call=tokens_per_call"}},
	{use: "cache", short: "What cached input saved, and how much of the input was cached", by: "provider,model", money: []string{"saved"},
		columns: []string{"calls", "input=input_tokens", "cached=cache_read_tokens", "hit rate=hit_rate", "reads saved usd=read_saved_usd", "writes cost usd=write_extra_usd", "saved usd=saved_usd", "price unknown=unknown_price_calls", "cache unknown=cache_unknown_calls"},
		after: func(w io.Writer, d map[string]any) error {
			t, _ := d["total"].(map[string]any)
			_, err := fmt.Fprintf(w, "saved %s USD; not in it %s calls whose unit prices are not known\n", cell(t["saved_usd"]), cell(t["unknown_price_calls"]))
			return err
		}},
	{use: "batch", short: "What calls that can wait would have saved at the batch price", by: "provider,model", money: []string{"spend", "saving"},
		columns: []string{"calls", "usd=spend_usd", "with a batch price usd=eligible_usd", "saving usd=saving_usd", "no batch price=no_batch_price_calls", "price unknown=unknown_price_calls", "unpriced=unpriced_calls", "unknown=unknown_calls"},
		after: func(w io.Writer, d map[string]any) error {
			t, _ := d["total"].(map[string]any)
			_, err := fmt.Fprintf(w, "%s of %s USD would have been saved; not in it %s calls whose unit prices are not known\n", cell(t["saving_usd"]), cell(t["spend_usd"]), cell(t["unknown_price_calls"]))
			return err
		}},
}

func tableCommands(g *global) []*cobra.Command {
	out := make([]*cobra.Command, len(tables))
	for i, t := range tables {
		f := &filters{}
		var of string
		out[i] = &cobra.Command{Use: t.use, Short: t.short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := f.query()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("of") {
				q.Set("of", of)
				if !cmd.Flags().Changed("by") { // requests have no layer
					q.Del("group_by")
					f.groupBy = ""
				}
			}
			return g.ask(cmd, "/api/v1/"+t.use, q, func(w io.Writer, d map[string]any) error {
				cols := strings.FieldsFunc(f.groupBy, func(r rune) bool { return r == ',' })
				if f.interval != "" {
					cols = append(cols, "at")
				}
				cols = append(cols, t.columns...)
				currency, converted := d["currency"].(string)
				for _, name := range t.money {
					if converted {
						cols = append(cols, name+" "+strings.ToLower(currency)+"="+name)
					}
				}
				if err := table(w, rowsOf(d, "rows"), cols...); err != nil {
					return err
				}
				if converted {
					total, _ := d["total"].(map[string]any)
					for _, name := range t.money {
						fmt.Fprintf(w, "%s %s %s; ", name, cell(total[name]), currency)
					}
					fmt.Fprintln(w, ratesSaid(d))
				}
				if t.after == nil {
					return nil
				}
				return t.after(w, d)
			})
		}}
		f.flags(out[i], t.by)
		if t.interval {
			out[i].Flags().StringVar(&f.interval, "interval", "", "a row per interval, e.g. 1h or 1d")
		}
		f.known(out[i])
		if len(t.money) > 0 {
			f.converted(out[i])
		}
		if t.use == "worked-after" {
			out[i].Flags().StringVar(&of, "of", "calls", "calls or requests")
		}
	}
	return out
}

func callsCommand(g *global) *cobra.Command {
	var trace, run string
	var history bool
	f := &filters{}
	c := &cobra.Command{Use: "calls", Short: "Single calls", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		q, err := f.query()
		if err != nil {
			return err
		}
		if trace != "" {
			q.Add("trace_id", trace)
		}
		if run != "" {
			q.Add("run_id", run)
		}
		cols := []string{"started=started_at", "tenant", "run=run_id", "kind", "name", "model", "attempt", "layer=retry_layer", "failure", "usd=cost_usd", "status=cost_status"}
		if history {
			q.Set("history", "1")
			cols = append([]string{"sign", "version", "recorded=recorded_at"}, cols...)
		}
		return g.ask(cmd, "/api/v1/calls", q, func(w io.Writer, d map[string]any) error { return table(w, rowsOf(d, "calls"), cols...) })
	}}
	f.flags(c, "")
	f.known(c)
	c.Flags().StringVar(&trace, "trace", "", "trace id")
	c.Flags().StringVar(&run, "run", "", "run id")
	c.Flags().BoolVar(&history, "history", false, "every entry with its sign")
	c.AddCommand(explainCommand(g))
	return c
}

func runsCommand(g *global) *cobra.Command {
	f := &filters{}
	c := &cobra.Command{Use: "runs [RUN]", Short: "The latest runs, or the report of one", Args: cobra.MaximumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		q, err := f.query()
		if err != nil {
			return err
		}
		if len(args) == 1 {
			return g.ask(cmd, "/api/v1/runs/"+url.PathEscape(args[0]), q, printRun)
		}
		return g.ask(cmd, "/api/v1/runs", q, func(w io.Writer, d map[string]any) error {
			return table(w, rowsOf(d, "rows"), "started=started_at", "tenant", "run=run_id", "workflow", "user", "status", "model=model_calls", "tools=tool_calls", "retries", "amplification", "usd=cost_usd", "unpriced=unpriced_calls", "unknown=unknown_calls")
		})
	}}
	f.flags(c, "")
	f.known(c)
	return c
}

// printRun prints a run report the way a production trace is read.
func printRun(w io.Writer, d map[string]any) error {
	fmt.Fprintf(w, "run %s  %s  tenant %s  user %s  workflow %s\n", cell(d["run_id"]), cell(d["status"]), cell(d["tenant"]), cell(d["user"]), cell(d["workflow"]))
	fmt.Fprintf(w, "  amplification %s = %s model calls + %s tool calls + %s retries + %s fallbacks + %s hedges for %s request\n", cell(d["amplification"]), cell(d["model_calls"]), cell(d["tool_calls"]), cell(d["retries"]), cell(d["fallbacks"]), cell(d["hedges"]), cell(d["requests"]))
	fmt.Fprintf(w, "  cost %s USD, %s USD of it wasted; %s calls without a price, %s of unknown usage\n", cell(d["cost_usd"]), cell(d["wasted_usd"]), cell(d["unpriced_calls"]), cell(d["unknown_calls"]))
	for _, m := range []struct{ title, field string }{{"retries by layer", "retries_by_layer"}, {"failures", "failures"}, {"counted by kind", "kinds"}, {"marked", "flags"}} {
		if v, ok := d[m.field].(map[string]any); ok && len(v) > 0 {
			fmt.Fprintf(w, "  %s: %s\n", m.title, strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(v), "map["), "]"))
		}
	}
	fmt.Fprintln(w)
	var tree func(calls []map[string]any, depth int)
	tree = func(calls []map[string]any, depth int) {
		for _, c := range calls {
			note := ""
			if c["aggregate"] == true {
				note = "  (repeats what is below)"
			}
			if s := cell(c["duplicate_of"]); s != "-" {
				note = "  (same call as " + s + ")"
			}
			if l := cell(c["retry_layer"]); l != "-" {
				note += "  attempt " + cell(c["attempt"]) + " by " + l
			}
			if h := cell(c["hidden_attempts"]); h != "0" {
				note += "  +" + h + " attempts inside the SDK"
			}
			if f := cell(c["failure"]); f != "-" {
				note += "  failed: " + f
			}
			cost := cell(c["cost_usd"])
			if st := cell(c["cost_status"]); st == "unpriced" || st == "unknown" {
				cost = st
			}
			fmt.Fprintf(w, "%s%-9s %s  %s  %s%s\n", strings.Repeat("  ", depth), cell(c["kind"]), cell(c["name"]), cell(c["model"]), cost, note)
			tree(rowsOf(c, "children"), depth+1)
		}
	}
	tree(rowsOf(d, "calls"), 0)
	return nil
}

func sqlCommand(g *global) *cobra.Command {
	c := &cobra.Command{Use: "sql QUERY", Short: "Read-only SQL over everything stored", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		format := "TSV"
		if st, err := os.Stdout.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
			format = "PrettyCompact"
		}
		if g.json {
			format = "JSON"
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Minute)
		defer cancel()
		resp, err := g.send(ctx, http.MethodPost, "/api/v1/sql", url.Values{"default_format": {format}}, upload{"text/plain", strings.NewReader(args[0])})
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(cmd.OutOrStdout(), resp.Body)
		return err
	}}
	return c
}
