package dialect

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/flyball/flyball/schema"
)

// basis says whether an emitter's input count includes cached tokens.
type basis uint8

const (
	basisUnknown basis = iota
	inclusive
	exclusive
)

// Emitter is an operator's word about an instrumentation: what its counts mean.
type Emitter struct {
	Scope    string `yaml:"scope"`              // scope name, a trailing * matches any rest
	Version  string `yaml:"version,omitempty"`  // e.g. ">=5 <6"; empty is any
	Provider string `yaml:"provider,omitempty"` // canonical provider; empty is any
	Basis    string `yaml:"basis,omitempty"`    // inclusive or exclusive
	Covers   string `yaml:"covers,omitempty"`   // "subtree": its aggregates are the sum of what is below them

	basis basis
	low   []bound
}

type bound struct {
	op  string
	ver []int
}

func (e *Emitter) compile() error {
	switch e.Basis {
	case "inclusive":
		e.basis = inclusive
	case "exclusive":
		e.basis = exclusive
	case "":
	default:
		return fmt.Errorf("emitter %s: basis %q: want inclusive or exclusive", e.Scope, e.Basis)
	}
	if e.Covers != "" && e.Covers != "subtree" {
		return fmt.Errorf("emitter %s: covers %q: want subtree", e.Scope, e.Covers)
	}
	if e.Scope == "" {
		return fmt.Errorf("emitter: scope is missing; name the instrumentation scope, e.g. \"ai\" or \"openinference.*\"")
	}
	for _, part := range strings.Fields(e.Version) {
		i := strings.IndexFunc(part, func(r rune) bool { return r >= '0' && r <= '9' })
		if i < 0 {
			return fmt.Errorf("emitter %s: version %q: want bounds such as \">=5 <6\"", e.Scope, e.Version)
		}
		switch part[:i] {
		case ">=", ">", "<", "<=", "=", "":
			e.low = append(e.low, bound{part[:i], version(part[i:])})
		default:
			return fmt.Errorf("emitter %s: version %q: want bounds such as \">=5 <6\"", e.Scope, e.Version)
		}
	}
	return nil
}

func (e *Emitter) matches(scope, ver, prov string) bool {
	if p, ok := strings.CutSuffix(e.Scope, "*"); ok {
		if !strings.HasPrefix(scope, p) {
			return false
		}
	} else if e.Scope != scope {
		return false
	}
	if e.Provider != "" && e.Provider != prov {
		return false
	}
	for _, b := range e.low {
		d := compareVersions(version(ver), b.ver)
		switch b.op {
		case ">=":
			if d < 0 {
				return false
			}
		case ">":
			if d <= 0 {
				return false
			}
		case "<":
			if d >= 0 {
				return false
			}
		case "<=":
			if d > 0 {
				return false
			}
		default:
			if d != 0 {
				return false
			}
		}
	}
	return true
}

func version(s string) []int {
	var out []int
	for _, p := range strings.FieldsFunc(s, func(r rune) bool { return r == '.' || r == '-' || r == '+' }) {
		n, err := strconv.Atoi(p)
		if err != nil {
			break
		}
		out = append(out, n)
	}
	return out
}

func compareVersions(a, b []int) int {
	for i := range max(len(a), len(b)) {
		x, y := 0, 0
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return x - y
		}
	}
	return 0
}

// pinned is the operator's word, which beats every evidence.
func (rec *record) pinned(prov string) basis {
	for i := range rec.reader.emitters {
		if e := &rec.reader.emitters[i]; e.basis != basisUnknown && e.matches(rec.scope, rec.version, prov) {
			return e.basis
		}
	}
	return basisUnknown
}

// coversSubtree reports whether this emitter's aggregates sum up what is below them.
func (rec *record) coversSubtree() bool {
	for i := range rec.reader.emitters {
		if e := &rec.reader.emitters[i]; e.Covers == "subtree" && e.matches(rec.scope, rec.version, "") {
			return true
		}
	}
	return false
}

// emitterBasis is what is known about released instrumentations, from recorded
// spans and their sources. Only Anthropic's and Bedrock's APIs report the input
// without the cached part, so only there emitters differ.
func (rec *record) emitterBasis(c *schema.Call, fam family) basis {
	shape := c.Provider
	if shape == "bedrock" || vendor(c.Model) == "anthropic" || vendor(c.RequestedModel) == "anthropic" {
		shape = "anthropic"
	}
	if shape != "anthropic" {
		return basisUnknown
	}
	s := rec.scope
	switch {
	case fam == famBare:
		return exclusive
	case s == "com.anthropic.claude_code.tracing", strings.HasPrefix(s, "com.anthropic.sdk."):
		return inclusive
	case s == "ai":
		if major := rec.aiMajor(); major >= 6 {
			return inclusive
		}
		return exclusive
	case s == "gen_ai":
		return inclusive
	case s == "gcp.vertex.agent": // its own client for Claude adds the cached part to the input, and so does LiteLLM
		return inclusive
	case s == "pydantic-ai", strings.HasPrefix(s, "logfire"), s == "livekit-agents":
		return inclusive
	case s == "openinference.instrumentation.claude_agent_sdk":
		return exclusive
	case s == "openinference.instrumentation.bedrock":
		if strings.HasPrefix(rec.name, "bedrock.converse") {
			return exclusive
		}
		return inclusive
	case strings.HasPrefix(s, "openinference."), strings.HasPrefix(s, "@arizeai/openinference"):
		return inclusive
	case s == "@traceloop/instrumentation-anthropic", s == "opentelemetry.instrumentation.bedrock", s == "@traceloop/instrumentation-bedrock" && rec.has(kReadUnderscore):
		return exclusive
	case s == "opentelemetry.instrumentation.anthropic", s == "opentelemetry.instrumentation.langchain":
		return inclusive
	case strings.Contains(strings.ToLower(rec.str(kSystem)+rec.str(kProvider)), "strands"):
		if rec.has(kRead) || rec.has(kWriteCreation) { // since it writes the dotted names, it includes
			return inclusive
		}
		return exclusive
	case s == "agent_framework", s == "Experimental.Microsoft.Agents.AI":
		return exclusive
	case strings.HasPrefix(s, "org.springframework.ai"), rec.has(kSpringKind):
		return exclusive
	case rec.has(kTotalOpenLIT), strings.HasPrefix(s, "@openlit/"), s == "openlit", rec.str(kSDKName) == "openlit", rec.res.str(kSDKName) == "openlit":
		return exclusive
	case s == "agentgateway":
		return exclusive
	case s == "@mastra/otel-exporter", strings.HasPrefix(s, "@sentry/"):
		return inclusive
	case s == "langsmith":
		return inclusive
	}
	return basisUnknown
}

// aiMajor is the Vercel AI SDK's major version, 0 where nothing tells.
func (rec *record) aiMajor() int {
	for product := range strings.FieldsSeq(rec.str(kAIUserAgent)) {
		if s, ok := strings.CutPrefix(product, "ai/"); ok { // openai/7.1 and ai-sdk/xai/2.0 are others
			if v := version(s); len(v) > 0 {
				return v[0]
			}
		}
	}
	return 0
}

// oldADK reports whether a span is of Google's ADK before version 2.3, where only the
// provider's own answer tells more than two sums.
func (rec *record) oldADK() bool {
	if rec.scope != "gcp.vertex.agent" {
		return false
	}
	v := version(rec.version)
	return len(v) > 0 && compareVersions(v, []int{2, 3}) < 0
}

// repeatsCallLLM reports whether a span says less of what the span around it says: older ADKs
// have the provider's usage on call_llm, and below it a span with the two sums alone, by
// Gemini's name for every provider.
func (rec *record) repeatsCallLLM() bool {
	return rec.oldADK() && rec.name != "call_llm" && !rec.hasAny(kReasoning, kRead, kWriteCreation)
}

// countsReasoningTwice reports whether the output contains reasoning twice: newer ADKs add
// thoughts to the answer's tokens as Gemini reports them, also to those of LiteLLM, which
// contain them.
func (rec *record) countsReasoningTwice(u *usage) bool {
	return rec.scope == "gcp.vertex.agent" && !rec.oldADK() && rec.version != "" && u.fam == famGenAI && rec.has(kReasoning) && u.reason.n > 0 && u.out.n >= 2*u.reason.n && rec.byLiteLLM()
}

// byLiteLLM reports whether an ADK asked LiteLLM, whose models are named with their provider.
func (rec *record) byLiteLLM() bool {
	provider, _, ok := strings.Cut(rec.str(kRequestModel), "/")
	switch provider {
	case "projects", "publishers", "models", "tunedModels", "endpoints", "apigee":
		return false
	}
	return ok
}

// noCacheFigures lists emitters that never carry cached tokens, so that absent
// does not mean zero.
func (rec *record) noCacheFigures(c *schema.Call) bool {
	switch rec.scope {
	case "@opentelemetry/instrumentation-openai", "@traceloop/instrumentation-openai", "@traceloop/instrumentation-langchain", "opentelemetry.instrumentation.openai_agents", "opentelemetry.instrumentation.openai_v2", "opentelemetry.instrumentation.openai", "opentelemetry.util.genai.handler", "openinference.instrumentation.openai_agents":
		return c.Kind == schema.KindModel
	case "ai":
		return c.Kind == schema.KindModel && !rec.has(kAIInput)
	case "gcp.vertex.agent":
		return c.Kind == schema.KindModel && rec.oldADK()
	case "litellm":
		return rec.rawUsage == ""
	}
	return false
}

// estimates lists emitters that write a local guess where the provider sent no
// usage. The guesses of the JavaScript OpenLIT and of Traceloop's enrichment are
// single digits for real prompts.
func (rec *record) estimates(c *schema.Call, u *usage) bool {
	tiny := u.in.n <= 1 && u.out.n <= 4
	if rec.scope == "litellm" && c.Failure != schema.NoFailure && rec.rawUsage == "" {
		return true // counted locally when a stream broke off
	}
	switch {
	case !tiny || c.Kind != schema.KindModel:
		return false
	case strings.HasPrefix(rec.scope, "@openlit/"), rec.str(kSDKName) == "openlit", rec.res.str(kSDKName) == "openlit":
		return true
	case rec.scope == "@traceloop/instrumentation-openai":
		return true
	}
	return false
}
