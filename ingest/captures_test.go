package ingest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

type bill struct {
	Setup, Scenario, Comment string
	Billed                   []struct {
		ID, Provider, Model string
		Tokens              map[string]uint64
	}
}

// captured calls spans or logs with each request of a capture.
func captured(t *testing.T, file string, spans func(ptrace.Traces), logs func(plog.Logs)) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), `{"resourceLogs"`) {
			ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(lines.Bytes())
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			logs(ld)
			continue
		}
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(lines.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		spans(td)
	}
}

func firstSpan(td ptrace.Traces) int64 {
	return int64(td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).EndTimestamp())
}

func firstLog(ld plog.Logs) int64 {
	r := ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
	return int64(max(r.Timestamp(), r.ObservedTimestamp()))
}

// TestCaptures reads what real instrumentations sent against a scripted provider
// whose bill is known, and compares tokens and money with the bill. Where an
// emitter loses information the golden says what is left, and the flags that
// say so.
func TestCaptures(t *testing.T) {
	files, err := filepath.Glob("dialect/testdata/captures/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal("no captures: run make captures", err)
	}
	sort.Strings(files)
	var out strings.Builder
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		b := newBench(t)
		first := int64(0)
		captured(t, file, func(td ptrace.Traces) {
			if first == 0 {
				first = firstSpan(td)
			}
			b.now = max(b.now, first+1e9)
			b.add(td)
		}, func(ld plog.Logs) {
			if first == 0 {
				first = firstLog(ld)
			}
			b.now = max(b.now, first+1e9)
			calls, _, _ := b.reader.AppendLogs(nil, ld, b.from, b.now)
			b.calls(calls)
		})
		b.settle()
		data, err := os.ReadFile(strings.TrimSuffix(file, ".jsonl") + ".bill.json")
		if err != nil {
			t.Fatal(err)
		}
		var bl bill
		if err := json.Unmarshal(data, &bl); err != nil {
			t.Fatal(err)
		}
		want, wantCost := schema.Tokens{}, schema.Sum{}
		for _, x := range bl.Billed {
			tok := schema.Tokens{}
			for i, n := range schema.TokenNames {
				*tok.Fields()[i] = x.Tokens[n]
			}
			for i, v := range tok.Fields() {
				*want.Fields()[i] += *v
			}
			c := schema.Call{Tenant: "t", Provider: x.Provider, Model: x.Model, Start: first}
			var p schema.Posting
			if tok != (schema.Tokens{}) {
				b.pricer.Price(&c, &tok, schema.UsageKnown, schema.KindModel, &p)
				wantCost.Add(p.Cost, 1)
			}
		}
		got := b.totals()
		fmt.Fprintf(&out, "%s\n  billed  %s USD  %s\n  read    %s USD  %s  calls %d+%d tools %d retries %d hidden %d unknown %d unpriced %d\n", name, wantCost, tokenString(want), got.cost, tokenString(got.tokens), got.model, got.fallbacks, got.tool, got.retries, got.hidden, got.unknown, got.unpriced)
		flags := map[string]int{}
		for _, e := range b.net() {
			if e.Posting.ModelCalls+e.Posting.Retries > 0 {
				for _, n := range e.AllFlags().Names() {
					flags[n]++
				}
			}
		}
		verdict := "exact"
		switch {
		case got.cost != wantCost:
			verdict = "DIFFERS"
		case got.tokens != want:
			verdict = "exact money, some detail missing"
		}
		names := make([]string, 0, len(flags))
		for n := range flags {
			names = append(names, n)
		}
		sort.Strings(names)
		fmt.Fprintf(&out, "  %s %s\n", verdict, strings.Join(names, " "))
	}
	golden := "testdata/captures.golden"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != out.String() {
		t.Fatalf("captures are read differently; look at the difference and run UPDATE=1 go test ./ingest -run TestCaptures\n%s", diff(string(want), out.String()))
	}
}

func tokenString(t schema.Tokens) string {
	var parts []string
	for i, v := range t.Fields() {
		if *v > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", schema.TokenNames[i], *v))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, " ")
}

// diff shows the lines that are not in both.
func diff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	var b strings.Builder
	for i := range max(len(w), len(g)) {
		x, y := "", ""
		if i < len(w) {
			x = w[i]
		}
		if i < len(g) {
			y = g[i]
		}
		if x != y {
			fmt.Fprintf(&b, "-%s\n+%s\n", x, y)
		}
	}
	return b.String()
}
