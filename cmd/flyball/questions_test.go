package main

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/gin-gonic/gin"
	"github.com/spf13/cobra"

	"github.com/flyball/flyball/query"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/schematest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	schematest.Main(m)
}

// Every column of a table is a field of the real answer, and so is each that stands below.
func TestTablesHaveTheAnswersFields(t *testing.T) {
	e := schematest.Open(t)
	at := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	c := schema.NewColumns()
	var root schema.RunInfo
	for i, kind := range []schema.Kind{schema.KindModel, schema.KindTool, schema.KindModel} {
		x := schema.Entry{Sign: 1, Version: 1, RecordedAt: at.UnixMicro()}
		x.Tenant, x.Trace, x.Span, x.Start, x.Duration, x.Kind = "t-1", schema.TraceID{15: 1}, schema.SpanID{7: byte(i + 1)}, at.Add(time.Duration(i)*time.Second).UnixNano(), int64(time.Second), kind
		x.Posting.Kind, x.Posting.Attempt, x.Posting.Identity[schema.Run], x.Posting.Identity[schema.Mode] = kind, 1, "r", "batch"
		if kind == schema.KindTool {
			x.Tool, x.PayloadType, x.PayloadBytes, x.Posting.ToolCalls = "fetch", "html", 400, 1
		} else {
			x.Provider, x.Model, x.Usage = "openai", "m-5", schema.UsageKnown
			x.Posting.ModelCalls, x.Posting.Status, x.Posting.Cost, x.Posting.Tokens.Input = 1, schema.CostPriced, schema.Money(1e12), uint64(100*i+10)
		}
		c.Append(&x, 0)
		root = schema.RunInfo{Tenant: "t-1", RunID: "r", Version: schema.RootVersion | uint64(at.UnixMicro()), Start: at.UnixNano(), End: x.Start, Status: uint8(slices.Index(schema.RunStatusNames, "succeeded")), Identity: x.Posting.Identity}
	}
	if err := schema.SendRunInfo(t.Context(), e.Conn(), "runs", []schema.RunInfo{root}); err != nil {
		t.Fatal(err)
	}
	if err := c.Send(t.Context(), e.Conn(), "entries"); err != nil {
		t.Fatal(err)
	}
	r := gin.New()
	query.New(query.Options{Conn: func() driver.Conn { return e.Reader() }}).Mount(r)
	srv := httptest.NewServer(r)
	defer srv.Close()
	run := func(args ...string) string {
		t.Helper()
		root := &cobra.Command{Use: "flyball", SilenceErrors: true, SilenceUsage: true}
		g := &global{server: srv.URL}
		root.PersistentFlags().BoolVar(&g.json, "json", false, "")
		root.AddCommand(tableCommands(g)...)
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(append(args, "--from", "2026-03-10", "--to", "2026-03-11"))
		if err := root.Execute(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		return out.String()
	}
	for _, q := range tables {
		var answer map[string]any
		if err := json.Unmarshal([]byte(run(q.use, "--json")), &answer); err != nil {
			t.Fatalf("%s: %v", q.use, err)
		}
		rows := rowsOf(answer, "rows")
		if len(rows) == 0 {
			t.Errorf("%s: no row", q.use)
			continue
		}
		for _, c := range append(strings.Split(q.by, ","), q.columns...) {
			_, field, named := strings.Cut(c, "=")
			if !named {
				field = c
			}
			if _, ok := rows[0][field]; !ok {
				t.Errorf("%s: the answer has no %s", q.use, field)
			}
		}
		if text := run(q.use); q.after != nil && strings.Contains(strings.SplitN(text, "\n", 3)[2], " - ") {
			t.Errorf("%s prints what is not in the answer: %s", q.use, text)
		}
	}
	f := func(want string, args ...string) {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(run(args...)), "\n")
		if got := strings.Join(strings.Fields(lines[min(1, len(lines)-1)]), " "); got != want {
			t.Errorf("%v: got %s, want %s", args, got, want)
		}
	}
	f("2026-03-10T00:00:00Z 1 2 1 2 2 2 0 0", "load", "--by", "", "--interval", "1d")
	f("0 1 2 0 0 1 2 2 1 2000 0", "worked-after", "--of", "requests")
	f("fetch html 1 0 400 400 1 400 200 200", "payloads")
}

// What a finding says to do stands below the table.
func TestCoveragePrintsFindings(t *testing.T) {
	f := func(answer string, want ...string) {
		t.Helper()
		var d map[string]any
		if err := json.Unmarshal([]byte(answer), &d); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := printCoverage(&b, d); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
		if got := lines[1:]; strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(`{"rows":[],"findings":[]}`)
	f(`{"rows":[],"findings":[{"finding":"x","text":"Set this."},{"finding":"y","text":"Set that."}]}`, "", "Set this.", "", "Set that.")
}
