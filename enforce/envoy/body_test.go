package envoy

import (
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/enforce/directive"
)

func TestScanBody(t *testing.T) {
	f := func(body, model string, most uint64) {
		t.Helper()
		for _, c := range []directive.Call{scanned(body), scanned([]byte(body))} {
			if c != (directive.Call{Model: model, MaxOutputTokens: most}) {
				t.Errorf("%.80s: %+v, want %q %d", body, c, model, most)
			}
		}
	}
	f(`{"model":"m-5","max_tokens":900}`, "m-5", 900)
	f("\n { \"max_completion_tokens\" : 12 , \"model\" : \"m\" } ", "m", 12)
	f(`{"messages":[{"model":"inner","max_tokens":1,"content":"} \" {\"model\":\"x\""}],"model":"m","max_output_tokens":1e3}`, "m", 1000)
	f(`{"a":null,"b":true,"c":-1.5,"d":"","e":{},"f":[],"model":"m"}`, "m", 0)
	f(`{"mod\u0065l":"m\u002d5"}`, "m-5", 0)
	f(`{"model":"a","model":"b"}`, "b", 0)
	f(`{"max_tokens":99999999999999999999}`, "", 2147483647)
	f(`{"max_tokens":-5,"model":7}`, "", 0)
	f(`{"max_tokens":"5"}`, "", 0)
	f("{\"model\":\"\xff\"}", "!", 0)
	// Cut off.
	f(`{"model":"m-5","messages":[{"role":"user","content":"hel`, "m-5", 0)
	f(`{"model":"m-5","max_tokens":1`, "m-5", 0)
	f(`{"model":"m-5","max_tokens":10,`, "m-5", 10)
	f(`{"model":"m-`, "", 0)
	f(`{"mod`, "", 0)
	// No JSON, or another kind of it.
	f("", "", 0)
	f("model=m-5", "", 0)
	f(`["model","m-5"]`, "", 0)
	f(`"model"`, "", 0)
	f(`{model:"m"}`, "", 0)
	f(`{"model" "m"}`, "", 0)
	f(`{"a":}"model":"m"}`, "", 0)
	f(`{"a":]]]],"model":"m"}`, "", 0)
	f("\x1f\x8b\x08", "", 0)
	f(strings.Repeat("{\"a\":", 100_000), "", 0)
}

func scanned[T string | []byte](b T) (c directive.Call) {
	scanBody(b, &c)
	return c
}

func FuzzScanBody(f *testing.F) {
	for _, s := range []string{`{"model":"m-5","max_tokens":900}`, `{"a":[{"b":"\""}],"model":"\u0061"}`, `{"a":`, `{"model":"\`, `{"max_tokens":1e`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := scanned(s)
		if c != scanned([]byte(s)) {
			t.Fatal("bytes and strings read differently")
		}
		if c.Model != valid(c.Model) {
			t.Fatalf("model %q is no UTF-8", c.Model)
		}
	})
}

func TestParseTraceparent(t *testing.T) {
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	f := func(h string, want bool) {
		t.Helper()
		gotTrace, gotSpan, ok := parseTraceparent(h)
		if ok != want || ok && (gotTrace != trace || gotSpan != span) {
			t.Errorf("%q: %q %q %v", h, gotTrace, gotSpan, ok)
		}
	}
	f("00-"+trace+"-"+span+"-01", true)
	f("01-"+trace+"-"+span+"-01-more", true)
	f("00-"+trace+"-"+span+"-01-more", false)
	f("ff-"+trace+"-"+span+"-01", false)
	f("00-"+strings.ToUpper(trace)+"-"+span+"-01", false)
	f("00-"+strings.Repeat("0", 32)+"-"+span+"-01", false)
	f("00-"+trace+"-"+strings.Repeat("0", 16)+"-01", false)
	f("00-"+trace+"-"+span, false)
	f("", false)
}

func TestPacer(t *testing.T) {
	var p pacer
	now := time.Unix(1000, 0)
	f := func(after, every, want time.Duration) {
		t.Helper()
		if got := p.take("a", every, now.Add(after)); got != want {
			t.Errorf("after %s: wait %s, want %s", after, got, want)
		}
	}
	f(0, time.Second, 0)
	f(300*time.Millisecond, time.Second, 700*time.Millisecond)
	f(time.Second, time.Second, 0)
	f(1100*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond) // shortened since
	f(1100*time.Millisecond, 0, 0)
	for i := range 3 * maxPaced {
		p.take(strings.Repeat("x", i%97)+string(rune(i)), time.Hour, now)
	}
	if len(p.next) > maxPaced {
		t.Errorf("%d directives are remembered", len(p.next))
	}
}
