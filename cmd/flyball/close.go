package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func closeCommand(g *global) *cobra.Command {
	var tenants []string
	var asOf, reason string
	c := &cobra.Command{Use: "close MONTH", Short: "Freeze what is known of a month, e.g. 2026-11; what is booked later shows as adjustments", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), exportTimeout)
		defer cancel()
		body := map[string]string{"period": args[0]}
		if asOf != "" {
			body["as_of"] = asOf
		}
		if reason != "" {
			body["reason"] = reason
		}
		data, err := g.call(ctx, http.MethodPost, "/api/v1/close", url.Values{"tenant": tenants}, body)
		if err != nil {
			return err
		}
		return g.show(cmd, data, func(w io.Writer, d map[string]any) error {
			return table(w, rowsOf(d, "closed"), "tenant", "month=period", "from", "to", "known before=as_of", "usd=cost_usd")
		})
	}}
	c.Flags().StringArrayVar(&tenants, "tenant", nil, "`tenant` (repeatable; default: every tenant of the key)")
	c.Flags().StringVar(&asOf, "as-of", "", "the last UTC day whose entries count (default: yesterday)")
	c.Flags().StringVar(&reason, "reason", "", "why; kept in the history of enforcement")
	c.AddCommand(closeShowCommand(g))
	return c
}

func closeShowCommand(g *global) *cobra.Command {
	var tenants []string
	var currency, asOf string
	var csv bool
	c := &cobra.Command{Use: "show [MONTH]", Short: "A closed month beside what is known now, or which months are closed", Args: cobra.MaximumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		q := url.Values{"tenant": tenants}
		if asOf != "" {
			q.Set("as_of", asOf)
		}
		if csv {
			q.Set("format", "csv")
		}
		if len(args) == 0 {
			return g.ask(cmd, "/api/v1/close", q, func(w io.Writer, d map[string]any) error {
				return table(w, rowsOf(d, "closes"), "month=period", "tenant", "known before=as_of", "closed=closed_at", "by=closed_by", "usd=cost_usd")
			})
		}
		q.Set("period", args[0])
		if currency != "" {
			q.Set("currency", currency)
		}
		return g.ask(cmd, "/api/v1/close", q, func(w io.Writer, d map[string]any) error {
			if len(rowsOf(d, "closes")) == 0 {
				return fmt.Errorf("%s is not closed; flyball close %s closes it, flyball close show lists what is", args[0], args[0])
			}
			return printClose(w, d)
		})
	}}
	c.Flags().StringArrayVar(&tenants, "tenant", nil, "`tenant` (repeatable)")
	c.Flags().StringVar(&currency, "currency", "", "of a month: its days also in this currency, at the rates of fx.files")
	c.Flags().StringVar(&asOf, "as-of", "", "what was known at the end of a UTC day, or before an instant")
	c.Flags().BoolVar(&csv, "csv", false, "print CSV")
	return c
}

func printClose(w io.Writer, d map[string]any) error {
	cols := []string{"tenant", "provider", "model", "frozen usd=frozen_usd", "now usd=current_usd", "adjustment usd=adjustment_usd", "calls=adjustment_calls"}
	currency, converted := d["currency"].(string)
	if converted {
		low := strings.ToLower(currency)
		cols = append(cols, "frozen "+low+"=frozen", "now "+low+"=current", "adjustment "+low+"=adjustment")
	}
	if err := table(w, rowsOf(d, "rows"), cols...); err != nil {
		return err
	}
	t, _ := d["total"].(map[string]any)
	if converted {
		fmt.Fprintf(w, "closed at %s %s, now %s %s, adjusted by %s %s; %s\n", cell(t["frozen"]), currency, cell(t["current"]), currency, cell(t["adjustment"]), currency, ratesSaid(d))
	}
	_, err := fmt.Fprintf(w, "closed at %s USD, now %s USD, adjusted by %s USD\n", cell(t["frozen_usd"]), cell(t["current_usd"]), cell(t["adjustment_usd"]))
	return err
}
