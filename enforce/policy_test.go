package enforce

import (
	"strings"
	"testing"
)

const goodGuard = `guards:
  - name: g
    scope: [tenant]
    measure: cost
    window: day
    limit: "5"
    ladder: [{at: 80%, do: warn}, {at: 100%, do: soft_block}]
    outcome: pause
`

var policyOptions = PolicyOptions{
	Receivers: []string{"oncall"},
	Known:     func(m string) bool { return m == "dear" || m == "cheap" || m == "other" },
	Cheaper: func(m, than string) (bool, bool) {
		rank := map[string]int{"cheap": 1, "other": 2, "dear": 3}
		return rank[m] < rank[than], true
	},
}

func TestPolicyMistakes(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		_, _, err := ParsePolicy([]byte(text), policyOptions)
		if err == nil {
			t.Fatalf("no error for\n%s", text)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not say %q, for\n%s", err, w, text)
			}
		}
	}
	change := func(old, new string) string {
		t.Helper()
		if !strings.Contains(goodGuard, old) {
			t.Fatalf("%q is not in the policy", old)
		}
		return strings.Replace(goodGuard, old, new, 1)
	}
	f("gaurds: []\n", "line 1", "gaurds")
	for _, text := range []string{"", "# a file that was cut off", "guards:\n", "tiers: {small: [cheap]}\n"} {
		f(text, "guards are missing", "guards: [] for none")
	}
	f(goodGuard+"    page: [ops]\n", "line 9", "ops", "known are oncall")
	f("guards: {\n", "line 1")
	f(change("name: g", "name: g\n    colour: red"), "line 3", "colour")
	f(change("name: g", "name: kill"), "line 2", "reserved")
	f(change("name: g", `name: ""`), "no name")
	f(goodGuard+strings.TrimPrefix(goodGuard, "guards:\n"), "line 9", "used twice")
	f(change("scope: [tenant]", "scope: []"), "scope is missing")
	f(change("scope: [tenant]", "scope: [tennant]"), "line 3", "tennant")
	f(change("scope: [tenant]", "scope: [tenant, tenant]"), "twice")
	f(change("scope: [tenant]", "scope: [org, user]"), "one tenant")
	f(change("scope: [tenant]", "scope: [run]"), "go together")
	f(change("window: day", "window: run"), "go together")
	f(change("window: day", "window: decade"), "line 5", "decade")
	f(change("window: day", "window: {rolling: 1s}"), "from 10s")
	f(change("window: day", "window: {rolling: fast}"), "duration")
	f(change("window: day", "window: {rolling: 1h, tz: UTC}"), "neither tz")
	f(change("window: day", "window: {calendar: day, tz: Mars/Olympus}"), "Mars/Olympus")
	f(change("window: day", "window: {calendar: month, anchor: 32}"), "1 to 31")
	f(change("window: day", "window: {calendar: day, anchor: 3}"), "does not fit")
	f(change("window: day", "window: {kalendar: day}"), "kalendar")
	f(change("measure: cost", "measure: money"), "line 4", "money", "amplification")
	f(change("measure: cost", "measure: deadline"), "runs")
	for _, bad := range []string{"-1", "NaN", "Inf", "1e3", "five", "", "0x10", "1.0000000000001", "99999999999999999999"} {
		f(change(`limit: "5"`, `limit: "`+bad+`"`), "line 6", "limit")
	}
	f(strings.Replace(change("measure: cost", "measure: tokens"), `"5"`, `"1.5"`, 1), "whole number")
	f(change("at: 80%", "at: 80"), "line 7", "percentage")
	f(change("at: 80%", "at: -1%"), "percentage")
	f(change("at: 80%", "at: 0%"), "0%")
	f(change("at: 80%", "at: 100%"), "rise")
	f(change("do: warn", "do: halt"), "rise")
	f(change("do: warn", "do: explode"), "line 7", "explode")
	f(change("    ladder: [{at: 80%, do: warn}, {at: 100%, do: soft_block}]\n", ""), "ladder is missing")
	f(change("outcome: pause", "outcome: cry"), "line 8", "cry")
	f(change("    outcome: pause\n", ""), "outcome is missing")
	f(goodGuard+"    mode: off\n", "line 9", "enforce or warn")
	f(goodGuard+"    exempt: [vip]\n", "vip")
	f(goodGuard+"    unpriced: free\n", "unpriced")
	f(goodGuard+"    match: {colour: red}\n", "colour")
	f(goodGuard+"    match: {mode: []}\n", "no value")
	f(goodGuard+"    page: [nobody]\n", "line 9", "nobody", "oncall")
	f(goodGuard+"    release_below: 101%\n", "at most 100%")
	f(change("do: soft_block", "do: downgrade"), "downgrade is needed")
	down := change("do: soft_block", "do: downgrade")
	f(down+"    downgrade: {}\n", "neither")
	f(down+"    downgrade: {to_tier: gone}\n", "no tier")
	f(down+"    downgrade: {map: {dear: dear}}\n", "itself")
	f(down+"    downgrade: {map: {dear: other, other: cheap}}\n", "mapped on")
	f(down+"    downgrade: {map: {dear: unheard-of}}\n", "unheard-of", "no price")
	f(down+"    downgrade: {map: {cheap: dear}}\n", "not cheaper")
	f("kill: {multiple: \"1\", floor: \"50\"}\n", "above 1")
	f("kill: {multiple: \"3\", floor: \"0\"}\n", "floor")
	f("kill: {multiple: \"3\"}\n", "floor")
	f("when_unknown: {critical: maybe}\n", "open or closed")
	f("light: {green: 10%, red: 40%}\n", "red below green")
	f("tiers: {small: []}\n", "no model")
	// All mistakes at once.
	f(strings.Replace(change("outcome: pause", "outcome: cry"), "scope: [tenant]", "scope: [moon]", 1), "cry", "moon")
}

func TestPolicyTaken(t *testing.T) {
	f := func(text string, doubts int) {
		t.Helper()
		_, got, err := ParsePolicy([]byte(text), policyOptions)
		if err != nil {
			t.Errorf("%v, for\n%s", err, text)
		}
		if len(got) != doubts {
			t.Errorf("%d doubts, want %d: %v, for\n%s", len(got), doubts, got, text)
		}
	}
	f("guards: []\n", 0)
	f(goodGuard, 0)
	f(string(DefaultPolicy), 0)
	f(strings.Replace(goodGuard, `    limit: "5"`+"\n", "", 1), 0)
	f(strings.Replace(goodGuard, `"5"`, `"0"`, 1), 0)
	f(strings.Replace(goodGuard, "at: 80%", "at: 112.5%", 1)[:0]+goodGuard, 0)
	f(goodGuard+strings.Replace(strings.TrimPrefix(goodGuard, "guards:\n"), "name: g", "name: h", 1), 1) // overlapping
	f(goodGuard+"    downgrade: {map: {dear: cheap}}\n", 1)                                              // never used
	f("guards: []\ntiers: {small: [unheard-of]}\n", 1)
	f(strings.Replace(goodGuard, "do: soft_block", "do: downgrade", 1)+"    downgrade: {map: {dear: cheap, \"*\": cheap}}\n    release_below: 75.5%\n    match: {mode: [interactive, batch], provider: openai}\n", 0)
}

func TestPolicyWithoutReceivers(t *testing.T) {
	_, _, err := ParsePolicy([]byte(goodGuard+"    page: [oncall]\n"), PolicyOptions{Receivers: []string{}})
	if err == nil || !strings.Contains(err.Error(), "none is configured") {
		t.Errorf("got %v", err)
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add([]byte(goodGuard))
	f.Add(DefaultPolicy)
	f.Add([]byte("guards: [{name: a, window: {rolling: 1h}, limit: \"-0\", ladder: [{at: 1%}]}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, _, err := ParsePolicy(text, policyOptions)
		if err != nil {
			return
		}
		// What is taken can be used.
		for i := range p.Guards {
			g := &p.Guards[i]
			_ = g.family.Name()
			if g.limit != nil {
				_ = g.measure.show(g.most)
			}
			if g.limit != nil && len(g.rungs) != len(g.Ladder) {
				t.Fatalf("guard %s has a limit and %d of %d rungs", g.Name, len(g.rungs), len(g.Ladder))
			}
		}
		_ = p.families()
	})
}
