// Command gen builds the Grafana boards and writes them as classic dashboard JSON.
//
// It guarantees that every panel says how its number is made and in which unit it
// is, that every query goes to a data source that a variable chooses, and that the
// same sources give the same bytes: its test refuses files that differ. It is a
// module of its own, so that nothing of Grafana gets into the program's go.mod.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run . ..

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen DIRECTORY")
		os.Exit(2)
	}
	files, err := build()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}

// readable undoes the escapes that encoding/json makes for pages of HTML, which would
// hide SQL and links from a reader of the file.
var readable = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// build returns the text of every board by its file's name.
func build() (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, b := range map[string]*board{
		"spend.json":         spend(),
		"amplification.json": amplification(),
		"enforcement.json":   enforcement(),
		"limiters.json":      limiters(),
		"close.json":         closing(),
		"self.json":          self(),
	} {
		d, err := b.build()
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", name, err)
		}
		text, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		files[name] = []byte(readable.Replace(string(text)) + "\n")
	}
	return files, nil
}
