package limiter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/flyball/flyball/enforce/directive"
)

// TransportOptions of Transport.
type TransportOptions struct {
	// Base sends what is admitted; nil is http.DefaultTransport.
	Base http.RoundTripper
	// Identify says whose call a request is. The default reads the context, see
	// WithCall, and the headers traceparent and x-flyball-run, -user, -feature,
	// -workflow, -agent, -tenant, -mode and -criticality, which are not sent on.
	Identify func(*http.Request) Call
	// Lease reserves budget for every call before it is made, so that limits hold
	// exactly, at the price of one round trip to the service. Requests that cost nothing,
	// such as lists of models, need none. Answers are asked for uncompressed, since their
	// usage is read.
	Lease bool
	// BodyLimit is how much of a request is read to find the model, default 32 MiB; a
	// request that is larger is checked without.
	BodyLimit int64
}

// Transport guards calls to models over HTTP: requests shaped like OpenAI's, Anthropic's
// and Gemini's APIs. A downgrade rewrites the model, a denial is answered here and
// never sent, a throttle waits. It reads the providers' rate-limit headers.
//
// A denial is 403, or 429 where waiting at most a minute cures it, with
// x-should-retry: false, which keeps the providers' SDKs from trying again.
func (l *Limiter) Transport(o TransportOptions) http.RoundTripper {
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.Identify == nil {
		o.Identify = identify
	}
	if o.BodyLimit == 0 {
		o.BodyLimit = 32 << 20
	}
	return &transport{l, o}
}

type transport struct {
	l *Limiter
	o TransportOptions
}

type callKey struct{}

// WithCall says whose call the requests of a context are, for Transport.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// identify reads the context and then the headers.
func identify(r *http.Request) Call {
	c, _ := r.Context().Value(callKey{}).(Call)
	for name, at := range map[string]*string{"run": &c.RunID, "user": &c.User, "feature": &c.Feature, "workflow": &c.Workflow, "agent": &c.Agent, "tenant": &c.Tenant, "mode": &c.Mode, "criticality": &c.Criticality} {
		if v := r.Header.Get("x-flyball-" + name); v != "" && *at == "" {
			*at = v
		}
	}
	if p := strings.Split(r.Header.Get("traceparent"), "-"); len(p) == 4 && len(p[1]) == 32 && len(p[2]) == 16 {
		if c.TraceID == "" {
			c.TraceID = p[1]
		}
		if c.SpanID == "" {
			c.SpanID = p[2]
		}
	}
	return c
}

// apiShape is which provider's API a request looks like.
type apiShape struct {
	provider string
	kind     string // openai, anthropic, gemini
}

// shapeOf tells by the path, and the provider by the host where it is known.
func shapeOf(r *http.Request) apiShape {
	path, host := r.URL.Path, r.URL.Hostname()
	var s apiShape
	switch {
	case strings.Contains(path, ":generateContent"), strings.Contains(path, ":streamGenerateContent"), strings.Contains(path, ":embedContent"), strings.Contains(path, ":batchEmbedContents"), strings.Contains(path, ":countTokens"):
		s = apiShape{"google", "gemini"}
	case strings.HasSuffix(path, "/messages"):
		s = apiShape{"anthropic", "anthropic"}
	default:
		s = apiShape{"openai", "openai"}
	}
	for suffix, provider := range map[string]string{"openai.azure.com": "azure", "groq.com": "groq", "mistral.ai": "mistral", "openrouter.ai": "openrouter", "together.xyz": "together", "deepseek.com": "deepseek", "x.ai": "x-ai"} {
		if host == suffix || strings.HasSuffix(host, "."+suffix) {
			s.provider = provider
		}
	}
	return s
}

// costsNothing tells requests that no provider bills: reading, and counting tokens.
func costsNothing(r *http.Request) bool {
	return r.Method != http.MethodPost || strings.HasSuffix(r.URL.Path, "/count_tokens") || strings.HasSuffix(r.URL.Path, ":countTokens")
}

// maxOutput is the most tokens that a request's body lets the answer have, 0 where it
// does not say. Keys count as the provider reads them, letter case and all, and one
// that cannot be read spoils no other.
func maxOutput(body []byte) (most uint64) {
	var top, gemini map[string]json.RawMessage
	_ = json.Unmarshal(body, &top)
	number := func(of map[string]json.RawMessage, names ...string) (n uint64) {
		for _, name := range names {
			var f float64
			if json.Unmarshal(of[name], &f) == nil && f > 0 && f < 1e12 {
				n = max(n, uint64(math.Ceil(f)))
			}
		}
		return n
	}
	most = number(top, "max_tokens", "max_completion_tokens", "max_output_tokens")
	answers := number(top, "n")
	for _, name := range []string{"generationConfig", "generation_config"} {
		if json.Unmarshal(top[name], &gemini) == nil {
			most = max(most, number(gemini, "maxOutputTokens", "max_output_tokens"))
			answers = max(answers, number(gemini, "candidateCount", "candidate_count"))
		}
	}
	return most * min(max(answers, 1), 1000)
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	shape := shapeOf(r)
	c := t.o.Identify(r)
	if c.Provider == "" {
		c.Provider = shape.provider
	}
	r = r.Clone(r.Context())
	for name := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "x-flyball-") {
			delete(r.Header, name)
		}
	}
	body, whole, err := t.read(r)
	sent := false
	defer func() { // whoever does not send a request closes its body
		if !sent && r.Body != nil {
			_ = r.Body.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	if whole && len(body) > 0 {
		if from, to, ok := modelAt(body); ok { // what would be rewritten is what is checked
			_ = json.Unmarshal(body[from:to], &c.Model)
		}
		c.MaxOutputTokens = maxOutput(body)
		c.InputTokens = uint64(len(body)/3 + 1) // an upper estimate: a token is three bytes or more of JSON
	}
	if shape.kind == "gemini" {
		c.Model = geminiModel(r.URL.Path)
	}
	d, err := t.l.Admit(r.Context(), &c)
	if err != nil {
		return nil, err
	}
	if d.Verdict == directive.Wait && d.Wait > 0 {
		// It may have been stopped while it waited; its slot stays its own.
		if now := t.l.set.Decide(&c, time.Now()); now.Verdict == directive.Deny {
			d = now
		}
	}
	if d.Verdict == directive.Deny {
		return t.refuse(r, &c, &d), nil
	}
	var lease *Lease
	if t.o.Lease && !costsNothing(r) {
		if d.Verdict == directive.Downgraded {
			c.Model = d.Model // so that the cheaper model is what is reserved
		}
		x, rd, err := t.l.Reserve(r.Context(), &c)
		var refused *ServiceError
		switch {
		case r.Context().Err() != nil:
			if x != nil {
				go t.release(x)
			}
			return nil, r.Context().Err()
		case errors.As(err, &refused) && slices.Contains([]int{http.StatusBadRequest, http.StatusForbidden, http.StatusTooManyRequests}, refused.Status):
			// The service does not take this call, as it is or now, so nothing would count it.
			d.Verdict, d.Guard, d.Reason, d.RetryAfter = directive.Deny, "lease", "budget cannot be reserved: "+refused.Detail, refused.RetryAfter
			return t.refuse(r, &c, &d), nil
		case err != nil:
			// The service is away. What the set says applies, and it admitted the call.
			t.l.o.Logger.Warn("a call is made without a lease", "err", err)
		case x == nil:
			return t.refuse(r, &c, &rd), nil
		default:
			lease = x
			if rd.Verdict == directive.Downgraded {
				d = rd
			}
			if rd.Verdict == directive.Wait && d.Verdict == directive.Allow { // a throttle that only the service knows of
				if err := t.l.pause(r.Context(), &c, rd.Wait); err != nil {
					go t.release(lease)
					return nil, err
				}
			}
		}
	}
	if d.Verdict == directive.Downgraded && d.Model != "" {
		if body, err = useModel(r, shape, body, whole, d.Model); err != nil {
			if lease != nil {
				go t.release(lease)
			}
			d.Verdict, d.Reason = directive.Deny, "the model cannot be changed in this request: "+err.Error()
			return t.refuse(r, &c, &d), nil
		}
		c.Model = d.Model
	}
	if lease != nil {
		r.Header.Set("Accept-Encoding", "identity")
	}
	sent = true
	resp, err := t.o.Base.RoundTrip(r)
	if !costsNothing(r) {
		t.l.signals.attempted(&c, r, resp, err)
	}
	if err != nil {
		var dial *net.OpError
		switch {
		case lease == nil:
		case errors.As(err, &dial) && dial.Op == "dial":
			go t.release(lease) // nobody was reached
		default: // it may have been sent, and nobody knows what it cost
			go settle(lease, Usage{TraceID: c.TraceID, SpanID: c.SpanID})
		}
		return nil, err
	}
	t.l.Report(ReadHeadroom(c.Provider, c.Model, resp.Header, time.Now())...)
	if d.Verdict == directive.Downgraded {
		resp.Header.Set("X-Flyball-Model", d.Model)
	}
	if lease != nil {
		resp.Body = &metered{ReadCloser: resp.Body, lease: lease, shape: shape, call: c, failed: resp.StatusCode >= 400, stream: strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")}
	}
	return resp, nil
}

// release gives a lease back, in a goroutine of its own.
func (t *transport) release(x *Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	if err := x.Release(ctx); err != nil {
		t.l.o.Logger.Warn("lease was not released; it runs out by itself", "err", err)
	}
}

// endWithin bounds how long the end of a lease is tried.
const endWithin = 2 * time.Minute

// settle settles a lease, in a goroutine of its own.
func settle(x *Lease, u Usage) {
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	if err := x.Settle(ctx, u); err != nil {
		x.l.o.Logger.Warn("lease was not settled; it runs out by itself", "err", err)
	}
}

// read takes the request's body in and leaves it there to be sent.
func (t *transport) read(r *http.Request) (body []byte, whole bool, err error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, true, nil
	}
	body, err = io.ReadAll(io.LimitReader(r.Body, t.o.BodyLimit+1))
	if err != nil {
		return nil, false, fmt.Errorf("read request: %w", err)
	}
	if int64(len(body)) > t.o.BodyLimit {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		r.GetBody = nil
		return nil, false, nil
	}
	_ = r.Body.Close()
	setBody(r, body)
	return body, true, nil
}

func setBody(r *http.Request, body []byte) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.ContentLength = int64(len(body))
	r.Header.Del("Content-Length")
}

// geminiModel is the model in a path such as /v1beta/models/gemini-x:generateContent.
func geminiModel(path string) string {
	_, rest, ok := strings.Cut(path, "/models/")
	if !ok {
		return ""
	}
	model, _, _ := strings.Cut(rest, ":")
	return model
}

// useModel puts another model into a request.
func useModel(r *http.Request, s apiShape, body []byte, whole bool, model string) ([]byte, error) {
	if s.kind == "gemini" {
		was := geminiModel(r.URL.Path)
		r.URL.Path = strings.Replace(r.URL.Path, "/models/"+was+":", "/models/"+model+":", 1)
		r.URL.RawPath = ""
		return body, nil
	}
	if !whole {
		return nil, errors.New("the request is too large to be read")
	}
	from, to, ok := modelAt(body)
	if !ok {
		return nil, errors.New("it has no model")
	}
	name, err := json.Marshal(model)
	if err != nil {
		return nil, err
	}
	out := append(append(append(make([]byte, 0, len(body)+len(name)), body[:from]...), name...), body[to:]...)
	setBody(r, out)
	return out, nil
}

// modelAt finds the value of the last "model" at the top of a JSON object, the one
// that counts where there are several.
func modelAt(body []byte) (from, to int, ok bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return 0, 0, false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, 0, false
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return 0, 0, false
		}
		if key == "model" && len(v) > 0 && v[0] == '"' {
			to = int(d.InputOffset())
			from, ok = to-len(v), true
		}
	}
	return from, to, ok
}

// refuse answers a call that is not to be made, and notes it where a guard had a say. No
// client library tries again: the status is one they do not retry, or x-should-retry
// tells them.
func (t *transport) refuse(r *http.Request, c *Call, d *Decision) *http.Response {
	if d.Guard != "unknown" && d.Guard != "lease" && !costsNothing(r) {
		t.l.Refused(c, d)
	}
	status := d.Status()
	h := http.Header{"Content-Type": {"application/problem+json"}}
	kind := "budget-exceeded"
	switch {
	case d.Unknown && d.Guard == "unknown":
		status, kind = http.StatusServiceUnavailable, "governor-unavailable"
	case d.Guard == "kill":
		kind = "kill-switch"
	}
	if status != http.StatusServiceUnavailable {
		h.Set("X-Should-Retry", "false")
	}
	if d.RetryAfter > 0 && status != http.StatusForbidden {
		s := strconv.Itoa(int(math.Ceil(d.RetryAfter.Seconds())))
		h.Set("Retry-After", s)
		h.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%s", d.Guard, s))
	}
	p := map[string]any{
		"type": "urn:flyball:problem:" + kind, "title": "Refused by a budget guard", "status": status, "detail": d.Reason, "guard": d.Guard, "outcome": d.Outcome, "revision": d.Version.String(),
		// Where the providers' SDKs look for a message.
		"error": map[string]any{"type": "flyball_" + strings.ReplaceAll(kind, "-", "_"), "code": "budget", "message": d.Reason},
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic("BUG: refusal has no JSON: " + err.Error())
	}
	return &http.Response{Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Body: io.NopCloser(bytes.NewReader(b)), ContentLength: int64(len(b)), Request: r}
}

// keepTail is how much of the end of an answer, or of one event of a stream, is kept to
// find the usage in.
const keepTail = 256 << 10

// metered settles the lease with the usage that passes by in the answer. Nothing of
// the answer is kept beyond that.
type metered struct {
	io.ReadCloser
	lease  *Lease
	shape  apiShape
	call   Call
	failed bool
	stream bool

	mu    sync.Mutex // guards the rest: Close may come while Read runs
	tail  []byte     // of a stream the line under way, else the whole; its end where that is long
	usage usage
	done  bool
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.done {
		m.see(p[:n])
	}
	if err != nil {
		m.settle(errors.Is(err, io.EOF))
	}
	return n, err
}

// Close settles a stream that was not read to its end with what is known by then.
func (m *metered) Close() error {
	err := m.ReadCloser.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(false)
	return err
}

func (m *metered) see(b []byte) {
	for m.stream {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		m.keep(b[:i])
		m.event()
		b = b[i+1:]
	}
	m.keep(b)
}

// keep adds to the tail, whose beginning goes where it grows too long.
func (m *metered) keep(b []byte) {
	m.tail = append(m.tail, b...)
	if len(m.tail) > 2*keepTail {
		m.tail = append(m.tail[:0], m.tail[len(m.tail)-keepTail:]...)
	}
}

// event reads a line of a stream. One that lost its beginning still has its usage.
func (m *metered) event() {
	data := bytes.TrimPrefix(m.tail, []byte("data:"))
	if bytes.Contains(data, []byte("usage")) || m.usage.id == "" && bytes.Contains(data, []byte(`"id"`)) {
		m.usage.read(data)
	}
	m.tail = m.tail[:0]
}

func (m *metered) settle(whole bool) {
	if m.done {
		return
	}
	m.done = true
	switch {
	case m.stream:
		m.event() // the last line may have no end
	case whole:
		m.usage.read(m.tail)
	}
	m.tail = nil
	u := Usage{TraceID: m.call.TraceID, SpanID: m.call.SpanID, Provider: m.call.Provider, Failed: m.failed, Model: m.usage.model, ResponseID: m.usage.id}
	// What a stream says before its end is not what it costs: what was reserved counts.
	if !m.stream || m.usage.final || whole && m.shape.kind == "gemini" {
		u.Tokens = m.usage.tokens(m.shape.kind)
	}
	go settle(m.lease, u)
}

// usage gathers what an answer, or the events of a stream, say about tokens. Later
// figures replace earlier ones.
type usage struct {
	id, model string
	n         map[string]uint64
	final     bool // of a stream: these are the figures of its end
}

// usageKey finds usage in JSON of which only the end is there, or which is a list. No
// text of a model looks like it: quotes within a string are escaped.
var usageKey = regexp.MustCompile(`"usage(Metadata)?"\s*:\s*\{`)

func (u *usage) read(data []byte) {
	var v struct {
		ID           string `json:"id"`
		Model        string `json:"model"`
		ResponseID   string `json:"responseId"`
		ModelVersion string `json:"modelVersion"`
		Candidates   []struct {
			FinishReason string `json:"finishReason"`
		} `json:"candidates"`
		Usage         map[string]any `json:"usage"`
		UsageMetadata map[string]any `json:"usageMetadata"`
		Message       *struct {
			ID    string         `json:"id"`
			Model string         `json:"model"`
			Usage map[string]any `json:"usage"`
		} `json:"message"`
		Response *struct {
			ID    string         `json:"id"`
			Model string         `json:"model"`
			Usage map[string]any `json:"usage"`
		} `json:"response"`
	}
	var kind *json.UnmarshalTypeError // one field is of another type; the others are there
	if err := json.Unmarshal(data, &v); err != nil && (!errors.As(err, &kind) || kind.Field == "") {
		if at := usageKey.FindAllIndex(data, -1); at != nil {
			var m map[string]any
			if json.NewDecoder(bytes.NewReader(data[at[len(at)-1][1]-1:])).Decode(&m) == nil {
				u.take("", m)
				u.final = true
			}
		}
		return
	}
	u.final = u.final || v.Usage != nil || v.Response != nil && v.Response.Usage != nil || v.UsageMetadata != nil && len(v.Candidates) > 0 && v.Candidates[0].FinishReason != ""
	set := func(at *string, values ...string) {
		for _, s := range values {
			if s != "" {
				*at = s
			}
		}
	}
	set(&u.id, v.ID, v.ResponseID)
	set(&u.model, v.Model, v.ModelVersion)
	maps := []map[string]any{v.Usage, v.UsageMetadata}
	if v.Message != nil {
		set(&u.id, v.Message.ID)
		set(&u.model, v.Message.Model)
		maps = append(maps, v.Message.Usage)
	}
	if v.Response != nil {
		set(&u.id, v.Response.ID)
		set(&u.model, v.Response.Model)
		maps = append(maps, v.Response.Usage)
	}
	for _, m := range maps {
		u.take("", m)
	}
}

func (u *usage) take(prefix string, m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case float64:
			if v >= 0 && v < 1e15 {
				if u.n == nil {
					u.n = map[string]uint64{}
				}
				u.n[prefix+k] = uint64(v)
			}
		case map[string]any:
			u.take(prefix+k+".", v)
		}
	}
}

// tokens makes the figures disjoint: OpenAI and Gemini count cached input within the
// input, Anthropic beside it. Nil is not known.
func (u *usage) tokens(kind string) map[string]uint64 {
	if len(u.n) == 0 {
		return nil
	}
	out := map[string]uint64{}
	put := func(name string, v uint64) {
		if v > 0 {
			out[name] = v
		}
	}
	less := func(a, b uint64) uint64 {
		if b > a {
			return 0
		}
		return a - b
	}
	first := func(names ...string) uint64 {
		for _, n := range names {
			if v, ok := u.n[n]; ok {
				return v
			}
		}
		return 0
	}
	switch kind {
	case "anthropic":
		long := first("cache_creation.ephemeral_1h_input_tokens")
		put("input", first("input_tokens"))
		put("cache_read", first("cache_read_input_tokens"))
		put("cache_write_1h", long)
		put("cache_write_5m", less(first("cache_creation_input_tokens"), long))
		put("output", first("output_tokens"))
	case "gemini":
		cached := first("cachedContentTokenCount")
		put("input", less(first("promptTokenCount"), cached)+first("toolUsePromptTokenCount"))
		put("cache_read", cached)
		put("output", first("candidatesTokenCount")+first("thoughtsTokenCount"))
		put("reasoning", first("thoughtsTokenCount"))
	default:
		cached := first("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens")
		heard, spoken := first("prompt_tokens_details.audio_tokens"), first("completion_tokens_details.audio_tokens")
		put("input", less(first("prompt_tokens", "input_tokens"), cached+heard))
		put("cache_read", cached)
		put("input_audio", heard)
		put("output", less(first("completion_tokens", "output_tokens"), spoken))
		put("output_audio", spoken)
		put("reasoning", first("completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"))
	}
	return out
}
