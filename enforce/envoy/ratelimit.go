package envoy

import (
	"context"
	"math"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
)

// measure is what an addend counts. The positive ones are schema.TokenNames plus one.
type measure int

const (
	measureNone measure = 0
	// The whole input: what of it is cached, where that is told as well, is taken out.
	measureInput measure = -iota
	measureTotal         // input and output in one number
	measureMicroUSD
	measurePicoUSD
)

// measureOf reads the value of the descriptor key "measure", which may also be a
// key of its own.
func measureOf(s string) measure {
	switch s {
	case "tokens", "total_tokens":
		return measureTotal
	case "input_tokens":
		return measureInput
	case "cached_input_tokens":
		return 1 + measure(slices.Index(schema.TokenNames[:], "cache_read"))
	case "cost_microusd":
		return measureMicroUSD
	case "cost_picousd":
		return measurePicoUSD
	}
	for i, name := range schema.TokenNames[1:] { // input is above
		if len(s) == len(name)+len("_tokens") && s[:len(name)] == name && s[len(name):] == "_tokens" {
			return measure(i + 2)
		}
	}
	return measureNone
}

// What a charge may be at most, for one call: Envoy's own bound of an addend, and a
// million dollars. What is above is a mistake, or meant to overflow a sum.
const (
	maxTokens  = 1_000_000_000
	maxCostPUS = 1_000_000 * 1_000_000_000_000
)

// maxDescriptors bounds the work for one request.
const maxDescriptors = 128

// item is one descriptor.
type item struct {
	call     directive.Call
	addend   uint64
	measure  measure
	response string
	charges  bool
	refund   bool
}

// read makes an item of a descriptor. An addend that is there wins over the
// request's, where 0 is "not set" (rls.proto): not set is one hit, an admission
// question, while a 0 on the descriptor is a check that counts nothing. Neither
// charges. More than 1 is a report of what a call used; so is 1 where the
// descriptor says of what, since agentgateway sends 1 for a request.
func (s *Server) read(d *limitv3.RateLimitDescriptor, request uint32) (it item) {
	for _, e := range d.GetEntries() {
		k, v := e.GetKey(), e.GetValue()
		switch k {
		case "measure":
			it.measure = measureOf(v)
			continue
		case "response_id":
			it.response = v
			continue
		case "traceparent":
			if trace, span, ok := parseTraceparent(v); ok {
				it.call.TraceID, it.call.SpanID = trace, span
			}
			continue
		}
		if f, ok := s.names.keys[k]; ok {
			if v != "" {
				*f.of(&it.call) = v
			}
		} else if m := measureOf(k); m != measureNone {
			it.measure = m
		}
	}
	set := request > 0
	it.addend = uint64(request)
	if h := d.GetHitsAddend(); h != nil {
		set, it.addend = true, h.GetValue()
	}
	it.charges = set && (it.addend > 1 || it.addend == 1 && it.measure != measureNone)
	it.refund = it.charges && d.GetIsNegativeHits()
	if it.measure == measureNone {
		it.measure = s.unit
	}
	if len(it.response) > maxValue {
		it.response = ""
	}
	return it
}

// rateLimits is the service RLS.
type rateLimits struct{ s *Server }

// ShouldRateLimit answers whether budgets have room, and books what calls used. It
// is the carrier of budgets alone. A kill is not told here: a gateway that asks both
// services would tell a kill as 429 "rate limited", and by the failure mode that is
// usual for rate limits a gateway would lift it when this server cannot be reached.
// Throttles are kept by the other service too, since one that is kept twice lets
// half as much pass; and a downgrade is no refusal.
func (l rateLimits) ShouldRateLimit(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	start := time.Now()
	out, what, err := l.s.limit(ctx, r)
	l.s.metrics.answered(serviceLimit, what, start)
	return out, err
}

func (s *Server) limit(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, answer, error) {
	key, err := s.who(ctx, "")
	if err != nil {
		s.unknown.write(s.o.Logger, "refuse gateway", err)
		return nil, answerUnauthenticated, err
	}
	descriptors := r.GetDescriptors()
	if len(descriptors) == 0 || len(descriptors) > maxDescriptors {
		return nil, answerError, status.Errorf(codes.InvalidArgument, "%d descriptors: want 1 to %d", len(descriptors), maxDescriptors)
	}
	statuses := make([]rlsv3.RateLimitResponse_DescriptorStatus, len(descriptors))
	out := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK, Statuses: make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(descriptors))}
	what := answerAllow
	var worst *denial
	var charges []item
	// Questions first: where one cannot be answered nothing is booked either, so that
	// a gateway that asks again is not charged twice.
	for i, d := range descriptors {
		st := &statuses[i]
		st.Code = rlsv3.RateLimitResponse_OK
		out.Statuses[i] = st
		it := s.read(d, r.GetHitsAddend())
		if it.charges {
			charges = append(charges, it)
			continue
		}
		n := own(&it.call, &key)
		refused := n != nil
		if n == nil {
			if n, err = s.room(&it.call, st); err != nil {
				s.failed.write(s.o.Logger, "decide for gateway", err)
				return nil, answerError, errFailed
			}
		}
		if n == nil {
			continue
		}
		st.Code, out.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT, rlsv3.RateLimitResponse_OVER_LIMIT
		if n.worse(worst) {
			worst = n
			what = answerDeny
			if refused {
				what = answerRefused
			}
		}
	}
	if len(charges) > 0 {
		s.book(charges, &key)
		if worst == nil {
			what = answerCharged
		}
	}
	if worst != nil {
		// No status in the body: the gateway chooses it (429 unless rate_limited_status).
		out.RawBody = worst.body(0)
		out.ResponseHeadersToAdd = make([]*corev3.HeaderValue, 0, 5)
		worst.headers(func(name, value string) {
			out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, &corev3.HeaderValue{Key: name, Value: value})
		})
	}
	return out, what, nil
}

// room asks whether the budgets of one descriptor's call have room, fills in its
// status, and returns the refusal if not.
func (s *Server) room(c *directive.Call, st *rlsv3.RateLimitResponse_DescriptorStatus) (*denial, error) {
	d, b, err := s.o.Decide(c)
	if err != nil {
		return nil, err
	}
	if b != nil {
		unit, times := unitOf(b.Window)
		st.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{Name: valid(b.Name), RequestsPerUnit: clamp32(b.LimitCents), Unit: rlsv3.RateLimitResponse_RateLimit_Unit(unit)}
		if times > 1 {
			st.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(times)
		}
		st.LimitRemaining = clamp32(b.LeftCents)
		if b.ResetIn > 0 {
			st.DurationUntilReset = durationpb.New(b.ResetIn)
		}
	}
	switch {
	case d.Verdict == directive.Deny && !isKill(&d):
		n := denialOf(&d, b, 0)
		return &n, nil
	case d.Verdict != directive.Downgraded && b != nil && b.LeftCents == 0:
		n := spent(&d, b)
		return &n, nil
	}
	return nil, nil
}

// book reports what calls used. The descriptors of one request are about one call,
// each scope of it (its tenant, its user) with the same count, or parts of it with
// counts of their own: those that do not contradict each other become one charge, in
// which of two counts of one measure the larger stands. Whose call it is, is settled
// for all of them together, since one may name the tenant for the others.
func (s *Server) book(items []item, key *schema.Key) {
	for i := range items {
		it := &items[i]
		switch {
		case it.refund:
			// Books have no entry for it: a hold is replaced by the call's span, which
			// says what was used in the end.
			s.metrics.charges[chargeRefund].Inc()
			continue
		case it.addend == 0: // joined to another
			continue
		}
		var sums sums
		sums.add(it)
		for j := i + 1; j < len(items); j++ {
			o := &items[j]
			if !o.refund && o.addend > 0 && join(it, o) {
				sums.add(o)
				o.addend = 0
			}
		}
		if own(&it.call, key) != nil {
			s.metrics.charges[chargeForeign].Inc()
			continue
		}
		u, capped := sums.usage()
		u.ResponseID = valid(it.response)
		if err := s.o.Charge(it.call, u, key.Name); err != nil {
			s.metrics.charges[chargeFailed].Inc()
			s.failed.write(s.o.Logger, "book charge of gateway", err)
			continue
		}
		s.metrics.charges[chargeBooked].Inc()
		if capped {
			s.metrics.charges[chargeCapped].Inc()
		}
	}
}

// join adds what o says of a call to it, unless they are of two calls.
func join(it, o *item) bool {
	for f := range numFields {
		if a, b := f.of(&it.call), f.of(&o.call); *a != "" && *b != "" && *a != *b {
			return false
		}
	}
	if it.response != "" && o.response != "" && it.response != o.response {
		return false
	}
	for f := range numFields {
		if a := f.of(&it.call); *a == "" {
			*a = *f.of(&o.call)
		}
	}
	if it.response == "" {
		it.response = o.response
	}
	return true
}

// sums are the counts of one call.
type sums struct {
	tokens       [schema.NumTokens]uint64 // input is at 0, and not told apart by these
	input, total uint64
	split        bool
	pico         uint64
	hits         uint64
	capped       bool
}

func (u *sums) add(it *item) {
	u.hits = max(u.hits, it.addend)
	limit := uint64(maxTokens)
	n := it.addend
	switch it.measure {
	case measureMicroUSD:
		limit = maxCostPUS / 1_000_000
	case measurePicoUSD:
		limit = maxCostPUS
	}
	if n > limit {
		n, u.capped = limit, true
	}
	switch it.measure {
	case measureMicroUSD:
		u.pico = max(u.pico, n*1_000_000)
	case measurePicoUSD:
		u.pico = max(u.pico, n)
	case measureTotal:
		u.total = max(u.total, n)
	case measureInput:
		u.input, u.split = max(u.input, n), true
	default:
		t := &u.tokens[it.measure-1]
		*t, u.split = max(*t, n), true
	}
}

// usage makes the counts disjoint. A total counts where nothing tells input and
// output apart, and then as input: dearer kinds would book more than was used.
func (u *sums) usage() (out Usage, capped bool) {
	out.Hits, out.CostPicoUSD = u.hits, int64(u.pico)
	t := u.tokens
	switch parts := t[1] + t[2] + t[3] + t[6] + t[7]; {
	case !u.split:
		t[0] = u.total
	case u.input >= parts:
		t[0] = u.input - parts
	default:
		t[0] = u.input // less than its parts: an emitter that does not count them in
	}
	if parts := t[8] + t[9]; t[4] >= parts {
		t[4] -= parts
	}
	for i, n := range t {
		if n > 0 {
			if out.Tokens == nil {
				out.Tokens = make(map[string]uint64, 4)
			}
			out.Tokens[schema.TokenNames[i]] = n
		}
	}
	return out, u.capped
}

func clamp32(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// unitOf is a window as Envoy counts time. Days and months are as long as the
// calendar has them.
func unitOf(w time.Duration) (typev3.RateLimitUnit, uint32) {
	const hour, day = time.Hour, 24 * time.Hour
	switch {
	case w <= 0:
		return typev3.RateLimitUnit_UNKNOWN, 0
	case w >= 28*day-hour && w <= 31*day+hour:
		return typev3.RateLimitUnit_MONTH, 1
	case w >= 365*day-hour && w <= 366*day+hour:
		return typev3.RateLimitUnit_YEAR, 1
	case w >= day-hour && w <= day+hour:
		return typev3.RateLimitUnit_DAY, 1
	case w >= 7*day-hour && w <= 7*day+hour:
		return typev3.RateLimitUnit_DAY, 7
	}
	for _, u := range []struct {
		unit typev3.RateLimitUnit
		of   time.Duration
	}{{typev3.RateLimitUnit_DAY, day}, {typev3.RateLimitUnit_HOUR, hour}, {typev3.RateLimitUnit_MINUTE, time.Minute}} {
		if w%u.of == 0 && w/u.of <= math.MaxUint32 {
			return u.unit, uint32(w / u.of)
		}
	}
	return typev3.RateLimitUnit_SECOND, uint32(min(max(w/time.Second, 1), math.MaxUint32))
}
