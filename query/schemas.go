package query

import (
	"slices"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/openapi"
)

// What the answers are made of.
var (
	count       = openapi.Schema{"type": "integer", "description": "A signed sum."}
	positive    = openapi.Schema{"type": "integer", "minimum": 0}
	quotient    = openapi.Schema{"type": []string{"number", "null"}, "description": "Null where there is nothing to divide by."}
	text        = openapi.Schema{"type": "string"}
	nextSchema  = openapi.String("The cursor of the next page; empty where this was the last.")
	monthSchema = openapi.Text(openapi.Schema{"pattern": "^20[0-9]{2}-(0[1-9]|1[0-2])$|^2100-(0[1-9]|1[0-2])$", "examples": []string{"2026-11"}}, "A month.")
	tokenSchema = openapi.Named{Name: "Tokens", Schema: openapi.Object(same(count, schema.TokenNames[:]...))}
)

// same is one schema for several names.
func same(s openapi.Schema, names ...string) openapi.Fields {
	f := openapi.Fields{}
	for _, n := range names {
		f[n] = s
	}
	return f
}

func with(f openapi.Fields, more ...openapi.Fields) openapi.Fields {
	for _, m := range more {
		for k, v := range m {
			f[k] = v
		}
	}
	return f
}

// rowOf is a row with those of the dimensions that it was asked to be by.
func rowOf(names []string, f openapi.Fields) openapi.Fields {
	for _, n := range names {
		f[n+"?"] = text
	}
	return f
}

// answerOf adds what request.answer does, and where the next page is.
func answerOf(f openapi.Fields) openapi.Fields {
	return with(f, openapi.Fields{"from": openapi.Time(), "to": openapi.Time(), "timezone": openapi.String("The zone that days begin in, IANA."), "as_of": openapi.Time(), "truncated": openapi.Bool(), "next": nextSchema})
}

// pageOf is an answer as JSON or CSV.
func pageOf(ok any) openapi.Answer {
	return openapi.Answer{About: "The answer.", Content: map[string]any{"application/json": ok, "text/csv": openapi.String("A header, then a line for each row.")}, Headers: map[string]openapi.Header{
		"ETag":                {About: "Of answers that change by corrections alone: /spend and /retries of a time that is over.", Schema: text},
		"Link":                {About: "CSV: where the next page is.", Schema: text},
		"X-Flyball-Truncated": {About: "CSV: whether there is a next page.", Schema: openapi.Enum("true", "false")},
	}}
}

// callSchema is callRow's.
var callSchema = func() openapi.Named {
	usd := openapi.USD()
	maybe := openapi.Nullable(usd)
	flag := openapi.Bool()
	f := openapi.Fields{"tenant": text, "trace_id": text, "span_id": text, "parent_span_id": text, "part": positive, "run_id": text, "started_at": openapi.Time(), "duration_ns": positive, "recorded_at": openapi.Time(), "tokens": tokenSchema,
		"cost_usd": maybe, "estimate_usd": maybe, "reported_cost_usd": maybe, "exposure_usd": usd, "amount": openapi.Text(openapi.Schema{"format": "decimal"}, "In currency."), "wasted_usd": usd,
		"aggregate": flag, "fallback": flag, "hedge": flag, "args_hash": text, "flags": openapi.Array(openapi.Enum(schema.FlagNames...)),
		"sign?": openapi.Schema{"type": "integer", "enum": []int{-1, 1}, "description": "Of a history: whether the entry was added or taken back."}, "children?": openapi.Array(openapi.Ref("Call"))}
	for _, n := range plainColumns {
		f[n] = text
	}
	for _, n := range []string{"payload_bytes", "attempt", "hidden_attempts", "http_status", "version", "web_searches", "images", "pages", "media_ms", "model_calls", "tool_calls", "retries", "fallbacks", "hedges", "repeats"} {
		f[n] = positive
	}
	return openapi.Named{Name: "Call", Schema: openapi.Object(f)}
}()

var (
	counts   = same(count, "model_calls", "tool_calls", "retries", "fallbacks", "hedges", "unpriced_calls", "unknown_calls")
	statuses = openapi.Enum("succeeded", "failed", "stopped", "partial", "unknown")

	runRow = openapi.Named{Name: "RunRow", Schema: openapi.Object(with(same(text, "tenant", "run_id", "name", "user", "feature", "workflow", "workflow_version", "agent"), counts,
		openapi.Fields{"status": statuses, "started_at": openapi.Time(), "ended_at": openapi.Time(), "cost_usd": openapi.USD(), "amplification": count}))}

	runSchema = openapi.Named{Name: "Run", Schema: openapi.Object(with(same(text, "tenant", "run_id"), same(openapi.Nullable(text), "name", "user", "feature", "workflow", "workflow_version", "agent", "session", "criticality", "mode", "environment"), counts,
		same(openapi.Map(count), "retries_by_layer", "failures", "kinds", "flags"),
		openapi.Fields{"status": statuses, "started_at": openapi.Time(), "ended_at": openapi.Time(), "cost_usd": openapi.USD(), "wasted_usd": openapi.USD(), "cost_amplification": quotient,
			"retry_multiplier": quotient, "amplification": openapi.Number(), "as_of?": openapi.Time(), "requests": count, "repeats": count, "estimated_calls": count, "truncated": openapi.Bool(), "calls": openapi.Array(callSchema)}))}

	spendCounts = openapi.Fields{"calls": count, "cost_usd": openapi.USD(), "unpriced_calls": count, "unknown_calls": count, "estimated_calls": count, "sampled_calls": count}

	// What an answer has beside USD where it was asked for another currency.
	currencyCode = openapi.String("The currency of the amounts without _usd, ISO 4217.")
	inCurrency   = openapi.Text(openapi.Schema{"format": "decimal"}, "In currency.")
	rated        = openapi.Fields{"currency?": currencyCode, "rounding?": openapi.String("How amounts are rounded."),
		"rates?": openapi.Array(openapi.Fields{"day": day, "usd": openapi.String("USD for one of the currency, a decimal."), "of": openapi.Text(openapi.Schema{"format": "date"}, "The day that the rate is of: an earlier one where carried."), "source": text, "carried": openapi.Bool()})}

	spendSchema = answerOf(with(openapi.Fields{
		"rows":  openapi.Array(rowOf(dimensions, with(openapi.Fields{"at?": openapi.Time(), "tokens": tokenSchema, "cost?": inCurrency, "currency?": currencyCode}, spendCounts))),
		"total": with(openapi.Fields{"complete": openapi.Schema{"type": "boolean", "description": "Nothing is unpriced, unknown or sampled."}, "cost?": inCurrency}, spendCounts)}, rated))

	retriesSchema = answerOf(with(openapi.Fields{"rows": openapi.Array(rowOf(retryDimensions, openapi.Fields{"retries": count, "fallbacks": count, "hedges": count, "wasted_usd": openapi.USD(), "wasted?": inCurrency, "currency?": currencyCode}))}, rated))

	amplificationRow = rowOf(slices.Concat(runDimensions, callDimensions), with(openapi.Fields{"requests": count, "repeats": count, "cost_usd": openapi.USD(), "wasted_usd": openapi.USD()}, counts,
		same(quotient, "ratio", "retry_multiplier", "cost_amplification"), same(openapi.Number(), "p50", "p90", "p99")))

	coverageSchema = answerOf(openapi.Fields{
		"rows":     openapi.Array(with(same(count, "calls", "unpriced", "unknown", "estimated", "assumed_basis", "sampled"), openapi.Fields{"provider": text, "model": text, "cost_usd": openapi.USD()})),
		"flags":    openapi.Map(count),
		"total":    with(same(count, "model_attempts", "unpriced", "unknown", "estimated", "assumed_basis", "sampled", "late"), openapi.Fields{"quarantined?": positive}),
		"findings": openapi.Array(openapi.Fields{"finding": text, "tenants": openapi.Array(text), "traces": positive, "trace_id": text, "text": text})})

	moverSide = openapi.Named{Name: "MoverSide", Schema: openapi.Object(with(same(count, "requests", "model_calls", "attempts", "tokens", "uncosted_calls"), openapi.Fields{"cost_usd": openapi.USD(), "cost?": inCurrency}))}
	moverRow  = openapi.Fields{"before": moverSide, "after": moverSide, "before_usd": openapi.USD(), "after_usd": openapi.USD(), "change_usd": openapi.USD(), "effects": same(openapi.USD(), effects...),
		"main":            openapi.Enum(append([]string{""}, effects...)...),
		"change?":         inCurrency,
		"change_effects?": same(inCurrency, effectsInThem...),
		"change_main?":    openapi.Enum(append([]string{""}, effectsInThem...)...)}
	moversSchema = answerOf(with(openapi.Fields{"rows": openapi.Array(rowOf(moverDimensions, with(openapi.Fields{"currency?": currencyCode}, moverRow))), "total": moverRow,
		"requests_counted": openapi.Bool(), "base_from": openapi.Time(), "base_to": openapi.Time()}, rated))

	closedSchema = openapi.Named{Name: "Close", Schema: openapi.Object(openapi.Fields{"tenant": text, "period": monthSchema, "from": openapi.Time(), "to": openapi.Time(), "timezone": text, "as_of": openapi.Time(), "closed_at": openapi.Time(), "closed_by": text, "cost_usd": openapi.USD()})}
	closeMoney   = same(openapi.USD(), "frozen_usd", "current_usd", "adjustment_usd")
	closeSchema  = openapi.AnyOf(
		openapi.Fields{"closes": openapi.Array(closedSchema)},
		with(openapi.Fields{"period": monthSchema, "closes": openapi.Array(closedSchema), "truncated": openapi.Bool(), "next": nextSchema, "as_of": openapi.Time(),
			"rows":  openapi.Array(with(same(text, "tenant", "provider", "model"), closeMoney, closeIn, openapi.Fields{"currency?": currencyCode}, same(count, "frozen_calls", "current_calls", "adjustment_calls", "frozen_unpriced", "current_unpriced", "frozen_unknown", "current_unknown"))),
			"total": with(same(count, "frozen_calls", "current_calls"), closeMoney, closeIn)}, rated))
	closeIn = same(inCurrency, "frozen?", "current?", "adjustment?")

	day           = openapi.Text(openapi.Schema{"format": "date"}, "")
	differing     = same(openapi.USD(), "ours_usd", "theirs_usd", "difference_usd", "rounding_usd", "unsplit_usd")
	billedIn      = openapi.Fields{"currency": openapi.String("The bill's currency, ISO 4217."), "theirs": openapi.Text(openapi.Schema{"format": "decimal"}, "The bill, in its currency.")}
	rateSchema    = openapi.AnyOf(openapi.Fields{"usd": openapi.String("USD for one of the currency, a decimal."), "of": day, "source": text, "carried": openapi.Bool()}, openapi.Schema{"type": "null", "description": "The row needed no rate."})
	reconciledRun = openapi.Named{Name: "Reconciliation", Schema: openapi.Object(with(same(text, "id", "source", "sha256", "made_by"), billedIn, differing, same(openapi.USD(), "priced_usd", "only_ours_usd", "only_theirs_usd", "skipped_usd"),
		openapi.Fields{"tenants": openapi.Array(text), "made_at": openapi.Time(), "as_of": openapi.Time(), "from": day, "to": day, "skipped_rows": positive}))}
	reconciled = openapi.Fields{"reconciliation": reconciledRun, "truncated": openapi.Bool(), "next": nextSchema, "already?": openapi.Schema{"type": "boolean", "description": "The same file was compared before."},
		"rows": openapi.Array(with(same(text, "provider", "model", "item"), differing, same(count, "our_tokens", "bill_rows", "calls", "unpriced", "unknown", "estimated", "sampled"), billedIn,
			openapi.Fields{"rate": rateSchema, "split_by": openapi.Schema{"type": "string", "enum": []string{"", splitKinds, splitTotals}, "description": "Which tokens told price from volume: those of each kind, or all together; empty where nothing had to be split."}, "day": day, "their_tokens": openapi.Nullable(count), "priced_usd": openapi.Nullable(openapi.USD()), "only_ours_usd": openapi.Nullable(openapi.USD()), "only_theirs_usd": openapi.Nullable(openapi.USD()),
				"error_usd": openapi.Nullable(openapi.USD())}))}
	reconcileSchema = openapi.AnyOf(openapi.Fields{"reconciliations": openapi.Array(reconciledRun), "truncated": openapi.Bool(), "next": nextSchema}, reconciled)
)

// The answers about enforcement.
var (
	nanoseconds = openapi.Nullable(openapi.Schema{"type": "integer", "description": "Nanoseconds; null where nothing was measured."})
	durations   = same(nanoseconds, "p50_ns", "p90_ns", "p99_ns", "max_ns")

	eventsSchema  = answerOf(openapi.Fields{"events": []schema.Enforcement{}, "complete": openapi.Schema{"type": "boolean", "description": "ClickHouse was asked; else the local store answers alone."}})
	leakageSchema = answerOf(openapi.Fields{"rows": openapi.Array(rowOf(leakDimensions, with(openapi.Fields{"at?": openapi.Time()}, same(positive, "propagation_calls", "leak_calls", "unguarded_calls"), same(openapi.USD(), "propagation_usd", "leak_usd", "unguarded_usd"))))})
	timesSchema   = answerOf(openapi.Fields{"rows": openapi.Array(rowOf(timeDimensions, with(openapi.Fields{"at?": openapi.Time(), "count": positive, "after_span": with(openapi.Fields{"count": positive}, durations)}, durations)))})
)

// The answers about capacity and waste.
var (
	ofSchema = openapi.Enum("calls", "requests")

	loadSchema = answerOf(openapi.Fields{"additive": openapi.Bool(), "rows": openapi.Array(rowOf(loadDimensions, with(
		same(count, "steps", "retries", "fallbacks", "hedges", "provider_calls", "unpriced_calls", "unknown_calls"), same(openapi.Number(), "steps_per_request", "calls_p50", "calls_p90", "calls_p99"),
		openapi.Fields{"at?": openapi.Time(), "requests": openapi.Schema{"type": "integer", "minimum": 1}, "retry_multiplier": quotient, "cost_usd": openapi.USD()})))})

	rateLimitsSchema = answerOf(openapi.Fields{"rows": openapi.Array(rowOf(limitDimensions, with(same(count, "attempts", "rate_limited"), openapi.Fields{"at?": openapi.Time(), "rate": quotient})))})

	workedSchema = answerOf(openapi.Fields{"of": ofSchema, "rows": openapi.Array(rowOf(workedDimensions, with(
		same(count, "calls", "uncosted_calls", "incomplete_calls", "compared_calls"), same(openapi.USD(), "cost_usd", "compared_usd"),
		same(openapi.Schema{"type": []string{"number", "null"}, "description": "Milliseconds of a call, on average; null where none is compared."}, "mean_ms", "extra_ms"),
		openapi.Fields{"retries": openapi.Enum(retriesNames...), "first_try_usd": openapi.Nullable(openapi.USD()), "cost_ratio": quotient})))})

	loopsSchema = answerOf(openapi.Fields{"rows": openapi.Array(rowOf(loopDimensions, with(
		same(positive, "requests", "looping_requests"), same(count, "tool_calls", "repeats", "most_repeats", "looping_uncosted_calls"),
		same(openapi.USD(), "cost_usd", "looping_cost_usd"), openapi.Fields{"repeat_ratio": quotient})))})

	emptyPollsSchema = answerOf(openapi.Fields{"rows": openapi.Array(rowOf(toolDimensions, with(
		same(positive, "polls", "empty_polls", "unknown_polls", "empty_turns", "empty_turns_uncosted"), openapi.Fields{"calls": count, "empty_share": quotient, "empty_turns_usd": openapi.USD()})))})

	payloadsSchema = answerOf(openapi.Fields{"rows": openapi.Array(rowOf(payloadDimensions, with(
		same(count, "calls", "unsized_calls"), same(positive, "measured_calls", "measured_bytes"), same(quotient, "bytes_per_call", "tokens_per_call"),
		openapi.Fields{"bytes": openapi.Schema{"type": []string{"integer", "null"}, "description": "A signed sum; null where no size is known."},
			"measured_tokens": openapi.Schema{"type": []string{"integer", "null"}, "minimum": 0, "description": "Null where nothing was measured."}})))})

	// saved and batchable are what rows and the total are of.
	saved = with(same(count, "calls", "input_tokens", "cache_read_tokens", "cache_write_tokens", "unknown_price_calls", "unknown_price_tokens", "cache_unknown_calls"),
		same(openapi.USD(), "read_saved_usd", "write_extra_usd", "saved_usd"), same(inCurrency, "read_saved?", "write_extra?", "saved?"), openapi.Fields{"currency?": currencyCode}, openapi.Fields{"hit_rate": quotient})
	batchable = with(same(count, "calls", "no_batch_price_calls", "unknown_price_calls", "unpriced_calls", "unknown_calls"),
		same(openapi.USD(), "spend_usd", "eligible_usd", "saving_usd", "unknown_price_usd"), same(inCurrency, "spend?", "eligible?", "saving?", "unknown_price?"), openapi.Fields{"currency?": currencyCode})
	cacheSchema = savingsOf(saved)
	batchSchema = savingsOf(batchable)
)

// savingsOf is an answer of API.savings.
func savingsOf(f openapi.Fields) openapi.Fields {
	return answerOf(with(openapi.Fields{"rows": openapi.Array(rowOf(dimensions, with(openapi.Fields{}, f))), "total": f}, rated))
}
