package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A file has one header and the rows of every page, is whole or not there, and a
// name with a line break in the first row costs no row.
func TestExportCSVFollowsPages(t *testing.T) {
	pages := map[string]string{"": "user,cost_usd\n\"a\nb\",1\n", "c1": "user,cost_usd\nc,2\n", "c2": "user,cost_usd\nd,3\n"}
	broken := false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if broken && q.Get("cursor") == "c2" {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"detail":"ask again"}`)
			return
		}
		if q.Get("format") != "csv" || q.Get("group_by") != "user" || r.URL.Path != "/api/v1/spend" {
			t.Errorf("asked for %s", r.URL)
		}
		if next := map[string]string{"": "c1", "c1": "c2"}[q.Get("cursor")]; next != "" {
			w.Header().Set("Link", "</api/v1/spend?cursor="+next+">; rel=\"next\"")
		}
		fmt.Fprint(w, pages[q.Get("cursor")])
	}))
	defer srv.Close()
	run := func(args ...string) (string, error) {
		g := &global{server: srv.URL}
		root := &cobra.Command{Use: "flyball", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(exportCommand(g), spendCommand(g))
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(args)
		err := root.Execute()
		return out.String(), err
	}
	const all = "user,cost_usd\n\"a\nb\",1\nc,2\nd,3\n"
	f := func(want string, args ...string) {
		t.Helper()
		if got, err := run(args...); err != nil || got != want {
			t.Errorf("%v: got %q and %v, want %q", args, got, err, want)
		}
	}
	f(all, "export", "csv", "spend", "--by", "user")
	f(all, "spend", "--csv", "--by", "user")
	f(pages[""], "spend", "--csv", "--by", "user", "--limit", "1")
	name := filepath.Join(t.TempDir(), "spend.csv")
	f("", "export", "csv", "spend", "--by", "user", "--out", name)
	if got, err := os.ReadFile(name); err != nil || string(got) != all {
		t.Errorf("file: got %q and %v", got, err)
	}
	if _, err := run("export", "csv", "guards"); err == nil || !strings.Contains(err.Error(), "want one of spend, amplification") {
		t.Errorf("an unknown question: %v", err)
	}
	broken = true
	if _, err := run("export", "csv", "spend", "--by", "user", "--out", name+"2"); err == nil || !strings.Contains(err.Error(), "ask again") {
		t.Errorf("a page that fails: %v", err)
	}
	if left, _ := filepath.Glob(name + "2*"); len(left) > 0 {
		t.Errorf("a part of a file is left: %v", left)
	}
}

func TestMoversPrintTheReasons(t *testing.T) {
	var b strings.Builder
	row := func(tenant string) map[string]any {
		return map[string]any{"tenant": tenant, "before_usd": "1", "after_usd": "3", "change_usd": "2", "main": "mix", "effects": map[string]any{"volume": "0.5", "mix": "1.5"}}
	}
	if err := printMovers(&b, map[string]any{"rows": []any{row("t-1")}, "total": row(""), "base_from": "a", "base_to": "b"}, "tenant"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(got, "t-1 1 3 2 mix 0.5 - - 1.5 - - -") || !strings.HasSuffix(got, "from 1 to 3 USD, mostly by mix; compared with a to b") {
		t.Errorf("got %s", got)
	}
}

// In another currency the change is told in it, with what the rate did.
func TestMoversPrintAnotherCurrency(t *testing.T) {
	var b strings.Builder
	side := func(cost string) map[string]any { return map[string]any{"cost": cost, "cost_usd": "9"} }
	row := func() map[string]any {
		return map[string]any{"tenant": "t-1", "before": side("2.4"), "after": side("2"), "change": "-0.4", "change_main": "exchange", "change_effects": map[string]any{"volume": "2.4", "exchange": "-2.8"}}
	}
	err := printMovers(&b, map[string]any{"rows": []any{row()}, "total": row(), "currency": "EUR", "base_from": "a", "base_to": "b", "rates": []any{map[string]any{"source": "ecb.csv", "carried": true}}}, "tenant")
	got := strings.Join(strings.Fields(b.String()), " ")
	if want := "TENANT BEFORE EUR AFTER EUR CHANGE EUR MOSTLY VOLUME AMPLIFICATION RETRIES MIX TOKENS PRICE EXCHANGE OTHER t-1 2.4 2 -0.4 exchange 2.4 - - - - - -2.8 - from 2.4 to 2 EUR, mostly by exchange; compared with a to b rates of 1 days from ecb.csv, 1 of them that of an earlier day"; err != nil || got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A name that would move the cursor, or look like another, is shown as what it is.
func TestNamesDoNotSteerTheTerminal(t *testing.T) {
	for in, want := range map[string]string{"quote v2": "quote v2", "a\x1b[2Jb": `"a\x1b[2Jb"`, "two\nlines\there": `"two\nlines\there"`, "\u202egnp.exe": `"\u202egnp.exe"`, "Zoë ✓": "Zoë ✓", "": "-"} {
		if got := cell(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}
