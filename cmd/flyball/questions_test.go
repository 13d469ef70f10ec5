package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// What a finding says to do stands below the table.
func TestCoveragePrintsFindings(t *testing.T) {
	f := func(answer string, want ...string) {
		t.Helper()
		var d map[string]any
		if err := json.Unmarshal([]byte(answer), &d); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := printCoverage(&b, d); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
		if got := lines[1:]; strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(`{"rows":[],"findings":[]}`)
	f(`{"rows":[],"findings":[{"finding":"x","text":"Set this."},{"finding":"y","text":"Set that."}]}`, "", "Set this.", "", "Set that.")
}
