package app

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A variable that nobody reads is a mistake, and says what was meant.
func TestEnvironmentNames(t *testing.T) {
	f := func(want string, env ...string) {
		t.Helper()
		_, err := LoadConfig("", env)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: got %v, want %q", env, err, want)
		}
	}
	f("FLYBALL_POLCY: there is no such key, did you mean FLYBALL_POLICY?", "FLYBALL_POLCY=policy.yaml")
	f("did you mean FLYBALL_LISTEN__HTTP?", "FLYBALL_LISTEN_HTTP=127.0.0.1:1")
	f("did you mean FLYBALL_DATA?", "FLYBALL_DATE=/tmp")
	f("FLYBALL_PAGES__RECEIVRS", "FLYBALL_PAGES__RECEIVRS=[]")
	f("", "HOME=/", "FLYBALL_LIBCHDB=/lib.so", "FLYBALL_LIBCHDB_INTEGRITY=sha512-x", "FLYBALL_CACHE=/c", "FLYBALL_KEY=fb_1", "FLYBALL_FAULT=long", "FLYBALL_APP_TEST_SERVE=1")
	f("", "FLYBALL_SERVICE_HOST=10.0.0.1", "FLYBALL_SERVICE_PORT_HTTP=80", "FLYBALL_PORT=tcp://10.0.0.1:80", "FLYBALL_PORT_80_TCP_ADDR=10.0.0.1", "FLYBALL_GRAFANA_SERVICE_HOST=10.0.0.2") // Kubernetes
	for dsn, want := range map[string]string{"embedded://": "", "clickhouse://u:p@db:9000/flyball": "", "http://db:8123/x": "", "banana": "clickhouse.dsn"} {
		f(want, "FLYBALL_CLICKHOUSE__DSN="+dsn)
	}
}

// A whole part of the configuration is a variable too, and single keys of it win.
func TestEnvironmentOfAPart(t *testing.T) {
	c, err := LoadConfig("", []string{"FLYBALL_LISTEN__OTLP_HTTP=127.0.0.1:3", "FLYBALL_LISTEN={http: '127.0.0.1:1', otlp_http: '127.0.0.1:2'}", "FLYBALL_PAGES={url: 'https://a.example'}"})
	if err != nil || c.Listen.HTTP != "127.0.0.1:1" || c.Listen.OTLPHTTP != "127.0.0.1:3" || c.Listen.OTLPGRPC != Default().Listen.OTLPGRPC || c.Pages.URL != "https://a.example" {
		t.Errorf("got %+v, %+v and %v", c.Listen, c.Pages, err)
	}
}

// What is no configuration is told without types of Go and without what a binary holds.
func TestNoConfiguration(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		name := filepath.Join(t.TempDir(), "flyball.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadConfig(name, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") || strings.ContainsAny(err.Error(), "\x00\x7f") {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	f("data: [1, 2]\n", "want a text")
	f("limits: {open_runs: many}\n", "want a whole number")
	f("keys: {}\n", "[1:7]")
	f("lisen: {}\n", "lisen")
	f("\x7fELF\x02\x01\x00\x00", "is no text")
}

// A typing error in a price of one's own must not let the public price take its place;
// lists of others are taken as far as they can be.
func TestOwnPricesAreTakenWhole(t *testing.T) {
	dir := t.TempDir()
	f := func(name, text string, rejected int, want ...string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := Default()
		cfg.Prices.Files = []string{path}
		_, left, err := LoadPrices(cfg)
		if (err == nil) != (len(want) == 0) || len(left) != rejected {
			t.Errorf("%s: got %v and %v", text, left, err)
		}
		for _, w := range want {
			if err != nil && !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v does not say %q", text, err, w)
			}
		}
	}
	f("good.yaml", prices, 0)
	f("pr.yaml", `prices: [{provider: openai, models: [gpt-5], per_million: {input: "2,00"}}]`, 0, filepath.Join(dir, "pr.yaml"), "row 1 (openai gpt-5)", `"2,00"`, "mend it")
	f("t.yaml", `tenants: {t-1: {discount: "3"}}`, 0, "tenant t-1", "discount")
	f("t2.yaml", `tenants: {t-1: {prices: [{models: [x]}]}}`, 0, "tenant t-1 row 1", "provider")
	f("pr.json", `{"prices": [{"provider": "openai", "models": ["gpt-5"], "per_million": {"input": "2,00"}}]}`, 0, "row 1")
	f("litellm.json", `{"m": {"mode": "chat", "input_cost_per_token": 1e-6}}`, 1)
}

// A taken port is an error of the start, also that of ClickHouse, which is opened last.
func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := Default()
	cfg.Data = t.TempDir()
	cfg.Listen = Listen{HTTP: "127.0.0.1:0", ClickHouse: l.Addr().String()}
	a, err := New(cfg, "", nil, slog.New(slog.DiscardHandler))
	if err == nil {
		_ = a.Stop()
	}
	if err == nil || !strings.Contains(err.Error(), "FLYBALL_LISTEN__CLICKHOUSE") {
		t.Errorf("got %v", err)
	}
}

// Who starts twice is told so.
func TestSecondService(t *testing.T) {
	s := newService(t, "")
	s.start()
	cfg := Default()
	cfg.Data = filepath.Join(s.dir, "data")
	cfg.Listen = Listen{HTTP: "127.0.0.1:0"}
	a, err := New(cfg, "", nil, slog.New(slog.DiscardHandler))
	if err == nil {
		_ = a.Stop()
	}
	if err == nil || !strings.Contains(err.Error(), "another flyball uses it") {
		t.Errorf("got %v", err)
	}
}
