package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func killCommand(g *global) *cobra.Command {
	c := &cobra.Command{Use: "kill", Short: "The org's kill switch"}
	var reason string
	var stage int
	on := &cobra.Command{Use: "on", Short: "Halt every call that is not exempt; with --stage admit that percentage of runs", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if err := needs(cmd, "reason"); err != nil {
			return err
		}
		return g.change(cmd, "/api/v1/kill", map[string]any{"state": "on", "stage": stage, "reason": reason}, printKill)
	}}
	on.Flags().StringVar(&reason, "reason", "", "why (required)")
	on.Flags().IntVar(&stage, "stage", 0, "percentage of runs to admit, for a recovery in stages")
	off := &cobra.Command{Use: "off", Short: "Admit every call again; it does not trip by itself for an hour", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if err := needs(cmd, "reason"); err != nil {
			return err
		}
		return g.change(cmd, "/api/v1/kill", map[string]any{"state": "off", "reason": reason}, printKill)
	}}
	off.Flags().StringVar(&reason, "reason", "", "why (required)")
	status := &cobra.Command{Use: "status", Short: "The switch, how near it is to tripping, and who follows it", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return g.ask(cmd, "/api/v1/kill", nil, printKill)
	}}
	var wait time.Duration
	drill := &cobra.Command{Use: "drill", Short: "Walk the whole way of the switch without stopping anything; fails unless every limiter acknowledges", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return runDrill(cmd, g, wait)
	}}
	drill.Flags().DurationVar(&wait, "wait", 5*time.Second, "how long limiters may take")
	c.AddCommand(on, off, status, drill)
	return c
}

func printKill(w io.Writer, d map[string]any) error {
	switch {
	case d["on"] == true && cell(d["stage"]) != "0":
		fmt.Fprintf(w, "on since %s by %s: %s; %s%% of runs are admitted\n", cell(d["since"]), cell(d["actor"]), cell(d["reason"]), cell(d["stage"]))
	case d["on"] == true:
		fmt.Fprintf(w, "on since %s by %s: %s\n", cell(d["since"]), cell(d["actor"]), cell(d["reason"]))
	case d["mode"] == nil:
		fmt.Fprintln(w, "off")
	default:
		fmt.Fprintf(w, "off; trips by itself: %s\n", cell(d["mode"]))
	}
	if d["limiters"] == nil {
		_, err := fmt.Fprintln(w, "who follows it, and how near it is to tripping, is told to a key for every tenant")
		return err
	}
	fmt.Fprintf(w, "last hour %s USD, limit %s; today %s USD, limit %s; history of %s days\n", cell(d["last_hour_usd"]), cell(d["last_hour_limit_usd"]), cell(d["today_usd"]), cell(d["today_limit_usd"]), cell(d["history_days"]))
	rows := rowsOf(d, "limiters")
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no limiter follows: nobody would be stopped")
		return err
	}
	return table(w, rows, "limiter=id", "acknowledged", "behind", "seen=seen_at", "active")
}

func runDrill(cmd *cobra.Command, g *global, wait time.Duration) error {
	body := map[string]any{"wait_ms": wait.Milliseconds()}
	data, err := g.call(cmd.Context(), http.MethodPost, "/api/v1/kill/drill", nil, body)
	if err != nil {
		return err
	}
	if g.json {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(data)))
		return err
	}
	var r struct {
		TookNS  int64  `json:"took_ns"`
		Slowest string `json:"slowest"`
		Acked   []struct {
			ID     string `json:"id"`
			TookNS int64  `json:"took_ns"`
		} `json:"acknowledged"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if len(r.Acked) == 0 {
		return errors.New("no limiter acknowledged")
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d limiters acknowledged; the slowest, %s, took %s\n", len(r.Acked), r.Slowest, time.Duration(r.TookNS).Round(10*time.Microsecond))
	return err
}

func pageCommand(g *global) *cobra.Command {
	c := &cobra.Command{Use: "page", Short: "Pages to on-call"}
	var receiver string
	test := &cobra.Command{Use: "test", Short: "Send a test page to one receiver or to all, and say what came of it", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return g.change(cmd, "/api/v1/pages/test", map[string]string{"receiver": receiver}, func(w io.Writer, d map[string]any) error {
			rows := rowsOf(d, "results")
			if len(rows) == 0 {
				return errors.New("no receiver is configured; see pages in the configuration reference")
			}
			if err := table(w, rows, "receiver", "ok", "status", "error"); err != nil {
				return err
			}
			for _, r := range rows {
				if r["ok"] != true {
					return errors.New("a receiver did not take the page")
				}
			}
			return nil
		})
	}}
	test.Flags().StringVar(&receiver, "receiver", "", "one receiver")
	pending := &cobra.Command{Use: "pending", Short: "Pages that were not delivered yet", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return g.ask(cmd, "/api/v1/pages", nil, func(w io.Writer, d map[string]any) error {
			return table(w, rowsOf(d, "pending"), "id", "receiver", "attempts", "next", "error=last_error")
		})
	}}
	c.AddCommand(test, pending)
	return c
}
