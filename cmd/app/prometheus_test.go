package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// signalsPolicy has a budget that a few calls cross, and an objective.
const signalsPolicy = `
objectives: {amplification: "1"}
guards:
  - {name: task, scope: [run], measure: cost, window: run, limit: "0.001", ladder: [{at: 100%, do: terminate}], outcome: checkpoint}
  - {name: day, scope: [org], measure: cost, window: {calendar: day, tz: UTC}, limit: "1000", ladder: [{at: 100%, do: warn}], outcome: pause}
`

// crossed makes a run cross its budget, a limiter follow it, and a call pass all the same.
func (s *service) crossed(trace uint64) {
	s.t.Helper()
	b := newBatch()
	b.chat(trace, 2, 0, 700)
	b.chat(trace, 3, 0, 700)
	b.chat(trace, 4, 0, 700)
	s.mustSend(b.td)
	eventually(s.t, "the acknowledgement is counted", func() bool {
		return s.counters()[`flyball_time_to_enforce_seconds_count{limiter="gateway-1"}`] > 0
	})
	time.Sleep(10 * time.Millisecond)
	b = newBatch()
	late := b.chat(trace, 5, 0, 10)
	now := time.Now()
	late.SetStartTimestamp(pcommon.NewTimestampFromTime(now))
	late.SetEndTimestamp(pcommon.NewTimestampFromTime(now.Add(time.Millisecond)))
	s.mustSend(b.td)
	eventually(s.t, "the leak is counted", func() bool { return s.counters()[`flyball_leaked_calls_total{kind="leak"}`] == 1 })
}

// TestExemplars reads them where they are served, and nowhere else: a trace, and
// nobody's name.
func TestExemplars(t *testing.T) {
	s := newService(t, "", withPolicy(t, signalsPolicy)...)
	s.start()
	s.follow("gateway-1")
	s.crossed(77)
	get := func(accept string) (string, string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, s.url("http", "/metrics"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res.Status, err)
		}
		return res.Header.Get("Content-Type"), string(b)
	}
	typ, text := get("application/openmetrics-text; version=1.0.0")
	if !strings.HasPrefix(typ, "application/openmetrics-text") || !strings.HasSuffix(text, "# EOF\n") {
		t.Fatalf("served as %s, ending in %q", typ, text[max(0, len(text)-20):])
	}
	trace := fmt.Sprintf("%016x%016x", 0xf1, 77)
	exemplar := regexp.MustCompile(`(?m)^(flyball_\w+)(?:\{[^}]*\})? \S+ # \{([^}]*)\} (\S+)`)
	found := map[string]bool{}
	for _, m := range exemplar.FindAllStringSubmatch(text, -1) {
		if m[2] != `trace_id="`+trace+`"` {
			t.Errorf("%s: exemplar {%s}, want the trace %s alone", m[1], m[2], trace)
		}
		found[m[1]] = true
	}
	for _, name := range []string{"flyball_time_to_enforce_seconds_bucket", "flyball_span_end_to_applied_seconds_bucket", "flyball_ledger_apply_seconds_bucket", "flyball_leaked_calls_total", "flyball_leaked_usd_total", "flyball_budget_spend_usd_total", "flyball_amplification_requests_total", "flyball_amplification_over_total"} {
		if !found[name] {
			t.Errorf("%s has no exemplar", name)
		}
	}
	if typ, text := get("text/plain"); !strings.HasPrefix(typ, "text/plain") || strings.Contains(text, trace) {
		t.Errorf("served as %s with a trace in it", typ)
	}
}

// daemon runs a program of Debian until the test ends, and returns once it is ready.
func daemon(t *testing.T, packet, address string, names []string, args ...string) {
	t.Helper()
	binary := ""
	for _, n := range names {
		if path, err := exec.LookPath(n); err == nil && binary == "" {
			binary = path
		}
	}
	if binary == "" {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is missing: apt-get install %s", names[0], packet)
		}
		t.Skipf("%s is missing: apt-get install %s", names[0], packet)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		text, _ := os.ReadFile(log.Name())
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "Error on ingesting") || strings.Contains(line, "append failed") {
				t.Errorf("%s: %s", names[0], line)
			}
		}
		if t.Failed() {
			t.Logf("%s's log ends:\n%s", names[0], text[max(0, len(text)-3000):])
		}
		_ = log.Close()
	})
	eventually(t, names[0]+" is ready", func() bool {
		res, err := client.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestPrometheus lets a real Prometheus with the shipped configuration scrape the
// service and evaluate the shipped rules, and a real Alertmanager take what fires.
func TestPrometheus(t *testing.T) {
	s := newService(t, "", withPolicy(t, signalsPolicy)...)
	s.start()
	s.follow("gateway-1")
	pager, prom := freePort(t), freePort(t)
	dir := t.TempDir()
	route := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(route, []byte("route: {receiver: none, group_wait: 0s}\nreceivers: [{name: none}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon(t, "prometheus-alertmanager", pager, []string{"prometheus-alertmanager", "alertmanager"}, "--config.file="+route, "--storage.path="+filepath.Join(dir, "pager"), "--web.listen-address="+pager, "--cluster.listen-address=")

	const shipped = "../../deploy/prometheus/prometheus.yml"
	text, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs("../../dashboards")
	if err != nil {
		t.Fatal(err)
	}
	config := string(text)
	for _, x := range [][2]string{{"127.0.0.1:8080", strings.TrimPrefix(s.url("http", ""), "http://")}, {"127.0.0.1:9093", pager}, {"../../dashboards/recording.yml", rules + "/recording.yml"}, {"../../dashboards/alerts.yml", rules + "/alerts.yml"}, {"scrape_interval: 15s", "scrape_interval: 1s"}, {"evaluation_interval: 15s", "evaluation_interval: 1s"}} {
		if strings.Count(config, x[0]) != 1 {
			t.Fatalf("%s: %q stands there %d times", shipped, x[0], strings.Count(config, x[0]))
		}
		config = strings.Replace(config, x[0], x[1], 1)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon(t, "prometheus", prom, []string{"prometheus"}, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+prom, "--enable-feature=exemplar-storage")
	ask := func(path string, into any) bool {
		res, err := client.Get("http://" + prom + path)
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK && json.NewDecoder(res.Body).Decode(into) == nil
	}
	value := func(expr string) string {
		var a struct {
			Data struct {
				Result []struct {
					Value [2]any
				}
			}
		}
		if !ask("/api/v1/query?query="+url.QueryEscape(expr), &a) || len(a.Data.Result) == 0 {
			return ""
		}
		return fmt.Sprint(a.Data.Result[0].Value[1])
	}
	eventually(t, "the service is scraped", func() bool { return value(`up{job="flyball"}`) == "1" })
	s.crossed(78)
	eventually(t, "what happened is scraped", func() bool { return value(`flyball_leaked_calls_total{kind="leak"}`) == "1" })

	type rule struct {
		Name, Type, Health, State, LastError string
		LastEvaluation                       time.Time
	}
	list := func() (out []rule) {
		var a struct {
			Data struct {
				Groups []struct{ Rules []rule }
			}
		}
		if !ask("/api/v1/rules", &a) {
			return nil
		}
		for _, g := range a.Data.Groups {
			out = append(out, g.Rules...)
		}
		return out
	}
	// Groups of 30 s are evaluated once within their first interval.
	since := time.Now()
	eventually(t, "every rule is evaluated", func() bool {
		return len(list()) > 40 && !slices.ContainsFunc(list(), func(r rule) bool { return r.Health == "unknown" })
	})
	eventually(t, "FlyballLeak fires", func() bool {
		return slices.ContainsFunc(list(), func(r rule) bool { return r.Name == "FlyballLeak" && r.State == "firing" })
	})
	for _, r := range list() {
		if r.Health != "ok" || r.LastError != "" {
			t.Errorf("rule %s: %s %s", r.Name, r.Health, r.LastError)
		}
		// Requests of one run that is over its objective burn, for less than two minutes yet.
		may := map[string][]string{"FlyballLeak": {"firing"}, "FlyballAmplificationBurnFast": {"inactive", "pending"}, "FlyballAmplificationBurnSlow": {"inactive", "pending"}}[r.Name]
		if may == nil {
			may = []string{"inactive"}
		}
		if r.Type == "alerting" && !slices.Contains(may, r.State) {
			t.Errorf("alert %s is %s", r.Name, r.State)
		}
	}
	t.Logf("%d rules were evaluated within %s", len(list()), time.Since(since).Round(time.Millisecond))
	var targets struct {
		Data struct {
			ActiveTargets []struct{ Health, LastError, ScrapePool string }
		}
	}
	if !ask("/api/v1/targets", &targets) || len(targets.Data.ActiveTargets) != 1 || targets.Data.ActiveTargets[0].Health != "up" || targets.Data.ActiveTargets[0].LastError != "" {
		t.Errorf("targets: %+v", targets)
	}
	// Nothing that was scraped was left out.
	var exemplars struct {
		Data []struct {
			Exemplars []struct{ Labels map[string]string }
		}
	}
	now := time.Now()
	path := fmt.Sprintf("/api/v1/query_exemplars?query=%s&start=%d&end=%d", url.QueryEscape("flyball_time_to_enforce_seconds_bucket"), now.Add(-time.Minute).Unix(), now.Add(time.Minute).Unix())
	eventually(t, "Prometheus has the exemplar", func() bool {
		return ask(path, &exemplars) && len(exemplars.Data) > 0 && exemplars.Data[0].Exemplars[0].Labels["trace_id"] == fmt.Sprintf("%016x%016x", 0xf1, 78)
	})
	eventually(t, "Prometheus tells of its own scrapes", func() bool { return value(`scrape_samples_scraped{job="flyball"}`) != "" })
	if all, kept := value(`scrape_samples_scraped{job="flyball"}`), value(`scrape_samples_post_metric_relabeling{job="flyball"}`); all != kept {
		t.Errorf("%s samples were scraped, %s kept", all, kept)
	}
	eventually(t, "Alertmanager has the alert", func() bool {
		res, err := client.Get("http://" + pager + "/api/v2/alerts?filter=" + url.QueryEscape(`alertname="FlyballLeak"`))
		if err != nil {
			return false
		}
		defer res.Body.Close()
		var alerts []struct{ Labels, Annotations map[string]string }
		return json.NewDecoder(res.Body).Decode(&alerts) == nil && len(alerts) == 1 && alerts[0].Labels["severity"] == "critical" && strings.HasSuffix(alerts[0].Annotations["runbook_url"], "#flyballleak")
	})
}

// TestEnforcementHistory: what was decided while ClickHouse was away, and what was
// under way when the service died, is in the history once, and both ways tell the same.
func TestEnforcementHistory(t *testing.T) {
	s, install := absentEngine(t, withPolicy(t, signalsPolicy)...)
	s.start()
	s.follow("gateway-1")
	s.crossed(79)
	away := s.get("/enforcement")
	if n := len(away["events"].([]any)); n < 2 || away["complete"] != false {
		t.Errorf("without ClickHouse: %v", away)
	}
	// The limiter, the directive, its acknowledgement and the leak.
	eventually(t, "four rows wait", func() bool { return s.counters()["flyball_enforcement_queued"] == 4 })
	install()
	stored := func() bool {
		r, err := s.readyz()
		return err == nil && r.ClickHouse.Ready && s.counters()["flyball_enforcement_queued"] == 0
	}
	eventually(t, "the history is stored", stored)
	for i := range rounds(2, 10) {
		s.post("/kill", map[string]any{"state": "on", "reason": fmt.Sprintf("round %d", i)}, http.StatusOK)
		s.post("/kill", map[string]any{"state": "off", "reason": fmt.Sprintf("round %d", i)}, http.StatusOK)
		s.kill(s.engines()...)
		s.start()
		eventually(t, "the history is stored", stored)
	}
	if n := s.one("SELECT count() FROM enforcement FINAL WHERE kind = 'kill'"); n != fmt.Sprint(2*rounds(2, 10)) {
		t.Errorf("%s flips are in the history", n)
	}
	if a, b := s.one("SELECT count() FROM enforcement FINAL"), s.one("SELECT uniqExact(node, seq) FROM enforcement FINAL"); a != b {
		t.Errorf("%s rows of %s numbers", a, b)
	}
	full := s.get("/enforcement?limit=1000")
	local := s.one("SELECT count() FROM enforcement FINAL WHERE kind NOT IN ('leak', 'applied')")
	if got := fmt.Sprint(len(full["events"].([]any))); full["complete"] != true || got != local {
		t.Errorf("the API lists %s events of %s", got, local)
	}
	leak := s.get("/enforcement/leakage")["rows"].([]any)
	if r := leak[0].(map[string]any); len(leak) != 1 || r["guard"] != "task" || r["limiter"] != "gateway-1" || r["leak_calls"] != 1.0 || r["leak_usd"] != "0.00002" {
		t.Errorf("leakage: %v", leak)
	}
	times := s.get("/enforcement/times?guard=task")["rows"].([]any)
	if r := times[0].(map[string]any); r["limiter"] != "gateway-1" || r["count"] != 1.0 || r["max_ns"].(float64) <= 0 {
		t.Errorf("times: %v", times)
	}
}
