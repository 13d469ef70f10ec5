package dashboards

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flyball/flyball/schema/schematest"
)

func TestMain(m *testing.M) { schematest.Main(m) }

// board is the part of a dashboard's JSON that these tests look at.
type board struct {
	file          string
	UID           string   `json:"uid"`
	Title         string   `json:"title"`
	Description   string   `json:"description"`
	SchemaVersion int      `json:"schemaVersion"`
	Tags          []string `json:"tags"`
	Panels        []panel  `json:"panels"`
	Templating    struct {
		List []struct {
			Name  string          `json:"name"`
			Type  string          `json:"type"`
			Multi bool            `json:"multi"`
			All   bool            `json:"includeAll"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Annotations struct {
		List []struct {
			Name   string `json:"name"`
			Expr   string `json:"expr"`
			Target target `json:"target"`
		} `json:"list"`
	} `json:"annotations"`
}

type panel struct {
	ID          int                      `json:"id"`
	Type        string                   `json:"type"`
	Title       string                   `json:"title"`
	Description string                   `json:"description"`
	Grid        struct{ X, Y, W, H int } `json:"gridPos"`
	Source      source                   `json:"datasource"`
	Targets     []target                 `json:"targets"`
	Options     map[string]any           `json:"options"`
	Fields      struct {
		Defaults struct {
			Unit        string `json:"unit"`
			DisplayName string `json:"displayName"`
			Links       []link `json:"links"`
		} `json:"defaults"`
		Overrides []struct {
			Matcher struct {
				ID      string `json:"id"`
				Options string `json:"options"`
			} `json:"matcher"`
			Properties []struct {
				ID    string          `json:"id"`
				Value json.RawMessage `json:"value"`
			} `json:"properties"`
		} `json:"overrides"`
	} `json:"fieldConfig"`
	text string // its whole JSON
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type target struct {
	Ref    string `json:"refId"`
	Source source `json:"datasource"`
	SQL    string `json:"rawSql"`
	Format int    `json:"format"`
	Expr   string `json:"expr"`
	Legend string `json:"legendFormat"`
}

type link struct {
	Title string `json:"title"`
	URL   string `json:"url"`
}

// links are all of a panel's, of its values and of its columns.
func (p *panel) links(t *testing.T) []link {
	t.Helper()
	out := slices.Clone(p.Fields.Defaults.Links)
	for _, o := range p.Fields.Overrides {
		for _, prop := range o.Properties {
			if prop.ID != "links" {
				continue
			}
			var l []link
			if err := json.Unmarshal(prop.Value, &l); err != nil {
				t.Errorf("%s: read links of %s: %v", p.Title, o.Matcher.Options, err)
			}
			out = append(out, l...)
		}
	}
	return out
}

// property is the value of an override as a string, "" if there is none.
func (p *panel) property(name, id string) string {
	for _, o := range p.Fields.Overrides {
		for _, prop := range o.Properties {
			var s string
			if o.Matcher.Options == name && prop.ID == id && json.Unmarshal(prop.Value, &s) == nil {
				return s
			}
		}
	}
	return ""
}

func boards(t *testing.T) []board {
	t.Helper()
	files, err := filepath.Glob("*.json")
	if err != nil || len(files) != 6 {
		t.Fatalf("find the boards: %d files, %v; want 6", len(files), err)
	}
	var out []board
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		b := board{file: f}
		var whole struct {
			Panels []json.RawMessage `json:"panels"`
		}
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatalf("decode %s: %v", f, err)
		}
		if err := json.Unmarshal(text, &whole); err != nil {
			t.Fatalf("decode %s: %v", f, err)
		}
		for i := range b.Panels {
			b.Panels[i].text = string(whole.Panels[i])
		}
		out = append(out, b)
	}
	return out
}

// TestBoards checks what needs no database.
func TestBoards(t *testing.T) {
	uids := map[string]string{}
	for _, b := range boards(t) {
		if b.UID == "" || uids[b.UID] != "" || !strings.HasPrefix(b.Title, "Flyball") || b.Description == "" || b.SchemaVersion != 42 || !slices.Contains(b.Tags, "flyball") {
			t.Errorf("%s: uid %q (also of %q), title %q, schema %d, tags %v, description %q", b.file, b.UID, uids[b.UID], b.Title, b.SchemaVersion, b.Tags, b.Description)
		}
		uids[b.UID] = b.file
		vars := map[string]string{}
		for _, v := range b.Templating.List {
			if vars[v.Name] != "" {
				t.Errorf("%s: variable %s is there twice", b.file, v.Name)
			}
			vars[v.Name] = v.Type
			if slices.Contains([]string{"tenant", "feature", "model", "environment", "provider"}, v.Name) && (!v.Multi || !v.All) {
				t.Errorf("%s: variable %s does not take several values or all", b.file, v.Name)
			}
			missing(t, b.file, "variable "+v.Name, string(v.Query), vars)
		}
		for name := range vars {
			if !uses(b, name) {
				t.Errorf("%s: nothing uses the variable %s", b.file, name)
			}
		}
		ids := map[int]bool{}
		taken := map[[2]int]string{}
		for i := range b.Panels {
			p := &b.Panels[i]
			where := b.file + ", " + p.Title
			if p.ID == 0 || ids[p.ID] || p.Title == "" {
				t.Errorf("%s: panel %d has no id or title of its own", where, p.ID)
			}
			ids[p.ID] = true
			if p.Grid.W < 1 || p.Grid.H < 1 || p.Grid.X+p.Grid.W > 24 {
				t.Errorf("%s: lies outside of the grid: %+v", where, p.Grid)
			}
			for x := p.Grid.X; x < p.Grid.X+p.Grid.W; x++ {
				for y := p.Grid.Y; y < p.Grid.Y+p.Grid.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: lies over %s", where, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			missing(t, b.file, p.Title, p.text, vars)
			if p.Type == "row" {
				continue
			}
			if len(p.Description) < 40 {
				t.Errorf("%s: does not say how its number is made: %q", where, p.Description)
			}
			if p.Type == "text" {
				continue
			}
			if p.Fields.Defaults.Unit == "" {
				t.Errorf("%s: has no unit", where)
			}
			if len(p.Targets) == 0 {
				t.Fatalf("%s: asks nothing", where)
			}
			for _, q := range p.Targets {
				if (q.SQL == "") == (q.Expr == "") {
					t.Errorf("%s %s: want SQL or PromQL", where, q.Ref)
				}
				want := source{"prometheus", "${prometheus}"}
				if q.SQL != "" {
					want = source{"grafana-clickhouse-datasource", "${clickhouse}"}
				}
				if q.Source != want || p.Source != want || vars[strings.Trim(want.UID, "${}")] != "datasource" {
					t.Errorf("%s %s: asks %+v, and the panel %+v; want %+v, chosen by a variable", where, q.Ref, q.Source, p.Source, want)
				}
				if strings.Contains(q.SQL, "limiter_samples") && !strings.Contains(p.text, `"noValue": "no limiter reports this"`) {
					t.Errorf("%s %s: does not say that no limiter reports this", where, q.Ref)
				}
				if q.Expr != "" && !strings.Contains(q.Expr, `{instance=~"$instance"`) {
					t.Errorf("%s %s: does not look at the chosen instances: %s", where, q.Ref, q.Expr)
				}
			}
			if p.Targets[0].Expr != "" {
				for _, o := range p.Fields.Overrides {
					if !slices.ContainsFunc(p.Targets, func(q target) bool { return q.Legend == o.Matcher.Options }) {
						t.Errorf("%s: shows a series %q, which no query gives", where, o.Matcher.Options)
					}
				}
			}
			for _, l := range p.links(t) {
				if l.Title == "" || !strings.HasPrefix(l.URL, "${console:raw}/") && !strings.HasPrefix(l.URL, "${trace_url:raw}") {
					t.Errorf("%s: link %q leads to %q", where, l.Title, l.URL)
				}
			}
		}
	}
}

// uses reports whether a panel names a variable.
func uses(b board, name string) bool {
	v := regexp.MustCompile(`\$\{?` + name + `\b`)
	return slices.ContainsFunc(b.Panels, func(p panel) bool { return v.MatchString(p.text) })
}

// TestLinks wants the way from a number to its runs and from a run to its trace.
func TestLinks(t *testing.T) {
	leads := map[string]map[string]bool{}
	for _, b := range boards(t) {
		leads[b.file] = map[string]bool{}
		for i := range b.Panels {
			for _, l := range b.Panels[i].links(t) {
				for _, to := range []string{"/#/runs?", "/#/runs/", "${trace_url:raw}"} {
					if strings.Contains(l.URL, to) {
						leads[b.file][to] = true
					}
				}
			}
		}
	}
	f := func(file string, to ...string) {
		t.Helper()
		for _, x := range to {
			if !leads[file][x] {
				t.Errorf("%s: no link leads to %s", file, x)
			}
		}
	}
	f("spend.json", "/#/runs?", "/#/runs/", "${trace_url:raw}")
	f("amplification.json", "/#/runs?", "/#/runs/", "${trace_url:raw}")
	f("close.json", "/#/runs?")
	f("enforcement.json", "/#/runs?")
}

// missing reports variables that a text names and the board lacks.
func missing(t *testing.T, file, what, text string, vars map[string]string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`\$\{?([a-zA-Z_]\w*)`).FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1], "__") && vars[m[1]] == "" {
			t.Errorf("%s, %s: there is no variable %s", file, what, m[1])
		}
	}
}

// metric finds the service's metrics in PromQL, recording what rules make of them.
var (
	metric    = regexp.MustCompile(`\bflyball_[a-z0-9_]+`)
	recording = regexp.MustCompile(`\b\w+:flyball_\w+:\w+`)
)

// TestMetrics wants every metric of the boards and the rules in the operations page,
// which another test keeps equal to the program, or else in the program's sources.
func TestMetrics(t *testing.T) {
	page, err := os.ReadFile("../deploy/docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(flyball_[a-z0-9_]+)").FindAllStringSubmatch(string(page), -1) {
		known[m[1]] = true
	}
	quoted := regexp.MustCompile(`Name: *"(flyball_[a-z0-9_]+)"|(?:gauge|vec|one)\("(flyball_[a-z0-9_]+)"`)
	for _, dir := range []string{"../enforce", "../ingest", "../schema", "../cmd/app"} {
		err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			src, err := os.ReadFile(name)
			for _, m := range quoted.FindAllStringSubmatch(string(src), -1) {
				known[m[1]+m[2]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(known) < 40 {
		t.Fatalf("only %d metrics found", len(known))
	}
	check := func(where, expr string) {
		t.Helper()
		for _, name := range metric.FindAllString(recording.ReplaceAllString(expr, ""), -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if b, ok := strings.CutSuffix(name, suffix); ok && known[b] {
					base = b
				}
			}
			if !known[base] {
				t.Errorf("%s: the service has no metric %s", where, name)
			}
		}
	}
	for _, b := range boards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				check(b.file+", "+p.Title, q.Expr)
			}
			check(b.file+", "+p.Title+", description", regexp.MustCompile(`flyball_\w*\*\w*`).ReplaceAllString(p.Description, ""))
		}
		for _, a := range b.Annotations.List {
			check(b.file+", annotations", a.Expr)
		}
		for _, v := range b.Templating.List {
			if v.Name == "instance" {
				check(b.file+", variable instance", string(v.Query))
			}
		}
	}
	for _, r := range rules(t) {
		check(r.name(), r.Expr)
	}
}
