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

// reconcileTimeout is how long the reading of a bill may take.
const reconcileTimeout = 30 * time.Minute

// bills are the forms of a provider's bill, and how they are sent.
var bills = map[string]string{"openai": "application/json", "anthropic": "application/json", "focus": "text/csv"}

func reconcileCommand(g *global) *cobra.Command {
	var from, to, asOf string
	var tenants []string
	var again bool
	c := &cobra.Command{Use: "reconcile openai|anthropic|focus FILE...", Short: "Lay a provider's bill beside what was booked, by UTC day and model, and keep the result",
		Long: "Lay a provider's bill beside what was booked, by UTC day and model, and keep the result.\n\nopenai takes pages of GET /v1/organization/costs with group_by[]=line_item, anthropic those of GET /v1/organizations/cost_report with\n" +
			"group_by[]=description, both with bucket_width=1d and perhaps pages of the usage report, which knows tokens, behind them; focus takes a\nFOCUS CSV, version 1.0 to 1.2. Several files are read as one, - is standard input. A bill in another currency is converted at the\nrates of fx.files, day by day. The key must be an admin's, for every tenant.",
		Args: cobra.MinimumNArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
			typ, ok := bills[args[0]]
			if !ok {
				return usageError{fmt.Errorf("no bill %q; want openai, anthropic or focus", args[0])}
			}
			if args[0] == "focus" && len(args) > 2 {
				return usageError{fmt.Errorf("a FOCUS file has one header; name one file")}
			}
			data, closeAll, err := concatenated(cmd.InOrStdin(), args[1:])
			if err != nil {
				return err
			}
			defer closeAll()
			q := url.Values{"source": args[:1], "tenant": tenants}
			for name, v := range map[string]string{"from": from, "to": to, "as_of": asOf} {
				if v != "" {
					q.Set(name, v)
				}
			}
			if again {
				q.Set("again", "true")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), reconcileTimeout)
			defer cancel()
			answer, err := g.call(ctx, http.MethodPost, "/api/v1/reconcile", q, upload{typ, data})
			if err != nil {
				return err
			}
			return g.show(cmd, answer, printReconciliation)
		}}
	c.Flags().StringVar(&from, "from", "", "first UTC day (default: that of the file)")
	c.Flags().StringVar(&to, "to", "", "the day after the last")
	c.Flags().StringArrayVar(&tenants, "tenant", nil, "`tenant` whose account is billed (repeatable; default: every tenant)")
	c.Flags().StringVar(&asOf, "as-of", "", "compare with what was known at the end of a UTC day, or before an instant")
	c.Flags().BoolVar(&again, "again", false, "compare a file that was compared before with what is known now")
	c.AddCommand(reconcileShowCommand(g))
	return c
}

// concatenated reads files one after the other.
func concatenated(stdin io.Reader, names []string) (io.Reader, func(), error) {
	var files []*os.File
	closeAll := func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	var list []io.Reader
	for _, name := range names {
		if name == "-" {
			list = append(list, stdin)
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("read bill: %w", err)
		}
		files = append(files, f)
		if st, err := f.Stat(); err == nil && st.IsDir() {
			closeAll()
			return nil, nil, usageError{fmt.Errorf("%s is a directory; name the files of the bill", name)}
		}
		list = append(list, f)
	}
	return io.MultiReader(list...), closeAll, nil
}

func reconcileShowCommand(g *global) *cobra.Command {
	var csv bool
	c := &cobra.Command{Use: "show [ID]", Short: "A comparison with a bill, or which there are", Args: cobra.MaximumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		q := url.Values{}
		if csv {
			q.Set("format", "csv")
		}
		if len(args) == 0 {
			return g.ask(cmd, "/api/v1/reconcile", q, func(w io.Writer, d map[string]any) error {
				return table(w, rowsOf(d, "reconciliations"), "id", "bill=source", "from", "to", "ours usd=ours_usd", "theirs usd=theirs_usd", "difference usd=difference_usd", "billed=theirs", "currency", "made=made_at", "by=made_by")
			})
		}
		q.Set("id", args[0])
		return g.ask(cmd, "/api/v1/reconcile", q, printReconciliation)
	}}
	c.Flags().BoolVar(&csv, "csv", false, "print CSV")
	return c
}

func printReconciliation(w io.Writer, d map[string]any) error {
	run, _ := d["reconciliation"].(map[string]any)
	rows := rowsOf(d, "rows")
	for _, r := range rows {
		if r["model"] == "" {
			r["model"] = r["item"]
		}
	}
	converted := run["currency"] != "USD"
	cols := []string{"day", "provider", "model", "ours usd=ours_usd", "theirs usd=theirs_usd", "difference usd=difference_usd", "priced=priced_usd", "only ours=only_ours_usd", "only theirs=only_theirs_usd", "rounding=rounding_usd", "price or volume=unsplit_usd", "ours may lack=error_usd", "split by=split_by"}
	if converted {
		cols = append(cols, "theirs "+strings.ToLower(cell(run["currency"]))+"=theirs", "rate=rate said")
		for _, r := range rows {
			if rate, ok := r["rate"].(map[string]any); ok {
				r["rate said"] = fmt.Sprintf("%s of %s in %s", cell(rate["usd"]), cell(rate["of"]), cell(rate["source"]))
			}
		}
	}
	if err := table(w, rows, cols...); err != nil {
		return err
	}
	fmt.Fprintf(w, "ours %s USD, theirs %s USD, difference %s USD: priced differently %s, only ours %s, only theirs %s, rounding %s, price or volume %s\n",
		cell(run["ours_usd"]), cell(run["theirs_usd"]), cell(run["difference_usd"]), cell(run["priced_usd"]), cell(run["only_ours_usd"]), cell(run["only_theirs_usd"]), cell(run["rounding_usd"]), cell(run["unsplit_usd"]))
	if converted {
		fmt.Fprintf(w, "the bill is %s %s, each day at the rate that stands there\n", cell(run["theirs"]), cell(run["currency"]))
	}
	if slices.ContainsFunc(rows, func(r map[string]any) bool { return r["split_by"] == "totals" }) {
		fmt.Fprintln(w, "split by totals: the bill does not tell cost and tokens of each kind there, so that another mix of kinds counts as price")
	}
	if slices.ContainsFunc(rows, func(r map[string]any) bool { return r["priced_usd"] == nil }) {
		fmt.Fprintln(w, "the bill has no tokens for some rows, so it is not known whether price or volume differs there; put the pages of the usage report behind it")
	}
	if d["truncated"] == true {
		fmt.Fprintf(w, "there are more rows: flyball reconcile show %s --csv\n", cell(run["id"]))
	}
	said := "kept as " + cell(run["id"])
	if d["already"] == true {
		said = "this file was compared before, as " + cell(run["id"]) + "; --again compares it with what is known now"
	}
	_, err := fmt.Fprintf(w, "%s: %s by %s, file %s\n", said, cell(run["made_at"]), cell(run["made_by"]), strings.TrimSpace(cell(run["sha256"])))
	return err
}
