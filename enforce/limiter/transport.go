package limiter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
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
	// exactly, at the price of one round trip to the service.
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
	case strings.Contains(path, ":generateContent"), strings.Contains(path, ":streamGenerateContent"), strings.Contains(path, ":embedContent"):
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

// asked is what a request's body says.
type asked struct {
	Model           string `json:"model"`
	MaxTokens       uint64 `json:"max_tokens"`
	MaxCompletion   uint64 `json:"max_completion_tokens"`
	MaxOutput       uint64 `json:"max_output_tokens"`
	GenerationLimit struct {
		MaxOutputTokens uint64 `json:"maxOutputTokens"`
	} `json:"generationConfig"`
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	shape := shapeOf(r)
	c := t.o.Identify(r)
	c.Provider = shape.provider
	r = r.Clone(r.Context())
	for name := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "x-flyball-") {
			delete(r.Header, name)
		}
	}
	body, whole, err := t.read(r)
	if err != nil {
		return nil, err
	}
	if whole && len(body) > 0 {
		var a asked
		if json.Unmarshal(body, &a) == nil {
			c.Model = a.Model
			c.MaxOutputTokens = max(a.MaxTokens, a.MaxCompletion, a.MaxOutput, a.GenerationLimit.MaxOutputTokens)
		}
		c.InputTokens = uint64(len(body)/3 + 1) // an upper estimate: a token is three bytes or more of JSON
	}
	if shape.kind == "gemini" {
		c.Model = geminiModel(r.URL.Path)
	}
	d, err := t.l.Admit(r.Context(), &c)
	if err != nil {
		return nil, err
	}
	if d.Verdict == directive.Deny {
		return refuse(r, &d), nil
	}
	var lease *Lease
	if t.o.Lease {
		if d.Verdict == directive.Downgraded {
			c.Model = d.Model // so that the cheaper model is what is reserved
		}
		x, rd, err := t.l.Reserve(r.Context(), &c)
		if err != nil {
			// The service is away. What the set says applies, as far as it admits at all.
			if stale, unknown := t.l.set.Stale(time.Now()); stale && !unknown.Open(d.Criticality) || errors.Is(err, context.Canceled) {
				d.Verdict, d.Guard, d.Reason, d.Unknown, d.RetryAfter = directive.Deny, "unknown", "budget cannot be reserved: "+err.Error(), true, 5*time.Second
				return refuse(r, &d), nil
			}
		} else if rd.Verdict == directive.Deny {
			return refuse(r, &rd), nil
		} else {
			lease = x
			if rd.Verdict == directive.Downgraded {
				d = rd
			}
		}
	}
	if d.Verdict == directive.Downgraded && d.Model != "" {
		if body, err = useModel(r, shape, body, whole, d.Model); err != nil {
			if lease != nil {
				_ = lease.Release(context.WithoutCancel(r.Context()))
			}
			d.Verdict, d.Reason = directive.Deny, "the model cannot be changed in this request: "+err.Error()
			return refuse(r, &d), nil
		}
	}
	resp, err := t.o.Base.RoundTrip(r)
	if err != nil {
		if lease != nil { // it may have been sent, and nobody knows what it cost
			go func() {
				_ = lease.Settle(context.WithoutCancel(r.Context()), Usage{TraceID: c.TraceID, SpanID: c.SpanID})
			}()
		}
		return nil, err
	}
	t.l.Report(ReadHeadroom(shape.provider, c.Model, resp.Header, time.Now())...)
	if d.Verdict == directive.Downgraded {
		resp.Header.Set("X-Flyball-Model", d.Model)
	}
	if lease != nil {
		resp.Body = &metered{ReadCloser: resp.Body, lease: lease, shape: shape, call: c, failed: resp.StatusCode >= 400, stream: strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")}
	}
	return resp, nil
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

// refuse answers a call that is not to be made. No client library tries again: the
// status is one they do not retry, or x-should-retry tells them.
func refuse(r *http.Request, d *Decision) *http.Response {
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

// keepTail is how much of an answer is kept to find the usage in.
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
	head   []byte // of a stream the line under way, else the whole up to keepTail
	usage  usage
	done   bool
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
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
	m.settle(false)
	return err
}

func (m *metered) see(b []byte) {
	if !m.stream {
		if len(m.head) < keepTail {
			m.head = append(m.head, b[:min(len(b), keepTail-len(m.head))]...)
		}
		return
	}
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			if len(m.head) < keepTail {
				m.head = append(m.head, b...)
			}
			return
		}
		line := append(m.head, b[:i]...)
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && (bytes.Contains(data, []byte("usage")) || bytes.Contains(data, []byte(`"id"`))) {
			m.usage.read(data)
		}
		m.head, b = m.head[:0], b[i+1:]
	}
}

func (m *metered) settle(whole bool) {
	if m.done {
		return
	}
	m.done = true
	if !m.stream && whole {
		m.usage.read(m.head)
	}
	u := Usage{TraceID: m.call.TraceID, SpanID: m.call.SpanID, Provider: m.call.Provider, Failed: m.failed, Tokens: m.usage.tokens(m.shape.kind), Model: m.usage.model, ResponseID: m.usage.id}
	m.head = nil
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := m.lease.Settle(ctx, u); err != nil {
			m.lease.l.o.Logger.Warn("lease was not settled; it runs out by itself", "err", err)
		}
	}()
}

// usage gathers what an answer, or the events of a stream, say about tokens. Later
// figures replace earlier ones.
type usage struct {
	id, model string
	n         map[string]uint64
}

func (u *usage) read(data []byte) {
	var v struct {
		ID            string         `json:"id"`
		Model         string         `json:"model"`
		ResponseID    string         `json:"responseId"`
		ModelVersion  string         `json:"modelVersion"`
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
	if json.Unmarshal(data, &v) != nil {
		return
	}
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
		put("input", less(first("prompt_tokens", "input_tokens"), cached))
		put("cache_read", cached)
		put("output", first("completion_tokens", "output_tokens"))
		put("reasoning", first("completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"))
	}
	return out
}
