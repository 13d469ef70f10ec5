package app

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/enforce/limiter"
	"github.com/flyball/flyball/query/console"
)

// browser runs the console's browser tests against services.
type browser struct {
	t        *testing.T
	chromium string
	shots    string
}

// newBrowser skips the test where Chromium or what npm installs is missing, unless CI
// is set: there everything has to be tested.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	need := t.Skipf
	if os.Getenv("CI") != "" {
		need = t.Fatalf
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		need("no chromium (Debian has a package of that name): %v", err)
	}
	if _, err := os.Stat("../../query/console/node_modules/playwright-core"); err != nil || console.Files() == nil {
		need("the console is not built: make console")
	}
	return &browser{t, chromium, t.ArtifactDir()}
}

// run plays a scenario of browser.mjs. Each line that it prints is a check.
func (b *browser) run(scenario, url string, facts map[string]any) {
	b.t.Helper()
	facts["url"], facts["chromium"], facts["shots"], facts["scenario"] = url, b.chromium, b.shots, scenario
	text, err := json.Marshal(facts)
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.CommandContext(b.t.Context(), "node", "../../query/console/test/browser.mjs")
	cmd.Stdin = strings.NewReader(string(text))
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	done := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch word, rest, _ := strings.Cut(lines.Text(), " "); word {
		case "fail":
			b.t.Errorf("%s: %s", scenario, rest)
		case "done":
			done = true
		default:
			b.t.Logf("%s: %s", scenario, lines.Text())
		}
	}
	if err := cmd.Wait(); err != nil || !done {
		b.t.Errorf("%s: the browser did not come to its end: %v", scenario, err)
	}
}

// tale is a trace that is told span by span.
type tale struct {
	td    ptrace.Traces
	spans ptrace.SpanSlice
	trace pcommon.TraceID
	now   time.Time
	n     uint64
}

func newTale(id uint64, tenant string) *tale {
	x := &tale{td: ptrace.NewTraces(), now: today(30 * time.Minute).Truncate(time.Second)}
	binary.BigEndian.PutUint64(x.trace[:], 0xc0)
	binary.BigEndian.PutUint64(x.trace[8:], id)
	rs := x.td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "agent")
	rs.Resource().Attributes().PutStr("tenant.id", tenant)
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("tale")
	x.spans = ss.Spans()
	return x
}

// tell adds a span of that length below up; attributes are names and values in turn.
func (x *tale) tell(up pcommon.SpanID, name string, d time.Duration, attributes ...any) pcommon.SpanID {
	x.n++
	sp := x.spans.AppendEmpty()
	var id pcommon.SpanID
	binary.BigEndian.PutUint64(id[:], binary.BigEndian.Uint64(x.trace[8:])<<32|x.n)
	sp.SetTraceID(x.trace)
	sp.SetSpanID(id)
	sp.SetParentSpanID(up)
	sp.SetName(name)
	sp.SetKind(ptrace.SpanKindClient)
	sp.SetStartTimestamp(pcommon.NewTimestampFromTime(x.now))
	x.now = x.now.Add(d)
	sp.SetEndTimestamp(pcommon.NewTimestampFromTime(x.now))
	for i := 0; i < len(attributes); i += 2 {
		name := attributes[i].(string)
		if name == "error.type" {
			sp.Status().SetCode(ptrace.StatusCodeError)
		}
		switch v := attributes[i+1].(type) {
		case string:
			sp.Attributes().PutStr(name, v)
		case int:
			sp.Attributes().PutInt(name, int64(v))
		}
	}
	return id
}

func (x *tale) root(workflow, user, feature string, more ...any) pcommon.SpanID {
	id := x.tell(pcommon.SpanID{}, "invoke_agent "+workflow, time.Millisecond, append([]any{"gen_ai.operation.name", "invoke_agent", "gen_ai.agent.name", workflow, "gen_ai.workflow.name", workflow, "user.id", user, "app.feature", feature}, more...)...)
	x.spans.At(x.spans.Len() - 1).SetKind(ptrace.SpanKindServer)
	return id
}

func (x *tale) chat(up pcommon.SpanID, model string, input int, more ...any) pcommon.SpanID {
	at := []any{"gen_ai.operation.name", "chat", "gen_ai.provider.name", "openai", "gen_ai.request.model", model}
	if input > 0 {
		at = append(at, "gen_ai.usage.input_tokens", input, "gen_ai.usage.output_tokens", 50)
	}
	return x.tell(up, "chat "+model, 700*time.Millisecond, append(at, more...)...)
}

func (x *tale) tool(up pcommon.SpanID, name string, more ...any) pcommon.SpanID {
	return x.tell(up, "execute_tool "+name, 90*time.Millisecond, append([]any{"gen_ai.operation.name", "execute_tool", "gen_ai.tool.name", name}, more...)...)
}

// end makes the root, the first span, last until now.
func (x *tale) end() ptrace.Traces {
	x.spans.At(0).SetEndTimestamp(pcommon.NewTimestampFromTime(x.now))
	return x.td
}

// TestConsole uses the console as people do, in a browser, over a service that is empty
// at first, then has runs, retries, hostile names, a guard that acts and a limiter.
func TestConsole(t *testing.T) {
	b := newBrowser(t)
	s := newService(t, "", withPolicy(t, `
guards:
  - {name: task-dollars, scope: [run], measure: cost, window: run, limit: "0.02", ladder: [{at: 80%, do: warn}, {at: 100%, do: terminate}], outcome: checkpoint, unpriced: ignore}
  - {name: feature-day, scope: [tenant, feature], measure: cost, window: day, limit: "1", ladder: [{at: 100%, do: soft_block}], outcome: upgrade, mode: warn, unpriced: ignore}
kill: {multiple: "3", floor: "50"}
`)...)
	s.start()
	s.drain()
	b.run("empty", s.url("http", ""), map[string]any{})

	follower := s.follow("gateway-1")
	const hostile = `"><img src=x onerror=alert(1)><script>alert(2)</script>`
	x := newTale(1, "acme")
	root := x.root("quote", "user-1", "sales")
	x.chat(root, "m-1", 0, "error.type", "429", "http.response.status_code", 429)
	x.now = x.now.Add(time.Second)
	x.chat(root, "m-1", 4000)
	x.tool(root, "crm.lookup", "error.type", "timeout", "gen_ai.tool.call.arguments", `{"c":1}`)
	x.chat(root, "m-1", 5000)
	tool := x.tool(root, "crm.lookup", "gen_ai.tool.call.arguments", `{"c":1}`)
	x.tell(tool, "SELECT customers", 8*time.Millisecond, "db.system.name", "postgresql")
	x.chat(root, "m-9-preview", 3000) // has no price
	x.chat(root, "m-1", 0)            // says no usage
	s.mustSend(x.end())
	x = newTale(2, hostile)
	root = x.root(hostile, hostile, hostile, "app.run.id", "run/2?x#y%20"+hostile)
	x.chat(root, "<b>"+hostile, 10)
	x.tool(root, hostile)
	x.chat(root, "m-1", 100)
	s.mustSend(x.end())
	x = newTale(3, "globex")
	root = x.root("research", "user-2", "reports")
	for range 8 {
		x.chat(root, "m-1", 4000)
		x.tool(root, "web.fetch")
	}
	s.mustSend(x.end())
	x = newTale(4, "globex")
	x.now = x.now.Add(-2 * time.Hour)
	up := x.root("crawl", "user-3", "crawler")
	for i := range 5000 {
		if i%50 == 0 {
			x.tool(up, fmt.Sprintf("step %d", i))
		} else {
			x.chat(up, "m-1", 1)
		}
	}
	s.mustSend(x.end())
	for i, tenant := range []string{"left", "right"} {
		x = newTale(6, tenant)
		x.n = uint64(i) * 100
		x.chat(x.root("split", "", ""), "m-1", 10)
		s.mustSend(x.end())
	}
	x = newTale(7, "dots")
	x.chat(x.root("split", "", "", "app.run.id", ".."), "m-1", 10)
	s.mustSend(x.end())
	x = newTale(5, "many")
	for i := range uint64(70) {
		binary.BigEndian.PutUint64(x.trace[8:], 100+i)
		x.chat(x.root("batch", "", ""), "m-1", 10)
	}
	s.mustSend(x.td)
	s.drain()
	eventually(t, "the limiter refuses the dear run", func() bool {
		return follower.Check(&limiter.Call{Tenant: "globex", TraceID: fmt.Sprintf("%016x%016x", 0xc0, 3)}).Guard == "task-dollars"
	})
	b.run("full", s.url("http", ""), map[string]any{"hostile": hostile, "quote": fmt.Sprintf("%016x%016x", 0xc0, 1), "odd": "run/2?x#y%20" + hostile, "dear": fmt.Sprintf("%016x%016x", 0xc0, 3), "crawl": fmt.Sprintf("%016x%016x", 0xc0, 4)})

	// What was done through the console is what the API knows.
	var done []string
	for _, e := range s.get("/enforcement")["events"].([]any) {
		m := e.(map[string]any)
		if m["actor"] == "local" {
			done = append(done, fmt.Sprint(m["kind"], " ", m["reason"]))
		}
	}
	for _, want := range []string{"kill smoke", "kill recovering", "kill over", "drill drill-", "release looked at it"} {
		if !strings.Contains(strings.Join(done, "\n"), want) {
			t.Errorf("no event %q; there are %q", want, done)
		}
	}
	if live := s.get("/kill"); live["on"] != false {
		t.Errorf("the kill switch was left on: %v", live)
	}
}

// TestConsoleQuestions asks what the console tells about load, waste and finance: of one
// run that was worked out by hand, then of many, with hostile names, calls of no known
// cost, a call that leaked, a closed month and a bill.
func TestConsoleQuestions(t *testing.T) {
	b := newBrowser(t)
	dir := t.TempDir()
	var files []string
	for name, list := range map[string]string{"tiered.yaml": tieredPrices, "plain.yaml": prices} {
		files = append(files, fmt.Sprintf("%q", filepath.Join(dir, name)))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newService(t, "", append(withPolicy(t, `
guards:
  - {name: task, scope: [run], match: {tenant: leaky}, measure: cost, window: run, limit: "0.001", ladder: [{at: 100%, do: terminate}], outcome: checkpoint}
`), "FLYBALL_PRICES__FILES=["+strings.Join(files, ",")+"]", `FLYBALL_ATTRIBUTES__MODE=["app.mode"]`)...)
	s.start()
	s.mustSend(wasteful(t))
	s.drain()
	b.run("one", s.url("http", ""), map[string]any{})

	const hostile = `"><img src=x onerror=alert(1)><script>alert(2)</script>`
	const day = 24 * time.Hour
	now := time.Now().UTC()
	follower := s.follow("gateway-1")
	x := newTale(1, hostile)
	root := x.root(hostile, hostile, hostile)
	x.chat(root, "<b>"+hostile, 10)
	x.tool(root, hostile, "gen_ai.tool.call.arguments", `{"c":1}`, "gen_ai.tool.call.result", "[]")
	x.chat(root, "m-1", 100)
	s.mustSend(x.end())
	// Before the last hour: one request, with a call that has no price.
	x = newTale(2, "acme")
	x.now = now.Add(-100 * time.Minute)
	root = x.root("unpriced-flow", "user-1", "sales")
	x.chat(root, "m-1", 1000)
	x.chat(root, "m-9-preview", 1000)
	s.mustSend(x.end())
	x = newTale(3, "acme")
	root = x.root("unpriced-flow", "user-1", "sales")
	x.chat(root, "m-1", 3000)
	x.chat(root, "m-1", 5000)
	x.chat(root, "m-9-preview", 1000)
	x.chat(root, "m-1", 0)
	s.mustSend(x.end())
	for i := range uint64(60) {
		x = newTale(100+i, "many")
		root = x.root(fmt.Sprintf("flow-%02d", i), "", "")
		x.chat(root, "m-1", 10)
		s.mustSend(x.end())
	}
	// A run that crosses its limit, and a call of it that starts after the limiter knew.
	x = newTale(4, "leaky")
	root = x.root("leak", "", "")
	x.chat(root, "m-1", 2000)
	s.mustSend(x.end())
	eventually(t, "the limiter has acknowledged", func() bool {
		return follower.Check(&limiter.Call{Tenant: "leaky", TraceID: fmt.Sprintf("%016x%016x", 0xc0, 4)}).Guard == "task" &&
			s.counters()[`flyball_time_to_enforce_seconds_count{limiter="gateway-1"}`] == 1
	})
	late := newTale(4, "leaky")
	late.n, late.now = 50, time.Now()
	late.tell(root, "chat m-1", time.Millisecond, "gen_ai.operation.name", "chat", "gen_ai.provider.name", "openai", "gen_ai.request.model", "m-1", "gen_ai.usage.input_tokens", 10, "gen_ai.usage.output_tokens", 5)
	s.mustSend(late.td)
	eventually(t, "the leak is counted", func() bool { return s.counters()[`flyball_leaked_calls_total{kind="leak"}`] == 1 })
	// A month that is closed as of yesterday, which did not know of its one call yet.
	month := time.Date(now.Year(), now.Month()-1, 1, 0, 0, 0, 0, time.UTC)
	x = newTale(5, hostile)
	x.now = month.Add(2 * day)
	x.chat(x.root("past", "", ""), "m-1", 2000)
	s.mustSend(x.end())
	s.drain()
	s.post("/close", map[string]any{"period": month.Format("2006-01")}, http.StatusOK)
	billed := now.Truncate(day).Add(-2 * day)
	s.post("/reconcile?source=openai", json.RawMessage(fmt.Sprintf(`{"object":"page","data":[{"object":"bucket","start_time":%d,"end_time":%d,"results":[{"object":"organization.costs.result","amount":{"value":1.5,"currency":"usd"},"line_item":%q,"project_id":null}]}],"has_more":false,"next_page":null}`,
		billed.Unix(), billed.Add(day).Unix(), hostile)), http.StatusOK)
	b.run("many", s.url("http", ""), map[string]any{"hostile": hostile, "month": month.AddDate(0, -1, 0).Format("2006-01"), "billed": billed.AddDate(0, 0, -1).Unix()})
}

// TestConsoleKeys meets a service that wants keys.
func TestConsoleKeys(t *testing.T) {
	b := newBrowser(t)
	secret := map[string]string{}
	var keys []string
	for name, rest := range map[string]string{"all": `role: admin, tenants: "*"`, "one": `role: read, tenant: acme`, "sender": `role: ingest, tenant: acme`} {
		secret[name] = "fb_" + name + strings.Repeat("x", 40)
		sum := sha256.Sum256([]byte(secret[name]))
		keys = append(keys, fmt.Sprintf(`{name: %s, sha256: "%s", %s}`, name, hex.EncodeToString(sum[:]), rest))
	}
	file := filepath.Join(t.TempDir(), "flyball.yaml")
	if err := os.WriteFile(file, []byte("keys: ["+strings.Join(keys, ", ")+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newService(t, "", configEnv+"="+file)
	s.start()
	s.drain()
	b.run("keys", s.url("http", ""), map[string]any{"all": secret["all"], "one": secret["one"], "sender": secret["sender"]})
	res, err := client.Get(s.url("http", "/"))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK || strings.Contains(res.Header.Get("Content-Security-Policy"), "unsafe") || res.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("console without a key: %s %v", res.Status, res.Header)
	}
	if dir, err := filepath.Glob(filepath.Join(b.shots, "*.png")); err != nil || len(dir) == 0 {
		t.Errorf("no screenshots in %s: %v", b.shots, err)
	}
}
