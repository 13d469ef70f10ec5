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
	c.Flags().StringVar(&from, "base-from", "", "start of the time to compare with (default: the one before --from, as long)")
	c.Flags().StringVar(&to, "base-to", "", "its end, exclusive")
	return c
}

// effects are the reasons of a change, in the order of the answer.
var effects = []string{"volume", "amplification", "retries", "mix", "tokens", "price", "other"}

func printMovers(w io.Writer, d map[string]any, by string) error {
	var cols []string
	for _, g := range strings.Split(by, ",") {
		if g != "" {
			cols = append(cols, g)
		}
	}
	total, _ := d["total"].(map[string]any)
	rows := append(rowsOf(d, "rows"), total)
	for _, r := range rows {
		e, _ := r["effects"].(map[string]any)
		for _, name := range effects {
			r["by "+name] = e[name]
		}
	}
	cols = append(cols, "before usd=before_usd", "after usd=after_usd", "change usd=change_usd", "mostly=main")
	for _, name := range effects {
		cols = append(cols, name+"=by "+name)
	}
	if err := table(w, rows[:len(rows)-1], cols...); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "from %s to %s USD, mostly by %s; compared with %s to %s\n", cell(total["before_usd"]), cell(total["after_usd"]), cell(total["main"]), cell(d["base_from"]), cell(d["base_to"]))
	return err
}
