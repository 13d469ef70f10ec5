package dashboards

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// rule is an alert or a recording.
type rule struct {
	Alert       string            `yaml:"alert"`
	Record      string            `yaml:"record"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func (r rule) name() string { return r.Alert + r.Record }

func rules(t *testing.T) []rule {
	t.Helper()
	var out []rule
	for _, file := range []string{"recording.yml", "alerts.yml"} {
		var f struct {
			Groups []struct {
				Rules []rule `yaml:"rules"`
			} `yaml:"groups"`
		}
		load(t, file, &f)
		for _, g := range f.Groups {
			out = append(out, g.Rules...)
		}
	}
	if len(out) < 20 {
		t.Fatalf("only %d rules found", len(out))
	}
	return out
}

func load(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("decode %s: %v", file, err)
	}
}

// ruleTests are what promtool runs.
var ruleTests = []string{"alerts_test.yml", "alerts_long_test.yml"}

// TestRules checks what promtool does not: that every alert is tested and leads to a
// section of the runbook, that every section has an alert, and that rules use only
// recordings that exist.
func TestRules(t *testing.T) {
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, file := range ruleTests {
		var tests struct {
			Tests []struct {
				Alerts []struct {
					Name string `yaml:"alertname"`
					Exp  []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			} `yaml:"tests"`
		}
		load(t, file, &tests)
		for _, x := range tests.Tests {
			for _, a := range x.Alerts {
				if len(a.Exp) > 0 {
					fires[a.Name] = true
				} else {
					quiet[a.Name] = true
				}
			}
		}
	}
	runbook, err := os.ReadFile("../deploy/docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		sections[m[1]] = true
	}
	recorded := map[string]bool{}
	for _, r := range rules(t) {
		if r.Record != "" {
			recorded[r.Record] = true
			continue
		}
		if !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s: the tests of rules see that it fires: %v, that it is quiet: %v", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
		if !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		for _, a := range []string{"summary", "description"} {
			if r.Annotations[a] == "" {
				t.Errorf("%s: has no %s", r.Alert, a)
			}
		}
		if want := "https://github.com/flyball/flyball/blob/main/deploy/docs/runbooks.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !sections[r.Alert] {
			t.Errorf("%s: deploy/docs/runbooks.md has no section of that name", r.Alert)
		}
		delete(sections, r.Alert)
	}
	for s := range sections {
		t.Errorf("deploy/docs/runbooks.md has a section %s, and there is no such alert", s)
	}
	for _, r := range rules(t) {
		for _, name := range recording.FindAllString(r.Expr, -1) {
			if !recorded[name] {
				t.Errorf("%s: nothing records %s", r.name(), name)
			}
		}
	}
}

// TestPromtool runs the rules, their tests and the example configuration through
// promtool, which the Debian package prometheus has.
func TestPromtool(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("promtool is missing: apt-get install prometheus")
		}
		t.Skip("promtool is missing: apt-get install prometheus")
	}
	const config = "../deploy/prometheus/prometheus.yml"
	for _, f := range append([]string{config, "recording.yml", "alerts.yml"}, ruleTests...) {
		if _, err := os.ReadFile(f); err != nil { // the test cache does not see what promtool reads
			t.Fatal(err)
		}
	}
	// What boards ask has to parse too, so it stands in for rules.
	panels := filepath.Join(t.TempDir(), "panels.yml")
	list := []map[string]string{}
	for _, b := range boards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				if q.Expr != "" {
					expr := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$instance", ".*").Replace(q.Expr)
					list = append(list, map[string]string{"record": fmt.Sprintf("panel_%d", len(list)), "expr": expr})
				}
			}
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": list}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(panels, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "recording.yml", "alerts.yml", panels}, append([]string{"test", "rules"}, ruleTests...), {"check", "config", config}} {
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestProvisioning checks that Grafana is told of the data sources that boards ask.
func TestProvisioning(t *testing.T) {
	var sources struct {
		Datasources []struct {
			UID  string         `yaml:"uid"`
			Type string         `yaml:"type"`
			Data map[string]any `yaml:"jsonData"`
		} `yaml:"datasources"`
	}
	load(t, "../deploy/grafana/provisioning/datasources/flyball.yaml", &sources)
	types := map[string]bool{}
	for _, s := range sources.Datasources {
		types[s.Type] = s.UID != ""
		if s.Type == "grafana-clickhouse-datasource" && (s.Data["protocol"] != "http" || s.Data["defaultDatabase"] != "flyball") {
			t.Errorf("data source %s: %v; the embedded engine speaks http, and its database is flyball", s.UID, s.Data)
		}
	}
	for _, b := range boards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				if !types[q.Source.Type] {
					t.Errorf("%s, %s: nothing provisions a data source of type %s", b.file, p.Title, q.Source.Type)
				}
			}
		}
	}
	var folders struct {
		Providers []struct {
			Type    string `yaml:"type"`
			Options struct {
				Path string `yaml:"path"`
			} `yaml:"options"`
		} `yaml:"providers"`
	}
	load(t, "../deploy/grafana/provisioning/dashboards/flyball.yaml", &folders)
	if len(folders.Providers) != 1 || folders.Providers[0].Type != "file" || folders.Providers[0].Options.Path == "" {
		t.Errorf("provider of boards: %+v", folders.Providers)
	}
}
