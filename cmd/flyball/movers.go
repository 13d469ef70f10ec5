package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

func moversCommand(g *global) *cobra.Command {
	f := &filters{}
	var from, to string
	c := &cobra.Command{Use: "movers", Short: "What changed most between two times, and why", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		q, err := f.query()
		if err != nil {
			return err
		}
		if from != "" {
			q.Set("base_from", from)
		}
		if to != "" {
			q.Set("base_to", to)
		}
		return g.ask(cmd, "/api/v1/movers", q, func(w io.Writer, d map[string]any) error { return printMovers(w, d, f.groupBy) })
	}}
	f.flags(c, "tenant")
	f.known(c)
	f.converted(c)
	c.Flags().StringVar(&from, "base-from", "", "start of the time to compare with (default: the one before --from, as long)")
	c.Flags().StringVar(&to, "base-to", "", "its end, exclusive")
	return c
}

// effects are the reasons of a change, in the order of the answer; exchange is in other
// currencies than USD alone.
var effects = []string{"volume", "amplification", "retries", "mix", "tokens", "price", "exchange", "other"}

func printMovers(w io.Writer, d map[string]any, groups string) error {
	var cols []string
	for _, g := range strings.Split(groups, ",") {
		if g != "" {
			cols = append(cols, g)
		}
	}
	total, _ := d["total"].(map[string]any)
	rows := append(rowsOf(d, "rows"), total)
	currency, converted := d["currency"].(string)
	money, before, after, change, main, by := "USD", "before_usd", "after_usd", "change_usd", "main", "effects"
	if converted {
		money, before, after, change, main, by = currency, "cost before", "cost after", "change", "change_main", "change_effects"
	}
	for _, r := range rows {
		e, _ := r[by].(map[string]any)
		for _, name := range effects {
			r["by "+name] = e[name]
		}
		for _, side := range []string{"before", "after"} {
			s, _ := r[side].(map[string]any)
			r["cost "+side] = s["cost"]
		}
	}
	low := strings.ToLower(money)
	cols = append(cols, "before "+low+"="+before, "after "+low+"="+after, "change "+low+"="+change, "mostly="+main)
	for _, name := range effects {
		if name != "exchange" || converted {
			cols = append(cols, name+"=by "+name)
		}
	}
	if err := table(w, rows[:len(rows)-1], cols...); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "from %s to %s %s, mostly by %s; compared with %s to %s\n", cell(total[before]), cell(total[after]), money, cell(total[main]), cell(d["base_from"]), cell(d["base_to"]))
	if converted && err == nil {
		_, err = fmt.Fprintln(w, ratesSaid(d))
	}
	return err
}
