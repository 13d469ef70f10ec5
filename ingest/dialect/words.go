package dialect

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// word is what an attribute of a span says whose name no table has, kNone for nothing.
func word(name string) key {
	if name == "" {
		return kNone
	}
	switch name[0] { // most names end here
	case 'g', 'l', 't', 'a', 'b':
		if k := usageName(name); k != kNone {
			return k
		}
		return identityName(name)
	}
	return kNone
}

// metadataOf are prefixes behind which emitters put what an application gave them along.
var metadataOf = [...]string{"traceloop.association.properties.", "langfuse.trace.metadata.", "langsmith.metadata.", "ai.telemetry.metadata.", "ai.settings.context.", "baggage."}

// identityName is whose call it is, by the name that an application chose. It is no tenant:
// that is never inherited, and applications give it to some spans of a trace, which would be
// another tenant's than the rest.
func identityName(name string) key {
	for _, p := range metadataOf {
		if s, ok := strings.CutPrefix(name, p); ok {
			return identityWord(s)
		}
	}
	return kNone
}

func identityWord(s string) key {
	var buf [16]byte
	n := 0
	for i := range len(s) {
		c := s[i]
		if c == '_' || c == '-' || c == '.' {
			continue
		}
		if n == len(buf) {
			return kNone
		}
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf[n] = c
		n++
	}
	switch string(buf[:n]) {
	case "userid", "enduserid":
		return kUserWords
	case "sessionid", "threadid", "conversationid":
		return kSessionWords
	}
	return kNone
}

// metadata reads whose call it is out of the object that OpenInference keeps an application's
// metadata in.
func (rec *record) metadata() {
	if !rec.has(kOIMetadata) {
		return
	}
	v := &rec.val[kOIMetadata]
	if v.t != valueText && v.t != valueOther || !strings.Contains(v.s, "ser") && !strings.Contains(v.s, "hread") && !strings.Contains(v.s, "ession") {
		return
	}
	parseBlob(v.s).ForEach(func(name, of gjson.Result) bool {
		if k := identityWord(name.Str); k != kNone && (of.Type == gjson.String || of.Type == gjson.Number) && !rec.has(k) {
			rec.put(k, value{t: valueText, s: of.String()})
		}
		return true
	})
}

// containsAny reports whether one of the words is in s.
func containsAny(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// named reports whether an identity is one. What languages print for a value that is not there
// would put everybody without a name under one budget.
func named(s string) bool {
	switch s {
	case "", "null", "None", "nil", "<nil>", "(null)", "undefined", "NaN", "[object Object]":
		return false
	}
	return true
}

// usageName is the count that an attribute below gen_ai.usage. or llm.usage. names in words
// that no table has, kNone where the words do not say. Emitters spell the same counts in ever
// new ways, most of them a provider's own names put behind the prefix, and a spelling that is
// passed over is money: cached tokens at the full price, audio at the price of text.
//
// It is asked about names without an entry only, and an entry always goes first, so that a
// known name keeps its meaning. What it finds counts only where it is a count (putWord).
func usageName(name string) key {
	s, ok := strings.CutPrefix(name, "gen_ai.usage.")
	if !ok {
		if s, ok = strings.CutPrefix(name, "llm.usage."); !ok {
			return kNone
		}
	}
	s = strings.ToLower(s)
	has := func(words ...string) bool { return containsAny(s, words...) }
	// Money, shares, sums of other spans, counts of a part of a run, and what was allowed, saved or
	// asked for are none of the call's.
	if has("cost", "price", "usd", "_ratio", "percent", "per_", "_rate", "partial", "aggregat", "total_since", "cumulative", "budget", "limit", "max_", "saved", "saving", "storage", "width", "height", "enabled", "remaining", "estimate") {
		return kNone
	}
	if !has("token") {
		switch {
		case has("search_unit"):
			return kNone
		case has("web_search", "websearch", "search_quer", "grounding_quer"):
			return kSearchesWords
		case has("image"):
			return kImagesWords
		case has("second") && !has("milli", "micro", "nano"):
			return kSecondsWords
		case has("page"):
			return kPagesWords
		}
		return kNone
	}
	switch s {
	case "prompt_tokens_details", "input_tokens_details", "prompt_token_details":
		return kInputDetails
	case "completion_tokens_details", "output_tokens_details", "completion_token_details":
		return kOutputDetails
	case "inputtokens", "prompttokens", "inputtokencount", "prompttokencount", "input_token_count", "prompt_token_count", "tokens.input", "tokens.prompt", "input.tokens", "prompt.tokens":
		return kInputWords
	case "outputtokens", "completiontokens", "outputtokencount", "candidatestokencount", "output_token_count", "completion_token_count", "candidates_token_count", "tokens.output", "tokens.completion", "output.tokens", "completion.tokens":
		return kOutputWords
	case "totaltokens", "totaltokencount", "total_token_count", "tokens.total", "total.tokens":
		return kTotalWords
	}
	audio, image := has("audio"), has("image")
	switch {
	case has("text", "video", "document", "prediction", "tool"): // text is what is left; the others have no price of their own
		return kNone
	case has("cache", "ephemeral"):
		switch {
		case has("miss", "uncached", "no_cache", "nocache", "non_cache", "noncache"):
			return kNone
		case audio && !has("creat", "writ"):
			return kReadAudioWords
		case audio, image:
			return kNone
		case has("1h"):
			return kWrite1hWords
		case has("5m"):
			return kWrite5mWords
		case has("creat", "writ"):
			return kWriteWords
		}
		return kReadWords
	case has("reasoning", "thought", "thinking"):
		return kReasoningWords
	case !audio && !image:
		return kNone
	case has("output", "completion", "candidates", "response"):
		if audio {
			return kOutputAudioWords
		}
		return kOutputImageWords
	case has("input", "prompt", "request"):
		if audio {
			return kInputAudioWords
		}
		return kInputImageWords
	}
	return kNone
}
