package query

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/engine"
	"github.com/flyball/flyball/schema/schematest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	schematest.Main(m)
}

// noon is when the tests' calls start; entries are recorded a second later.
var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// during is the day of noon as parameters.
const during = "from=2026-03-10&to=2026-03-11"

// store is a database with the API on top of it.
type store struct {
	t    *testing.T
	e    *engine.Engine
	url  string
	o    Options
	api  *API
	sent int
}

func newStore(t *testing.T, change ...func(*Options)) *store {
	t.Helper()
	s := &store{t: t, e: schematest.Open(t)}
	s.o = Options{Conn: func() driver.Conn { return s.e.Reader() }, Write: func() driver.Conn { return s.e.Conn() }}
	for _, f := range change {
		f(&s.o)
	}
	r := gin.New()
	a := New(s.o)
	s.api = a
	a.Mount(r)
	if err := a.MountPage(r, Setup{GRPC: "127.0.0.1:4317", HTTP: "127.0.0.1:4318"}); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// post inserts entries as one chunk, and what they say about runs.
func (s *store) post(entries ...schema.Entry) {
	s.t.Helper()
	c := schema.NewColumns()
	var runs []schema.RunInfo
	index := map[[2]string]int{}
	for i := range entries {
		e := &entries[i]
		c.Append(e, uint64(s.sent))
		if e.Sign < 0 {
			continue
		}
		info := schema.RunInfo{Tenant: e.Tenant, RunID: e.Posting.Identity[schema.Run], Version: uint64(e.RecordedAt), Start: e.Start, End: e.Start + e.Duration, Identity: e.Posting.Identity}
		root := e.Parent == schema.SpanID{}
		if root {
			info.Version |= schema.RootVersion
			info.Name, info.Status = e.Name, uint8(slices.Index(schema.RunStatusNames, rootStatus(e.Failure.String())))
		}
		key := [2]string{info.Tenant, info.RunID}
		if j, known := index[key]; known {
			if root {
				runs[j] = info
			}
			continue
		}
		index[key] = len(runs)
		runs = append(runs, info)
	}
	s.sent++
	token := fmt.Sprintf("test-%d", s.sent)
	if err := schema.SendRunInfo(s.t.Context(), s.e.Conn(), token+"-runs", runs); err != nil {
		s.t.Fatal(err)
	}
	if err := c.Send(s.t.Context(), s.e.Conn(), token); err != nil {
		s.t.Fatal(err)
	}
}

// do sends a request and returns status and body.
func (s *store) do(path, key string) (int, http.Header, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// get asks and decodes a good answer.
func (s *store) get(path string) map[string]any {
	s.t.Helper()
	status, _, body := s.do(path, "")
	if status != http.StatusOK {
		s.t.Fatalf("get %s: %d %s", path, status, body)
	}
	return decode(s.t, body)
}

// refuse asks what must fail with the status and a detail that holds the words.
func (s *store) refuse(path string, status int, words string) {
	s.t.Helper()
	got, h, body := s.do(path, "")
	if got != status || h.Get("Content-Type") != "application/problem+json" || !strings.Contains(fmt.Sprint(decode(s.t, body)["detail"]), words) {
		s.t.Errorf("get %s: got %d %s, want %d with %q", path, got, body, status, words)
	}
}

func decode(t *testing.T, body string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("decode %s: %v", body, err)
	}
	return m
}

// list is a list of objects in an answer.
func list(v any) []map[string]any {
	var out []map[string]any
	for _, x := range v.([]any) {
		out = append(out, x.(map[string]any))
	}
	return out
}

// show prints fields of each row, so that a test can say what it wants as text.
func show(rows []map[string]any, fields ...string) string {
	var out []string
	for _, r := range rows {
		var cells []string
		for _, f := range fields {
			cells = append(cells, fmt.Sprint(r[f]))
		}
		out = append(out, strings.Join(cells, " "))
	}
	return strings.Join(out, "\n")
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	want = strings.TrimPrefix(want, "\n")
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// count reads a number straight from the database.
func (s *store) count(sql string) uint64 {
	s.t.Helper()
	var n uint64
	if err := s.e.Conn().QueryRow(context.Background(), sql).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// trace makes entries of one trace: ids are counted, starts are a second apart.
type trace struct {
	tenant, run string
	id          byte
	at          time.Time
	identity    schema.Identity
	n           byte
}

func newTrace(tenant, run string, id byte, dims map[schema.Dim]string) *trace {
	tr := &trace{tenant: tenant, run: run, id: id, at: noon}
	for d, v := range dims {
		tr.identity[d] = v
	}
	tr.identity[schema.Run] = run
	if run == "" {
		tr.identity[schema.Run] = schema.TraceID{15: id}.String()
	}
	return tr
}

// add makes an entry; the first is the root, the parent of the others.
func (tr *trace) add(kind schema.Kind, change ...func(*schema.Entry)) schema.Entry {
	tr.n++
	e := schema.Entry{Sign: 1, Version: 1, RecordedAt: tr.at.Add(time.Duration(tr.n+1) * time.Second).UnixMicro()}
	e.Tenant, e.Trace, e.Span = tr.tenant, schema.TraceID{15: tr.id}, schema.SpanID{7: tr.n}
	e.Start, e.Duration = tr.at.Add(time.Duration(tr.n)*time.Second).UnixNano(), int64(time.Second)
	e.Kind, e.Name = kind, kind.String()
	if tr.n > 1 {
		e.Parent = schema.SpanID{7: 1}
	}
	e.Posting.Kind, e.Posting.Attempt, e.Posting.Identity = kind, 1, tr.identity
	switch {
	case kind.ModelLike():
		e.Provider, e.Model, e.Usage = "openai", "m-5", schema.UsageKnown
		e.Posting.ModelCalls = 1
	case kind == schema.KindTool:
		e.Posting.ToolCalls = 1
	}
	for _, f := range change {
		f(&e)
	}
	return e
}

// priced sets the cost in USD.
func priced(usd string) func(*schema.Entry) {
	return func(e *schema.Entry) {
		m, err := schema.ParseMoney(usd)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		e.Posting.Status, e.Posting.Cost, e.Posting.Exposure, e.Posting.Amount, e.Posting.Currency = schema.CostPriced, m, m, m, "USD"
	}
}

func status(st schema.CostStatus) func(*schema.Entry) {
	return func(e *schema.Entry) { e.Posting.Status = st }
}

func model(name string) func(*schema.Entry) { return func(e *schema.Entry) { e.Model = name } }

func tool(name string) func(*schema.Entry) {
	return func(e *schema.Entry) { e.Tool, e.Name = name, name }
}

func failed(f schema.Failure) func(*schema.Entry) { return func(e *schema.Entry) { e.Failure = f } }

func wasted(e *schema.Entry) { e.Posting.Wasted = e.Posting.Cost }

// retry makes an attempt of a layer out of a logical call.
func retry(l schema.Layer, cause schema.Failure) func(*schema.Entry) {
	return func(e *schema.Entry) {
		p := &e.Posting
		p.Retries, p.ModelCalls, p.ToolCalls = p.ModelCalls+p.ToolCalls, 0, 0
		p.Layer, p.Cause, p.Attempt = l, cause, 2
	}
}

// hidden adds attempts without a span of their own.
func hidden(n uint32, cause schema.Failure) func(*schema.Entry) {
	return func(e *schema.Entry) { e.Posting.Hidden, e.Posting.HiddenCause = n, cause }
}

// cancel is the entry that takes e out.
func cancel(e schema.Entry) schema.Entry {
	e.Sign = -1
	e.RecordedAt += int64(time.Second / time.Microsecond)
	return e
}

// replaced is the pair that puts a changed version in e's place.
func replaced(e schema.Entry, change func(*schema.Entry)) []schema.Entry {
	out := cancel(e)
	e.Version++
	e.RecordedAt = out.RecordedAt
	change(&e)
	return []schema.Entry{out, e}
}

// worked is the trace that defines amplification: 4 model, 7 database, 3 CRM and
// 2 pricing calls, a retry inside the SDK and one by the agent, for one request: 18.
func worked(tenant, run string, id byte) []schema.Entry {
	tr := newTrace(tenant, run, id, map[schema.Dim]string{schema.Workflow: "quote", schema.WorkflowVersion: "7", schema.User: "u-1", schema.Feature: "sales"})
	out := []schema.Entry{tr.add(schema.KindRequest)}
	for i := range 4 {
		change := []func(*schema.Entry){priced("0.25")}
		if i == 0 {
			change = append(change, hidden(1, schema.RateLimited))
		}
		if i == 3 {
			change = append(change, model("m-5-mini"))
		}
		out = append(out, tr.add(schema.KindModel, change...))
	}
	for range 7 {
		out = append(out, tr.add(schema.KindTool, tool("SELECT customers")))
	}
	for i := range 3 {
		e := tr.add(schema.KindTool, tool("crm"))
		if i == 2 {
			e.Failure = schema.Timeout
		}
		out = append(out, e)
	}
	for range 2 {
		out = append(out, tr.add(schema.KindTool, tool("pricing")))
	}
	return append(out, tr.add(schema.KindTool, tool("crm"), retry(schema.LayerAgent, schema.Timeout)))
}
