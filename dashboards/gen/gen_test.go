package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// TestBoardsAreStrict reads what was built by Grafana's own types, in which a field
// that is unknown, or missing where one is required, is an error.
func TestBoardsAreStrict(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	files, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		var d dashboard.Dashboard
		// The error of a good board is an empty list, not nil.
		if err := d.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBoardsAreBuilt fails where the files differ from what the sources build.
func TestBoardsAreBuilt(t *testing.T) {
	const regenerate = "run `go generate ./...` in dashboards/gen (or `make generate`) and read the difference"
	files, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		have, err := os.ReadFile(filepath.Join("..", name))
		switch {
		case err != nil:
			t.Errorf("read board: %v; %s", err, regenerate)
		case !bytes.Equal(have, want):
			t.Errorf("dashboards/%s is not what the sources build; %s", name, regenerate)
		}
	}
	on, err := filepath.Glob("../*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range on {
		if files[filepath.Base(f)] == nil {
			t.Errorf("dashboards/%s is built by nothing: delete it", filepath.Base(f))
		}
	}
}
