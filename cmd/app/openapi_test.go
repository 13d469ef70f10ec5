package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flyball/flyball/enforce/limiter"
	"github.com/flyball/flyball/schema"
)

// apiDocument is the document as far as tests read it.
type apiDocument struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		OperationID string
		Parameters  []struct{ Name, In string }
		Security    []map[string][]string
		RequestBody any
		Responses   map[string]any
	}
}

// TestDocumentedRoutes compares the document with what the router has.
func TestDocumentedRoutes(t *testing.T) {
	a := &App{reg: prometheus.NewRegistry(), addrs: map[string]string{}}
	h, err := a.router()
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, described, nil))
	var d apiDocument
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || d.OpenAPI != "3.1.0" {
		t.Fatalf("%v: %.200s", err, w.Body.String())
	}
	// What people look at, and files: no API.
	pages := func(path string) bool {
		return path == "/" || path == "/plain" || !strings.HasPrefix(path, "/api/") && !slices.Contains([]string{"/livez", "/readyz", "/metrics"}, path)
	}
	seen := 0
	ids := map[string]string{}
	for _, r := range h.(*gin.Engine).Routes() {
		if pages(r.Path) {
			continue
		}
		parts := strings.Split(r.Path, "/")
		for i, p := range parts {
			if p != "" && strings.ContainsRune(":*", rune(p[0])) {
				parts[i] = "{" + p[1:] + "}"
			}
		}
		op, ok := d.Paths[strings.Join(parts, "/")][strings.ToLower(r.Method)]
		if !ok {
			t.Errorf("%s %s is not in the document: put it into the routes of its package", r.Method, r.Path)
			continue
		}
		seen++
		if other := ids[op.OperationID]; other != "" {
			t.Errorf("%s %s and %s are both %s", r.Method, r.Path, other, op.OperationID)
		}
		ids[op.OperationID] = r.Method + " " + r.Path
	}
	for path, ops := range d.Paths {
		seen -= len(ops)
		for method, op := range ops {
			if len(op.Responses) == 0 {
				t.Errorf("%s %s has no answers", method, path)
			}
		}
	}
	if seen != 0 {
		t.Errorf("the document has %d operations more than the router", -seen)
	}
}

// TestOpenAPI lets schemathesis ask the running service whatever the document allows,
// and what it does not: every answer has to be one that the document has.
func TestOpenAPI(t *testing.T) {
	needs(t, "python3")
	src, err := filepath.Abs(filepath.Join("testdata", "openapi"))
	if err != nil {
		t.Fatal(err)
	}
	dir := install(t, "openapi", src, []string{"requirements.txt"}, venv)

	secret := map[string]string{}
	var keys []string
	for _, k := range [][3]string{{"boss", "admin", `"tenants":"*"`}, {"sender", "ingest", `"tenant":"tenant-0"`}, {"limiter", "limiter", `"tenants":"*"`}} {
		s, sum := schema.NewSecret()
		secret[k[0]] = s
		keys = append(keys, fmt.Sprintf(`{"name":%q,"sha256":%q,"role":%q,%s}`, k[0], sum, k[1], k[2]))
	}
	list := filepath.Join(t.TempDir(), "list.yaml")
	if err := os.WriteFile(list, []byte(tieredPrices+strings.TrimPrefix(prices, "prices:\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	rates := filepath.Join(t.TempDir(), "rates.csv")
	if err := os.WriteFile(rates, []byte("date,currency,rate\n1999-01-04,EUR,1.1789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newService(t, "", append(withPolicy(t, `
kill: {multiple: "3", floor: "1000000", exempt: [critical]}
guards:
  - {name: tiny, scope: [tenant, user], measure: cost, window: day, limit: "0.0001", ladder: [{at: 80%, do: warn}, {at: 100%, do: soft_block}], outcome: pause}
  - {name: cap, scope: [tenant], measure: cost, window: month, limit: "1000", ladder: [{at: 100%, do: soft_block}], outcome: pause}
`), "FLYBALL_KEYS=["+strings.Join(keys, ",")+"]", `FLYBALL_PRICES__FILES=["`+list+`"]`, `FLYBALL_ATTRIBUTES__MODE=["app.mode"]`, `FLYBALL_FX__FILES=["`+rates+`"]`)...)
	s.start()
	// A limiter acknowledges, so that a drill does not wait for its whole time.
	l, err := limiter.New(limiter.Options{URL: s.url("http", ""), ID: "one", Key: secret["limiter"]})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Follow(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	eventually(t, "the limiter has a set", func() bool { _, ok := l.Version(); return ok })
	b := newBatch()
	for trace := uint64(1); trace < 20; trace++ {
		b.chat(trace, 1, 0, int64(100*trace))
		b.chat(trace, 2, 1, 50)
	}
	b.chat(20, 1, 0, 10).Attributes().PutStr("gen_ai.request.model", "nobody-knows-me")
	// What has no price for a batch, and a tool that says nothing of its answer.
	b.chat(21, 1, 0, 10).Attributes().PutStr("app.mode", "batch")
	b.run(21)
	wasteful(t).ResourceSpans().MoveAndAppendTo(b.td.ResourceSpans())
	r, err := http.NewRequest(http.MethodPost, s.url("otlp_http", "/v1/traces"), bytes.NewReader(encode(t, b.td)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("Authorization", "Bearer "+secret["sender"])
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatal("spans were not taken: ", res.Status)
	}
	s.drain()

	var d apiDocument
	if code, text := s.as("", http.MethodGet, strings.TrimPrefix(described, "/api/v1"), nil); code != http.StatusOK || json.Unmarshal([]byte(text), &d) != nil {
		t.Fatalf("the document: %d %.200s", code, text)
	}
	checkUnknown(t, s, &d, secret["boss"])
	const costs = `{"object":"page","data":[{"object":"bucket","start_time":1767225600,"end_time":1767312000,"results":[{"object":"organization.costs.result","amount":{"value":0.06,"currency":"usd"},"line_item":"m-1, input"}]}],"has_more":false,"next_page":null}`
	if code, text := s.as(secret["boss"], http.MethodPost, "/reconcile?source=openai", json.RawMessage(costs)); code != http.StatusOK {
		t.Errorf("a bill: %d %s", code, text)
	}
	// An answer without rows would agree with any description of them.
	for _, question := range []string{"load", "rate-limits", "worked-after", "worked-after?of=requests", "loops", "empty-polls", "payloads", "cache", "batch", "spend?currency=EUR", "enforcement/times"} {
		// The history of enforcement reaches the engine a moment after the spans do.
		eventually(t, question+" has rows", func() bool {
			var answer struct{ Rows []map[string]any }
			code, text := s.as(secret["boss"], http.MethodGet, "/"+question, nil)
			if code != http.StatusOK || json.Unmarshal([]byte(text), &answer) != nil {
				t.Fatalf("%s: %d %s", question, code, text)
			}
			return len(answer.Rows) > 0
		})
	}
	// Years in which nothing was recorded cost nothing: it was a statement for each hour.
	for _, path := range []string{"/guards/verify", "/guards/backtest"} {
		in := map[string]any{"since": "2015-01-02T00:00:00Z"}
		if path == "/guards/backtest" {
			in["text"] = "guards: []"
		}
		if code, text := s.as(secret["boss"], http.MethodPost, path, in); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}

	// One worker: two threads that parse Python source at once can fail in CPython 3.11 (SystemError, "AST constructor
	// recursion depth mismatch").
	args := []string{"run", s.url("http", described), "--header", "Authorization: Bearer " + secret["boss"],
		"--seed", "1", "--generation-deterministic", "--max-examples", "2", "--workers", "1", "--no-shrink", "--continue-on-failure", "--request-timeout", "30", "--warnings", "off",
		// Not positive_data_acceptance: no schema says that from is before to, that an id is
		// there, or that a text is a policy.
		"--checks", strings.Join([]string{"not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance", "response_headers_conformance", "negative_data_rejection", "unsupported_method", "allow_header_conformance", "ignored_auth"}, ","),
		// No operation links to another, so that stateful scenarios would have none; the few
		// examples are covered as well.
		"--phases", "coverage,fuzzing",
		// It does not end by itself.
		"--exclude-path", "/api/v1/directives/stream",
		// Their language is ClickHouse's: what is a good statement no schema says, and a bad
		// one may well be a failure of 500.
		"--exclude-path", "/api/v1/sql",
	}
	cmd := exec.Command(filepath.Join(dir, "venv", "bin", "python"), append([]string{"-m", "schemathesis.cli"}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "NO_PROXY=*", "NO_COLOR=1", "COLUMNS=200"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("schemathesis: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// checkUnknown asks every operation with a parameter that nobody knows: it is refused,
// and what the refusal lists is what the document has.
func checkUnknown(t *testing.T, s *service, d *apiDocument, secret string) {
	t.Helper()
	asked := 0
	for path, ops := range d.Paths {
		for method, op := range ops {
			if !strings.HasPrefix(path, "/api/") || path == described || path == "/api/v1/sql" {
				continue // health and metrics take what a probe adds, ClickHouse has parameters of its own
			}
			var want []string
			for _, p := range op.Parameters {
				if p.In == "query" {
					want = append(want, p.Name)
				}
			}
			slices.Sort(want)
			var body any
			if method == "post" {
				body = map[string]any{}
			}
			at := strings.NewReplacer("{", "", "}", "").Replace(strings.TrimPrefix(path, "/api/v1"))
			code, text := s.as(secret, strings.ToUpper(method), at+"?nobody_knows_me=1", body)
			var got struct{ Detail string }
			if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusBadRequest {
				t.Errorf("%s %s takes an unknown parameter: %d %s", method, path, code, text)
				continue
			}
			_, list, _ := strings.Cut(got.Detail, "known are ")
			var known []string
			if list != "" {
				known = strings.Split(list, ", ")
			}
			slices.Sort(known)
			if !slices.Equal(known, want) {
				t.Errorf("%s %s takes %q, the document has %q", method, path, known, want)
			}
			asked++
		}
	}
	if asked < 30 {
		t.Errorf("only %d operations were asked", asked)
	}
}

// TestUnknownRoutes: what is not there is refused as every failure is.
func TestUnknownRoutes(t *testing.T) {
	a := &App{reg: prometheus.NewRegistry(), addrs: map[string]string{}}
	h, err := a.router()
	if err != nil {
		t.Fatal(err)
	}
	f := func(method, path string, status int, allow string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		var got struct {
			Status        int
			Title, Detail string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != status || got.Status != status || got.Title == "" || got.Detail == "" || w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Allow") != allow {
			t.Errorf("%s %s: %d %v %s", method, path, w.Code, w.Header(), w.Body)
		}
	}
	f(http.MethodGet, "/api/v1/nothing", http.StatusNotFound, "")
	f(http.MethodPost, "/api/v2/spend", http.StatusNotFound, "")
	f(http.MethodDelete, "/api/v1/spend", http.StatusMethodNotAllowed, "GET")
	f(http.MethodTrace, "/api/v1/kill", http.StatusMethodNotAllowed, "GET, POST")
	f(http.MethodGet, "/api/v1/leases/x/settle", http.StatusMethodNotAllowed, "POST")
}
