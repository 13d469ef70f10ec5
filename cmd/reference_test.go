package cmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/flyball/flyball/cmd/app"
	"github.com/flyball/flyball/ingest/dialect"
	"github.com/flyball/flyball/schema"
)

//go:generate env UPDATE=1 go test -count=1 -run Reference .

// update rewrites what is generated instead of comparing it.
var update = os.Getenv("UPDATE") != ""

const regenerate = "run `go generate ./...` (or only ./cmd) and read the difference"

const referenceFile = root + "/deploy/config.reference.yaml"

// TestConfigReference keeps deploy/config.reference.yaml: every key with its
// default, as the program prints it, and above each a comment that people write.
func TestConfigReference(t *testing.T) {
	want, err := app.Reference()
	if err != nil {
		t.Fatalf("print the configuration: %v", err)
	}
	have, err := os.ReadFile(referenceFile)
	if err != nil && !update {
		t.Fatalf("read the reference: %v; %s", err, regenerate)
	}
	head, comments := commentsOf(string(have))
	text := head
	keys := newKeyPath()
	for _, line := range strings.SplitAfter(string(want), "\n") {
		if name := keys.next(line); name != "" {
			if comments[name] == "" {
				t.Errorf("%s: no comment above %s: say what it is, its unit and its range", referenceFile, name)
			}
			text += comments[name]
			delete(comments, name)
		}
		text += line
	}
	for name := range comments {
		t.Errorf("%s: a comment stands above %s, which is no key", referenceFile, name)
	}
	if update {
		if err := os.WriteFile(referenceFile, []byte(text), 0o644); err != nil {
			t.Fatalf("write the reference: %v", err)
		}
	} else if text != string(have) {
		t.Errorf("%s is not what the program prints; %s:\n%s", referenceFile, regenerate, firstDifference(string(have), text))
	}
	if update {
		return
	}
	loaded, err := app.LoadConfig(referenceFile, nil)
	if err != nil {
		t.Fatalf("load the reference: %v", err)
	}
	if got, err := yaml.Marshal(loaded); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the reference loads as something else than the defaults (%v):\n%s", err, firstDifference(string(want), string(got)))
	}
}

// commentsOf splits a reference into what stands before the first empty line, and
// the lines above each key.
func commentsOf(text string) (head string, comments map[string]string) {
	comments = map[string]string{}
	keys := newKeyPath()
	block := ""
	for _, line := range strings.SplitAfter(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" && head == "" && len(comments) == 0:
			head, block = block+line, ""
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
			block += line
		default:
			if name := keys.next(line); name != "" {
				if block != "" {
					comments[name] = block
				}
				block = ""
			}
		}
	}
	return head, comments
}

// keyPath follows the keys of a YAML text in block style, two spaces a level.
type keyPath struct{ names []string }

func newKeyPath() *keyPath { return &keyPath{} }

// next is the dotted name of the key that a line holds, "" if it holds none.
func (k *keyPath) next(line string) string {
	name, _, ok := strings.Cut(strings.TrimSpace(line), ":")
	if !ok || strings.HasPrefix(name, "-") {
		return ""
	}
	depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
	k.names = append(k.names[:min(depth, len(k.names))], name)
	return strings.Join(k.names, ".")
}

// TestHelpReference keeps cmd/testdata/help.txt: the help of every verb.
func TestHelpReference(t *testing.T) {
	// The test cache watches what this process reads, not what the build below does.
	for _, dir := range []string{"flyball", "app"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("find the sources of %s: %v", dir, err)
		}
		for _, f := range files {
			if _, err := os.ReadFile(f); err != nil {
				t.Fatalf("read source: %v", err)
			}
		}
	}
	bin := filepath.Join(t.TempDir(), "flyball")
	if out, err := exec.Command("go", "build", "-o", bin, "./flyball").CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "FLYBALL_") })
	var text strings.Builder
	var describe func(verb ...string)
	describe = func(verb ...string) {
		cmd := exec.Command(bin, append(slices.Clone(verb), "--help")...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("flyball %s --help: %v\n%s", strings.Join(verb, " "), err, out)
		}
		body, _, _ := strings.Cut(string(out), "\nGlobal Flags:")
		fmt.Fprintf(&text, "$ %s\n\n%s\n\n", strings.Join(append(append([]string{"flyball"}, verb...), "--help"), " "), strings.TrimSpace(body))
		for _, sub := range subcommands(body) {
			describe(append(slices.Clone(verb), sub)...)
		}
	}
	describe()
	compareGolden(t, filepath.Join("testdata", "help.txt"), text.String())
}

// subcommands lists the verbs that a help text names, without what every command
// line of this kind has.
func subcommands(help string) []string {
	_, list, ok := strings.Cut(help, "Available Commands:\n")
	if !ok {
		return nil
	}
	var out []string
	for _, line := range strings.Split(list, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			break
		}
		if f[0] != "help" && f[0] != "completion" {
			out = append(out, f[0])
		}
	}
	return out
}

// TestMetricsReference wants a row in the operations page for every metric, and no
// other row.
func TestMetricsReference(t *testing.T) {
	names := regexp.MustCompile(`"(flyball_[a-z0-9_]+)"`)
	want := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test || under(f.dir, "cmd/load") || under(f.dir, "deploy") || under(f.dir, "dashboards") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, f.name))
		if err != nil {
			t.Fatalf("read source: %v", err)
		}
		if !strings.Contains(string(src), "client_golang/prometheus") {
			continue
		}
		for _, m := range names.FindAllStringSubmatch(string(src), -1) {
			want[m[1]] = true
		}
	}
	if len(want) < 10 {
		t.Fatalf("only %d metrics found in the sources", len(want))
	}
	compareRows(t, "operations.md", regexp.MustCompile("(?m)^\\| `(flyball_[a-z0-9_]+)"), want)
}

// TestFlagsReference wants a row in the figures page for every flag.
func TestFlagsReference(t *testing.T) {
	want := map[string]bool{}
	for _, n := range schema.FlagNames {
		want[n] = true
	}
	page := readDoc(t, "figures.md")
	_, table, ok := strings.Cut(page, "\n## Flags\n")
	if !ok {
		t.Fatal("deploy/docs/figures.md has no section Flags")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	compareRowsOf(t, "figures.md", table, regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)`"), want)
}

// TestLimiterSignalsReference wants a row in the page of limiter signals for every metric
// that is stored.
func TestLimiterSignalsReference(t *testing.T) {
	want := map[string]bool{}
	for _, n := range dialect.LimiterMetrics() {
		want[n] = true
	}
	_, table, ok := strings.Cut(readDoc(t, "limiter-signals.md"), "\n## Metrics\n")
	if !ok {
		t.Fatal("deploy/docs/limiter-signals.md has no section Metrics")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	compareRowsOf(t, "limiter-signals.md", table, regexp.MustCompile("(?m)^\\| `([a-z._]+)`"), want)
}

// TestRecordedReference keeps the list of recorded set-ups: what was recorded with
// which versions, and what the emitter does not say.
func TestRecordedReference(t *testing.T) {
	const captures = root + "/ingest/dialect/testdata/captures"
	files, err := filepath.Glob(captures + "/*.bill.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("find the captures in %s: %v", captures, err)
	}
	type setup struct {
		name, comment string
		packages      map[string]string
		scenarios     int
	}
	var setups []*setup
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatalf("read capture: %v", err)
		}
		var bill struct {
			Setup    string            `json:"setup"`
			Comment  string            `json:"comment"`
			Packages map[string]string `json:"packages"`
		}
		if err := json.Unmarshal(data, &bill); err != nil {
			t.Fatalf("read capture %s: %v", f, err)
		}
		i := slices.IndexFunc(setups, func(s *setup) bool { return s.name == bill.Setup })
		if i < 0 {
			i = len(setups)
			setups = append(setups, &setup{name: bill.Setup, packages: map[string]string{}})
		}
		s := setups[i]
		s.scenarios++
		s.comment = bill.Comment
		for p, v := range bill.Packages {
			if old, ok := s.packages[p]; ok && old != v {
				v = old + " and " + v
			}
			s.packages[p] = v
		}
	}
	slices.SortFunc(setups, func(a, b *setup) int { return strings.Compare(a.name, b.name) })
	var text strings.Builder
	text.WriteString(recordedHead)
	for _, s := range setups {
		var packages []string
		for _, p := range slices.Sorted(maps.Keys(s.packages)) {
			packages = append(packages, p+" "+s.packages[p])
		}
		fmt.Fprintf(&text, "\n## %s\n\n%s; %d scenarios.\n\n%s\n", s.name, strings.Join(packages, ", "), s.scenarios, s.comment)
	}
	compareGolden(t, root+"/deploy/docs/agents/recorded.md", text.String())
}

const recordedHead = `# What was recorded

Generated from the captures by ` + "`go generate ./cmd`" + `; do not edit. Each set-up below was run against a
scripted provider whose bill is known, and the spans it exported are kept in
` + "`ingest/dialect/testdata/captures`" + `. What Flyball reads out of each, beside the bill, is
` + "`ingest/testdata/captures.golden`" + `, which a test compares. The text says where the emitter itself loses
information; other versions may differ.
`

func readDoc(t *testing.T, page string) string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(root, "deploy/docs", page))
	if err != nil {
		t.Fatalf("read page: %v", err)
	}
	return string(doc)
}

func compareRows(t *testing.T, page string, row *regexp.Regexp, want map[string]bool) {
	t.Helper()
	compareRowsOf(t, page, readDoc(t, page), row, want)
}

func compareRowsOf(t *testing.T, page, text string, row *regexp.Regexp, want map[string]bool) {
	t.Helper()
	have := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		have[m[1]] = true
	}
	for n := range want {
		if !have[n] {
			t.Errorf("deploy/docs/%s has no row for %s", page, n)
		}
	}
	for n := range have {
		if !want[n] {
			t.Errorf("deploy/docs/%s has a row for %s, which is not in the program", page, n)
		}
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatalf("write golden: %v", err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read golden: %v; %s", err, regenerate)
	}
	if got != string(want) {
		t.Errorf("%s is not what is there now; %s:\n%s", file, regenerate, firstDifference(string(want), got))
	}
}

// firstDifference shows the first line in which two texts differ.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := "(end)", "(end)"
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\n  in the file: %s\n  the program: %s", i+1, a, b)
		}
	}
	return "no difference"
}
