package query

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/schema"
)

// questions are one path of every endpoint that answers from the store.
func questions(run string) []string {
	return []string{
		"/api/v1/calls?" + during, "/api/v1/calls?history=1&run_id=" + run, "/api/v1/calls?trace_id=" + schema.TraceID{15: 1}.String(),
		"/api/v1/runs?" + during, "/api/v1/runs/" + run, "/api/v1/run?run_id=" + run, "/api/v1/spend?" + during, "/api/v1/spend?group_by=tenant,user,model&interval=1h&" + during,
		"/api/v1/amplification?group_by=tenant,workflow&" + during, "/api/v1/amplification?group_by=tenant,model&" + during,
		"/api/v1/spend?as_of=2026-03-12T10:00:00Z&" + during, "/api/v1/spend?as_of=2026-03-12&group_by=tenant&" + during,
		"/api/v1/movers?group_by=tenant,workflow&" + during, "/api/v1/movers?group_by=tenant,model&" + during, "/api/v1/close", "/api/v1/close?period=2026-03", "/api/v1/export/focus?" + during,
		"/api/v1/retries?group_by=tenant,layer&" + during, "/api/v1/coverage?" + during, "/api/v1/load?group_by=tenant,model&interval=1h&" + during, "/api/v1/rate-limits?group_by=tenant,model&interval=1h&" + during,
		"/api/v1/worked-after?group_by=tenant,layer&" + during, "/api/v1/worked-after?of=requests&group_by=tenant&" + during, "/api/v1/loops?group_by=tenant,run_id&" + during, "/api/v1/empty-polls?group_by=tenant,tool&" + during,
		"/api/v1/payloads?group_by=tenant,tool&" + during, "/api/v1/cache?group_by=tenant,model&" + during, "/api/v1/batch?group_by=tenant,model&" + during, "/",
		"/api/v1/enforcement?" + days, "/api/v1/enforcement?kind=leak&" + days, "/api/v1/enforcement/leakage?group_by=tenant&" + days, "/api/v1/enforcement/times?group_by=tenant&" + days,
	}
}

func TestEmptyStore(t *testing.T) {
	s := newStore(t, func(o *Options) { o.Quarantined = func() uint64 { return 3 } })
	for _, path := range questions("none") {
		status, _, body := s.do(path, "")
		switch {
		case path == "/api/v1/runs/none" || path == "/api/v1/run?run_id=none":
			if status != http.StatusNotFound {
				t.Errorf("%s: got %d", path, status)
			}
		case strings.Contains(path, "/focus"):
			if status != http.StatusOK || !strings.HasPrefix(body, "BilledCost,") || strings.Count(body, "\n") != 1 {
				t.Errorf("%s: got %d %s, want a header alone", path, status, body)
			}
		case status != http.StatusOK || path != "/" && !strings.Contains(body, "[]"):
			t.Errorf("%s: got %d %s, want an empty list", path, status, body)
		}
	}
	m := s.get("/api/v1/spend")
	equal(t, "total", show([]map[string]any{m["total"].(map[string]any)}, "calls", "cost_usd", "complete"), "0 0 true")
	equal(t, "coverage", show([]map[string]any{s.get("/api/v1/coverage")["total"].(map[string]any)}, "unpriced", "late", "quarantined"), "0 0 3")
}

func TestWrongParametersSayWhatToDo(t *testing.T) {
	s := newStore(t)
	f := func(path, words string) {
		t.Helper()
		s.refuse("/api/v1/"+path, http.StatusBadRequest, words)
	}
	f("spend?grop_by=model", `unknown parameter "grop_by"; known are agent, as_of, criticality,`)
	f("spend?group_by=span_id", "want any of tenant, user")
	f("spend?interval=7m", "want one of 15m, 30m, 1h")
	f("spend?interval=", "want one of 15m")
	f("spend?limit=0", "from 1 to 10000")
	f("spend?limit=10001", "from 1 to 10000")
	f("spend?model=a&model=b", "stands twice")
	f("spend?tenant=", "tenant is empty")
	f("spend?session=x", "unknown parameter")
	f("calls?limit=1001", "from 1 to 1000")
	f("calls?limit=ten", "from 1 to 1000")
	f("calls?group_by=model", "unknown parameter")
	f("runs?model=m-5", "unknown parameter")
	f("runs/x?from=2026-01-01", "unknown parameter")
	f("amplification?group_by=session", "want any of")
	f("retries?group_by=retry_layer", "want any of tenant, layer, failure")
	f("coverage?group_by=model", "unknown parameter")
	f("load?as_of=2999-01-01", "has not ended")
	f("empty-polls?group_by=args_hash", "want any of tenant, user")
	f("payloads?tool_effect=read", "unknown parameter")
	f("batch?as_of=2999-01-01", "has not ended")
	f("worked-after?limit=10001", "from 1 to 10000")
}

func TestInjectionFindsNothing(t *testing.T) {
	s := newStore(t)
	s.post(worked("t-1", "r", 1)...)
	before := s.count("SELECT count() FROM journal") + s.count("SELECT count() FROM spend_15m")
	for i, attack := range []string{
		"cost DESC; DROP TABLE journal", "a'] = '' OR 1=1 --", "m\\' OR 1=1 --", "m\"}\nfake_metric 1", "{tenant_0:String}", "tenant`, (SELECT 1)", "\\N\x00\xff", "{{.Tenants}}",
	} {
		v := url.QueryEscape(attack)
		for _, path := range []string{"spend?group_by=", "spend?sort=", "spend?dir=", "spend?interval=", "spend?" + v + "=1&x=", "amplification?group_by=", "retries?group_by=", "load?interval=", "worked-after?of=", "payloads?group_by=", "cache?as_of=", "calls?cursor=", "calls?order=", "calls?trace_id=", "spend?from=", "spend?limit="} {
			if status, _, body := s.do("/api/v1/"+path+v, ""); status != http.StatusBadRequest {
				t.Errorf("%s%s: got %d %s", path, v, status, body)
			}
		}
		d := dimensions[1+i%(len(dimensions)-1)] // each of them meets one attack
		for _, path := range []string{"spend?" + d + "=", "calls?" + d + "=", "calls?run_id=", "amplification?workflow=", "amplification?failure=", "runs?user=", "retries?layer=", "coverage?provider=", "load?model=", "worked-after?model=", "empty-polls?tool=", "payloads?payload_type=", "cache?feature=", "spend?tenant="} {
			if _, _, body := s.do("/api/v1/"+path+v+"&"+during, ""); !strings.Contains(body, "[]") {
				t.Errorf("%s%q: got %s", path, attack, body)
			}
		}
		if status, _, _ := s.do("/api/v1/runs/"+url.PathEscape(attack), ""); status != http.StatusNotFound {
			t.Errorf("run %q: got %d", attack, status)
		}
	}
	if after := s.count("SELECT count() FROM journal") + s.count("SELECT count() FROM spend_15m"); after != before {
		t.Errorf("rows: got %d, had %d", after, before)
	}
	// What looks like an attack may be a name.
	tr := newTrace("t-'1", "r'\\\n\t\"", 9, map[schema.Dim]string{schema.User: "o'hara\\n", schema.Workflow: "\\N"})
	s.post(tr.add(schema.KindModel, priced("1"), model("m\t'{x:String}")))
	q := "&tenant=" + url.QueryEscape("t-'1") + "&" + during
	equal(t, "user", show(list(s.get("/api/v1/spend?group_by=user&user=" + url.QueryEscape("o'hara\\n") + q)["rows"]), "user", "cost_usd"), "o'hara\\n 1")
	equal(t, "model", show(list(s.get("/api/v1/spend?model=" + url.QueryEscape("m\t'{x:String}") + q)["rows"]), "cost_usd"), "1")
	equal(t, "workflow", show(list(s.get("/api/v1/amplification?workflow=" + url.QueryEscape("\\N") + q)["rows"]), "workflow"), "\\N")
	equal(t, "run", show(list(s.get("/api/v1/calls?run_id=" + url.QueryEscape("r'\\\n\t\"") + q)["calls"]), "cost_usd"), "1")
	if m := s.get("/api/v1/runs/" + url.PathEscape("r'\\\n\t\"")); m["cost_usd"] != "1" || m["run_id"] != "r'\\\n\t\"" {
		t.Errorf("report of a hostile run id: %v", m)
	}
	equal(t, "runs", show(list(s.get("/api/v1/runs?" + q[1:])["rows"]), "status"), "succeeded")
}

// keys returns a ring and the secrets of its keys by name.
func keys(t *testing.T, list ...schema.Key) (func() *schema.Keyring, map[string]string) {
	t.Helper()
	secrets := map[string]string{}
	for i := range list {
		secret, hash := schema.NewSecret()
		list[i].SHA256, secrets[list[i].Name] = hash, secret
	}
	ring, err := schema.NewKeyring(list)
	if err != nil {
		t.Fatal(err)
	}
	return func() *schema.Keyring { return ring }, secrets
}

func TestKeysBindTenants(t *testing.T) {
	ring, secret := keys(t,
		schema.Key{Name: "one", Role: schema.KeyRead, Tenant: "t-1"},
		schema.Key{Name: "both", Role: schema.KeyRead, Tenant: "t-1", Tenants: schema.TenantList{"t-2"}},
		schema.Key{Name: "all", Role: schema.KeyAdmin, Tenants: schema.TenantList{"*"}},
		schema.Key{Name: "sender", Role: schema.KeyIngest, Tenant: "t-1"},
		schema.Key{Name: "limiter", Role: schema.KeyLimiter, Tenant: "t-1"},
		schema.Key{Name: "old", Role: schema.KeyRead, Tenant: "t-1", Expires: time.Now().Add(-time.Second)},
	)
	sql := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s?%s %q", r.URL.Path, r.URL.RawQuery, r.Header.Get("Authorization"))
	})
	s := newStore(t, func(o *Options) { o.Keys, o.SQL = ring, sql })
	s.post(worked("t-1", "run-of-one", 1)...)
	s.post(worked("t-2", "run-of-two", 1)...)
	s.happen(happenings()...)
	files := []string{}
	for _, path := range []string{"calls?", "runs?", "spend?group_by=tenant,user&", "amplification?group_by=tenant&", "retries?group_by=tenant,layer&", "coverage?", "movers?", "enforcement?", "enforcement/leakage?group_by=tenant&", "enforcement/times?group_by=tenant&", "load?group_by=tenant&", "rate-limits?group_by=tenant&",
		"worked-after?group_by=tenant&", "loops?group_by=tenant,run_id&", "empty-polls?group_by=tenant&", "payloads?group_by=tenant&", "cache?group_by=tenant&", "batch?group_by=tenant&"} {
		files = append(files, "/api/v1/"+path+"format=csv&"+during)
	}
	files = append(files, "/api/v1/close?format=csv&period=2026-03")
	if code, body := s.send("/api/v1/close", secret["all"], `{"period":"2026-03"}`); code != http.StatusOK {
		t.Fatal(code, body)
	}
	for _, path := range slices.Concat(questions("run-of-two"), questions("run-of-one"), files) {
		if path == "/" {
			continue // its set-up text has no tenant in it
		}
		if _, _, body := s.do(path, secret["one"]); strings.Contains(body, `"t-2"`) || strings.Contains(body, "t-2,") || strings.Contains(body, "run-of-two") && !strings.Contains(body, "no run run-of-two") {
			t.Errorf("%s shows the other tenant to a key of one: %s", path, body)
		}
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		if status, _, body := s.do(path+sep+"tenant=t-2", secret["one"]); status != http.StatusForbidden || strings.Contains(body, "cost") {
			t.Errorf("%s of the other tenant: got %d %s", path, status, body)
		}
		if status, _, _ := s.do(path+sep+"tenant=t-1&tenant=t-2", secret["one"]); status != http.StatusForbidden {
			t.Errorf("%s of both tenants: got %d", path, status)
		}
		for _, name := range []string{"sender", "limiter"} {
			if status, _, body := s.do(path, secret[name]); status != http.StatusForbidden || !strings.Contains(body, "needs role read") {
				t.Errorf("%s with the key of a %s: got %d %s", path, name, status, body)
			}
		}
		for _, key := range []string{"", "nonsense", secret["old"]} {
			status, h, body := s.do(path, key)
			if status != http.StatusUnauthorized || h.Get("WWW-Authenticate") != "Bearer" || strings.Contains(body, "t-1") {
				t.Errorf("%s with the key %.4q: got %d %s", path, key, status, body)
			}
		}
		if status, _, _ := s.do(path+sep+"key="+secret["one"], ""); status != http.StatusUnauthorized {
			t.Errorf("%s with a key in the address: got %d", path, status)
		}
	}
	if status, _, _ := s.do("/", ""); status != http.StatusUnauthorized {
		t.Errorf("page without a key: got %d", status)
	}
	f := func(key, path, want string) {
		t.Helper()
		status, _, body := s.do(path, secret[key])
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, body)
		}
		equal(t, path+" of "+key, show(list(decode(t, body)["rows"]), "tenant"), want)
	}
	f("one", "/api/v1/spend?"+during, "t-1")
	f("both", "/api/v1/spend?"+during, "t-1\nt-2")
	f("both", "/api/v1/spend?tenant=t-2&"+during, "t-2")
	f("all", "/api/v1/spend?"+during, "t-1\nt-2")
	f("all", "/api/v1/runs?tenant=t-2&"+during, "t-2")
	f("one", "/api/v1/enforcement/leakage?group_by=tenant&"+days, "t-1")
	f("both", "/api/v1/enforcement/times?group_by=tenant&"+days, "t-1\nt-2")
	for key, want := range map[string]string{"one": "release directive", "both": "release directive directive", "all": "release kill directive directive"} {
		_, _, body := s.do("/api/v1/enforcement?"+days, secret[key])
		equal(t, "events of "+key, strings.Join(strings.Fields(show(list(decode(t, body)["events"]), "kind")), " "), want)
	}

	for key, want := range map[string]int{"all": 200, "one": 403, "both": 403, "sender": 403, "": 401} {
		if status, _, _ := s.do("/api/v1/sql?query=SELECT+1", secret[key]); status != want {
			t.Errorf("sql with the key %q: got %d, want %d", key, status, want)
		}
	}
	if _, _, body := s.do("/api/v1/sql?query=SELECT+1", secret["all"]); body != `/?query=SELECT+1 ""` {
		t.Errorf("sql is handed on as %s", body)
	}
	if status, _, _ := s.do("/api/v1/sql?query=SELECT+1&tenant=t-1", secret["all"]); status != http.StatusBadRequest {
		t.Errorf("sql with a tenant: got %d", status)
	}
}

func TestKeylessServesThisMachineOnly(t *testing.T) {
	r := gin.New()
	New(Options{Conn: func() driver.Conn { return nil }}).Mount(r)
	f := func(remote, host string, want int) {
		t.Helper()
		req := httptest.NewRequest(http.MethodGet, "/api/v1/spend", nil)
		req.RemoteAddr, req.Host = remote, host
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		if w.Code != want {
			t.Errorf("from %s to %s: got %d, want %d", remote, host, w.Code, want)
		}
	}
	f("127.0.0.1:5000", "127.0.0.1:8080", 503) // ClickHouse is not up
	f("127.0.0.1:5000", "localhost:8080", 503)
	f("127.0.0.1:5000", "localhost", 503)
	f("[::1]:5000", "[::1]:8080", 503)
	f("[::1]:5000", "[::1]", 503)
	f("192.0.2.1:5000", "127.0.0.1:8080", 401)
	f("[2001:db8::1]:5000", "localhost:8080", 401)
	f("", "localhost", 401)
	f("127.0.0.1:5000", "rebound.example:8080", 401)
	f("127.0.0.1:5000", "localhost.example", 401)
}

// Whatever a template forgets, the second line finds.
func TestSecondLineRefusesOtherTenants(t *testing.T) {
	s := newStore(t)
	for _, tenant := range []string{"t-1", "t-2"} {
		entries := worked(tenant, "r", 1)
		entries[1].Call.Flags = schema.FlagLate
		s.post(entries...)
	}
	s.happen(happenings()...)
	r := &request{tenants: []string{"t-1"}, conn: s.e.Reader(), from: noon.Add(-12 * time.Hour), to: noon.Add(12 * time.Hour)}
	if code, body := s.send("/api/v1/close", "", `{"period":"2026-03"}`); code != http.StatusOK {
		t.Fatal(code, body)
	}
	var hash uint64
	if err := s.e.Conn().QueryRow(t.Context(), "SELECT any(run_hash) FROM run_info").Scan(&hash); err != nil {
		t.Fatal(err)
	}
	templates, err := sqlFiles.ReadDir("sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range templates {
		name := file.Name()
		if name == "run_info.sql" || name == "known.sql" || name == "fx.sql" || name == "net_lines.sql" {
			continue // parts of others
		}
		if strings.HasPrefix(name, "reconciliation") {
			continue // a bill is of no tenant: only keys for all of them are answered
		}
		for i := range 4 {
			// The tables themselves, and what was known then in their place.
			forgot := i%2 == 1
			r.asOf = asOf{}
			if i > 1 {
				r.asOf.instant = time.Now().Add(time.Hour)
			}
			q := r.then()
			if name == "known_since.sql" {
				q.bind("as_of", "String", "2100-01-01 00:00:00")
				q.bind("since", "String", r.from.Format(clickhouseNanos))
				q.bind("till", "String", r.to.Format(clickhouseNanos))
			}
			q.vars["KnownRuns"] = true
			q.bind("runs_since", "String", "2026-01-01 00:00:00")
			q.vars["Groups"], q.vars["Columns"], q.vars["At"], q.vars["History"] = []string{}, []string{}, "toDateTime(0, 'UTC')", false
			q.vars["RunGroups"], q.vars["CallGroups"], q.vars["OfRuns"] = []string{}, []string{}, true
			q.vars["Day"], q.vars["RunDay"], q.vars["Late"] = "toDateTime(0, 'UTC')", "toDateTime(0, 'UTC')", "arrayCount(m -> m.1 > toDateTime(0), c.months)"
			q.args = append(q.args, clickhouse.Named("above", []uint64{}), clickhouse.Named("minutes", []uint16{}), clickhouse.Named("by_clock", []string{}))
			q.vars["Eras"] = true
			q.args = append(q.args, clickhouse.Named("era_lines", []string{"line"}), clickhouse.Named("era_calendars", []uint16{1}), clickhouse.Named("era_of", []uint16{1}), clickhouse.Named("era_at", []int64{noon.UnixNano()}))
			if strings.Contains(name, "spend") || strings.Contains(name, "retries") || strings.Contains(name, "coverage") || name == "journal_lacks.sql" || name == "close.sql" || name == "close_frozen.sql" || name == "movers.sql" || name == "rate_limits.sql" || name == "reconcile_ours.sql" || name == "fx_days.sql" || name == "close_converted.sql" {
				q.bind("base_from", "DateTime('UTC')", "2026-03-01 00:00:00")
				q.bind("base_to", "DateTime('UTC')", "2026-03-02 00:00:00")
				q.bind("period", "String", "2026-03")
				q.bind("booked", "Date", "2100-01-01")
				q.rangeArgs(r)
			} else if name == "enforcement.sql" || name == "leakage.sql" || name == "enforcement_times.sql" {
				q.eventRange(r)
			} else {
				q.runRange(r)
			}
			q.vars["Own"] = []string{}
			for _, name := range []string{"doubtful", "promoted", "unsaid"} {
				q.mask(name, 0)
			}
			if name == "worked_after_requests.sql" {
				q.vars["Info"] = append([]string{"ended_at", "status", "name"}, runDimensions[1:]...)
			}
			q.vars["FXDay"] = "toDate(s.at, 'UTC')"
			q.args = append(q.args, clickhouse.Named("fx_days", []string{"2026-03-10"}), clickhouse.Named("fx_rates", []string{"1000000000000"}))
			q.args = append(q.args, clickhouse.Named("hashes", []uint64{hash}))
			q.bind("newest", "UInt32", "100")
			q.bind("window", "UInt32", "100")
			q.bind("lines", "UInt32", "100")
			q.bind("limit", "UInt32", "100")
			q.bind("offset", "UInt32", "0")
			for _, arg := range [][2]string{{"after_at", "1970-01-01 00:00:00"}, {"after_tenant", ""}, {"after_trace", strings.Repeat("0", 32)}, {"after_span", strings.Repeat("0", 16)}, {"after_part", "0"}, {"after_version", "0"}, {"after_minus", "0"}} {
				q.bind(arg[0], "", arg[1])
			}
			if name == "run_endings.sql" {
				q.vars["Filter"] = "tool_effect != 'read'"
			}
			if forgot {
				q.vars["Tenants"] = "1"
			}
			rows := 0
			err := New(Options{}).ask(t.Context(), r, name, q, func(func(string) any) { rows++ })
			switch {
			case forgot && (err == nil || !strings.Contains(err.Error(), "another tenant")):
				t.Errorf("%s without its tenant clause: got %d rows and %v", name, rows, err)
			case !forgot && (err != nil || rows == 0 && name != "coverage_split.sql"): // one tenant's traces are whole
				t.Errorf("%s: got %d rows and %v", name, rows, err)
			}
		}
	}
}

// A query ends when the client goes away.
func TestQueryEndsWithTheClient(t *testing.T) {
	s := newStore(t)
	s.post(worked("t-1", "r", 1)...)
	conn := s.e.Conn()
	for _, sql := range []string{
		"DROP TABLE spend_15m_mv", "RENAME TABLE spend_15m TO kept",
		"CREATE VIEW spend_15m AS SELECT kept.* FROM kept CROSS JOIN numbers(1000000000000) AS n WHERE cityHash64(n.number) != 0",
	} {
		if err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	running := func() uint64 {
		return s.count("SELECT count() FROM system.processes WHERE query LIKE '%all_estimated%' AND query NOT LIKE '%system.processes%'")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/spend?from=2026-03-10", nil) // open, so that no tag is worked out first
		if err == nil {
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
				err = fmt.Errorf("answered %s", resp.Status)
			}
		}
		done <- err
	}()
	wait := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				select {
				case err := <-done:
					t.Fatalf("the query does not %s: %v", what, err)
				default:
					t.Fatalf("the query does not %s", what)
				}
			}
		}
	}
	wait("start", func() bool { return running() > 0 })
	cancel()
	if err := <-done; !strings.Contains(err.Error(), "context canceled") {
		t.Fatal(err)
	}
	wait("end", func() bool { return running() == 0 })
}

func TestErrorsKeepSQLToThemselves(t *testing.T) {
	f := func(err error, status int, words string) {
		t.Helper()
		if p := explain(err); p.status != status || !strings.Contains(p.detail, words) || strings.Contains(p.detail, "SELECT") {
			t.Errorf("%v: got %d %s", err, p.status, p.detail)
		}
	}
	f(fmt.Errorf("query x: %w", &clickhouse.Exception{Code: 241, Name: "MEMORY_LIMIT_EXCEEDED", Message: "SELECT"}), 504, "shorter time")
	f(fmt.Errorf("query x: %w", &clickhouse.Exception{Code: 47, Name: "UNKNOWN_IDENTIFIER", Message: "SELECT"}), 500, "UNKNOWN_IDENTIFIER")
	f(fmt.Errorf("query x: %w", context.DeadlineExceeded), 504, "too long")
	f(fmt.Errorf("render SELECT"), 500, "log")
}

func TestPage(t *testing.T) {
	s := newStore(t)
	page := func() string {
		t.Helper()
		status, h, body := s.do("/", "")
		if status != http.StatusOK || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Fatalf("page: %d %s", status, body)
		}
		return body
	}
	if body := page(); !strings.Contains(body, "Nothing yet") || !strings.Contains(body, "without the console") || !strings.Contains(body, "http://127.0.0.1:4318") || strings.Contains(body, "<table") {
		t.Errorf("empty page: %s", body)
	}
	hostile := `"><script>alert(1)</script>&'{{.}}`
	tr := newTrace(hostile, hostile+"/../#?x", 1, map[schema.Dim]string{schema.Workflow: hostile})
	tr.at = time.Now().Add(-time.Minute)
	s.post(tr.add(schema.KindRequest), tr.add(schema.KindModel, priced("0.25")))
	body := page()
	if strings.Contains(body, "<script") || strings.Contains(body, "Nothing yet") || !strings.Contains(body, "&lt;script&gt;") || !strings.Contains(body, "0.25") {
		t.Errorf("page with one hostile run: %s", body)
	}
	_, link, _ := strings.Cut(body, `href="/api`)
	link, _, _ = strings.Cut(link, `"`)
	if m := s.get(strings.ReplaceAll("/api"+link, "&amp;", "&")); m["cost_usd"] != "0.25" {
		t.Errorf("the link %s of the page leads to %v", link, m)
	}
	var many []schema.Entry
	for i := range byte(60) {
		tr := newTrace("t-1", fmt.Sprintf("run-%d", i), 10+i, nil)
		tr.at = time.Now().Add(-time.Minute)
		many = append(many, tr.add(schema.KindRequest), tr.add(schema.KindModel, priced("1")))
	}
	s.post(many...)
	if n := strings.Count(page(), `<a href="/api/v1/runs/`); n != 50 {
		t.Errorf("page with many runs: got %d links, want 50", n)
	}
	s.refuse("/?group_by=model", http.StatusBadRequest, "unknown parameter")

	r := gin.New()
	files := fstest.MapFS{"index.html": {Data: []byte("the console")}}
	if err := New(Options{Conn: func() driver.Conn { return nil }}).MountPage(r, Setup{Console: files}); err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodGet, "/plain", nil)
	req.RemoteAddr, req.Host = "127.0.0.1:1", "localhost"
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	if w.Code != http.StatusOK || !bytes.Contains(w.Body.Bytes(), []byte("ClickHouse is starting")) || bytes.Contains(w.Body.Bytes(), []byte("Nothing yet")) {
		t.Errorf("page before ClickHouse is up: %d %s", w.Code, w.Body)
	}
	// The console's files hold no data: whoever asks gets them, even without a key.
	w = httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusOK || w.Body.String() != "the console" {
		t.Errorf("console: %d %s", w.Code, w.Body)
	}
}

// A trace whose spans came under several tenants is a finding for who sees them
// all, if an attribute decided about the tenant.
func TestTraceSplitOverTenants(t *testing.T) {
	all := schema.TenantList{"*"}
	readers := []schema.Key{
		{Name: "one", Role: schema.KeyRead, Tenant: "t-1"},
		{Name: "both", Role: schema.KeyRead, Tenants: schema.TenantList{"t-1", "t-2"}},
		{Name: "other", Role: schema.KeyRead, Tenants: schema.TenantList{"t-1", "t-3"}},
		{Name: "all", Role: schema.KeyAdmin, Tenants: all},
	}
	f := func(senders []schema.Key, want map[string]string) {
		t.Helper()
		ring, secret := keys(t, append(senders, readers...)...)
		everything := want["all"]
		if senders == nil {
			everything = want[""]
		}
		s := newStore(t, func(o *Options) {
			if senders != nil {
				o.Keys = ring
			}
		})
		for id, tenants := range [][]string{{"t-1"}, {"t-1", "t-2"}, {"t-2", "t-1"}, {"t-3"}, {"t-3", "t-4"}} {
			for i, tenant := range tenants {
				tr := newTrace(tenant, "", byte(id+1), nil)
				tr.n = byte(10 * i)
				s.post(tr.add(schema.KindModel, priced("1")))
			}
		}
		for name, rows := range want {
			_, _, body := s.do("/api/v1/coverage?"+during, secret[name])
			m := decode(t, body)
			equal(t, "findings for "+name, show(list(m["findings"]), "finding", "tenants", "traces", "trace_id"), rows)
			for _, finding := range list(m["findings"]) {
				if text := fmt.Sprint(finding["text"]); !strings.Contains(text, "attributes.tenant") || !strings.Contains(text, finding["trace_id"].(string)) {
					t.Errorf("the finding does not say what to do: %s", text)
				}
			}
		}
		_, _, body := s.do("/api/v1/coverage?from=2026-03-11&to=2026-03-12", secret["all"])
		equal(t, "findings of another day", show(list(decode(t, body)["findings"]), "tenants"), "")
		// Of a long time the last 31 days are looked at.
		for to, rows := range map[string]string{"2026-04-10": everything, "2026-04-11": ""} {
			_, _, body := s.do("/api/v1/coverage?from=2026-01-01&to="+to, secret["all"])
			equal(t, "findings of a time until "+to, show(list(decode(t, body)["findings"]), "finding", "tenants", "traces", "trace_id"), rows)
		}
	}
	first := "trace_split_over_tenants [t-1 t-2] 2 " + schema.TraceID{15: 2}.String()
	second := "trace_split_over_tenants [t-3 t-4] 1 " + schema.TraceID{15: 5}.String()
	f(nil, map[string]string{"": first + "\n" + second})
	f([]schema.Key{{Name: "gateway", Role: schema.KeyIngest, Tenants: all, Trusted: schema.TrustedGateway}}, map[string]string{"one": "", "both": first, "other": "", "all": first + "\n" + second})
	f([]schema.Key{{Name: "a", Role: schema.KeyIngest, Tenant: "t-1", Tenants: schema.TenantList{"t-2"}, Trusted: schema.TrustedGateway}}, map[string]string{"all": first})
	f([]schema.Key{{Name: "a", Role: schema.KeyIngest, Tenant: "t-1", Trusted: schema.TrustedGateway}}, map[string]string{"all": first + "\n" + second})
	f([]schema.Key{{Name: "a", Role: schema.KeyIngest, Tenant: "t-1"}, {Name: "b", Role: schema.KeyIngest, Tenant: "t-2"}}, map[string]string{"all": ""})
}
