package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func enforcementCommand(g *global) *cobra.Command {
	f := &filters{}
	c := &cobra.Command{Use: "enforcement", Short: "What enforcement did: directives, releases, pages, kill flips, drills, policies",
		Long: "What enforcement did, the newest first (default: of 30 days). --where takes kind, guard, action, user, actor,\ndirective, limiter and class; kind=leak and kind=applied list single measurements.",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := f.query()
			if err != nil {
				return err
			}
			return g.ask(cmd, "/api/v1/enforcement", q, printEnforcement)
		}}
	f.flags(c, "")
	c.AddCommand(enforcementSums(g, "leakage", "What passed although a directive refused it, and what it cost", "guard,limiter", printLeakage),
		enforcementSums(g, "times", "How long limiters took to follow", "limiter", printTimes))
	return c
}

func printEnforcement(w io.Writer, d map[string]any) error {
	if err := table(w, rowsOf(d, "events"), "at", "kind", "guard", "action", "scope", "value", "limit", "actor", "reason"); err != nil {
		return err
	}
	if d["complete"] == false {
		_, err := fmt.Fprintln(w, "ClickHouse cannot be asked: this is what the local store keeps")
		return err
	}
	return nil
}

// enforcementSums is a verb for sums over the history.
func enforcementSums(g *global, name, short, by string, say func(io.Writer, map[string]any, url.Values) error) *cobra.Command {
	f := &filters{}
	c := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		q, err := f.query()
		if err != nil {
			return err
		}
		return g.ask(cmd, "/api/v1/enforcement/"+name, q, func(w io.Writer, d map[string]any) error { return say(w, d, q) })
	}}
	f.flags(c, by)
	c.Flags().StringVar(&f.interval, "interval", "", "a row per interval, e.g. 1h or 1d")
	return c
}

func printLeakage(w io.Writer, d map[string]any, q url.Values) error {
	return table(w, rowsOf(d, "rows"), append(grouped(q), "before ack=propagation_calls", "usd=propagation_usd", "after ack=leak_calls", "usd=leak_usd", "unguarded=unguarded_calls", "usd=unguarded_usd")...)
}

func printTimes(w io.Writer, d map[string]any, q url.Values) error {
	rows := rowsOf(d, "rows")
	for _, r := range rows {
		for _, name := range []string{"p50", "p90", "p99", "max"} {
			if n, ok := r[name+"_ns"].(json.Number); ok {
				ns, err := n.Int64()
				if err != nil {
					return fmt.Errorf("read answer: %w", err)
				}
				r[name] = time.Duration(ns).Round(10 * time.Microsecond).String()
			}
		}
	}
	return table(w, rows, append(grouped(q), "count", "p50", "p90", "p99", "max")...)
}

// grouped are the columns that rows are grouped by.
func grouped(q url.Values) []string {
	var cols []string
	for _, name := range strings.Split(q.Get("group_by"), ",") {
		if name != "" {
			cols = append(cols, name)
		}
	}
	if q.Has("interval") {
		cols = append(cols, "at")
	}
	return cols
}
