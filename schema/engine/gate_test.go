package engine

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// gateGet and gatePost are what curl sends.
func gateGet(t *testing.T, e *Engine, sql, more string) reply {
	t.Helper()
	r, err := read(http.Get("http://" + e.Addr().String() + "/?query=" + queryEscape(sql) + more))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func gatePost(t *testing.T, e *Engine, sql, more string) reply {
	t.Helper()
	r, err := read(http.Post("http://"+e.Addr().String()+"/"+more, "application/x-www-form-urlencoded", strings.NewReader(sql)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestGateAnswers(t *testing.T) {
	e := sharedEngine(t)
	f := func(r reply, want string) {
		t.Helper()
		if r.status != http.StatusOK || r.body != want {
			t.Errorf("got %d %q, want %q", r.status, r.body, want)
		}
	}
	f(gateGet(t, e, "SELECT number, 'a' FROM numbers(2)", ""), "0\ta\n1\ta\n")
	f(gatePost(t, e, "SELECT number, 'a' FROM numbers(2)", ""), "0\ta\n1\ta\n")
	f(gatePost(t, e, "SELECT number, 'a' FROM numbers(2);\n", "?default_format=CSVWithNames"), "\"number\",\"'a'\"\n0,\"a\"\n1,\"a\"\n")
	f(gatePost(t, e, " FROM numbers(2)", "?query=SELECT+number"), "0\n1\n")
	f(gateGet(t, e, "SELECT {a:UInt8} + 1", "&param_a=41"), "42\n")
	f(gateGet(t, e, "SELECT currentDatabase()", "&database=system"), "system\n")
	f(gateGet(t, e, "SELECT currentDatabase()", ""), "flyball\n")
	f(gateGet(t, e, "SELECT 1 FROM numbers(5) WHERE number > 9", ""), "")
	f(gateGet(t, e, "", ""), "Ok.\n")
	f(gateGet(t, e, "EXISTS system.one", ""), "1\n")
	r, err := read(http.Get("http://" + e.Addr().String() + "/ping"))
	if err != nil {
		t.Fatal(err)
	}
	f(r, "Ok.\n")

	// One JSON document, however many blocks.
	r = gateGet(t, e, "SELECT number FROM numbers(200000) FORMAT JSONCompact", "")
	if r.status != http.StatusOK || strings.Count(r.body, `"meta"`) != 1 || !strings.Contains(r.body, `"rows": 200000`) {
		t.Errorf("JSON: %d, %d bytes", r.status, len(r.body))
	}
	if got := r.header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
		t.Error(got)
	}
	// And not without bound.
	if r = gateGet(t, e, "SELECT number, repeat('x', 1000 + number % 2) FROM numbers(200000) FORMAT JSONCompact", ""); !strings.Contains(r.body, "Code: 396.") {
		t.Errorf("unbounded JSON: %d, %d bytes", r.status, len(r.body))
	}
	if r = gateGet(t, e, "SELECT number FROM numbers(3000000)", ""); strings.Count(r.body, "\n") != 3000000 {
		t.Errorf("streamed TSV: %d, %d lines", r.status, strings.Count(r.body, "\n"))
	}
}

func TestGateRefuses(t *testing.T) {
	e := sharedEngine(t)
	db := database(t, e)
	run(t, e.Conn(), "CREATE TABLE "+db+".x (k UInt64) ENGINE=MergeTree ORDER BY k")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	f := func(sql string, more ...string) {
		t.Helper()
		for _, r := range []reply{gateGet(t, e, sql, strings.Join(more, "")), gatePost(t, e, sql, "?"+strings.Join(more, ""))} {
			if r.status < 400 || !strings.HasPrefix(r.body, "Code: ") || strings.Contains(r.body, "s3cret") || r.header.Get("X-ClickHouse-Exception-Code") == "" {
				t.Errorf("%s %v: %d %.200q", sql, more, r.status, r.body)
			}
		}
	}
	f("INSERT INTO " + db + ".x VALUES (1)")
	f("INSERT INTO " + db + ".x SELECT 1")
	f("INSERT INTO FUNCTION file('" + out + "', 'CSV', 'a Int') SELECT 1")
	f("DROP TABLE " + db + ".x")
	f("TRUNCATE TABLE " + db + ".x")
	f("ALTER TABLE " + db + ".x DELETE WHERE 1")
	f("CREATE TABLE " + db + ".y (k Int8) ENGINE=Memory")
	f("CREATE TEMPORARY TABLE y (k Int8)")
	f("CREATE FUNCTION ff AS x -> x")
	f("SET readonly = 0")
	f("SET readonly = DEFAULT")
	f("USE system")
	f("SYSTEM SHUTDOWN")
	f("KILL QUERY WHERE 1")
	f("BACKUP TABLE " + db + ".x TO File('b')")
	f("SELECT 1; DROP TABLE " + db + ".x")
	f("SELECT 1; SELECT 2")
	f("SELECT 1 INTO OUTFILE '" + out + "'")
	f("SELECT * FROM file('/etc/passwd', 'LineAsString')")
	f("SELECT * FROM file('" + secret + "', 'LineAsString')")
	f("SELECT * FROM filesystem('/etc')")
	f("SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')")
	f("SELECT * FROM remote('127.0.0.1', system.one)")
	f("SELECT * FROM mysql('127.0.0.1:1', 'a', 'b', 'c', 'd')")
	f("SELECT * FROM executable('x', 'CSV', 'a String')")
	f("SELECT 1 SETTINGS readonly = 0")
	f("SELECT 1 SETTINGS log_comment = 'x'")
	f("SELECT 1 SETTINGS max_memory_usage = 0")
	f("SELECT 1 SETTINGS max_threads = 1000")
	f("SELECT 1", "&readonly=0")
	f("SELECT 1", "&max_memory_usage=0")
	f("SELECT 1", "&a%27b=1")
	f("SELECT 1", "&nosuchsetting=1")
	// The scalar function asks for no right: only confinement stops it.
	f("SELECT file('/etc/passwd')")
	f("SELECT file('" + secret + "')")
	f("SELECT `fi\\x6ce`('" + secret + "')")
	f("SELECT * APPLY(file) FROM (SELECT '" + secret + "')")
	f("SELECT arrayMap(file, ['" + secret + "'])")
	f("SELECT 1 AS x SETTINGS additional_result_filter = 'throwIf(file(\\'" + secret + "\\') != 0)'")
	f("SELECT file('/proc/" + fmt.Sprint(os.Getpid()) + "/environ')")
	f("SELECT file('/proc/self/root" + secret + "')")

	if _, err := os.Stat(out); err == nil {
		t.Error("a file was written")
	}
	if got := one[uint64](t, e.Reader(), "SELECT count() FROM "+db+".x"); got != 0 {
		t.Error("rows were written")
	}
	// Reader is the same gate.
	if err := e.Reader().Exec(t.Context(), "DROP TABLE "+db+".x"); code(err) != 164 {
		t.Error(err)
	}
}

// TestCheckWords: the protection where the kernel has no Landlock.
func TestCheckWords(t *testing.T) {
	for _, s := range []string{"SELECT file('x')", "* APPLY file", "eval('x')", "additional_result_filter"} {
		if !reaching.MatchString(s) {
			t.Errorf("%s passes", s)
		}
	}
	for _, s := range []string{"SELECT tool FROM calls WHERE tool = 'read_file'", "SELECT profile, evaluation, files"} {
		if reaching.MatchString(s) {
			t.Errorf("%s is refused", s)
		}
	}
}

// TestGateClickHouseGo: Grafana's plugin speaks through this driver.
func TestGateClickHouseGo(t *testing.T) {
	e := sharedEngine(t)
	o, err := clickhouse.ParseDSN("http://" + e.Addr().String() + "/system?compress=lz4")
	if err != nil {
		t.Fatal(err)
	}
	c, err := clickhouse.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := one[uint64](t, c, "SELECT sum(number) FROM numbers(1000)"); got != 499500 {
		t.Error(got)
	}
	if err := c.Exec(t.Context(), "CREATE DATABASE nosuch"); code(err) != 164 {
		t.Error(err)
	}
}

func TestGateAuthorize(t *testing.T) {
	e := sharedEngine(t)
	f := func(authorize func(*http.Request) error, change func(*http.Request), want int) {
		t.Helper()
		w := &Engine{o: e.o, super: e.super, metrics: newMetrics()}
		w.o.Authorize = authorize
		g, err := w.listen()
		if err != nil {
			t.Fatal(err)
		}
		defer g.close()
		r, err := http.NewRequest(http.MethodGet, "http://"+g.addr.String()+"/?query=SELECT+1", nil)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		got, err := read(http.DefaultClient.Do(r))
		if err != nil || got.status != want {
			t.Errorf("got %d %s %v, want %d", got.status, got.body, err, want)
		}
	}
	key := func(r *http.Request) error {
		if r.Header.Get("Authorization") != "Bearer k" {
			return errors.New("no key")
		}
		return nil
	}
	f(key, func(r *http.Request) {}, 401)
	f(key, func(r *http.Request) { r.Header.Set("Authorization", "Bearer k") }, 200)
	f(key, func(r *http.Request) { r.Header.Set("Authorization", "Bearer k"); r.Host = "flyball.example" }, 200)
	f(nil, func(r *http.Request) {}, 200)
	f(nil, func(r *http.Request) { r.Host = "localhost:8123" }, 200)
	f(nil, func(r *http.Request) { r.Host = "rebound.example" }, 403)
	f(nil, func(r *http.Request) { r.Header.Set("Origin", "https://foreign.example") }, 403)
	f(nil, func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:3000") }, 200)
}

func TestListenNeedsLoopbackOrKeys(t *testing.T) {
	f := func(addr string, keys, ok bool) {
		t.Helper()
		if err := checkListen(addr, keys); (err == nil) != ok {
			t.Errorf("%s, keys %v: %v", addr, keys, err)
		}
	}
	f("127.0.0.1:8123", false, true)
	f("[::1]:8123", false, true)
	f("localhost:0", false, true)
	f("0.0.0.0:8123", false, false)
	f(":8123", false, false)
	f("192.0.2.1:8123", false, false)
	f("0.0.0.0:8123", true, true)
	f("8123", true, false)
}

func TestReadHandler(t *testing.T) {
	e := sharedEngine(t)
	w := httptest.NewRecorder()
	e.ReadHandler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/sql", strings.NewReader("SELECT 1 FORMAT JSONEachRow")))
	if w.Code != 200 || w.Body.String() != "{\"1\":1}\n" {
		t.Error(w.Code, w.Body)
	}
	server := &Engine{o: Options{DSN: "clickhouse://127.0.0.1:9000"}}
	w = httptest.NewRecorder()
	server.ReadHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?query=SELECT+1", nil))
	if w.Code != http.StatusNotImplemented {
		t.Error(w.Code)
	}
}
