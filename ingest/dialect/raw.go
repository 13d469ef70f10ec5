package dialect

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/flyball/flyball/schema"
)

// raw looks for a provider's own usage payload inside an attribute: the best
// evidence there is, with cache lifetimes and fees that no convention carries.
func (rec *record) raw(c *schema.Call) (usage, bool) {
	blob := func(k key) gjson.Result {
		if !rec.has(k) || rec.val[k].t != valueText && rec.val[k].t != valueOther { // a structured value is in its JSON form
			return gjson.Result{}
		}
		return parseBlob(rec.val[k].s)
	}
	if rec.rawUsage != "" {
		if u, ok := payload(parseBlob(rec.rawUsage)); ok && !u.plain {
			return u, true
		}
	}
	var plain usage
	for _, k := range [...]key{kUsageRaw, kLiteLLMUsage, kUsage} {
		u, ok := payload(blob(k))
		if ok && !u.plain {
			return u, true
		}
		if ok && !plain.plain {
			plain = u
		}
	}
	if b := blob(kAIProviderMetadata); b.Exists() {
		if u, ok := rec.aiMetadata(b); ok {
			return u, true
		}
	}
	if b := blob(kADKResponse); b.Exists() {
		if u, ok := payload(b.Get("usage_metadata")); ok {
			return u, true
		}
	}
	if b := blob(kLangfuseUsage); b.Exists() {
		if u, ok := langfuseUsage(b); ok {
			return u, true
		}
	}
	if b := blob(kLangsmithUsage); b.Exists() {
		if u, ok := langchainUsage(b); ok {
			return u, true
		}
	}
	if in, out := blob(kInputDetails), blob(kOutputDetails); in.Exists() {
		u := rec.genAIUsage()
		details(&u, in, out)
		u.basis, u.why = inclusive, "langchain_inclusive"
		if u.present() {
			return u, true
		}
	}
	if c.Kind.ModelLike() && c.Role&schema.RoleAggregate == 0 && rec.has(kOIOutputValue) {
		if u, ok := rec.oiOutput(c, blob(kOIOutputValue)); ok {
			return u, true
		}
	}
	if b := blob(kResponseData); b.Exists() {
		if u, ok := answer(b, "usage"); ok {
			return u, true
		}
	}
	if b := blob(kMastraBody); b.Exists() && c.Kind.ModelLike() {
		if u, ok := answer(b, "usage"); ok {
			return u, true
		}
	}
	if b := rec.genkitAnswer(); b.Exists() {
		if c.ResponseID == "" {
			c.ResponseID = rec.cut(b.Get("raw.id").String(), 128)
		}
		for _, path := range [...]string{"raw.usage", "raw.usageMetadata"} {
			if u, ok := answer(b, path); ok {
				return u, true
			}
		}
		if u, ok := genkitUsage(b.Get("usage")); ok {
			return u, true
		}
	}
	return plain, plain.plain
}

// genkitAnswer is what Genkit keeps of a model's answer: all that its spans say of usage.
func (rec *record) genkitAnswer() gjson.Result {
	if rec.str(kGenkitSubtype) != "model" || !rec.has(kGenkitOutput) {
		return gjson.Result{}
	}
	return parseBlob(rec.str(kGenkitOutput))
}

// genkitUsage reads Genkit's own counts. They are Gemini's: input contains the cache, output
// leaves thoughts out.
func genkitUsage(b gjson.Result) (usage, bool) {
	u := usage{fam: famRaw, in: num(b.Get("inputTokens")), out: num(b.Get("outputTokens")), read: num(b.Get("cachedContentTokens")), reason: num(b.Get("thoughtsTokens")),
		total: num(b.Get("totalTokens")), outExcludes: true, basis: inclusive, why: "raw_inclusive"}
	return u, u.present()
}

// answer reads the usage in a provider's whole answer, and what is billed of the answer but
// told beside its usage: the tier that served, and the searches that OpenAI made for it.
func answer(b gjson.Result, path string) (usage, bool) {
	u, ok := payload(b.Get(path))
	if !ok || u.plain {
		return usage{}, false
	}
	whole := b
	if i := strings.LastIndexByte(path, '.'); i > 0 {
		whole = b.Get(path[:i])
	}
	if u.tier == "" {
		u.tier = whole.Get("service_tier").String()
	}
	if u.searches == 0 {
		whole.Get("output").ForEach(func(_, item gjson.Result) bool {
			if item.Get("type").String() == "web_search_call" {
				if a := item.Get("action.type").String(); a == "" || a == "search" { // opening a page is not billed
					u.searches++
				}
			}
			return true
		})
	}
	return u, true
}

// parseBlob reads JSON, or the repr of a Python dict, which some emitters write.
func parseBlob(s string) gjson.Result {
	s = strings.TrimSpace(s)
	if s == "" || s[0] != '{' && s[0] != '[' {
		return gjson.Result{}
	}
	if gjson.Valid(s) {
		return gjson.Parse(s)
	}
	if j := pythonToJSON(s); gjson.Valid(j) {
		return gjson.Parse(j)
	}
	return gjson.Result{}
}

// pythonToJSON rewrites a Python literal of dicts, lists, strings, numbers, True,
// False and None as JSON.
func pythonToJSON(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		switch ch := s[i]; {
		case ch == '\'' || ch == '"':
			b.WriteByte('"')
			for i++; i < len(s) && s[i] != ch; i++ {
				switch {
				case s[i] == '\\' && i+1 < len(s):
					if i++; s[i] == '\'' {
						b.WriteByte('\'')
					} else {
						b.WriteByte('\\')
						b.WriteByte(s[i])
					}
				case s[i] == '"':
					b.WriteString(`\"`)
				default:
					b.WriteByte(s[i])
				}
			}
			b.WriteByte('"')
		case strings.HasPrefix(s[i:], "None"):
			b.WriteString("null")
			i += 3
		case strings.HasPrefix(s[i:], "True"):
			b.WriteString("true")
			i += 3
		case strings.HasPrefix(s[i:], "False"):
			b.WriteString("false")
			i += 4
		default:
			b.WriteByte(ch)
		}
	}
	return b.String()
}

func num(r gjson.Result) counter {
	if !r.Exists() || r.Type == gjson.Null {
		return counter{}
	}
	if r.Type != gjson.Number && r.Type != gjson.String {
		return counter{st: countInvalid}
	}
	if r.Type == gjson.Number {
		n, st := countFloat(r.Num)
		return counter{n, st}
	}
	n, st := countText(r.Str)
	return counter{n, st}
}

func firstNum(u gjson.Result, paths ...string) counter {
	for _, p := range paths {
		if c := num(u.Get(p)); c.st != countMissing {
			return c
		}
	}
	return counter{}
}

// payload recognises the providers' usage objects by their shape.
func payload(b gjson.Result) (usage, bool) {
	if !b.IsObject() {
		return usage{}, false
	}
	u := usage{fam: famRaw, why: "raw"}
	switch {
	case b.Get("promptTokenCount").Exists() || b.Get("prompt_token_count").Exists() || b.Get("candidatesTokenCount").Exists() || b.Get("responseTokenCount").Exists():
		// Gemini: cached is inside the prompt, thoughts outside the candidates, tool-use prompt outside both.
		u.in = firstNum(b, "promptTokenCount", "prompt_token_count")
		u.out = firstNum(b, "candidatesTokenCount", "candidates_token_count", "responseTokenCount", "response_token_count") // the latter is what live sessions say
		if u.out.st == countMissing && u.in.st == countOK {
			u.out = counter{0, countOK}
		}
		u.read = firstNum(b, "cachedContentTokenCount", "cached_content_token_count")
		u.reason = firstNum(b, "thoughtsTokenCount", "thoughts_token_count")
		if t := firstNum(b, "toolUsePromptTokenCount", "tool_use_prompt_token_count"); t.st == countOK {
			u.toolPrompt = t.n
		}
		// Some SDKs drop the tool-use prompt; the total still holds it.
		if total := firstNum(b, "totalTokenCount", "total_token_count"); total.n > u.in.n+u.out.n+u.reason.n+u.toolPrompt {
			u.toolPrompt = total.n - u.in.n - u.out.n - u.reason.n
		}
		u.inAudio, u.inImage = modality(b, "promptTokensDetails", "prompt_tokens_details")
		u.outAudio, u.outImg = modality(b, "candidatesTokensDetails", "candidates_tokens_details", "responseTokensDetails", "response_tokens_details")
		u.readAudio, _ = modality(b, "cacheTokensDetails", "cache_tokens_details")
		u.tier = b.Get("serviceTier").String() + b.Get("service_tier").String()
		if u.tier == "" {
			u.tier = b.Get("trafficType").String() + b.Get("traffic_type").String()
		}
		u.basis, u.outExcludes = inclusive, true
		// Who puts another provider's counts into this shape, as Google's ADK does with LiteLLM's, has the
		// thoughts inside the candidates; the total tells.
		if total := firstNum(b, "totalTokenCount", "total_token_count"); u.reason.n > 0 && u.reason.n <= u.out.n && total.n == u.in.n+u.out.n && total.n > 0 {
			u.outExcludes = false
		}
	case b.Get("total_input_tokens").Exists(): // Gemini's interactions
		u.in, u.out = num(b.Get("total_input_tokens")), num(b.Get("total_output_tokens"))
		u.read, u.reason = num(b.Get("total_cached_tokens")), num(b.Get("total_thought_tokens"))
		u.toolPrompt = num(b.Get("total_tool_use_tokens")).n
		u.basis, u.outExcludes = inclusive, true
	case b.Get("inputTokenCount").Exists() && b.Get("outputTokenCount").Exists(): // Bedrock's invocation metrics
		u.in, u.out = num(b.Get("inputTokenCount")), num(b.Get("outputTokenCount"))
		u.read, u.write = num(b.Get("cacheReadInputTokenCount")), num(b.Get("cacheWriteInputTokenCount"))
		u.basis, u.plain = exclusive, !u.hasCache()
	case b.Get("inputTokens").Exists() && (b.Get("cacheReadInputTokens").Exists() || b.Get("cacheWriteInputTokens").Exists() || b.Get("outputTokens").Exists() && !b.Get("inputTokens").IsObject()):
		// Bedrock Converse: the input is the uncached part.
		u.in, u.out = num(b.Get("inputTokens")), num(b.Get("outputTokens"))
		u.read, u.write = firstNum(b, "cacheReadInputTokens"), firstNum(b, "cacheWriteInputTokens")
		u.basis = exclusive
		for _, d := range b.Get("cacheDetails").Array() {
			n := num(d.Get("inputTokens"))
			if d.Get("ttl").String() == "1h" {
				u.w1 = counter{u.w1.n + n.n, countOK}
			} else {
				u.w5 = counter{u.w5.n + n.n, countOK}
			}
		}
	case b.Get("prompt_tokens").Exists():
		u.in, u.out = num(b.Get("prompt_tokens")), num(b.Get("completion_tokens"))
		if u.out.st == countMissing {
			u.out = counter{0, countOK}
		}
		u.read = firstNum(b, "prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens")
		u.write = firstNum(b, "prompt_tokens_details.cache_write_tokens", "cache_write_tokens", "prompt_tokens_details.cache_creation_tokens", "cache_creation_input_tokens")
		u.w5 = firstNum(b, "prompt_tokens_details.cache_creation_token_details.ephemeral_5m_input_tokens")
		u.w1 = firstNum(b, "prompt_tokens_details.cache_creation_token_details.ephemeral_1h_input_tokens")
		u.reason = firstNum(b, "completion_tokens_details.reasoning_tokens")
		u.total = num(b.Get("total_tokens"))
		u.inAudio, u.outAudio = firstNum(b, "prompt_tokens_details.audio_tokens"), firstNum(b, "completion_tokens_details.audio_tokens")
		u.inImage, u.outImg = firstNum(b, "prompt_tokens_details.image_tokens"), firstNum(b, "completion_tokens_details.image_tokens")
		u.readAudio = firstNum(b, "prompt_tokens_details.cached_tokens_details.audio_tokens")
		u.basis = inclusive
		if u.reason.n > 0 && u.total.st == countOK && u.total.n == u.in.n+u.out.n+u.reason.n {
			u.outExcludes = true // xAI's chat API
		}
		if u.read.n > u.in.n {
			u.basis = exclusive
		}
		u.searches = num(b.Get("num_search_queries")).n
	case b.Get("input_tokens").Exists() && (b.Get("input_tokens_details").IsObject() || b.Get("output_tokens_details.reasoning_tokens").Exists()):
		u.in, u.out = num(b.Get("input_tokens")), num(b.Get("output_tokens"))
		u.read = firstNum(b, "input_tokens_details.cached_tokens")
		u.write = firstNum(b, "input_tokens_details.cache_write_tokens")
		u.reason = firstNum(b, "output_tokens_details.reasoning_tokens")
		u.inImage, u.outImg = firstNum(b, "input_tokens_details.image_tokens"), firstNum(b, "output_tokens_details.image_tokens")
		u.inAudio, u.outAudio = firstNum(b, "input_tokens_details.audio_tokens"), firstNum(b, "output_tokens_details.audio_tokens")
		u.readAudio = firstNum(b, "input_tokens_details.cached_tokens_details.audio_tokens")
		u.basis = inclusive
	case b.Get("input_tokens").Exists() && (b.Get("cache_read_input_tokens").Exists() || b.Get("cache_creation_input_tokens").Exists() || b.Get("cache_creation").Exists() || b.Get("server_tool_use").Exists() || b.Get("iterations").IsArray() || b.Get("service_tier").Exists()):
		anthropicUsage(&u, b)
		u.basis = exclusive
		iterations(&u, b)
	case b.Get("input_token_details").IsObject(): // OpenAI's realtime and transcription answers, and LangChain's usage_metadata
		u.in, u.out = num(b.Get("input_tokens")), num(b.Get("output_tokens"))
		details(&u, b.Get("input_token_details"), b.Get("output_token_details"))
		u.basis = inclusive
	case b.Get("type").String() == "duration" && b.Get("seconds").Exists(): // a transcription billed by its length
		v := b.Get("seconds")
		u.milliseconds = milliseconds(value{t: valueText, s: v.String()})
		u.basis = inclusive
	case b.Get("pages_processed").Exists(): // Mistral's OCR
		u.pages = num(b.Get("pages_processed")).n
		u.basis = inclusive
	case b.Get("input_tokens").Exists(), b.Get("promptTokens").Exists():
		u.in, u.out = firstNum(b, "input_tokens", "promptTokens"), firstNum(b, "output_tokens", "completionTokens")
		u.total = firstNum(b, "total_tokens", "totalTokens")
		u.plain = true
	default:
		return usage{}, false
	}
	if u.tier == "" {
		u.tier = b.Get("service_tier").String()
	}
	if b.Get("speed").String() == "fast" {
		u.tier = "fast"
	}
	return u, true
}

// modality sums up Gemini's counts by modality. Video is billed like text.
func modality(b gjson.Result, paths ...string) (audio, image counter) {
	for _, p := range paths {
		b.Get(p).ForEach(func(_, d gjson.Result) bool {
			n := firstNum(d, "tokenCount", "token_count")
			if n.st != countOK {
				return true
			}
			switch strings.ToUpper(d.Get("modality").String()) {
			case "AUDIO":
				audio = counter{audio.n + n.n, countOK}
			case "IMAGE":
				image = counter{image.n + n.n, countOK}
			}
			return true
		})
	}
	return audio, image
}

func anthropicUsage(u *usage, b gjson.Result) {
	u.in, u.out = num(b.Get("input_tokens")), num(b.Get("output_tokens"))
	u.read, u.write = num(b.Get("cache_read_input_tokens")), num(b.Get("cache_creation_input_tokens"))
	u.w5, u.w1 = num(b.Get("cache_creation.ephemeral_5m_input_tokens")), num(b.Get("cache_creation.ephemeral_1h_input_tokens"))
	u.reason = num(b.Get("output_tokens_details.thinking_tokens"))
	u.searches = num(b.Get("server_tool_use.web_search_requests")).n
}

// maxIterations bounds what one attribute may turn into.
const maxIterations = 64

// iterations splits an answer that billed several inferences. Compaction and
// advisor runs are not in the top level; a fallback's attempts bill their own
// models; one refused before any output bills nothing.
func iterations(u *usage, b gjson.Result) {
	list := b.Get("iterations").Array()
	if len(list) == 0 {
		return
	}
	if len(list) > maxIterations {
		u.in.st = countInvalid // no answer has so many
		return
	}
	last := ""
	for _, it := range list {
		if t := it.Get("type").String(); t == "" || strings.Contains(t, "message") {
			last = it.Get("model").String()
		}
	}
	var main usage
	seen := false
	for _, it := range list {
		var p usage
		anthropicUsage(&p, it)
		t, model := it.Get("type").String(), it.Get("model").String()
		if p.out.n == 0 && it.Get("stop").String()+it.Get("stop_reason").String() == "refusal" {
			continue
		}
		if (t == "" || strings.Contains(t, "message")) && model == last {
			if !seen {
				main, seen = p, true
			} else {
				for _, pair := range [...][2]*counter{{&main.in, &p.in}, {&main.out, &p.out}, {&main.read, &p.read}, {&main.write, &p.write}, {&main.w5, &p.w5}, {&main.w1, &p.w1}} {
					pair[0].n += pair[1].n
				}
			}
			continue
		}
		u.parts = append(u.parts, part{model, disjoint(&p)})
	}
	// The top level is the answering message; a list of plain messages repeats it.
	if seen && (u.in.n+u.out.n+u.read.n+u.write.n == 0 || last != "") {
		u.in, u.out, u.read, u.write, u.w5, u.w1 = main.in, main.out, main.read, main.write, main.w5, main.w1
	}
}

func disjoint(u *usage) schema.Tokens {
	t := schema.Tokens{Input: u.in.n, CacheRead: u.read.n, CacheWrite5m: u.w5.n, CacheWrite1h: u.w1.n, Output: u.out.n, Reasoning: min(u.reason.n, u.out.n)}
	if rest := u.write.n - min(u.write.n, u.w5.n+u.w1.n); rest > 0 {
		t.CacheWrite5m += rest
	}
	return t
}

// aiMetadata reads the AI SDK's provider metadata. Where it holds only details,
// the counts of the span are completed with them.
func (rec *record) aiMetadata(b gjson.Result) (usage, bool) {
	if raw := b.Get("anthropic.usage"); raw.IsObject() {
		if u, ok := payload(raw); ok && !u.plain {
			return u, true
		}
	}
	if raw := b.Get("google.usageMetadata"); raw.IsObject() {
		if u, ok := payload(raw); ok {
			return u, true
		}
	}
	if raw := b.Get("vertex.usageMetadata"); raw.IsObject() {
		if u, ok := payload(raw); ok {
			return u, true
		}
	}
	u := rec.aiUsage()
	if !u.present() {
		u = rec.genAIUsage()
	}
	if !u.present() || u.noCache.st == countOK {
		return usage{}, false
	}
	u.why = "provider_metadata"
	found := false
	set := func(dst *counter, c counter) {
		if c.st == countOK {
			*dst, found = c, true
		}
	}
	if a := b.Get("anthropic"); a.IsObject() {
		set(&u.read, num(a.Get("cacheReadInputTokens")))
		set(&u.write, num(a.Get("cacheCreationInputTokens")))
		u.basis = exclusive
		if rec.aiMajor() >= 6 {
			u.basis = inclusive
		}
	}
	if a := b.Get("bedrock.usage"); a.IsObject() {
		set(&u.read, num(a.Get("cacheReadInputTokens")))
		set(&u.write, num(a.Get("cacheWriteInputTokens")))
		u.basis = exclusive
		if rec.aiMajor() >= 6 {
			u.basis = inclusive
		}
	}
	for _, p := range [...]string{"openai", "azure"} {
		if a := b.Get(p); a.IsObject() {
			set(&u.read, num(a.Get("cachedPromptTokens")))
			set(&u.reason, num(a.Get("reasoningTokens")))
			set(&u.write, num(a.Get("usage.cacheWriteTokens")))
			u.basis = inclusive
			if t := a.Get("serviceTier").String(); t != "" {
				u.tier = t
			}
		}
	}
	for _, p := range [...]struct{ read, reason string }{
		{"deepseek.promptCacheHitTokens", ""},
		{"openrouter.usage.promptTokensDetails.cachedTokens", "openrouter.usage.completionTokensDetails.reasoningTokens"},
	} {
		if c := num(b.Get(p.read)); c.st == countOK && !found {
			set(&u.read, c)
			u.basis = inclusive
			if p.reason != "" {
				set(&u.reason, num(b.Get(p.reason)))
			}
		}
	}
	if !found {
		if u.tier == "" {
			return usage{}, false
		}
		u.basis = basisUnknown
	}
	return u, true
}

// langfuseUsage reads usage_details: disjoint buckets, except where a provider's
// own object was passed through.
func langfuseUsage(b gjson.Result) (usage, bool) {
	if u, ok := payload(b); ok && !u.plain {
		return u, true
	}
	u := usage{fam: famRaw, why: "disjoint", basis: exclusive}
	found := false
	var inParts, outParts uint64 // that are in input and output too
	for name, v := range b.Map() {
		c := num(v)
		if c.st == countMissing {
			continue
		}
		// Of an answer from another tier the tier's name stands before the parts. Those of flex are
		// buckets like all others; those of priority are in input and output as well.
		inWhole := false
		for _, tier := range namedTiers {
			side, part, ok := strings.Cut(name, "_"+tier)
			if !ok || side != "input" && side != "output" {
				continue
			}
			u.tier, inWhole = tier, tier == "priority"
			name = side + part
			if inWhole && part == "" {
				name = ""
			}
		}
		var dst *counter
		switch {
		case name == "total":
			u.total = c
			continue
		case name == "input", name == "input_tokens", name == "promptTokens", name == "input_text", name == "input_text_tokens":
			dst = &u.in
		case name == "output", name == "output_tokens", name == "completionTokens", name == "output_text", name == "output_text_tokens", strings.HasPrefix(name, "output") && strings.HasSuffix(name, "_prediction_tokens"):
			dst = &u.out
		case strings.Contains(name, "creation_1h"), strings.Contains(name, "ephemeral_1h"):
			dst = &u.w1
		case strings.Contains(name, "creation_5m"), strings.Contains(name, "ephemeral_5m"):
			dst = &u.w5
		case strings.Contains(name, "cache_creation"), strings.Contains(name, "cache_write"):
			dst = &u.write
		case strings.Contains(name, "cache_read"), strings.Contains(name, "cached"):
			dst = &u.read
		case strings.Contains(name, "reasoning"), strings.Contains(name, "thought"):
			u.outExcludes = true
			dst = &u.reason
		case name == "input_audio", name == "input_audio_tokens":
			dst = &u.inAudio
		case name == "output_audio", name == "output_audio_tokens":
			dst = &u.outAudio
		case name == "input_image", name == "input_image_tokens":
			dst = &u.inImage
		case name == "output_image", name == "output_image_tokens":
			dst = &u.outImg
		default:
			continue
		}
		found = true
		if c.st == countInvalid {
			*dst = c
			continue
		}
		dst.n, dst.st = dst.n+c.n, countOK
		switch {
		case !inWhole:
		case dst == &u.reason, dst == &u.outAudio, dst == &u.outImg:
			outParts += c.n
		default:
			inParts += c.n
		}
	}
	u.in.n -= min(u.in.n, inParts)
	u.out.n -= min(u.out.n, outParts)
	// Buckets beside input are disjoint: make the modalities subsets again.
	u.in.n += u.inAudio.n + u.inImage.n
	u.out.n += u.outAudio.n + u.outImg.n
	if found && u.out.st == countMissing && u.in.st == countOK {
		u.out.st = countOK
	}
	zero := u.in.n+u.out.n+u.read.n+u.write.n+u.w5.n+u.w1.n+u.reason.n == 0
	return u, found && (!zero || u.invalid())
}

// langchainUsage reads LangChain's usage_metadata, which includes cache in input.
func langchainUsage(b gjson.Result) (usage, bool) {
	if !b.Get("input_tokens").Exists() {
		return usage{}, false
	}
	u := usage{fam: famRaw, why: "langchain_inclusive", basis: inclusive, in: num(b.Get("input_tokens")), out: num(b.Get("output_tokens")), total: num(b.Get("total_tokens"))}
	details(&u, b.Get("input_token_details"), b.Get("output_token_details"))
	return u, true
}

// details reads the parts of an input and of an output, by LangChain's names or OpenAI's, and
// leaves alone what they do not say.
func details(u *usage, in, out gjson.Result) {
	for _, f := range [...]struct {
		dst   *counter
		of    gjson.Result
		paths [3]string
	}{
		{&u.read, in, [3]string{"cache_read", "cached_tokens"}},
		{&u.write, in, [3]string{"cache_creation", "cache_write_tokens", "cache_creation_tokens"}},
		{&u.w5, in, [3]string{"ephemeral_5m_input_tokens"}},
		{&u.w1, in, [3]string{"ephemeral_1h_input_tokens", "ephemeral_1hr_input_tokens"}},
		{&u.inAudio, in, [3]string{"audio", "audio_tokens"}},
		{&u.inImage, in, [3]string{"image", "image_tokens"}},
		{&u.readAudio, in, [3]string{"cached_tokens_details.audio_tokens"}},
		{&u.reason, out, [3]string{"reasoning", "reasoning_tokens"}},
		{&u.outAudio, out, [3]string{"audio", "audio_tokens"}},
	} {
		for _, p := range f.paths {
			if p == "" {
				break
			}
			if n := num(f.of.Get(p)); n.st != countMissing {
				*f.dst = n
				break
			}
		}
	}
	// Of an answer from another tier LangChain puts the tier's name before the parts.
	for _, tier := range namedTiers {
		if !in.Get(tier).Exists() && !out.Get(tier).Exists() {
			continue
		}
		u.tier = tier
		for _, f := range [...]struct {
			dst  *counter
			of   gjson.Result
			name string
		}{{&u.read, in, "_cache_read"}, {&u.write, in, "_cache_creation"}, {&u.reason, out, "_reasoning"}} {
			if n := num(f.of.Get(tier + f.name)); n.st != countMissing {
				*f.dst = n
			}
		}
	}
}

// namedTiers are those whose names stand in the names of counts.
var namedTiers = [...]string{"flex", "priority"}

// oiOutput reads the whole provider answer that OpenInference keeps: usage, and
// the response id that is nowhere else.
//
// The attribute may as well hold what the model wrote, which is JSON where an application asks
// for it and may say anything: it is read only in the form of a provider's answer, and only if
// its counts are those of the span.
func (rec *record) oiOutput(c *schema.Call, b gjson.Result) (usage, bool) {
	if !providerAnswer(b) {
		return usage{}, false
	}
	u, ok := oiAnswer(b)
	if ok && !rec.agrees(&u) {
		return usage{}, false
	}
	if c.ResponseID == "" {
		for _, p := range [...]string{"id", "response.id", "generations.0.0.message.kwargs.id", "generations.0.0.message.kwargs.additional_kwargs.id", "generations.0.0.message.id", "generations.0.0.message.kwargs.response_metadata.id"} {
			if id := b.Get(p); id.Type == gjson.String && len(id.Str) > 5 && len(id.Str) < 128 && !strings.HasPrefix(id.Str, "run-") && !strings.HasPrefix(id.Str, "lc_run") {
				c.ResponseID = id.Str
				break
			}
		}
	}
	return u, ok
}

// providerAnswer reports whether b has the form of a whole answer, as providers and LangChain
// give them.
func providerAnswer(b gjson.Result) bool {
	objects := func(name string) bool { return b.Get(name).IsArray() && b.Get(name+".0").IsObject() }
	switch object := b.Get("object").String(); {
	case strings.HasPrefix(object, "chat.completion"), object == "text_completion", object == "response", object == "list":
		return true
	case b.Get("type").String() == "message" && b.Get("role").String() == "assistant" && b.Get("content").IsArray():
		return true
	case b.Get("generations.0.0").IsObject(), objects("choices"), objects("candidates"):
		return true
	case b.Get("usage_metadata").IsObject() && b.Get("response_metadata").IsObject():
		return true
	}
	r := b.Get("response")
	return r.IsObject() && providerAnswer(r)
}

func oiAnswer(b gjson.Result) (usage, bool) {
	for _, p := range [...]string{"usage", "response.usage", "generations.0.0.message.kwargs.additional_kwargs.usage", "generations.0.0.message.kwargs.response_metadata.usage", "usage_metadata", "usageMetadata"} {
		if u, ok := answer(b, p); ok {
			return u, true
		}
	}
	if m := b.Get("generations.0.0.message.kwargs.usage_metadata"); m.IsObject() {
		return langchainUsage(m)
	}
	return usage{}, false
}

// agrees reports whether the counts of an answer, with or without what was cached, are those
// that the span has beside it.
func (rec *record) agrees(u *usage) bool {
	said := rec.oiUsage()
	cached := u.read.n + max(u.write.n, u.w5.n+u.w1.n)
	in, out := u.in.n, u.out.n
	for i := range u.parts { // of the whole answer
		t := &u.parts[i].tokens
		in, cached, out = in+t.Input, cached+t.CacheRead+t.CacheWrite5m+t.CacheWrite1h, out+t.Output
	}
	ok := func(c counter, most uint64, of ...uint64) bool {
		return c.st != countOK || c.n == 0 || slices.Contains(of, c.n) || len(u.parts) > 0 && c.n <= most
	}
	return ok(said.in, in+cached, in, in+cached, in+u.toolPrompt, in+cached+u.toolPrompt) && ok(said.out, out, out, out+u.reason.n)
}
