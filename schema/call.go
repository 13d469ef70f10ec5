package schema

import (
	"encoding/hex"
	"fmt"
)

// TraceID is an OTLP trace id; the zero value is invalid.
type TraceID [16]byte

// SpanID is an OTLP span id; the zero value means "no span".
type SpanID [8]byte

// String is the lower-case hex form.
func (t TraceID) String() string { return hex.EncodeToString(t[:]) }

// String is the lower-case hex form, "" for the zero value.
func (s SpanID) String() string {
	if s == (SpanID{}) {
		return ""
	}
	return hex.EncodeToString(s[:])
}

// ParseTraceID reads 32 hex digits of any case.
func ParseTraceID(s string) (TraceID, error) {
	var t TraceID
	if len(s) != 32 {
		return t, fmt.Errorf("parse trace id %q: want 32 hex digits", s)
	}
	if _, err := hex.Decode(t[:], []byte(s)); err != nil {
		return TraceID{}, fmt.Errorf("parse trace id %q: want 32 hex digits", s)
	}
	return t, nil
}

// ParseSpanID reads 16 hex digits of any case.
func ParseSpanID(s string) (SpanID, error) {
	var id SpanID
	if len(s) != 16 {
		return id, fmt.Errorf("parse span id %q: want 16 hex digits", s)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return SpanID{}, fmt.Errorf("parse span id %q: want 16 hex digits", s)
	}
	return id, nil
}

// Dim is an identity dimension: who or what a call was made for.
type Dim uint8

// The identity dimensions, in the order of the journal's columns.
const (
	Run Dim = iota // one user request; the trace id where nothing better is known
	User
	Feature
	Workflow
	WorkflowVersion
	Agent
	Session
	Criticality // critical, standard or background; "" is standard
	Mode        // interactive or batch; "" is interactive
	Environment
	NumDims
)

// Dims are the names of the dimensions in the journal, the API and the configuration.
var Dims = [NumDims]string{"run_id", "user", "feature", "workflow", "workflow_version", "agent", "session", "criticality", "mode", "environment"}

// Identity is a value for each dimension; "" is "not known".
type Identity [NumDims]string

// Tokens are disjoint: Input + CacheRead + CacheWrite5m + CacheWrite1h +
// InputAudio + InputImage is the whole input, Output + OutputAudio + OutputImage
// the whole output. Reasoning is a part of Output and is never priced on top.
type Tokens struct {
	Input, CacheRead, CacheWrite5m, CacheWrite1h     uint64
	Output, Reasoning                                uint64
	InputAudio, InputImage, OutputAudio, OutputImage uint64
}

// NumTokens is the number of token counts in Tokens.
const NumTokens = 10

// TokenNames are the names of the counts, in the order of Fields.
var TokenNames = [NumTokens]string{"input", "cache_read", "cache_write_5m", "cache_write_1h", "output", "reasoning", "input_audio", "input_image", "output_audio", "output_image"}

// Fields are pointers to the counts in the order of TokenNames.
func (t *Tokens) Fields() [NumTokens]*uint64 {
	return [NumTokens]*uint64{&t.Input, &t.CacheRead, &t.CacheWrite5m, &t.CacheWrite1h, &t.Output, &t.Reasoning, &t.InputAudio, &t.InputImage, &t.OutputAudio, &t.OutputImage}
}

// TotalInput is the whole input, cached or not, of every modality.
func (t *Tokens) TotalInput() uint64 {
	return t.Input + t.CacheRead + t.CacheWrite5m + t.CacheWrite1h + t.InputAudio + t.InputImage
}

// TotalOutput is the whole output of every modality.
func (t *Tokens) TotalOutput() uint64 { return t.Output + t.OutputAudio + t.OutputImage }

// Units are what is billed by the piece instead of by the token.
type Units struct {
	WebSearches, Images, Pages uint64
	Milliseconds               uint64 // of audio or video
}

// NumUnits is the number of counts in Units.
const NumUnits = 4

// Fields are pointers to the counts: web_search, image, page, millisecond.
func (u *Units) Fields() [NumUnits]*uint64 {
	return [NumUnits]*uint64{&u.WebSearches, &u.Images, &u.Pages, &u.Milliseconds}
}

// Kind says what a call is.
type Kind uint8

// Kinds of calls. Model to Transcription are model-like: they bill a model.
const (
	KindOther Kind = iota
	KindRequest
	KindAgent
	KindWorkflow
	KindModel
	KindEmbedding
	KindRerank
	KindImage
	KindSpeech
	KindTranscription
	KindTool
	KindRetrieval
	KindGuardrail
	KindHTTP
	KindAdjustment // money that a person booked; no call at all
)

// KindNames are the names in the journal and the API.
var KindNames = []string{"other", "request", "agent", "workflow", "model", "embedding", "rerank", "image", "speech", "transcription", "tool", "retrieval", "guardrail", "http", "adjustment"}

func (k Kind) String() string { return KindNames[k] }

// ModelLike reports whether calls of this kind bill a model.
func (k Kind) ModelLike() bool { return k >= KindModel && k <= KindTranscription }

// Usage says whether a call's token counts are known.
type Usage uint8

// UsageNone: nothing is due. UsageUnknown: due, but absent.
const (
	UsageNone Usage = iota
	UsageKnown
	UsageUnknown
)

// UsageNames are the names in the journal and the API.
var UsageNames = []string{"none", "known", "unknown"}

func (u Usage) String() string { return UsageNames[u] }

// Failure classifies why a call failed; the zero value is success.
type Failure uint8

// Failures, as the retries report groups them.
const (
	NoFailure Failure = iota
	RateLimited
	Overloaded
	Timeout
	ServerError
	ClientError
	Refused
	Cancelled
	ToolError
	Budget
	UnknownFailure
)

// FailureNames are the names in the journal and the API.
var FailureNames = []string{"", "rate_limited", "overloaded", "timeout", "server_error", "client_error", "refused", "cancelled", "tool_error", "budget", "unknown"}

func (f Failure) String() string { return FailureNames[f] }

// Retryable reports whether a later sibling may be a retry of a call that failed so.
func (f Failure) Retryable() bool {
	switch f {
	case RateLimited, Overloaded, Timeout, ServerError, ToolError, UnknownFailure:
		return true
	}
	return false
}

// Layer says who retried; the zero value is "nobody".
type Layer uint8

// Retry layers from the inside out.
const (
	NoLayer Layer = iota
	LayerSDK
	LayerFramework
	LayerAgent
	LayerQueue
)

// LayerNames are the names in the journal and the API.
var LayerNames = []string{"", "sdk", "framework", "agent", "queue"}

func (l Layer) String() string { return LayerNames[l] }

// CostStatus says what is known about a call's cost.
type CostStatus uint8

// CostNone: nothing billable. CostUnpriced: usage known, no price.
// CostUnknown: usage due but absent. The last two have no cost, which is not zero.
const (
	CostNone CostStatus = iota
	CostPriced
	CostFree
	CostUnpriced
	CostUnknown
)

// CostStatusNames are the names in the journal and the API.
var CostStatusNames = []string{"none", "priced", "free", "unpriced", "unknown"}

func (s CostStatus) String() string { return CostStatusNames[s] }

// Effect says whether a tool changes the outside world.
type Effect uint8

// Tool effects.
const (
	EffectUnknown Effect = iota
	EffectRead
	EffectWrite
)

// EffectNames are the names in the journal and the API.
var EffectNames = []string{"unknown", "read", "write"}

func (e Effect) String() string { return EffectNames[e] }

// Source says who reported a call.
type Source uint8

// Sources of calls.
const (
	SourceSpan Source = iota
	SourceLog
	SourceLimiter
	SourceAdjustment // a person: the entry's name is the reason, its scope who, its response id the id
)

// SourceNames are the names in the journal and the API.
var SourceNames = []string{"span", "log", "limiter", "adjustment"}

func (s Source) String() string { return SourceNames[s] }

// Flags mark what a reader of a figure should know about it.
type Flags uint64

// The flags. Names are in FlagNames at the same position.
const (
	FlagClockSkew           Flags = 1 << iota // start replaced by the time of receipt
	FlagEndBeforeStart                        // duration set to zero
	FlagUsageInvalid                          // a token count was negative, not a number or absurd
	FlagUsageInconsistent                     // declared inclusive, yet cache > input: clamped
	FlagPartialUsage                          // only input or only output is known
	FlagCacheUnknown                          // this emitter never carries cache figures
	FlagTTLAssumed                            // cache writes of unknown lifetime
	FlagBasisAssumed                          // nothing on the span says whether input includes cache
	FlagBasisInferred                         // evidence on the span or its trace decided
	FlagEstimated                             // tokens estimated by the emitter, outside the books
	FlagCacheRateMissing                      // cache priced at the input rate
	FlagTierUnknown                           // service tier not in the price line, standard price used
	FlagPromoted                              // an aggregate that stands for calls nobody sent
	FlagResidual                              // what an aggregate knows beyond its leaves
	FlagCovered                               // usage is inside a promoted aggregate
	FlagPending                               // waits for its parent before it counts
	FlagOrphan                                // its parent never came
	FlagSampled                               // the emitter drops traces, totals are a lower bound
	FlagLate                                  // older than what the store remembers, accepted as new
	FlagReportedImplausible                   // reported cost is far off and was ignored
	FlagTwin                                  // joined to a twin by shape, without a common id
	FlagTruncated                             // a listed attribute was cut
	FlagResent                                // versions of one span were merged
	FlagNotional                              // list price of a flat-rate plan
	FlagUnitsUnpriced                         // fees by the piece without a price
	FlagModelFamily                           // priced by a generic name while the deployment is not mapped
	FlagEvaluation                            // LLM-as-judge traffic
	FlagClaim                                 // an untrusted sender claimed a cache hit or a cost
	FlagProviderFallback                      // priced by the line of the provider behind a reseller
	FlagCacheHit                              // a trusted gateway answered from its own cache: nobody billed it
	FlagGatewayTrace                          // its trace serves a call of another trace, in whose run it is
)

// FlagNames are the names in the API.
var FlagNames = []string{"clock_skew", "end_before_start", "usage_invalid", "usage_inconsistent", "partial_usage", "cache_unknown", "ttl_assumed", "basis_assumed", "basis_inferred", "estimated", "cache_rate_missing", "tier_unknown", "promoted", "residual", "covered", "pending", "orphan", "sampled", "late", "reported_implausible", "twin", "truncated", "resent", "notional", "units_unpriced", "model_family", "evaluation", "claim", "provider_fallback", "cache_hit", "gateway_trace"}

// Names lists the set flags.
func (f Flags) Names() []string {
	out := []string{}
	for i, n := range FlagNames {
		if f&(1<<i) != 0 {
			out = append(out, n)
		}
	}
	return out
}

// Role bits tell trace assembly how a span may take part in a call.
type Role uint16

const (
	// RoleAggregate marks usage that repeats or sums what is below it.
	RoleAggregate Role = 1 << iota
	// RoleCoversSubtree marks an aggregate whose usage is the sum of its subtree, so that a residual exists.
	RoleCoversSubtree
	// RoleCumulative marks running totals that never yield a residual.
	RoleCumulative
	// RoleClient marks a client span to a database, HTTP, RPC or queue: a tool call if nothing above it is one.
	RoleClient
	// RoleModelHost marks an HTTP client span to a known model host.
	RoleModelHost
	// RoleHTTP marks an HTTP attempt, which is evidence of a hidden attempt below a model call.
	RoleHTTP
	// RoleRefinesParent marks a span whose usage is better evidence for its parent (a raw provider answer).
	RoleRefinesParent
	// RoleBasisProof marks usage that proves the emitter's input excludes cache.
	RoleBasisProof
	// RoleRunFromOperator marks a run id that the operator's own attribute gave.
	RoleRunFromOperator
	// RoleRoot marks a span without a parent.
	RoleRoot
	// RoleTrustedGateway marks a span sent with a key trusted as a gateway.
	RoleTrustedGateway
	// RoleServer marks a SERVER or CONSUMER span.
	RoleServer
	// RoleNotCounted marks a model-like or tool span that is no call of its own (a token count, an output function).
	RoleNotCounted
	// RoleWeakVersion marks a workflow version that only the service.version of the resource gave.
	RoleWeakVersion
	// RoleNumbered marks a call whose hidden attempts are the number that it says it has among
	// the attempts, which siblings of it may be.
	RoleNumbered
	// RoleStreamEnd marks the record in which an emitter tells what came of a stream, beside the
	// span of the call that opened it.
	RoleStreamEnd
)

// Call is what a dialect read out of one span, before anything is known about
// the rest of its trace. It holds no content: no prompt, answer or argument.
type Call struct {
	Tenant string
	Trace  TraceID
	Span   SpanID
	Parent SpanID
	Link   TraceID // root only: the one trace all span links point to
	Part   uint16  // 0 is the call; further parts are priced alone and count as no call

	Start    int64 // unix nanoseconds
	Duration int64 // nanoseconds, never negative

	Kind     Kind
	Usage    Usage
	Failure  Failure
	Effect   Effect
	Source   Source
	Role     Role
	Flags    Flags
	Identity Identity

	Name           string // span name, at most 128 bytes
	Operation      string
	Provider       string // who bills
	Model          string // that answered, as sent
	RequestedModel string
	ServiceTier    string
	ResponseID     string
	Scope          string // instrumentation scope, name@version
	TokenBasis     string // declared_inclusive, exclusive, raw, disjoint, assumed …
	Tool           string
	ToolCallID     string
	PayloadType    string
	AltResponseID  string // a second id of the same answer (a request id)

	Tokens        Tokens
	Units         Units
	ReportedCost  Money // what the emitter says it cost; meaningful if HasReported
	HasReported   bool
	ArgsHash      uint64 // keyed hash of the arguments, 0 where there are none
	PayloadBytes  uint64
	HTTPStatus    uint16
	HiddenFailure Failure // what caused the hidden attempts
	Hidden        uint32  // attempts without a span of their own
	Turns         uint32  // model calls an aggregate says it stands for
	Delivery      uint32  // queue delivery attempt, 1-based; 0 unknown
}

// Posting is what the rest of the trace and the price list make of a call.
// It is what a correction replaces.
type Posting struct {
	Kind        Kind     // what the call turned out to be: an HTTP span to a model host is a model call
	Identity    Identity // after inheritance
	Tokens      Tokens   // that are billed here; zero for lines that count nowhere
	Aggregate   bool
	DuplicateOf string // trace/span of the line that counts instead

	Status      CostStatus
	Cost        Money // meaningless for CostUnpriced and CostUnknown
	Exposure    Money // what a guard counts
	Estimate    Money // meaningful if HasEstimate; outside every total
	HasEstimate bool
	PriceID     string
	Amount      Money // in Currency, 1e-12 units
	Currency    string

	Attempt     uint32 // 1-based
	Layer       Layer  // who made this attempt, if it is a retry
	Cause       Failure
	Hidden      uint32
	HiddenCause Failure
	Fallback    bool
	Hedge       bool

	ModelCalls, ToolCalls, Retries, Fallbacks, Hedges uint32 // additive measures
	Repeats                                           uint32 // tool calls with arguments already seen in the run
	Wasted                                            Money

	Flags Flags
}

// Billed reports whether the cost is a known figure, zero included.
func (p *Posting) Billed() bool { return p.Status != CostUnpriced && p.Status != CostUnknown }

// Entry is one signed posting of a line (tenant, trace, span, part). Nothing is
// updated in place: a correction posts -1 for the old version and +1 for the new.
type Entry struct {
	Call
	Posting    Posting
	Sign       int8
	Version    uint32
	RecordedAt int64 // unix microseconds, later in each record of the log than in the one before
}

// AllFlags are the flags of the call and of its posting.
func (e *Entry) AllFlags() Flags { return e.Call.Flags | e.Posting.Flags }
