package ingest

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

// captureCalls are the calls of one recorded scenario, as the dialects read them.
func captureCalls(t *testing.T, b *bench, file string) []schema.Call {
	t.Helper()
	var calls []schema.Call
	captured(t, file, func(td ptrace.Traces) {
		if len(calls) == 0 {
			b.now = firstSpan(td) + 1e9
		}
		calls, _ = b.reader.AppendSpans(calls, td, b.from, b.now)
	}, func(ld plog.Logs) {
		if len(calls) == 0 {
			b.now = firstLog(ld) + 1e9
		}
		calls, _, _ = b.reader.AppendLogs(calls, ld, b.from, b.now)
	})
	return calls
}

// result is the net journal without what only says when it was posted.
func (b *bench) result() string {
	var out []string
	for _, e := range b.net() {
		e.Version, e.RecordedAt = 0, 0
		out = append(out, fmt.Sprintf("%+v", e))
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// resume gives b an assembler that knows only what the log holds.
func (b *bench) resume() {
	b.t.Helper()
	payloads := b.payloads
	b.asm = b.assembler()
	for _, p := range payloads {
		if err := b.asm.Replay(p, 0, b.now); err != nil {
			b.t.Fatal(err)
		}
	}
}

// Whatever the order of arrival, the split into requests, repetition and restarts
// in between: once all spans are here and settled, the journal's net lines are
// the same.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	files, err := filepath.Glob("dialect/testdata/captures/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal("no captures", err)
	}
	r := rand.New(rand.NewPCG(7, 11))
	for i, file := range files {
		if testing.Short() && i%5 != 0 {
			continue
		}
		straight := newBench(t)
		calls := captureCalls(t, straight, file)
		straight.calls(calls)
		straight.settle()
		want := straight.result()
		for round := range 4 {
			b := newBench(t)
			b.now = straight.now - 3*6e9
			order := r.Perm(len(calls))
			for at := 0; at < len(order); {
				n := min(1+r.IntN(3), len(order)-at)
				batch := make([]schema.Call, 0, n)
				for _, k := range order[at : at+n] {
					batch = append(batch, calls[k])
				}
				b.calls(batch)
				if r.IntN(4) == 0 {
					b.calls(batch) // the exporter tries again
				}
				if round%2 == 1 && r.IntN(3) == 0 {
					b.resume()
				}
				if round == 3 && r.IntN(4) == 0 {
					b.settle()
				}
				at += n
			}
			b.settle()
			if got := b.result(); got != want {
				t.Fatalf("%s, round %d, order %v:\n%s", filepath.Base(file), round, order, lineDiff(want, got))
			}
		}
	}
}

func lineDiff(want, got string) string {
	w, g := map[string]bool{}, map[string]bool{}
	for _, l := range strings.Split(want, "\n") {
		w[l] = true
	}
	for _, l := range strings.Split(got, "\n") {
		g[l] = true
	}
	var b strings.Builder
	for l := range w {
		if !g[l] {
			b.WriteString("- " + l + "\n")
		}
	}
	for l := range g {
		if !w[l] {
			b.WriteString("+ " + l + "\n")
		}
	}
	return b.String()
}
