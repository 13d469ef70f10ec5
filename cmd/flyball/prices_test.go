package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Questions about a price are asked the way calls are recorded, and a file is told what
// of it would be taken.
func TestPrices(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own := write("own.yaml", `
prices:
  - {provider: azure_openai, models: [m-5], per_million: {input: "2"}}
aliases:
  - {provider: azure.ai.openai, model: prod-chat-2, is: {provider: azure, model: m-5}}
`)
	wrong := write("wrong.yaml", `
prices:
  - {provider: azure_openai, models: [m-5], per_million: {input: "2"}}
  - {provider: openai, models: [m-6], per_million: {input: "1"}, service_tiers: {bacth: {per_million: {input: "0.5"}}}}
`)
	config := write("flyball.yaml", "prices: {embedded: false, files: ["+own+"]}\n")
	f := func(want string, args ...string) {
		t.Helper()
		g := &global{config: config}
		c := pricesCommand(g)
		var out strings.Builder
		c.SetOut(&out)
		c.SetErr(&out)
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(args)
		if err := c.Execute(); err != nil {
			out.WriteString(err.Error())
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("prices %s: got\n%s\nwant %q in it", strings.Join(args, " "), out.String(), want)
		}
	}
	f("provider azure.ai.openai is recorded as azure\nprice line own.yaml:azure/m-5\n", "explain", "azure.ai.openai", "prod-chat-2", "--input", "1000000")
	f("azure/m-7 has no price", "explain", "azure_openai", "m-7", "--input", "1")
	f(`provider "langchain" is a framework`, "explain", "langchain", "m-5", "--input", "1")
	f("row 2 (openai m-6): service_tiers.bacth: no such tier; want one of balanced, batch", "import", wrong)
	f("1 price lines would be taken, 1 rows not as they are written", "import", wrong)
	config = write("wrong-flyball.yaml", "prices: {embedded: false, files: ["+wrong+"]}\n")
	f("wrong.yaml: row 2 (openai m-6): service_tiers.bacth", "explain", "azure", "m-5", "--input", "1") // as the service would refuse it
}
