package dialect

import "strings"

// usageName is the count that an attribute below gen_ai.usage. or llm.usage. names in words
// that no table has, kNone where the words do not say. Emitters spell the same counts in ever
// new ways, most of them a provider's own names put behind the prefix, and a spelling that is
// passed over is money: cached tokens at the full price, audio at the price of text.
//
// It is asked about names without an entry only, and an entry always goes first, so that a
// known name keeps its meaning. What it finds counts only where it is a count (putCount).
func usageName(name string) key {
	s, ok := strings.CutPrefix(name, "gen_ai.usage.")
	if !ok {
		if s, ok = strings.CutPrefix(name, "llm.usage."); !ok {
			return kNone
		}
	}
	s = strings.ToLower(s)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(s, w) {
				return true
			}
		}
		return false
	}
	// Money, shares, sums of other spans and counts of a part of a run are none of the call's.
	if has("cost", "price", "usd", "_ratio", "percent", "per_", "_rate", "partial", "aggregat", "total_since", "cumulative") {
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
