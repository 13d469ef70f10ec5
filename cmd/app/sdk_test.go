package app

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/limiter"
)

// sdkPrices are those of prices for every provider, with rates for caches and a dear
// model each.
const sdkPrices = `prices:
  - {provider: openai, models: [m-1], per_million: {input: "1", output: "2", cache_read: "0.5"}}
  - {provider: openai, models: [m-5], per_million: {input: "5", output: "10"}}
  - {provider: anthropic, models: [claude-1], per_million: {input: "1", output: "2", cache_read: "0.5", cache_write_5m: "1.25", cache_write_1h: "2"}}
  - {provider: anthropic, models: [claude-5], per_million: {input: "5", output: "10"}}
  - {provider: google, models: [gemini-1], per_million: {input: "1", output: "2", cache_read: "0.5"}}
  - {provider: google, models: [gemini-5], per_million: {input: "5", output: "10"}}
`

const sdkPolicy = `
critical: {features: [checkout]}
light: {green: 40%, red: 10%}
kill: {multiple: "3", floor: "1000000", exempt: [critical]}
guards:
  - {name: task, scope: [run], match: {tenant: tenant-0}, measure: cost, window: run, limit: "0.001", ladder: [{at: 100%, do: terminate}], outcome: checkpoint}
  - {name: feature-month, scope: [tenant, feature], match: {feature: dear}, measure: cost, window: month, limit: "0.001", ladder: [{at: 100%, do: downgrade}], downgrade: {map: {m-5: m-1, claude-5: claude-1, gemini-5: gemini-1}}, outcome: return_partial}
  - {name: tight, scope: [tenant], match: {tenant: tight}, measure: cost, window: month, limit: "0.00001", ladder: [{at: 100%, do: terminate}], outcome: pause}
  - {name: cap, scope: [tenant], measure: cost, window: month, limit: "1000", ladder: [{at: 100%, do: soft_block}], outcome: pause}
  - {name: count, scope: [tenant], measure: tokens, window: month, limit: "1000000000", ladder: [{at: 100%, do: soft_block}], outcome: pause}
`

// sdkAPI is one API of one SDK.
type sdkAPI struct {
	driver      *sdkDriver
	api         string
	provider    string
	model, dear string
	// What the fake provider says of a usual answer and of one that was cached in part:
	// the SDK's names of input and output, micro-dollars, tokens.
	input, output string
	cost          [2]float64
	tokens        [2]float64
}

// TestSDKs lets the real SDKs of OpenAI, Anthropic and Google call through a proxy that
// a limiter guards: a denial is one attempt and no call, an answer passes unchanged,
// and a lease ends as what the provider reported.
func TestSDKs(t *testing.T) {
	node, python := newDrivers(t)
	list := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(list, []byte(sdkPrices), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newService(t, "", append(withPolicy(t, sdkPolicy), `FLYBALL_PRICES__FILES=["`+list+`"]`)...)
	s.start()
	l := s.follow("sdk-proxy")
	p := newSDKProvider(t)
	plain, leased := p.proxy(l.Transport(limiter.TransportOptions{})), p.proxy(l.Transport(limiter.TransportOptions{Lease: true}))

	// A run that is over its budget, and a feature that is.
	b := newBatch()
	b.chat(5, 2, 0, 2000)
	b.chat(6, 2, 0, 2000).Attributes().PutStr("app.feature", "dear")
	for i := range b.spans.Len() { // in the month that is asked about below
		b.spans.At(i).SetStartTimestamp(pcommon.NewTimestampFromTime(time.Now()))
		b.spans.At(i).SetEndTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	}
	s.mustSend(b.td)
	spent := map[string]string{"x-flyball-tenant": "tenant-0", "traceparent": fmt.Sprintf("00-%016x%016x-00f067aa0ba902b7-01", 0xf1, 5)}
	dear := map[string]string{"x-flyball-tenant": "tenant-1", "x-flyball-feature": "dear"}
	eventually(t, "both are over", func() bool { return l.Set().Len() == 2 })

	openAI := func(d *sdkDriver, api, input, output string) *sdkAPI {
		return &sdkAPI{d, api, "openai", "m-1", "m-5", input, output, [2]float64{140, 110}, [2]float64{120, 120}}
	}
	anthropic := func(d *sdkDriver) *sdkAPI {
		return &sdkAPI{d, "anthropic.messages", "anthropic", "claude-1", "claude-5", "input_tokens", "output_tokens", [2]float64{140, 117.5}, [2]float64{120, 120}}
	}
	apis := []*sdkAPI{
		openAI(node, "openai.chat", "prompt_tokens", "completion_tokens"), openAI(node, "openai.responses", "input_tokens", "output_tokens"), anthropic(node),
		{node, "gemini.generate", "google", "gemini-1", "gemini-5", "promptTokenCount", "candidatesTokenCount", [2]float64{140, 120}, [2]float64{120, 125}},
		openAI(python, "openai.chat", "prompt_tokens", "completion_tokens"), openAI(python, "openai.responses", "input_tokens", "output_tokens"), anthropic(python),
	}
	serial, refusals := 0, 0
	// call makes one call through a proxy and returns what the SDK made of it, and how
	// often it was asked for and made.
	call := func(t *testing.T, a *sdkAPI, proxy, do string, c sdkCall, chunk func(id string)) (sdkReply, *sdkSeen) {
		t.Helper()
		serial++
		id := fmt.Sprintf("call-%d", serial)
		c.API, c.Base = a.api, proxy
		if c.Model == "" {
			c.Model = a.model
		}
		headers := map[string]string{"x-test-call": id, "x-test-do": do}
		for k, v := range c.Headers {
			headers[k] = v
		}
		c.Headers = headers
		r := a.driver.call(t, c, func() { chunk(id) })
		return r, p.seen(id)
	}
	next := func(id string) { p.release(id) }
	refused := func(t *testing.T, a *sdkAPI, proxy string, headers map[string]string, status int, reason string) {
		t.Helper()
		for _, stream := range []bool{false, true} {
			r, n := call(t, a, proxy, "", sdkCall{Stream: stream, Headers: headers}, next)
			refusals += n.attempts
			if n.attempts != 1 || len(n.made) != 0 {
				t.Errorf("stream %v: %d attempts and %d calls, want one attempt", stream, n.attempts, len(n.made))
			}
			if r.Status != status || !strings.Contains(r.Error, reason) {
				t.Errorf("stream %v: status %d, want %d; the error does not say %q: %s", stream, r.Status, status, reason, r.Error)
			}
		}
	}
	intact := func(t *testing.T, a *sdkAPI, r sdkReply, n *sdkSeen, model string, stream bool) {
		t.Helper()
		want := sdkText
		if stream {
			want = strings.Join(sdkChunks, "")
		}
		if r.Error != "" || r.Text != want || r.Model != model || r.Usage[a.input] != 100.0 || r.Usage[a.output] != 20.0 {
			t.Errorf("stream %v: the answer is %+v", stream, r)
		}
		if stream && strings.Join(r.chunks, "|") != strings.Join(sdkChunks, "|") {
			t.Errorf("chunks %q", r.chunks)
		}
		if n.attempts != 1 || len(n.made) != 1 || n.made[0] != model {
			t.Errorf("stream %v: %d attempts, calls of %q", stream, n.attempts, n.made)
		}
		if n.late != 0 {
			t.Errorf("%d chunks were held back", n.late)
		}
	}
	for _, a := range apis {
		t.Run(a.driver.name+"/"+a.api, func(t *testing.T) {
			for _, proxy := range []string{plain, leased} {
				for _, stream := range []bool{false, true} {
					r, n := call(t, a, proxy, "", sdkCall{Stream: stream}, next)
					intact(t, a, r, n, a.model, stream)
					r, n = call(t, a, proxy, "", sdkCall{Stream: stream, Model: a.dear, Headers: dear}, next)
					intact(t, a, r, n, a.model, stream)
				}
				refused(t, a, proxy, spent, http.StatusForbidden, "spent $0.00201 of $0.001 in the run")
			}
			// Nothing was spent, and the call does not fit: only a lease can know.
			refused(t, a, leased, map[string]string{"x-flyball-tenant": "tight"}, http.StatusForbidden, "tight: $0 used of $0.00001")

			// holds runs a call for a tenant of its own and waits for what its budgets hold; cost
			// of -1 is what was reserved when its first chunk came.
			holds := func(do string, c sdkCall, cost, tokens float64, attempts int) {
				t.Helper()
				tenant := fmt.Sprintf("tenant-of-%d", serial)
				c.Headers = map[string]string{"x-flyball-tenant": tenant}
				var reserved, asked float64
				r, n := call(t, a, leased, do, c, func(id string) {
					_, reserved = s.pending(tenant, "cap")
					_, asked = s.pending(tenant, "count")
					if c.Cancel {
						a.driver.leave(t)
					} else {
						p.release(id)
					}
				})
				if n.attempts != attempts || len(n.made) != attempts || (r.Error != "") != (do == "fail") {
					t.Errorf("%q, stream %v, cancelled %v: %d attempts, %d calls: %+v", do, c.Stream, c.Cancel, n.attempts, len(n.made), r)
				}
				if c.Stream && (reserved <= 0.0001 || asked <= 50) {
					t.Errorf("%q, stream %v, cancelled %v: %g USD and %g tokens were reserved", do, c.Stream, c.Cancel, reserved, asked)
				}
				if cost < 0 {
					cost, tokens = reserved, asked
				}
				var got [4]float64
				for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
					got[0], got[1] = s.pending(tenant, "cap")
					got[2], got[3] = s.pending(tenant, "count")
					if got == [4]float64{cost, 0, tokens, 0} {
						return
					}
					if time.Now().After(end) {
						t.Errorf("%q, stream %v, cancelled %v: holds and leases are %v, want %g USD and %g tokens held", do, c.Stream, c.Cancel, got, cost, tokens)
						return
					}
				}
			}
			const micro = 1e6
			for _, stream := range []bool{false, true} {
				holds("", sdkCall{Stream: stream}, a.cost[0]/micro, a.tokens[0], 1)
				holds("cached", sdkCall{Stream: stream}, a.cost[1]/micro, a.tokens[1], 1)
			}
			holds("silent", sdkCall{Stream: true}, -1, 0, 1)
			holds("", sdkCall{Stream: true, Cancel: true}, -1, 0, 1)
			attempts := 3 // the SDK's own retries of a provider's error pass, each with its lease
			if a.provider == "google" {
				attempts = 1
			}
			holds("fail", sdkCall{}, 0, 0, attempts)
		})
	}

	// Little is left of the providers' limits: what can wait is told to.
	for _, provider := range []string{"openai", "anthropic", "google"} {
		s.post("/limiters/other/headroom", map[string]any{"headroom": []map[string]any{{"provider": provider, "dimension": "requests", "limit": 100, "remaining": 1}}}, http.StatusNoContent)
		eventually(t, "the light is red", func() bool {
			d := l.Check(&limiter.Call{Tenant: "t", Provider: provider, Model: "m-1", Criticality: directive.Background})
			return d.Guard == "light" && d.Status() == http.StatusTooManyRequests
		})
	}
	for _, a := range apis {
		t.Run("parked/"+a.driver.name+"/"+a.api, func(t *testing.T) {
			refused(t, a, leased, map[string]string{"x-flyball-criticality": "background"}, http.StatusTooManyRequests, "traffic light of "+a.provider)
		})
	}
	s.post("/kill", map[string]any{"state": "on", "reason": "all agents stop"}, http.StatusOK)
	eventually(t, "the kill switch is on", func() bool { return l.Set().KillState().On })
	for _, a := range apis {
		t.Run("killed/"+a.driver.name+"/"+a.api, func(t *testing.T) {
			refused(t, a, plain, nil, http.StatusForbidden, "all agents stop")
			r, n := call(t, a, plain, "", sdkCall{Headers: map[string]string{"x-flyball-feature": "checkout"}}, next)
			intact(t, a, r, n, a.model, false)
		})
	}
	// Each attempt that was refused is known to the service.
	eventually(t, "the refusals are counted", func() bool { return s.counters()["flyball_refused_calls_total"] == float64(refusals) })
	if p.compressed == 0 {
		t.Error("no SDK takes compressed answers: nothing proves that leases are settled all the same")
	}
}

// pending is what a budget of a tenant holds and has leased, in USD or tokens.
func (s *service) pending(tenant, guard string) (holds, leases float64) {
	s.t.Helper()
	number := func(v any) (n float64) {
		if _, err := fmt.Sscan(strings.TrimPrefix(fmt.Sprint(v), "$"), &n); err != nil {
			s.t.Fatalf("budget of %s: %v: %v", tenant, v, err)
		}
		return n
	}
	for _, b := range s.get("/budgets?tenant=" + tenant + "&user=nobody")["budgets"].([]any) {
		if b := b.(map[string]any); b["guard"] == guard {
			return number(b["holds"]), number(b["leases"])
		}
	}
	s.t.Fatalf("tenant %s has no budget %s", tenant, guard)
	return 0, 0
}

// What the fake provider says.
const sdkText = "héllo \"usage\":{\"input_tokens\":9} \u2028 <b>\n"

var sdkChunks = []string{"ein ", "\"zwei\" ", "dréi\n"}

// sdkSeen is what became of one call of the test.
type sdkSeen struct {
	attempts int      // that came to the proxy
	made     []string // models of those that came to the provider
	late     int      // chunks that did not arrive before the next was due
	next     chan struct{}
}

// sdkProvider answers as OpenAI, Anthropic and Google do. It sends the next chunk of a
// stream only when the client has the one before.
type sdkProvider struct {
	t   *testing.T
	url *url.URL

	mu         sync.Mutex // guards below
	calls      map[string]*sdkSeen
	compressed int // answers
}

func newSDKProvider(t *testing.T) *sdkProvider {
	p := &sdkProvider{t: t, calls: map[string]*sdkSeen{}}
	srv := httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	p.url, _ = url.Parse(srv.URL)
	return p
}

// proxy starts a proxy before the provider and returns its URL.
func (p *sdkProvider) proxy(rt http.RoundTripper) string {
	rp := &httputil.ReverseProxy{Transport: rt, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(p.url) }, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.of(r.Header.Get("X-Test-Call"), func(x *sdkSeen) { x.attempts++ })
		rp.ServeHTTP(w, r)
	}))
	p.t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return srv.URL
}

func (p *sdkProvider) of(id string, f func(*sdkSeen)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.calls[id]
	if x == nil {
		x = &sdkSeen{next: make(chan struct{}, 10)}
		p.calls[id] = x
	}
	f(x)
}

func (p *sdkProvider) seen(id string) (out *sdkSeen) {
	p.of(id, func(x *sdkSeen) { c := *x; out = &c })
	return out
}

func (p *sdkProvider) release(id string) { p.of(id, func(x *sdkSeen) { x.next <- struct{}{} }) }

func (p *sdkProvider) serve(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model  string
		Stream bool
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, rest, ok := strings.Cut(r.URL.Path, "/models/"); ok {
		body.Model, _, _ = strings.Cut(rest, ":")
		body.Stream = strings.HasSuffix(rest, ":streamGenerateContent")
	}
	id, do := r.Header.Get("X-Test-Call"), r.Header.Get("X-Test-Do")
	var next chan struct{}
	p.of(id, func(x *sdkSeen) { x.made, next = append(x.made, body.Model), x.next })
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Flyball") {
			p.t.Errorf("the provider is told %s", name)
		}
	}
	if do == "fail" {
		w.Header().Set("Retry-After-Ms", "5")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":{"message":"overloaded","type":"server_error"}}`)
		return
	}
	out := io.Writer(w)
	flush := w.(http.Flusher).Flush
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		p.mu.Lock()
		p.compressed++
		p.mu.Unlock()
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		out, flush = z, func() { _ = z.Flush(); w.(http.Flusher).Flush() }
	}
	whole, events := answerAs(r.URL.Path, body.Model, "r-"+id, do)
	if !body.Stream {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(whole)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		b, _ := json.Marshal(e.data)
		if e.name != "" {
			_, _ = fmt.Fprintf(out, "event: %s\n", e.name)
		}
		_, _ = fmt.Fprintf(out, "data: %s\n\n", b)
		flush()
		if !e.text {
			continue
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return
		case <-time.After(10 * time.Second):
			p.of(id, func(x *sdkSeen) { x.late++ })
		}
	}
	if strings.HasSuffix(r.URL.Path, "/chat/completions") {
		_, _ = io.WriteString(out, "data: [DONE]\n\n")
	}
}

// sdkEvent is one event of a stream; text says that the client shows it.
type sdkEvent struct {
	name string
	data any
	text bool
}

// answerAs is an answer as the API of a path gives it, whole and in events: 100 tokens
// in and 20 out; "cached" has part of the input from a cache, "silent" has no usage.
func answerAs(path, model, id, do string) (any, []sdkEvent) {
	type m = map[string]any
	var events []sdkEvent
	add := func(name string, text bool, data m) { events = append(events, sdkEvent{name, data, text}) }
	switch {
	case strings.HasSuffix(path, "/messages"):
		usage := m{"input_tokens": 100, "output_tokens": 20}
		if do == "cached" {
			usage = m{"input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30, "cache_creation": m{"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 0}, "output_tokens": 20}
		}
		message := func(content []m, usage m) m {
			return m{"id": id, "type": "message", "role": "assistant", "model": model, "content": content, "stop_reason": nil, "stop_sequence": nil, "usage": usage}
		}
		start := m{}
		for k, v := range usage {
			start[k] = v
		}
		start["output_tokens"] = 1
		add("message_start", false, m{"type": "message_start", "message": message([]m{}, start)})
		add("content_block_start", false, m{"type": "content_block_start", "index": 0, "content_block": m{"type": "text", "text": ""}})
		for _, c := range sdkChunks {
			add("content_block_delta", true, m{"type": "content_block_delta", "index": 0, "delta": m{"type": "text_delta", "text": c}})
		}
		add("content_block_stop", false, m{"type": "content_block_stop", "index": 0})
		if do != "silent" {
			add("message_delta", false, m{"type": "message_delta", "delta": m{"stop_reason": "end_turn", "stop_sequence": nil}, "usage": m{"output_tokens": 20}})
		}
		add("message_stop", false, m{"type": "message_stop"})
		return message([]m{{"type": "text", "text": sdkText}}, usage), events
	case strings.Contains(path, "/models/"):
		usage := m{"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}
		if do == "cached" {
			usage = m{"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 20, "thoughtsTokenCount": 5, "totalTokenCount": 125}
		}
		part := func(text, finish string, usage m) m {
			c := m{"content": m{"role": "model", "parts": []m{{"text": text}}}, "index": 0}
			if finish != "" {
				c["finishReason"] = finish
			}
			out := m{"candidates": []m{c}, "modelVersion": model, "responseId": id}
			if usage != nil && do != "silent" {
				out["usageMetadata"] = usage
			}
			return out
		}
		for i, c := range sdkChunks {
			if i < len(sdkChunks)-1 {
				add("", true, part(c, "", m{"promptTokenCount": 100, "candidatesTokenCount": i + 1}))
			} else {
				add("", true, part(c, "STOP", usage))
			}
		}
		return part(sdkText, "STOP", usage), events
	case strings.HasSuffix(path, "/responses"):
		usage := m{"input_tokens": 100, "input_tokens_details": m{"cached_tokens": 0}, "output_tokens": 20, "output_tokens_details": m{"reasoning_tokens": 5}, "total_tokens": 120}
		if do == "cached" {
			usage["input_tokens_details"] = m{"cached_tokens": 60}
		}
		response := func(status, text string, usage any) m {
			out := []m{{"id": "msg", "type": "message", "status": status, "role": "assistant", "content": []m{{"type": "output_text", "text": text, "annotations": []m{}}}}}
			return m{"id": id, "object": "response", "created_at": 1790000000, "status": status, "model": model, "output": out, "usage": usage, "parallel_tool_calls": true, "tool_choice": "auto", "tools": []m{}}
		}
		add("response.created", false, m{"type": "response.created", "sequence_number": 0, "response": response("in_progress", "", nil)})
		for i, c := range sdkChunks {
			add("response.output_text.delta", true, m{"type": "response.output_text.delta", "sequence_number": i + 1, "item_id": "msg", "output_index": 0, "content_index": 0, "delta": c})
		}
		var last any = usage
		if do == "silent" {
			last = nil
		}
		add("response.completed", false, m{"type": "response.completed", "sequence_number": 9, "response": response("completed", strings.Join(sdkChunks, ""), last)})
		return response("completed", sdkText, usage), events
	default:
		usage := m{"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
		if do == "cached" {
			usage["prompt_tokens_details"] = m{"cached_tokens": 60}
		}
		chunk := func(choices []m, usage any) m {
			return m{"id": id, "object": "chat.completion.chunk", "created": 1790000000, "model": model, "choices": choices, "usage": usage}
		}
		for _, c := range sdkChunks {
			add("", true, chunk([]m{{"index": 0, "delta": m{"role": "assistant", "content": c}, "finish_reason": nil}}, nil))
		}
		add("", false, chunk([]m{{"index": 0, "delta": m{}, "finish_reason": "stop"}}, nil))
		if do != "silent" {
			add("", false, chunk([]m{}, usage))
		}
		return m{"id": id, "object": "chat.completion", "created": 1790000000, "model": model, "usage": usage, "choices": []m{{"index": 0, "finish_reason": "stop", "message": m{"role": "assistant", "content": sdkText}}}}, events
	}
}

// sdkCall is what a driver is asked for, see testdata/sdk.
type sdkCall struct {
	API     string            `json:"api"`
	Base    string            `json:"base"`
	Model   string            `json:"model"`
	Headers map[string]string `json:"headers"`
	Stream  bool              `json:"stream"`
	Cancel  bool              `json:"cancel"` // leave after the first chunk, see sdkDriver.leave
}

// sdkReply is what the SDK made of it.
type sdkReply struct {
	Chunk  string
	Done   bool
	Text   string
	Model  string
	Usage  map[string]any
	Error  string
	Status int
	chunks []string
}

// sdkDriver is a process that makes calls with the SDKs of one language.
type sdkDriver struct {
	name  string
	in    io.Writer
	lines chan []byte
	errs  *bytes.Buffer
}

// call makes a call and runs chunk for each piece of a stream, when the SDK has it.
func (d *sdkDriver) call(t *testing.T, c sdkCall, chunk func()) sdkReply {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.in.Write(append(b, '\n')); err != nil {
		t.Fatalf("%s: %v", d.name, err)
	}
	var chunks []string
	for {
		var r sdkReply
		select {
		case line, ok := <-d.lines:
			if !ok {
				t.Fatalf("%s ended: %s", d.name, d.errs.String())
			}
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatalf("%s said %s", d.name, line)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s does not answer: %+v", d.name, c)
		}
		if r.Done {
			r.chunks = chunks
			return r
		}
		chunks = append(chunks, r.Chunk)
		chunk()
	}
}

// leave lets a call that is to be cancelled leave its stream.
func (d *sdkDriver) leave(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(d.in, "\n"); err != nil {
		t.Fatalf("%s: %v", d.name, err)
	}
}

// newDrivers installs the pinned SDKs into the user's cache, once, and starts a driver
// for each language.
func newDrivers(t *testing.T) (node, python *sdkDriver) {
	t.Helper()
	needs(t, "node", "npm", "python3")
	src, err := filepath.Abs(filepath.Join("testdata", "sdk"))
	if err != nil {
		t.Fatal(err)
	}
	dir := install(t, "sdk", src, []string{"package.json", "package-lock.json", ".npmrc", "requirements.txt"}, append([][]string{{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"}}, venv...))
	// Node looks for packages beside the script.
	run := t.TempDir()
	script, err := os.ReadFile(filepath.Join(src, "drive.mjs"))
	if err == nil {
		err = os.WriteFile(filepath.Join(run, "drive.mjs"), script, 0o600)
	}
	if err == nil {
		err = os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(run, "node_modules"))
	}
	if err != nil {
		t.Fatal(err)
	}
	start := func(name string, args ...string) *sdkDriver {
		d := &sdkDriver{name: name, lines: make(chan []byte, 100), errs: &bytes.Buffer{}}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env, cmd.Stderr = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + run, "NO_PROXY=*"}, d.errs
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		d.in = in
		go func() {
			defer close(d.lines)
			for sc := bufio.NewScanner(out); sc.Scan(); {
				d.lines <- bytes.Clone(sc.Bytes())
			}
		}()
		t.Cleanup(func() {
			_ = in.Close()
			kill := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
			defer kill.Stop()
			for range d.lines { // until the process has closed it
			}
			_ = cmd.Wait()
		})
		return d
	}
	return start("node", "node", filepath.Join(run, "drive.mjs")), start("python", filepath.Join(dir, "venv", "bin", "python"), filepath.Join(src, "drive.py"))
}

// needs skips a test that lacks a tool, or fails it where everything has to be there.
func needs(t *testing.T, tools ...string) {
	t.Helper()
	missing := func(what string) {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is missing", what)
		}
		t.Skipf("%s is missing", what)
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			missing(tool)
		}
	}
	if exec.Command("python3", "-c", "import ensurepip, venv").Run() != nil {
		missing("python3-venv")
	}
}

// venv installs what requirements.txt says into venv.
var venv = [][]string{
	{"python3", "-m", "venv", "--clear", "venv"},
	{filepath.Join("venv", "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r", "requirements.txt"},
}

// install returns a directory of the user's cache in which the commands were run, once,
// on these files of src.
func install(t *testing.T, what, src string, files []string, commands [][]string) string {
	t.Helper()
	h := sha256.New()
	text := map[string][]byte{}
	for _, name := range files {
		b, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			t.Fatal(err)
		}
		text[name] = b
		_, _ = fmt.Fprintf(h, "%s %d\n%s", name, len(b), b)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "flyball", fmt.Sprintf("%s-%x", what, h.Sum(nil)[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil { // until lock is closed
		t.Fatal(err)
	}
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return dir
	}
	from := time.Now()
	for name, b := range text {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range commands {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if strings.HasPrefix(args[0], "venv") {
			cmd.Path = filepath.Join(dir, args[0])
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("install %s: %s: %v\n%s", what, strings.Join(args, " "), err, out)
		}
	}
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("installed %s in %s", what, time.Since(from).Round(time.Second))
	return dir
}
