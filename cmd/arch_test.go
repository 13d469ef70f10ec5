// Package cmd_test keeps the shape of the repository: which folder may import
// which, that every package says what it guarantees, that every dependency has a
// reason, and that files which describe the program agree with it.
//
// It reads the sources itself. A test that asked `go list` would be served a
// cached pass, since the test cache does not see what a child process reads.
package cmd_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the repository as seen from this directory, where go test runs.
const root = ".."

const module = "github.com/flyball/flyball"

// topLevel is everything that may lie at the top; dot-files are free.
var topLevel = []string{
	"ingest", "enforce", "query", "dashboards", "schema", "cmd", "deploy",
	"go.mod", "go.sum", "README.md", "LICENSE", "Makefile", "CHANGELOG.md", "CONTRIBUTING.md",
	"bin", "flyball-data", "policy.yaml", // not in the repository: what a build and a first run leave
}

// wiring are the trees that put the parts together and may import everything: the
// commands, and the programs that measure or show the whole.
var wiring = []string{"cmd", "deploy/bench", "deploy/examples"}

// shared are packages of types that their siblings may import.
var shared = []string{"enforce/directive"}

// goFile is one parsed source file.
type goFile struct {
	name    string // slash-separated, from the top
	dir     string
	pkg     string
	doc     string
	test    bool
	lines   int
	imports []string // of this module, as directories from the top
}

// walk calls f for every file of the repository that people write.
func walk(t *testing.T, f func(name string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			base := d.Name()
			if name != "." && (strings.HasPrefix(base, ".") && base != ".ci" || base == "node_modules" || base == "testdata" || name == "bin" || name == "flyball-data") {
				return filepath.SkipDir
			}
			return nil
		}
		f(name)
		return nil
	})
	if err != nil {
		t.Fatalf("walk the repository: %v", err)
	}
}

func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".go") {
			return
		}
		src, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatalf("read source: %v", err)
		}
		f, err := parseFile(name, src)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	})
	if len(files) < 50 {
		t.Fatalf("only %d Go files found: the walk misses the repository", len(files))
	}
	return files
}

func parseFile(name string, src []byte) (goFile, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, name, src, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return goFile{}, fmt.Errorf("parse source: %w", err)
	}
	f := goFile{name: name, dir: path.Dir(name), pkg: parsed.Name.Name, test: strings.HasSuffix(name, "_test.go"), lines: strings.Count(string(src), "\n")}
	f.doc = docText(parsed)
	for _, spec := range parsed.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return goFile{}, fmt.Errorf("parse import of %s: %w", name, err)
		}
		if rest, ok := strings.CutPrefix(p, module+"/"); ok {
			f.imports = append(f.imports, rest)
		}
	}
	return f, nil
}

func docText(f *ast.File) string {
	if f.Doc == nil {
		return ""
	}
	return strings.TrimSpace(f.Doc.Text())
}

func under(dir, tree string) bool { return dir == tree || strings.HasPrefix(dir, tree+"/") }

func top(dir string) string {
	t, _, _ := strings.Cut(dir, "/")
	return t
}

// testHelper reports whether a package exists for tests only, by its name, as
// httptest does: schematest.
func testHelper(dir string) bool {
	base := path.Base(dir)
	return strings.HasSuffix(base, "test") && base != "test"
}

// forbidden says why a file in dir must not import target, "" if it may. Test
// files follow the same rules; what a test needs of another folder it gets from a
// test helper or belongs in cmd.
func forbidden(dir, target string, test bool) string {
	switch {
	case target == dir: // an external test of the package itself
		return ""
	case testHelper(target):
		if test || testHelper(dir) {
			return ""
		}
		return "is a test helper: only tests may import it"
	case slices.ContainsFunc(wiring, func(w string) bool { return under(dir, w) }):
		return ""
	case top(target) == "cmd":
		return "wires the parts together: no part may import it"
	case top(dir) != top(target):
		if top(target) == "schema" {
			return ""
		}
		return "lies in another folder: across folders only schema may be imported; declare the small interface you need"
	case testHelper(dir), under(target, dir):
		return ""
	case under(dir, target):
		return "is a parent: parents import children, never the reverse"
	case slices.Contains(shared, target):
		return ""
	}
	return "is a sibling: siblings do not import each other; what they share belongs in schema"
}

func TestImports(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, target := range f.imports {
			if why := forbidden(f.dir, target, f.test); why != "" {
				t.Errorf("%s imports %s, which %s", f.name, target, why)
			}
		}
	}
}

func TestForbidden(t *testing.T) {
	f := func(file, target string, want bool) {
		t.Helper()
		if got := forbidden(path.Dir(file), target, strings.HasSuffix(file, "_test.go")) != ""; got != want {
			t.Errorf("%s importing %s: forbidden is %v, want %v", file, target, got, want)
		}
	}
	f("ingest/a.go", "schema", false)
	f("ingest/trace/a.go", "schema/state", false)
	f("ingest/a.go", "ingest/trace", false)
	f("ingest/a_test.go", "ingest", false)
	f("cmd/flyball/a.go", "enforce/feed", false)
	f("deploy/bench/a.go", "ingest/wal", false)
	f("enforce/feed/a.go", "enforce/directive", false)
	f("query/a_test.go", "schema/schematest", false)
	f("schema/schematest/a.go", "schema/engine", false)

	f("ingest/a.go", "query", true)
	f("enforce/a.go", "ingest/wal", true)
	f("schema/a.go", "ingest", true)
	f("ingest/trace/a.go", "ingest/price", true)
	f("ingest/trace/a.go", "ingest", true)
	f("ingest/trace/a_test.go", "ingest/price", true)
	f("schema/engine/a.go", "schema", true)
	f("query/a.go", "schema/schematest", true)
	f("query/a.go", "cmd/app", true)
	f("enforce/directive/a.go", "enforce/feed", true)
	f("deploy/engine/a.go", "ingest/wal", true)
}

func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatalf("read the top level: %v", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(topLevel, e.Name()) {
			t.Errorf("%s does not belong at the top level, which holds %s and dot-files", e.Name(), strings.Join(topLevel, " "))
		}
	}
}

func TestPackages(t *testing.T) {
	type pkg struct {
		name, doc string
		onlyTests bool
	}
	pkgs := map[string]*pkg{}
	for _, f := range goFiles(t) {
		p := pkgs[f.dir]
		if p == nil {
			p = &pkg{onlyTests: true}
			pkgs[f.dir] = p
		}
		if !f.test {
			p.name, p.onlyTests = f.pkg, false
		} else if p.name == "" {
			p.name = f.pkg
		}
		if (!f.test || p.onlyTests) && len(f.doc) > len(p.doc) {
			p.doc = f.doc
		}
	}
	for dir, p := range pkgs {
		want := "Package " + p.name
		if p.name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(p.doc, want) {
			t.Errorf("package %s has no comment that begins with %q: say what it guarantees, what it refuses and where it sits", dir, want)
		}
		for _, bad := range []string{"util", "utils", "common", "type", "types", "model", "models", "helper", "helpers", "misc", "pkg", "noop", "mock", "mocks"} {
			if p.name == bad || path.Base(dir) == bad {
				t.Errorf("package %s: the name %q says nothing about what is in it", dir, bad)
			}
		}
	}
}

func TestMainIsShort(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.name == "cmd/flyball/main.go" && f.lines >= 100 {
			t.Errorf("%s has %d lines, want under 100: a verb has a file of its own", f.name, f.lines)
		}
	}
}

// TestMarkers keeps notes about unfinished work out of the sources: they belong
// where they are read.
func TestMarkers(t *testing.T) {
	marker := regexp.MustCompile(`\b(` + strings.Join([]string{"TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"}, "|") + `)\b`)
	walk(t, func(name string) {
		if !slices.Contains([]string{".go", ".sh", ".sql", ".md", ".yaml", ".yml", ".mjs", ".py"}, path.Ext(name)) && name != "Makefile" && name != ".ci/run" {
			return
		}
		src, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatalf("read source: %v", err)
		}
		for i, line := range strings.Split(string(src), "\n") {
			if m := marker.FindString(line); m != "" {
				t.Errorf("%s:%d has a %s", name, i+1, m)
			}
		}
	})
}

// TestDependencies wants a row "| `module` | reason |" for each module that go.mod
// requires directly, and no other row.
func TestDependencies(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatalf("read go.mod: %v", err)
	}
	const page = "deploy/docs/dependencies.md"
	doc, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatalf("read the reasons: %v", err)
	}
	reasons := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|$").FindAllStringSubmatch(string(doc), -1) {
		reasons[m[1]] = strings.TrimSpace(m[2])
	}
	direct := directRequirements(string(mod))
	if len(direct) < 5 {
		t.Fatalf("only %d direct requirements found in go.mod", len(direct))
	}
	for _, d := range direct {
		if len(strings.Fields(reasons[d])) < 4 {
			t.Errorf("%s is required by go.mod and has no reason in %s: add a row, or drop the dependency", d, page)
		}
		delete(reasons, d)
	}
	for d := range reasons {
		t.Errorf("%s has a row in %s and is not required by go.mod: drop the row", d, page)
	}
}

func directRequirements(mod string) []string {
	var out []string
	block := false
	for _, line := range strings.Split(mod, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "require (":
			block = true
			continue
		case line == ")":
			block = false
			continue
		}
		rest, single := strings.CutPrefix(line, "require ")
		if !block && !single || strings.HasSuffix(line, "// indirect") {
			continue
		}
		if f := strings.Fields(rest); len(f) >= 2 {
			out = append(out, f[0])
		}
	}
	return out
}
