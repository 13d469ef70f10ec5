package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// exportTimeout is how long one page of a file may take.
const exportTimeout = 10 * time.Minute

func exportCommand(g *global) *cobra.Command {
	c := &cobra.Command{Use: "export", Short: "Files for finance"}
	c.AddCommand(exportFocusCommand(g), exportCSVCommand(g))
	return c
}

func exportFocusCommand(g *global) *cobra.Command {
	var from, to, format, currency, asOf, out string
	var tenants []string
	c := &cobra.Command{Use: "focus", Short: "A FOCUS 1.2 file of whole days, a row per tenant, day, model, price and kind of token", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if err := needs(cmd, "from", "to"); err != nil {
			return err
		}
		if st, err := os.Stdout.Stat(); format == "parquet" && out == "" && err == nil && st.Mode()&os.ModeCharDevice != 0 {
			return usageError{fmt.Errorf("Parquet is no text for a terminal; name a file with --out")}
		}
		q := url.Values{"from": {from}, "to": {to}, "format": {format}, "tenant": tenants}
		if currency != "" {
			q.Set("currency", currency)
		}
		if asOf != "" {
			q.Set("as_of", asOf)
		}
		return g.save(cmd, out, func() error {
			ctx, cancel := context.WithTimeout(cmd.Context(), exportTimeout)
			defer cancel()
			resp, err := g.send(ctx, http.MethodGet, "/api/v1/export/focus", q, nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(cmd.OutOrStdout(), resp.Body); err != nil {
				return fmt.Errorf("read export: %w", err)
			}
			return nil
		})
	}}
	f := c.Flags()
	f.StringVar(&from, "from", "", "first day, e.g. 2026-11-01")
	f.StringVar(&to, "to", "", "the day after the last, e.g. 2026-12-01")
	f.StringArrayVar(&tenants, "tenant", nil, "`tenant` (repeatable)")
	f.StringVar(&format, "format", "csv", "csv or parquet")
	f.StringVar(&currency, "currency", "", "currency of the file, at the rates of fx.files (default: USD)")
	f.StringVar(&asOf, "as-of", "", "what was known at the end of a UTC day, or before an instant")
	f.StringVar(&out, "out", "", "file to write (default: standard output)")
	return c
}

// exported are the questions that answer as CSV.
var exported = []string{"spend", "amplification", "retries", "coverage", "calls", "runs", "movers", "load", "rate-limits", "worked-after", "loops", "empty-polls", "payloads", "cache", "batch"}

func exportCSVCommand(g *global) *cobra.Command {
	f := &filters{}
	var out string
	c := &cobra.Command{Use: "csv QUESTION", Short: "Every row of a question as CSV: " + strings.Join(exported, ", "), Args: cobra.ExactArgs(1), ValidArgs: exported, RunE: func(cmd *cobra.Command, args []string) error {
		if err := cobra.OnlyValidArgs(cmd, args); err != nil {
			return usageError{fmt.Errorf("no question %q; want one of %s", args[0], strings.Join(exported, ", "))}
		}
		if args[0] == "spend" && f.groupBy == "" {
			f.groupBy = "tenant,model"
		}
		f.csv = true
		q, err := f.query()
		if err != nil {
			return err
		}
		return g.save(cmd, out, func() error { return g.file(cmd, "/api/v1/"+args[0], q) })
	}}
	f.flags(c, "")
	fl := c.Flags()
	_ = fl.MarkHidden("csv") // it is
	fl.StringVar(&f.groupBy, "by", "", "dimensions, comma-separated (default: those of the question)")
	fl.StringVar(&f.interval, "interval", "", "of spend, load and rate-limits: a row per interval, e.g. 1h or 1d")
	fl.StringVar(&f.currency, "currency", "", "of spend, movers, retries, cache and batch: also in this currency, at the rates of fx.files")
	f.known(c)
	fl.StringVar(&out, "out", "", "file to write (default: standard output)")
	return c
}

// save lets f print into a file, which is there whole or not at all.
func (g *global) save(cmd *cobra.Command, name string, f func() error) error {
	if name == "" {
		return f()
	}
	part := name + ".part"
	w, err := os.Create(part)
	if err != nil {
		return fmt.Errorf("write export: %w", err)
	}
	cmd.SetOut(w)
	err = f()
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		_ = os.Remove(part)
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// file prints the CSV of a question, page after page with one header.
func (g *global) file(cmd *cobra.Command, path string, q url.Values) error {
	if g.json {
		return usageError{fmt.Errorf("--json and CSV exclude each other")}
	}
	for first := true; ; first = false {
		next, err := g.filePage(cmd, path, q, first)
		if err != nil || next == "" || q.Has("limit") {
			return err
		}
		q.Set("cursor", next)
	}
}

func (g *global) filePage(cmd *cobra.Command, path string, q url.Values, first bool) (next string, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), exportTimeout)
	defer cancel()
	resp, err := g.send(ctx, http.MethodGet, path, q, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("read answer of %s: %w", path, err)
	}
	if !first {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	if _, err := cmd.OutOrStdout().Write(data); err != nil {
		return "", fmt.Errorf("write CSV: %w", err)
	}
	link, _, _ := strings.Cut(strings.TrimPrefix(resp.Header.Get("Link"), "<"), ">")
	u, err := url.Parse(link)
	if err != nil {
		return "", fmt.Errorf("read next page of %s: %w", path, err)
	}
	return u.Query().Get("cursor"), nil
}
