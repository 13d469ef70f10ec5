package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flyball/flyball/cmd/app"
	"github.com/flyball/flyball/ingest/price"
	"github.com/flyball/flyball/schema"
)

func pricesCommand(g *global) *cobra.Command {
	c := &cobra.Command{Use: "prices", Short: "What calls cost, and why"}
	var provider string
	list := &cobra.Command{Use: "list", Short: "The price lines in force", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return g.ask(cmd, "/api/v1/prices", url.Values{"provider": {provider}}, func(w io.Writer, d map[string]any) error {
			for _, o := range rowsOf(d, "origins") {
				fmt.Fprintf(w, "# %s  %s  %s  %s rows\n", cell(o["name"]), cell(o["version"]), cell(o["at"]), cell(o["rows"]))
			}
			rows := rowsOf(d, "prices")
			for _, r := range rows {
				if pm, ok := r["per_million"].(map[string]any); ok {
					r["in"], r["out"], r["read"] = pm["input"], pm["output"], pm["cache_read"]
				}
			}
			return table(w, rows, "id", "input/1m=in", "cache read=read", "output=out")
		})
	}}
	list.Flags().StringVar(&provider, "provider", "", "one provider")
	c.AddCommand(list, explainPriceCommand(g), importPricesCommand(g))
	c.AddCommand(&cobra.Command{Use: "check", Short: "Models that were seen and have no price, with names that look like them", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return g.ask(cmd, "/api/v1/prices/check", nil, func(w io.Writer, d map[string]any) error {
			rows := rowsOf(d, "unpriced")
			now := false
			for _, r := range rows {
				r["near"] = strings.Trim(fmt.Sprint(r["nearest"]), "[]<nil>")
				now = now || r["price_exists_now"] == true
			}
			if err := table(w, rows, "tenant", "provider", "model", "calls", "price now=price_exists_now", "nearest names=near"); err != nil {
				return err
			}
			if now {
				fmt.Fprintln(w, "a price exists now for some of these: see what it changes with `flyball reprice --since DATE --dry-run`")
			}
			return nil
		})
	}})
	return c
}

// catalogue is the one the server would load from the same configuration.
func (g *global) catalogue() (*price.Catalogue, app.Config, error) {
	cfg, err := app.LoadConfig(g.config, os.Environ())
	if err != nil {
		return nil, cfg, err
	}
	cat, rejected, err := app.LoadPrices(cfg)
	for _, r := range rejected {
		fmt.Fprintln(os.Stderr, "not taken: "+r.String())
	}
	return cat, cfg, err
}

func explainPriceCommand(g *global) *cobra.Command {
	var tok schema.Tokens
	var units schema.Units
	var at, tier, tenant string
	var heard time.Duration
	c := &cobra.Command{Use: "explain PROVIDER MODEL", Short: "The price of a call, line by line", Args: cobra.ExactArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
		when := time.Now()
		if at != "" {
			var err error
			if when, err = time.Parse(time.RFC3339, at); err != nil {
				if when, err = time.Parse("2006-01-02", at); err != nil {
					return usageError{fmt.Errorf("--at %q: want RFC 3339 or a date", at)}
				}
			}
		}
		// Calls are recorded under the canonical name, so the question is asked under it.
		provider := schema.Provider(args[0])
		if provider == "" {
			return usageError{fmt.Errorf("provider %q is a framework or a word for none, which no call is billed by; name the host that bills, e.g. openai", args[0])}
		}
		if heard < 0 {
			return usageError{fmt.Errorf("--duration %s: want a length of at least 0", heard)}
		}
		units.Milliseconds = uint64(heard.Milliseconds())
		cat, _, err := g.catalogue()
		if err != nil {
			return err
		}
		q := price.Query{Tenant: tenant, Provider: provider, Model: args[1], Tier: strings.ToLower(tier), Start: when.UnixNano(), Kind: schema.KindModel, Usage: schema.UsageKnown, Tokens: &tok, Units: &units}
		r, steps := cat.Explain(&q)
		if r.Status == schema.CostUnpriced && tok == (schema.Tokens{}) && units == (schema.Units{}) && cat.Known(tenant, provider, args[1]) {
			return usageError{fmt.Errorf("%s/%s has a price; say how many tokens: --input, --output or another of flyball prices explain --help", provider, args[1])}
		}
		w := cmd.OutOrStdout()
		if g.json {
			out := map[string]any{"provider": provider, "model": args[1], "status": r.Status.String(), "cost_usd": nil, "exposure_usd": r.Exposure, "price_id": r.PriceID, "steps": steps, "flags": r.Flags.Names(), "currency": r.Currency, "amount": r.Amount}
			if r.Status == schema.CostPriced || r.Status == schema.CostFree {
				out["cost_usd"] = r.Cost
			}
			return json.NewEncoder(w).Encode(out)
		}
		if provider != args[0] {
			fmt.Fprintf(w, "provider %s is recorded as %s\n", args[0], provider)
		}
		if r.Status == schema.CostUnpriced {
			fmt.Fprintf(w, "%s/%s has no price at %s: unpriced, which is not free\n", provider, args[1], when.UTC().Format(time.RFC3339))
			if near := cat.Nearest(provider, args[1], 3); len(near) > 0 {
				fmt.Fprintf(w, "listed names that look like it: %s\n", strings.Join(near, ", "))
			}
			fmt.Fprintf(w, "a guard counts %s USD for it\n", r.Exposure)
			return nil
		}
		fmt.Fprintf(w, "price line %s\n", r.PriceID)
		for _, s := range steps {
			per := "/ 1,000,000 tokens"
			if s.Per != "1M" {
				per = "/ " + s.Per
			}
			fmt.Fprintf(w, "  %-15s %12d × %s %s = %s %s\n", s.Component, s.Quantity, s.Rate, per, s.Amount, s.Note)
		}
		fmt.Fprintf(w, "  %-15s %s USD (%s)\n", "total", r.Cost, r.Status)
		if r.Currency != "USD" && r.Currency != "" {
			fmt.Fprintf(w, "  charged as %s %s\n", r.Amount, r.Currency)
		}
		if n := r.Flags.Names(); len(n) > 0 {
			fmt.Fprintf(w, "  note: %s\n", strings.Join(n, ", "))
		}
		return nil
	}}
	f := c.Flags()
	for i, n := range schema.TokenNames {
		if n == "reasoning" {
			continue
		}
		name := strings.ReplaceAll(n, "_", "-")
		usage := n + " tokens"
		if n == "input" {
			usage = "uncached input tokens"
		}
		f.Uint64Var(tok.Fields()[i], name, 0, usage)
	}
	f.Uint64Var(&units.WebSearches, "web-searches", 0, "web searches")
	f.Uint64Var(&units.Images, "images", 0, "images")
	f.Uint64Var(&units.Pages, "pages", 0, "pages")
	f.DurationVar(&heard, "duration", 0, "length of what is heard or shown, e.g. 90s")
	f.StringVar(&at, "at", "", "instant of the call (default: now)")
	f.StringVar(&tier, "tier", "", "service tier")
	f.StringVar(&tenant, "tenant", "", "tenant")
	return c
}

func importPricesCommand(*global) *cobra.Command {
	return &cobra.Command{Use: "import FILE", Short: "Check a price file (own YAML, genai-prices or LiteLLM JSON) and say what would be taken", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		cat, rejected, err := price.Load(price.Options{NoEmbedded: true, Files: args})
		if err != nil {
			return err
		}
		for _, r := range rejected {
			fmt.Fprintln(cmd.ErrOrStderr(), "not taken: "+r.String())
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%d price lines would be taken, %d rows not as they are written; add the file to prices.files to use it\n", len(cat.List("")), len(rejected))
		if len(rejected) > 0 {
			return fmt.Errorf("%d rows of %s are not taken as they are written, for the reasons above", len(rejected), args[0])
		}
		return nil
	}}
}

func repriceCommand(g *global) *cobra.Command {
	var since, tenant, model string
	var dry bool
	c := &cobra.Command{Use: "reprice", Short: "Price calls again with the prices of now; posts corrections", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		at, err := time.Parse(time.RFC3339, since)
		if err != nil {
			if at, err = time.Parse("2006-01-02", since); err != nil {
				return usageError{fmt.Errorf("--since %q: want RFC 3339 or a date", since)}
			}
		}
		data, err := g.call(cmd.Context(), http.MethodPost, "/api/v1/reprice", nil, map[string]any{"since": at, "tenant": tenant, "model": model, "dry_run": dry})
		if err != nil {
			return err
		}
		if g.json {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(data)))
			return err
		}
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			return err
		}
		verb := "posted"
		if dry {
			verb = "would post"
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s corrections of %v lines: %v USD becomes %v USD, a change of %v USD\n", verb, m["lines"], m["before_usd"], m["after_usd"], m["change_usd"])
		return err
	}}
	f := c.Flags()
	f.StringVar(&since, "since", "", "calls that started at or after this")
	f.StringVar(&tenant, "tenant", "", "one tenant")
	f.StringVar(&model, "model", "", "traces that used this model")
	f.BoolVar(&dry, "dry-run", false, "show the money, post nothing")
	return c
}
