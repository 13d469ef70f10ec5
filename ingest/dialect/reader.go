package dialect

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

// Options of a Reader.
type Options struct {
	// Attributes maps tenant and the identity dimensions ("tenant", "run",
	// "user", "feature", …) to the operator's own attributes, which are tried
	// before the dialects' own. The first present wins.
	Attributes map[string][]string
	Emitters   []Emitter
	// Tools names the effect of tools: "read" or "write" by tool name.
	Tools map[string]string
	// HashKey keys the hash of tool arguments. It must stay the same for the
	// life of the data, or repeated calls across a change are not recognised.
	HashKey []byte
	// Limits is told what a provider's answer said about its rate limits, where a span has
	// its headers (http.response.header.*) and comes from a sender for every tenant; nil is
	// not told. The strings are valid until it returns.
	Limits func(provider, model string, headers http.Header)
}

// Origin is what the credential says about the sender of a request.
type Origin struct {
	Tenant  string            // fixed by the key; "" means by attribute
	Allowed func(string) bool // which tenants the key may carry; nil is any
	Default string            // where no attribute names one; "" is "default"
	Trusted bool              // a key trusted as a gateway
	All     bool              // a sender for every tenant
	// Bound puts what the key fixes into a call's identity; nil fixes nothing.
	Bound func(*schema.Identity)
}

// bind puts what the key fixes into calls.
func (o *Origin) bind(calls []schema.Call) {
	if o.Bound == nil {
		return
	}
	for i := range calls {
		o.Bound(&calls[i].Identity)
	}
}

// Rejected counts records that were not taken, by reason.
type Rejected map[string]int64

// Reader reads records into Calls. It is safe for concurrent use.
type Reader struct {
	keys     map[string]key
	dims     [schema.NumDims][]key
	tenant   []key
	emitters []Emitter
	tools    map[string]schema.Effect
	hashKey  []byte
	limits   func(provider, model string, headers http.Header)
	scratch  sync.Pool
}

// MappedAttributes are the names that Options.Attributes accepts.
var MappedAttributes = []string{"tenant", "run", "user", "feature", "workflow", "workflow_version", "agent", "session", "criticality", "mode", "environment"}

// New makes a Reader. It refuses mappings of unknown names and malformed pins.
func New(o Options) (*Reader, error) {
	r := &Reader{keys: make(map[string]key, numKeys+16), hashKey: o.HashKey, limits: o.Limits, tools: map[string]schema.Effect{}}
	for k := kNone + 1; k < firstWords; k++ {
		if keyNames[k] == "" {
			panic(fmt.Sprintf("BUG: key %d has no name", k))
		}
		r.keys[keyNames[k]] = k
	}
	next := numKeys
	own := func(name string) key {
		k, ok := r.keys[name]
		if !ok {
			k = next
			next++
			r.keys[name] = k
		}
		return k
	}
	for what, names := range o.Attributes {
		var list []key
		for _, n := range names {
			if strings.HasPrefix(n, "flyball.") {
				return nil, fmt.Errorf("map attribute %s to %s: the flyball. namespace is reserved", n, what)
			}
			list = append(list, own(n))
		}
		if what == "tenant" {
			r.tenant = list
			continue
		}
		d := slices.Index(MappedAttributes, what) - 1
		if d < 0 {
			return nil, fmt.Errorf("map attributes to %q: want one of %s", what, strings.Join(MappedAttributes, ", "))
		}
		r.dims[d] = list
	}
	for name, effect := range o.Tools {
		e := slices.Index(schema.EffectNames, effect)
		if e < 0 {
			return nil, fmt.Errorf("effect of tool %s: %q: want read, write or unknown", name, effect)
		}
		r.tools[name] = schema.Effect(e)
	}
	for _, e := range o.Emitters {
		if err := e.compile(); err != nil {
			return nil, err
		}
		r.emitters = append(r.emitters, e)
	}
	n := int(next)
	r.scratch.New = func() any { return &record{fields: newFields(n), res: newFields(n)} }
	return r, nil
}

// fields are the known attributes of a record, by key.
type fields struct {
	set []uint64
	val []value
}

// value is an attribute's value, whatever decoder it comes from.
type value struct {
	t    valueType
	elem valueType // of a list, its first element's
	n    uint64    // integer, bits of a double, bool; of a list, its first element's
	s    string    // text; of a list, its first element's
	len  int       // of a list
}

type valueType uint8

const (
	valueEmpty valueType = iota
	valueText
	valueInt
	valueDouble
	valueBool
	valueList
	valueOther // s is its JSON form
)

// text is the value as text, "" where it is no scalar and no list of texts.
func (v *value) text() string {
	switch v.t {
	case valueText:
		return v.s
	case valueInt:
		return strconv.FormatInt(int64(v.n), 10)
	case valueDouble:
		return strconv.FormatFloat(math.Float64frombits(v.n), 'g', -1, 64)
	case valueBool:
		return strconv.FormatBool(v.n != 0)
	case valueList:
		if v.elem == valueText {
			return v.s
		}
	}
	return ""
}

// first is the first element of a list.
func (v *value) first() value { return value{t: v.elem, n: v.n, s: v.s} }

// fromPdata converts a value that pdata decoded.
func fromPdata(v pcommon.Value) value {
	switch v.Type() {
	case pcommon.ValueTypeEmpty:
		return value{}
	case pcommon.ValueTypeStr:
		return value{t: valueText, s: v.Str()}
	case pcommon.ValueTypeInt:
		return value{t: valueInt, n: uint64(v.Int())}
	case pcommon.ValueTypeDouble:
		return value{t: valueDouble, n: math.Float64bits(v.Double())}
	case pcommon.ValueTypeBool:
		out := value{t: valueBool}
		if v.Bool() {
			out.n = 1
		}
		return out
	case pcommon.ValueTypeSlice:
		out := value{t: valueList, len: v.Slice().Len()}
		for i := range out.len {
			switch e := v.Slice().At(i); e.Type() {
			case pcommon.ValueTypeMap, pcommon.ValueTypeSlice, pcommon.ValueTypeBytes:
				return value{t: valueOther, s: v.AsString()}
			default:
				if i == 0 {
					first := fromPdata(e)
					out.elem, out.n, out.s = first.t, first.n, first.s
				}
			}
		}
		return out
	}
	return value{t: valueOther, s: v.AsString()}
}

func newFields(n int) fields {
	return fields{set: make([]uint64, (n+63)/64), val: make([]value, n)}
}

func (f *fields) reset() { clear(f.set) }

func (f *fields) has(k key) bool { return f.set[k>>6]&(1<<(k&63)) != 0 }

func (f *fields) put(k key, v value) {
	f.set[k>>6] |= 1 << (k & 63)
	f.val[k] = v
}

// putWord puts what an attribute says whose name no table has, if that can be what the name
// suggests: a guess must not make a known count doubtful.
func (f *fields) putWord(k key, v value) {
	if k >= kUserWords {
		if named(strings.TrimSpace(v.text())) && !f.has(k) {
			f.put(k, v)
		}
		return
	}
	if _, st := count(v); st == countOK || k == kSecondsWords && milliseconds(v) > 0 || k < firstWords && !f.has(k) {
		f.put(k, v)
	}
}

// str is the attribute as text, "" where it is absent or no scalar.
func (f *fields) str(k key) string {
	if !f.has(k) {
		return ""
	}
	return f.val[k].text()
}

func (f *fields) first(keys []key) string {
	for _, k := range keys {
		if s := f.str(k); s != "" {
			return s
		}
	}
	return ""
}

// name is the first that names somebody or something.
func (f *fields) name(keys []key) string {
	for _, k := range keys {
		if s := strings.TrimSpace(f.str(k)); named(s) {
			return s
		}
	}
	return ""
}

func (f *fields) hasAny(keys ...key) bool {
	for _, k := range keys {
		if f.has(k) {
			return true
		}
	}
	return false
}

// record is one span or log event while it is read.
type record struct {
	fields         // the record's own attributes
	res     fields // the resource's
	reader  *Reader
	scope   string
	version string
	scopeID string // name@version
	name    string
	kind    ptrace.SpanKind
	status  ptrace.StatusCode
	message string
	events  []event
	// what a span that holds a provider's raw answer says
	rawUsage, rawProvider, rawModel, rawID, rawTier string
	isLog                                           bool
	truncated                                       bool        // an attribute was cut
	headers                                         http.Header // of the provider's answer; nil or empty where there are none
}

func (r *Reader) load(f *fields, m pcommon.Map, rec *record) {
	f.reset()
	for name, v := range m.All() {
		if k, ok := r.keys[name]; ok {
			f.put(k, fromPdata(v))
		} else if rec == nil {
			continue
		} else if k := word(name); k != kNone {
			f.putWord(k, fromPdata(v))
		} else if strings.HasPrefix(name, "llm.") && v.Type() == pcommon.ValueTypeStr {
			rec.answer(name[len("llm."):], v.Str())
		} else if strings.HasPrefix(name, headerPrefix) && r.limits != nil {
			rec.header(name, fromPdata(v))
		}
	}
}

const headerPrefix = "http.response.header."

// header notes a header of the provider's answer.
func (rec *record) header(name string, v value) {
	if rec.headers == nil {
		rec.headers = http.Header{}
	}
	// Older instrumentations write underscores.
	rec.headers.Set(strings.ReplaceAll(name[len(headerPrefix):], "_", "-"), v.text())
}

// answer notes a field of a provider's raw answer, llm.<provider>.<field>.
func (rec *record) answer(name, value string) {
	p, field, ok := strings.Cut(name, ".")
	if !ok {
		return
	}
	switch field {
	case "usage", "usageMetadata":
		rec.rawUsage, rec.rawProvider = value, p
	case "model", "modelVersion":
		rec.rawModel = value
	case "service_tier":
		rec.rawTier = value
	case "id", "responseId":
		rec.rawID = value
	}
}

// AppendSpans appends the Calls of every span in td to dst and says how many
// records were not taken and why. received is unix nanoseconds. The Calls' strings
// are td's own: td may be dropped, but not reused, while they live.
func (r *Reader) AppendSpans(dst []schema.Call, td ptrace.Traces, from Origin, received int64) ([]schema.Call, Rejected) {
	rec := r.scratch.Get().(*record)
	defer r.scratch.Put(rec)
	rec.reader, rec.isLog = r, false
	var rejected Rejected
	base := len(dst)
	for i := range td.ResourceSpans().Len() {
		rs := td.ResourceSpans().At(i)
		r.load(&rec.res, rs.Resource().Attributes(), nil)
		for j := range rs.ScopeSpans().Len() {
			ss := rs.ScopeSpans().At(j)
			rec.setScope(ss.Scope().Name(), ss.Scope().Version())
			for k := range ss.Spans().Len() {
				sp := ss.Spans().At(k)
				rec.rawUsage, rec.rawProvider, rec.rawModel, rec.rawID, rec.rawTier = "", "", "", "", ""
				rec.truncated = false
				clear(rec.headers)
				r.load(&rec.fields, sp.Attributes(), rec)
				tenant, ok := rec.tenant(from)
				if !ok {
					if rejected == nil {
						rejected = Rejected{}
					}
					rejected["tenant not allowed by the key"]++
					continue
				}
				h := head{trace: schema.TraceID(sp.TraceID()), span: schema.SpanID(sp.SpanID()), parent: schema.SpanID(sp.ParentSpanID()),
					start: int64(sp.StartTimestamp()), end: int64(sp.EndTimestamp()), state: sp.TraceState().AsRaw()}
				for i := range sp.Links().Len() {
					h.link(schema.TraceID(sp.Links().At(i).TraceID()))
				}
				rec.name, rec.kind, rec.status, rec.message = sp.Name(), spanKind(sp.Kind()), statusCode(sp.Status().Code()), sp.Status().Message()
				rec.pdataEvents(sp.Events())
				dst = rec.span(dst, tenant, &h, from, received)
			}
		}
	}
	r.refinements(dst[base:], from)
	return dst, rejected
}

// refinements gives a raw provider answer the tenant of the call it belongs to,
// if that is in the same request: it is evidence for that call and no call of
// its own, and emitters put the tenant on the call only.
func (r *Reader) refinements(calls []schema.Call, from Origin) {
	if from.Tenant != "" {
		return
	}
	type span struct {
		trace schema.TraceID
		id    schema.SpanID
	}
	var tenants map[span]string
	for i := range calls {
		if calls[i].Role&schema.RoleRefinesParent == 0 {
			continue
		}
		if tenants == nil {
			tenants = make(map[span]string, len(calls))
			for j := range calls {
				tenants[span{calls[j].Trace, calls[j].Span}] = calls[j].Tenant
			}
		}
		if t, ok := tenants[span{calls[i].Trace, calls[i].Parent}]; ok {
			calls[i].Tenant = t
		}
	}
}

func (rec *record) setScope(name, version string) {
	if rec.scope == name && rec.version == version {
		return
	}
	rec.scope, rec.version = strings.Clone(cut(name, 128)), strings.Clone(cut(version, 64))
	rec.scopeID = rec.scope
	if rec.version != "" {
		rec.scopeID += "@" + rec.version
	}
}

// times applies the one clock: a start that cannot be is replaced by the time of
// receipt, an old one stands.
func times(start, end, received int64) (int64, int64, schema.Flags) {
	var flags schema.Flags
	dur := end - start
	if dur < 0 {
		dur = 0
		if end != 0 {
			flags |= schema.FlagEndBeforeStart
		}
	}
	if start < earliest || start > received+int64(10*time.Minute) {
		if start <= 0 {
			dur = 0
		}
		start = received
		flags |= schema.FlagClockSkew
	}
	return start, min(dur, math.MaxInt64-start), flags // its end is an instant too
}

var earliest = time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// thinned reports whether a W3C trace state says that the sender drops traces:
// the OpenTelemetry threshold th, of which 0 keeps all.
func thinned(state string) bool {
	if state == "" {
		return false
	}
	for _, member := range strings.Split(state, ",") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(member), "ot="); ok {
			for _, field := range strings.Split(v, ";") {
				if th, ok := strings.CutPrefix(field, "th:"); ok && strings.Trim(th, "0") != "" {
					return true
				}
			}
		}
	}
	return false
}

// spanKind takes a number that this version does not know for unspecified.
func spanKind(k ptrace.SpanKind) ptrace.SpanKind {
	if k < ptrace.SpanKindUnspecified || k > ptrace.SpanKindConsumer {
		return ptrace.SpanKindUnspecified
	}
	return k
}

// statusCode takes a number that this version does not know for unset.
func statusCode(c ptrace.StatusCode) ptrace.StatusCode {
	if c < ptrace.StatusCodeUnset || c > ptrace.StatusCodeError {
		return ptrace.StatusCodeUnset
	}
	return c
}

// head is what a span says outside its attributes.
type head struct {
	trace        schema.TraceID
	span, parent schema.SpanID
	start, end   int64
	state        string
	linked       schema.TraceID // the one trace that all links point to
	links        int
}

// link notes one span link. Links to several traces are a fan-in and join nothing.
func (h *head) link(t schema.TraceID) {
	if h.links++; h.links == 1 {
		h.linked = t
	} else if t != h.linked {
		h.linked = schema.TraceID{}
	}
}

// event is what is looked at of a span event.
type event struct {
	name, exType, exMessage string
	retry, attempt          value
}

func (rec *record) pdataEvents(list ptrace.SpanEventSlice) {
	rec.events = rec.events[:0]
	for i := range list.Len() {
		e := list.At(i)
		ev := event{name: e.Name()}
		for name, v := range e.Attributes().All() {
			ev.set(name, fromPdata(v))
		}
		rec.events = append(rec.events, ev)
	}
}

func (e *event) set(name string, v value) {
	switch name {
	case "exception.type":
		e.exType = v.text()
	case "exception.message":
		e.exMessage = v.text()
	case "retry.attempt":
		e.retry = v
	case "attempt":
		e.attempt = v
	}
}

// span appends the Calls of the span that rec holds.
func (rec *record) span(dst []schema.Call, tenant string, h *head, from Origin, received int64) []schema.Call {
	dst = append(dst, schema.Call{})
	c := &dst[len(dst)-1]
	c.Tenant, c.Trace, c.Span, c.Parent = tenant, h.trace, h.span, h.parent
	if from.Trusted {
		c.Role |= schema.RoleTrustedGateway
	}
	c.Start, c.Duration, c.Flags = times(h.start, h.end, received)
	if thinned(h.state) {
		c.Flags |= schema.FlagSampled
	}
	if c.Parent == (schema.SpanID{}) {
		c.Role |= schema.RoleRoot
		if h.linked != h.trace {
			c.Link = h.linked
		}
	}
	base := len(dst) - 1
	dst = rec.read(dst)
	from.bind(dst[base:])
	if len(rec.headers) > 0 {
		if c := &dst[base]; from.All && c.Provider != "" {
			rec.reader.limits(c.Provider, c.Model, rec.headers)
		}
	}
	return dst
}

func (rec *record) tenant(from Origin) (string, bool) {
	if from.Tenant != "" {
		return from.Tenant, true
	}
	for _, keys := range [...][]key{rec.reader.tenant, tenantKeys} {
		for _, f := range [...]*fields{&rec.fields, &rec.res} {
			if t := f.name(keys); t != "" {
				t = rec.cut(t, 256)
				return t, from.Allowed == nil || from.Allowed(t)
			}
		}
	}
	if from.Default != "" {
		return from.Default, from.Allowed == nil || from.Allowed(from.Default)
	}
	return "default", from.Allowed == nil || from.Allowed("default")
}

// read fills the last Call of dst and appends further parts.
func (rec *record) read(dst []schema.Call) []schema.Call {
	own := len(dst) - 1
	c := &dst[own]
	c.Name = cut(rec.name, 128)
	c.Scope = rec.scopeID
	rec.classify(c)
	c.Operation = rec.cut(c.Operation, 64)
	if c.Role&schema.RoleAggregate != 0 && rec.coversSubtree() {
		c.Role |= schema.RoleCoversSubtree
	}
	rec.metadata()
	rec.identity(c)
	rec.failure(c)
	rec.attempts(c)
	if f, err := rec.sampled(); err == nil && f {
		c.Flags |= schema.FlagSampled
	}
	if c.Kind.ModelLike() || c.Role&(schema.RoleAggregate|schema.RoleRefinesParent) != 0 {
		rec.model(c)
		dst = rec.usage(dst)
		rec.cacheHit(dst[own:])
	} else if c.Kind == schema.KindTool || c.Role&schema.RoleClient != 0 {
		rec.tool(c)
	}
	rec.markTruncated(dst[own:])
	return dst
}

// cut is cut for the value of an attribute: the record's calls will be marked.
func (rec *record) cut(s string, n int) string {
	rec.truncated = rec.truncated || len(s) > n
	return cut(s, n)
}

// markTruncated marks the calls of a record of which an attribute was cut: two values
// that differ behind the cut are one now.
func (rec *record) markTruncated(calls []schema.Call) {
	if !rec.truncated {
		return
	}
	for i := range calls {
		calls[i].Flags |= schema.FlagTruncated
	}
}

func (rec *record) sampled() (bool, error) {
	if !rec.has(kSampledProbability) && !rec.res.has(kSampledProbability) {
		return false, nil
	}
	f := &rec.fields
	if !f.has(kSampledProbability) {
		f = &rec.res
	}
	m, ok := decimalOf(f.val[kSampledProbability])
	return ok && m > 0 && m < schema.PicoPerUSD, nil
}

func (rec *record) identity(c *schema.Call) {
	for d := range schema.NumDims {
		v := ""
		for _, f := range [...]*fields{&rec.fields, &rec.res} {
			if v = f.name(rec.reader.dims[d]); v != "" {
				if d == schema.Run {
					c.Role |= schema.RoleRunFromOperator
				}
				break
			}
		}
		if v == "" && d == schema.Run {
			v = rec.fields.name(runKeys)
		}
		if v == "" && dimKeys[d] != nil {
			if v = rec.fields.name(dimKeys[d]); v == "" && d != schema.Agent {
				v = rec.res.name(dimKeys[d])
			}
			if v == "" && d == schema.WorkflowVersion {
				if v = rec.res.str(kServiceVersion); v != "" {
					c.Role |= schema.RoleWeakVersion
				}
			}
		}
		if v == "" {
			continue
		}
		if v = rec.cut(v, 256); d == schema.Criticality || d == schema.Mode {
			v = vocabulary(v)
		}
		if v == "critical" && c.Role&schema.RoleTrustedGateway == 0 {
			v = "standard" // a claim may lower, never raise
			c.Flags |= schema.FlagClaim
		}
		c.Identity[d] = v
	}
}

// vocabulary maps the words in use to ours; others are dropped, since a word
// nobody knows must not become a class of its own.
func vocabulary(v string) string {
	switch strings.ToLower(v) {
	case "critical", "critical_plus":
		return "critical"
	case "standard", "default", "":
		return "standard"
	case "background", "sheddable", "sheddable_plus":
		return "background"
	case "interactive":
		return "interactive"
	case "batch":
		return "batch"
	}
	return ""
}

// tool reads name, effect, argument hash and payload of a tool call.
func (rec *record) tool(c *schema.Call) {
	if c.Tool == "" {
		c.Tool = rec.cut(rec.first(toolKeys), 128)
	}
	if c.Tool == "" && c.Kind == schema.KindTool {
		c.Tool = rec.cut(rec.name, 128)
	}
	c.ToolCallID = rec.cut(rec.first(toolCallKeys), 128)
	if e, ok := rec.reader.tools[c.Tool]; ok {
		c.Effect = e
	}
	for _, k := range argKeys {
		if !rec.has(k) {
			continue
		}
		v := rec.val[k]
		if s := strings.TrimSpace(v.text()); s != "" {
			c.ArgsHash = rec.reader.hash(s)
		} else if v.t == valueOther {
			c.ArgsHash = rec.reader.hash(v.s)
		}
		break
	}
	for _, k := range resultKeys {
		if rec.has(k) && rec.val[k].t == valueText {
			s := rec.val[k].s
			c.PayloadBytes, c.PayloadType = uint64(len(s)), payloadType(s)
			break
		}
	}
}

// hash is a keyed hash that is never 0. Blanks between the words of JSON do not matter, since
// a model that asks for the same again may set them otherwise, and so may each layer.
func (r *Reader) hash(s string) uint64 {
	h := sha256.New()
	h.Write(r.hashKey)
	if s != "" && (s[0] == '{' || s[0] == '[') {
		var buf [256]byte
		n, quoted := 0, false
		for i := 0; i < len(s); i++ {
			c := s[i]
			switch {
			case c == '"':
				quoted = !quoted
			case quoted && c == '\\' && i+1 < len(s):
				buf[n] = c
				n++
				i++
				c = s[i]
			case !quoted && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
				continue
			}
			buf[n] = c
			if n++; n >= len(buf)-1 {
				h.Write(buf[:n])
				n = 0
			}
		}
		h.Write(buf[:n])
	} else {
		h.Write([]byte(s))
	}
	var sum [sha256.Size]byte
	return max(1, binary.LittleEndian.Uint64(h.Sum(sum[:0])))
}

func payloadType(s string) string {
	s = strings.TrimSpace(s[:min(len(s), 256)])
	switch {
	case s == "":
		return "empty"
	case s[0] == '{' || s[0] == '[':
		return "json"
	case s[0] == '<':
		return "html"
	case strings.HasPrefix(s, "# ") || strings.Contains(s, "\n## ") || strings.Contains(s, "\n- ") || strings.Contains(s, "]("):
		return "markdown"
	}
	return "text"
}

// cut shortens s to at most n bytes without splitting a rune.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := n; i > n-utf8.UTFMax; i-- { // bytes that are no text are cut anywhere
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n]
}
