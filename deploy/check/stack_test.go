package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Binaries that deploy/check.sh builds.
const (
	flyballEnv   = "FLYBALL_BIN"
	collectorEnv = "FLYBALL_COLLECTOR"
)

// built is the path of a binary that the variable names.
func built(t *testing.T, variable string) string {
	t.Helper()
	p := os.Getenv(variable)
	if p == "" {
		if os.Getenv(checkEnv) != "" {
			t.Fatal(variable + " is not set")
		}
		t.Skip(variable + " is not set: make deploy-check builds it")
	}
	return p
}

// address is a free one on loopback.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a process until the test ends or the returned function is called, which
// sends it SIGTERM or another signal and waits.
func start(t *testing.T, env []string, name string, args ...string) (stop func(...syscall.Signal)) {
	t.Helper()
	log := filepath.Join(t.TempDir(), filepath.Base(name)+".log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := exec.Command(name, args...)
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), env...), f, f
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { defer close(gone); _ = c.Wait() }()
	stop = func(by ...syscall.Signal) {
		_ = c.Process.Signal(append(by, syscall.SIGTERM)[0])
		select {
		case <-gone:
		case <-time.After(40 * time.Second):
			_ = c.Process.Kill()
			<-gone
		}
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			text := read(t, log)
			t.Logf("%s ends:\n%s", log, text[max(0, len(text)-3000):])
		}
	})
	return stop
}

// eventually repeats f until it returns nil.
func eventually(t *testing.T, within time.Duration, f func() error) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("within %s: %v", within, err)
		}
	}
}

var local = &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}

// ask decodes the answer of a GET.
func ask(url, key string, into any) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := local.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %s", url, resp.Status, body)
	}
	return json.Unmarshal(body, into)
}

// post sends spans over OTLP/HTTP and returns the status.
func post(t *testing.T, addr, key, body string, headers ...string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+addr+"/v1/traces", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := local.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// call is a request of OTLP/HTTP with one model call that costs 0.0626 USD by the prices
// of the tests. extra is further attributes and ends with a comma.
func call(trace, span int, extra string) string {
	now := time.Now().UnixNano()
	return fmt.Sprintf(`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"check"}}]},"scopeSpans":[{"spans":[{
		"traceId":"%032x","spanId":"%016x","name":"chat m-1","kind":3,"startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[%s
		{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},{"key":"gen_ai.provider.name","value":{"stringValue":"openai"}},
		{"key":"gen_ai.request.model","value":{"stringValue":"m-1"}},
		{"key":"gen_ai.usage.input_tokens","value":{"intValue":"50000"}},{"key":"gen_ai.usage.output_tokens","value":{"intValue":"1000"}}]}]}]}]}`, trace, span, now, now, extra)
}

const prices = `prices:
  - {provider: openai, models: [m-1], per_million: {input: "1.25", output: "0.1"}}
`

// flyball is a service that a test runs.
type flyball struct {
	bin, http, otlp, key string
	env                  []string
	stop                 func(...syscall.Signal)
}

// startFlyball serves with the embedded engine on free ports. keys is FLYBALL_KEYS, key
// the secret of one that may do everything. Without a configuration it has the defaults.
func startFlyball(t *testing.T, config, keys, key string) *flyball {
	t.Helper()
	f := &flyball{bin: built(t, flyballEnv), http: address(t), otlp: address(t), key: key}
	list := write(t, filepath.Join(t.TempDir(), "prices.yaml"), prices)
	f.env = []string{"FLYBALL_DATA=" + filepath.Join(t.TempDir(), "data"), "FLYBALL_LISTEN__HTTP=" + f.http, "FLYBALL_LISTEN__OTLP_GRPC=" + f.otlp,
		`FLYBALL_LISTEN__OTLP_HTTP=""`, `FLYBALL_LISTEN__CLICKHOUSE=""`, "FLYBALL_PRICES__FILES=[" + list + "]"}
	if keys != "" {
		f.env = append(f.env, "FLYBALL_KEYS="+keys)
	}
	f.again(t, config)
	return f
}

// again starts the service over its data.
func (f *flyball) again(t *testing.T, config string) {
	t.Helper()
	args := []string{"serve"}
	if config != "" {
		args = append(args, "--config", config)
	}
	f.stop = start(t, f.env, f.bin, args...)
	f.run(t, "ready", "--clickhouse", "--wait", "60s")
}

// run runs a verb against the service.
func (f *flyball) run(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.Command(f.bin, append(args, "--server", "http://"+f.http, "--key", f.key)...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("flyball %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// spend is the exact cost of all calls, and how many there are.
func (f *flyball) spend(query string) (usd string, calls int, err error) {
	var a struct {
		Total struct {
			Calls int    `json:"calls"`
			Cost  string `json:"cost_usd"`
		} `json:"total"`
	}
	err = ask("http://"+f.http+"/api/v1/spend?"+query, f.key, &a)
	return a.Total.Cost, a.Total.Calls, err
}

// costs waits until all calls cost this much.
func (f *flyball) costs(t *testing.T, query, want string) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		if usd, calls, err := f.spend(query); err != nil || usd != want {
			return fmt.Errorf("%d calls cost %s, want %s: %v", calls, usd, want, err)
		}
		return nil
	})
}

// startCollector runs a configuration of deploy/collector, with overlays.
func startCollector(t *testing.T, config string, env []string, overlays ...string) (grpc, http string, stop func(...syscall.Signal)) {
	t.Helper()
	grpc, http = address(t), address(t)
	args := []string{"--config", "../collector/" + config}
	for _, o := range overlays {
		args = append(args, "--config", o)
	}
	stop = start(t, append(env, "OTLP_GRPC="+grpc, "OTLP_HTTP="+http), built(t, collectorEnv), args...)
	eventually(t, 30*time.Second, func() error {
		c, err := net.Dial("tcp", http)
		if err != nil {
			return err
		}
		return c.Close()
	})
	return grpc, http, stop
}

// TestCollectorConfigs lets a real collector validate every example; one with a mistake
// shows that it would say so.
func TestCollectorConfigs(t *testing.T) {
	collector := built(t, collectorEnv)
	key := write(t, filepath.Join(t.TempDir(), "key"), "k\n")
	env := []string{"AGENTS_KEYS=" + key, "FLYBALL_KEY_FILE=" + key, "GATEWAY_KEY_FILE=" + key}
	files, err := filepath.Glob("../collector/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if filepath.Base(f) == "builder.yaml" {
			continue
		}
		n++
		accepts(t, env, collector, "validate", "--config", f)
	}
	if n < 6 {
		t.Errorf("only %d examples found", n)
	}
	broken := write(t, filepath.Join(t.TempDir(), "broken.yaml"), replace(t, read(t, "../collector/gateway.yaml"), "routing_key: traceID", "routing_keys: traceID"))
	c := exec.Command(collector, "validate", "--config", broken)
	c.Env = append(os.Environ(), env...)
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "routing_keys") {
		t.Errorf("a mistake passes: %v %s", err, out)
	}
	// compose.yaml runs the version that is validated here.
	out, err := exec.Command(collector, "--version").CombinedOutput()
	if image := project(t).Services["collector"].Image; err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), image[strings.LastIndex(image, ":")+1:]) {
		t.Errorf("%s is validated with %s: %v", image, out, err)
	}
}

// TestStack runs what compose.yaml runs, but for ClickHouse, whose place the embedded
// engine takes, and Grafana: with the same files, in which only addresses and waiting
// times are changed.
func TestStack(t *testing.T) {
	built(t, collectorEnv)
	prometheus := tool(t, true, "apt-get install prometheus", "prometheus")
	alertmanager := tool(t, true, "apt-get install prometheus-alertmanager", "prometheus-alertmanager", "alertmanager")
	dir, env := secrets(t)
	operator, agents := secret(t, dir, "operator"), secret(t, dir, "agents")
	file := func(name string) string { return filepath.Join(dir, "secrets", name) }

	alerts := address(t)
	start(t, nil, alertmanager, "--config.file=../compose/alertmanager.yml", "--storage.path="+t.TempDir(), "--web.listen-address="+alerts, "--cluster.listen-address=")
	config := write(t, filepath.Join(t.TempDir(), "flyball.yaml"), replace(t, read(t, "../compose/flyball.yaml"), "http://alertmanager:9093", "http://"+alerts, "172.16.0.0/12", "127.0.0.0/8"))
	f := startFlyball(t, config, env["FLYBALL_KEYS"], operator)

	metrics := address(t)
	_, port, _ := net.SplitHostPort(metrics)
	collect := []string{"AGENTS_KEYS=" + file("agents"), "FLYBALL_KEY_FILE=" + file("collector"), "FLYBALL_OTLP=" + f.otlp,
		"QUEUE_DIR=" + t.TempDir(), "HEALTH=" + address(t), "METRICS_PORT=" + port}
	_, otlp, stopCollector := startCollector(t, "single.yaml", collect)

	scrape := address(t)
	pdir := t.TempDir()
	conf := prometheusConfig(t, pdir, "flyball:8080", f.http, "collector:8888", metrics, "alertmanager:9093", alerts, "localhost:9090", scrape,
		"/run/secrets/flyball", file("prometheus"), "scrape_interval: 15s", "scrape_interval: 1s", "evaluation_interval: 15s", "evaluation_interval: 1s")
	for _, rules := range []string{"recording.yml", "alerts.yml"} {
		text := regexp.MustCompile(`(?m)^(\s+)interval: \S+$`).ReplaceAllString(read(t, filepath.Join(pdir, rules)), "${1}interval: 1s")
		write(t, filepath.Join(pdir, rules), regexp.MustCompile(`(?m)^(\s+)for: \S+$`).ReplaceAllString(text, "${1}for: 2s"))
	}
	start(t, nil, prometheus, "--config.file="+conf, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+scrape)

	// Telemetry: refused without the agents' key, kept and counted with it.
	if code := post(t, otlp, "", call(1, 1, "")); code != http.StatusUnauthorized {
		t.Errorf("without a key: %d", code)
	}
	if code := post(t, otlp, secret(t, dir, "collector"), call(1, 1, "")); code != http.StatusUnauthorized {
		t.Errorf("with a key that is not for agents: %d", code)
	}
	for i := 1; i <= 10; i++ {
		if code := post(t, otlp, agents, call(i, 1, "")); code != http.StatusOK {
			t.Fatalf("with the key: %d", code)
		}
	}
	f.costs(t, "", "0.626")
	f.costs(t, "environment=production", "0.626") // what the collector added

	// Prometheus reaches everything and evaluates every rule.
	eventually(t, 30*time.Second, func() error {
		var a struct {
			Data struct {
				Active []struct {
					Health string            `json:"health"`
					Labels map[string]string `json:"labels"`
					Error  string            `json:"lastError"`
				} `json:"activeTargets"`
			} `json:"data"`
		}
		if err := ask("http://"+scrape+"/api/v1/targets", "", &a); err != nil {
			return err
		}
		for _, target := range a.Data.Active {
			if target.Health != "up" {
				return fmt.Errorf("job %s is %s: %s", target.Labels["job"], target.Health, target.Error)
			}
		}
		if len(a.Data.Active) != 4 {
			return fmt.Errorf("%d targets", len(a.Data.Active))
		}
		return nil
	})
	eventually(t, 30*time.Second, func() error {
		var a struct {
			Data struct {
				Groups []struct {
					Rules []struct {
						Name   string    `json:"name"`
						Health string    `json:"health"`
						Error  string    `json:"lastError"`
						At     time.Time `json:"lastEvaluation"`
					} `json:"rules"`
				} `json:"groups"`
			} `json:"data"`
		}
		if err := ask("http://"+scrape+"/api/v1/rules", "", &a); err != nil {
			return err
		}
		n := 0
		for _, g := range a.Data.Groups {
			for _, r := range g.Rules {
				n++
				if r.Health != "ok" || r.At.IsZero() {
					return fmt.Errorf("rule %s is %s: %s", r.Name, r.Health, r.Error)
				}
			}
		}
		if n < 40 {
			return fmt.Errorf("%d rules", n)
		}
		t.Logf("%d rules evaluated", n)
		return nil
	})

	// What Flyball pages and what Prometheus alerts arrives at one Alertmanager.
	active := func(label, value string) error {
		var list []struct {
			Labels map[string]string `json:"labels"`
		}
		if err := ask("http://"+alerts+"/api/v2/alerts", "", &list); err != nil {
			return err
		}
		for _, a := range list {
			if strings.Contains(a.Labels[label], value) {
				return nil
			}
		}
		return fmt.Errorf("Alertmanager has no alert with %s %s: %v", label, value, list)
	}
	if out := f.run(t, "page", "test"); !strings.Contains(out, "oncall") {
		t.Errorf("page test says %s", out)
	}
	eventually(t, 20*time.Second, func() error { return active("alertname", "Flyball") })

	// While Flyball is down the collector takes spans and keeps them on disk, also where it
	// is killed after its last answer; nothing is lost or counted twice.
	f.stop()
	eventually(t, 60*time.Second, func() error { return active("alertname", "FlyballDown") })
	for i := 6; i <= 15; i++ { // five of them for the second time
		if code := post(t, otlp, agents, call(i, 1, "")); code != http.StatusOK {
			t.Fatalf("while Flyball is down: %d", code)
		}
	}
	stopCollector(syscall.SIGKILL)
	if code := post(t, otlp, agents, call(99, 1, "")); code != 0 {
		t.Fatalf("the collector has ended and answers %d", code)
	}
	f.again(t, config)
	startCollector(t, "single.yaml", collect)
	f.costs(t, "", "0.939")
}

// TestGateway sends spans of several agents through agent.yaml and gateway.yaml to two Flyballs: each
// trace on one of them, each span under the tenant of its agent.
func TestGateway(t *testing.T) {
	built(t, collectorEnv)
	const ingest, read = "fb_ingest", "fb_read"
	keys := fmt.Sprintf(`[{name: tier, sha256: %s, role: ingest, tenant: default, tenants: "*"}, {name: all, sha256: %s, role: admin, tenants: "*"}]`, hash(ingest), hash(read))
	a, b := startFlyball(t, "", keys, read), startFlyball(t, "", keys, read)
	dir := t.TempDir()
	tier := write(t, filepath.Join(dir, "tier"), ingest)
	agents := write(t, filepath.Join(dir, "agents"), "agent-key # the team's\n")
	grpc, _, _ := startCollector(t, "gateway.yaml", []string{"FLYBALL_A=" + a.otlp, "FLYBALL_B=" + b.otlp, "AGENTS_KEYS=" + agents, "FLYBALL_KEY_FILE=" + tier})
	key := write(t, filepath.Join(dir, "key"), "agent-key")
	_, otlp, _ := startCollector(t, "agent.yaml", []string{"GATEWAY=" + grpc, "GATEWAY_KEY_FILE=" + key})

	const traces = 40
	// The halves of a trace travel apart; what the code claims loses against the header.
	for span := 1; span <= 2; span++ {
		for i := 1; i <= traces; i++ {
			if code := post(t, otlp, "", call(i, span, `{"key":"tenant.id","value":{"stringValue":"mallory"}},{"key":"app.customer","value":{"stringValue":"ann"}},`), "x-tenant", "acme"); code != http.StatusOK {
				t.Fatalf("agent's collector answers %d", code)
			}
		}
	}
	if code := post(t, otlp, "", call(traces+1, 1, "")); code != http.StatusOK {
		t.Fatalf("without a header: %d", code)
	}
	eventually(t, 30*time.Second, func() error {
		_, na, err := a.spend("")
		_, nb, err2 := b.spend("")
		if na+nb != 2*traces+1 {
			return fmt.Errorf("%d and %d calls: %v %v", na, nb, err, err2)
		}
		if na == 0 || nb == 0 {
			return fmt.Errorf("one has none: %d and %d", na, nb)
		}
		t.Logf("%d and %d calls", na, nb)
		return nil
	})
	seen := map[string]int{}
	whole := 0
	for n, f := range []*flyball{a, b} {
		for _, line := range strings.Split(strings.TrimSpace(f.run(t, "sql", "SELECT hex(trace_id), tenant, user, count() FROM journal WHERE sign = 1 GROUP BY ALL")), "\n") {
			c := strings.Split(line, "\t")
			if seen[c[0]]++; seen[c[0]] > 1 {
				t.Errorf("trace %s is on both", c[0])
			}
			switch {
			case c[1] == "acme" && c[2] == "ann" && c[3] == "2":
				whole++
			case c[1] == "default" && c[3] == "1":
			default:
				t.Errorf("on %d: trace %s of tenant %s, user %s, with %s spans", n, c[0], c[1], c[2], c[3])
			}
		}
	}
	if whole != traces {
		t.Errorf("%d whole traces of the agent's tenant, want %d", whole, traces)
	}
}

// TestFile carries telemetry over in a file, twice.
func TestFile(t *testing.T) {
	f := startFlyball(t, "", "", "")
	dir := t.TempDir()
	_, otlp, stop := startCollector(t, "file.yaml", []string{"OUT=" + dir})
	for i := 1; i <= 10; i++ {
		if code := post(t, otlp, "", call(i, 1, "")); code != http.StatusOK {
			t.Fatalf("collector answers %d", code)
		}
	}
	stop()
	for range 2 {
		f.run(t, "ingest", "--otlp", f.otlp, filepath.Join(dir, "traces.jsonl"))
		f.costs(t, "", "0.626")
	}
}

// content marks what must not leave the machine.
const content = "PRIVATE-CONTENT"

// TestStripContent sends every recorded span with and without its content: it costs the
// same and shows the same retries, but for what emitters say only inside an answer, and
// nothing of the content leaves.
func TestStripContent(t *testing.T) {
	built(t, collectorEnv)
	const plain, stripped, read = "fb_plain", "fb_stripped", "fb_read"
	keys := fmt.Sprintf(`[{name: plain, sha256: %s, role: ingest, tenant: plain}, {name: stripped, sha256: %s, role: ingest, tenant: stripped}, {name: all, sha256: %s, role: admin, tenants: "*"}]`, hash(plain), hash(stripped), hash(read))
	f := startFlyball(t, "", keys, read)
	dir := t.TempDir()
	out := filepath.Join(dir, "left.jsonl")
	overlay := write(t, filepath.Join(dir, "overlay.yaml"), `exporters: {file: {path: `+out+`, flush_interval: 100ms}}
service: {pipelines: {traces: {exporters: [otlp_grpc/flyball, file]}}}
`)
	grpc, otlp, _ := startCollector(t, "strip-content.yaml", []string{"FLYBALL_OTLP=" + f.otlp, "FLYBALL_KEY_FILE=" + write(t, filepath.Join(dir, "key"), stripped)}, overlay)

	captures, err := filepath.Glob("../../ingest/dialect/testdata/captures/*.jsonl")
	if err != nil || len(captures) < 50 {
		t.Fatalf("%d captures: %v", len(captures), err)
	}
	// The id of a log event is made of what it says, so there with and without its content are two.
	captures = slices.DeleteFunc(captures, func(file string) bool {
		data, err := os.ReadFile(file)
		return err != nil || bytes.Contains(data, []byte(`{"resourceLogs"`))
	})
	for _, x := range []struct{ key, to string }{{plain, f.otlp}, {"", grpc}} {
		c := exec.Command(f.bin, append([]string{"ingest", "--otlp", x.to, "--key", x.key}, captures...)...)
		if said, err := c.CombinedOutput(); err != nil {
			t.Fatalf("ingest: %v\n%s", err, said)
		}
	}
	lines := func(tenant string) []string {
		return strings.Split(f.run(t, "sql", "SELECT hex(trace_id), hex(span_id), part, any(scope), sum(sign * cost), sum(sign * tok_input), sum(sign * tok_output), max(retry_layer), max(attempt) FROM journal WHERE tenant = '"+tenant+"' GROUP BY trace_id, span_id, part HAVING sum(sign) = 1 ORDER BY 1, 2, 3"), "\n")
	}
	var a, b []string
	eventually(t, 60*time.Second, func() error {
		if a, b = lines("plain"), lines("stripped"); len(a) != len(b) || len(a) < 1000 {
			return fmt.Errorf("%d and %d lines", len(a), len(b))
		}
		return nil
	})
	time.Sleep(7 * time.Second) // limits.settle: late decisions have been taken
	a, b = lines("plain"), lines("stripped")
	var differ []string
	for i := range a {
		if a[i] != b[i] {
			differ = append(differ, a[i]+"\n"+b[i])
		}
	}
	// deploy/docs/deploy.md names them: cache writes and their lifetimes that only the answer has.
	if len(differ) != 2 || !strings.Contains(differ[0], "openinference-instrumentation-anthropic") || !strings.Contains(differ[1], "openinference-instrumentation-openai") {
		t.Errorf("of %d lines differ:\n%s", len(a), strings.Join(differ, "\n"))
	}

	var attributes strings.Builder
	for _, k := range []string{"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.prompt", "gen_ai.prompt.0.content",
		"gen_ai.completion.0.content", "ai.prompt", "ai.prompt.messages", "ai.response.text", "ai.toolCall.args", "ai.toolCall.result", "llm.input_messages.0.message.content", "llm.output_messages.0.message.content", "input.value", "output.value",
		"traceloop.entity.input", "traceloop.entity.output", "langfuse.observation.input", "langfuse.observation.output", "tool.parameters", "tool_arguments", "tool_response", "all_messages_events"} {
		fmt.Fprintf(&attributes, `{"key":%q,"value":{"stringValue":%q}},`, k, content)
	}
	body := replace(t, call(4242, 1, attributes.String()), `"attributes":[{"key":"gen_ai.input`, `"events":[{"name":"gen_ai.choice","attributes":[{"key":"content","value":{"stringValue":"`+content+`"}},{"key":"gen_ai.event.content","value":{"stringValue":"`+content+`"}}]}],"attributes":[{"key":"gen_ai.input`)
	if !json.Valid([]byte(body)) {
		t.Fatal(body)
	}
	if code := post(t, otlp, "", body); code != http.StatusOK {
		t.Fatalf("collector answers %d", code)
	}
	eventually(t, 20*time.Second, func() error {
		if !strings.Contains(readAll(out), fmt.Sprintf("%032x", 4242)) {
			return fmt.Errorf("the span is not in the file")
		}
		return nil
	})
	if text := readAll(out); strings.Contains(text, content) {
		at := strings.Index(text, content)
		t.Errorf("content left the machine: …%s", text[max(0, at-200):at+len(content)])
	}
	f.costs(t, "tenant=stripped&model=m-1", "0.0626")
}

func readAll(file string) string {
	b, _ := os.ReadFile(file)
	return string(bytes.TrimSpace(b))
}
