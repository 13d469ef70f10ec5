package trace

import "github.com/flyball/flyball/schema"

// mergeCalls joins two versions of one span: the larger count, the later end, the
// first non-empty string. It is commutative and idempotent, so the order of
// arrival does not matter: where both have a different string, the version that
// ends later decides, then the greater string.
//
// What a limiter reported only stands in for the span: they do not mix.
func mergeCalls(x, y *schema.Call) schema.Call {
	if (x.Source == schema.SourceLimiter) != (y.Source == schema.SourceLimiter) {
		if x.Source == schema.SourceLimiter {
			return *y
		}
		return *x
	}
	if x.Flags&y.Flags&schema.FlagClockSkew != 0 && x.Start != y.Start {
		// Neither says when it started: the first receipt stands.
		a, b := *x, *y
		a.Start = min(x.Start, y.Start)
		b.Start = a.Start
		x, y = &a, &b
	}
	if later(x, y) {
		x, y = y, x
	}
	// y is the version whose word counts where both say something.
	m := *y
	text := func(dst *string, other string) {
		if *dst == "" {
			*dst = other
		}
	}
	for d := range m.Identity {
		text(&m.Identity[d], x.Identity[d])
	}
	if schema.Pseudonymous(x.Identity[schema.User]) && !schema.Pseudonymous(m.Identity[schema.User]) {
		m.Identity[schema.User] = x.Identity[schema.User] // an old span that is sent again brings nobody back
	}
	text(&m.Name, x.Name)
	text(&m.Operation, x.Operation)
	text(&m.Provider, x.Provider)
	text(&m.Model, x.Model)
	text(&m.RequestedModel, x.RequestedModel)
	text(&m.ServiceTier, x.ServiceTier)
	text(&m.ResponseID, x.ResponseID)
	text(&m.AltResponseID, x.AltResponseID)
	text(&m.Tool, x.Tool)
	text(&m.ToolCallID, x.ToolCallID)
	text(&m.PayloadType, x.PayloadType)
	if m.Parent == (schema.SpanID{}) {
		m.Parent = x.Parent
	}
	if m.Parent != (schema.SpanID{}) {
		m.Role &^= schema.RoleRoot
	}
	if m.Link == (schema.TraceID{}) {
		m.Link = x.Link
	}
	if end := x.Start + x.Duration; end > m.Start+m.Duration {
		m.Duration = end - m.Start
	}
	// A count is taken whole from the version that knows more, never mixed
	// within one reading of the basis.
	if x.Usage == schema.UsageKnown && (m.Usage != schema.UsageKnown || sum(&x.Tokens) > sum(&m.Tokens)) {
		m.Tokens, m.TokenBasis, m.Usage = x.Tokens, x.TokenBasis, x.Usage
		m.Flags = m.Flags&^usageFlags | x.Flags&usageFlags
	} else if m.Usage != schema.UsageKnown {
		m.Usage = max(m.Usage, x.Usage)
	}
	ux, um := x.Units.Fields(), m.Units.Fields()
	for i := range um {
		*um[i] = max(*um[i], *ux[i])
	}
	if !m.HasReported || x.HasReported && x.ReportedCost > m.ReportedCost {
		m.HasReported, m.ReportedCost = x.HasReported || m.HasReported, max(x.ReportedCost, m.ReportedCost)
	}
	if m.Kind == schema.KindOther {
		m.Kind = x.Kind
	}
	m.Role |= x.Role &^ schema.RoleRoot
	m.Flags |= x.Flags &^ usageFlags
	if a, b := *x, *y; !same(&a, &b) {
		m.Flags |= schema.FlagResent
	}
	if m.Failure == schema.NoFailure && x.Failure != schema.NoFailure && m.Usage != schema.UsageKnown {
		m.Failure = x.Failure
	}
	m.HTTPStatus = max(m.HTTPStatus, x.HTTPStatus)
	m.Hidden, m.Turns, m.Delivery = max(m.Hidden, x.Hidden), max(m.Turns, x.Turns), max(m.Delivery, x.Delivery)
	m.HiddenFailure = max(m.HiddenFailure, x.HiddenFailure)
	m.PayloadBytes = max(m.PayloadBytes, x.PayloadBytes)
	if m.ArgsHash == 0 {
		m.ArgsHash = x.ArgsHash
	}
	if m.Effect == schema.EffectUnknown {
		m.Effect = x.Effect
	}
	return m
}

const usageFlags = schema.FlagUsageInvalid | schema.FlagUsageInconsistent | schema.FlagPartialUsage | schema.FlagCacheUnknown | schema.FlagTTLAssumed | schema.FlagBasisAssumed | schema.FlagBasisInferred | schema.FlagEstimated

func sum(t *schema.Tokens) uint64 { return t.TotalInput() + t.TotalOutput() }

// later reports whether x's word beats y's.
func later(x, y *schema.Call) bool {
	if (x.Role^y.Role)&schema.RoleTrustedGateway != 0 {
		return x.Role&schema.RoleTrustedGateway != 0
	}
	if ex, ey := x.Start+x.Duration, y.Start+y.Duration; ex != ey {
		return ex > ey
	}
	if sx, sy := sum(&x.Tokens), sum(&y.Tokens); sx != sy {
		return sx > sy
	}
	if len(x.Name) != len(y.Name) || x.Name != y.Name {
		return x.Name > y.Name
	}
	return string(schema.AppendCall(nil, x)) > string(schema.AppendCall(nil, y))
}

// same reports whether two versions say the same but for the resent flag.
func same(x, y *schema.Call) bool {
	x.Flags &^= schema.FlagResent
	y.Flags &^= schema.FlagResent
	return *x == *y
}
