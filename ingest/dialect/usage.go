package dialect

import (
	"math"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/flyball/flyball/schema"
)

// counter is one reported token count.
type counter struct {
	n  uint64
	st countState
}

type countState uint8

const (
	countMissing countState = iota
	countOK
	countInvalid
)

// maxCount is beyond any single call; larger numbers are not counts.
const maxCount = 1_000_000_000

// count coerces every form in which emitters write a count: integers, integral
// doubles, numeric strings, {"intValue":N} in a string, an array of one. Empty
// strings are missing; booleans, NaN, negatives, fractions and absurd numbers
// are invalid.
func count(v value) (uint64, countState) {
	switch v.t {
	case valueInt:
		if n := int64(v.n); n >= 0 && n <= maxCount {
			return uint64(n), countOK
		}
		return 0, countInvalid
	case valueDouble:
		return countFloat(math.Float64frombits(v.n))
	case valueText:
		return countText(v.s)
	case valueList:
		if v.len == 1 {
			return count(v.first())
		}
		return 0, countInvalid
	case valueEmpty:
		return 0, countMissing
	}
	return 0, countInvalid
}

func countFloat(f float64) (uint64, countState) {
	if math.IsNaN(f) { // how one exporter writes "not known"
		return 0, countInvalid
	}
	if f < 0 || f > maxCount || f != math.Trunc(f) {
		return 0, countInvalid
	}
	return uint64(f), countOK
}

func countText(s string) (uint64, countState) {
	s = strings.TrimSpace(s)
	switch s {
	case "", "null", "None", "undefined":
		return 0, countMissing
	}
	if s[0] == '{' {
		r := gjson.Get(s, "intValue")
		if !r.Exists() {
			return 0, countInvalid
		}
		return countText(r.String())
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		if n > maxCount {
			return 0, countInvalid
		}
		return n, countOK
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || strings.ContainsAny(s, "xXpP_iI") {
		return 0, countInvalid
	}
	return countFloat(f)
}

func countOf(rec *record, k key) (uint64, countState) {
	if !rec.has(k) {
		return 0, countMissing
	}
	return count(rec.val[k])
}

// get is the first alias that is not missing. A zero under one name is no word against a
// count under another: emitters set the names of a convention before they know.
func (rec *record) get(keys ...key) counter {
	var zero counter
	for _, k := range keys {
		if !rec.has(k) || zero.st == countOK && k >= firstWords {
			continue
		}
		switch n, st := count(rec.val[k]); {
		case st == countMissing, st == countInvalid && zero.st == countOK:
		case st == countOK && n == 0:
			zero.st = countOK
		default:
			return counter{n, st}
		}
	}
	return zero
}

// family is a set of attribute names that share one meaning. Families on one
// span are never mixed.
type family uint8

const (
	famNone family = iota
	famGenAI
	famOI
	famAI
	famBare
	famCodex
	famRaw // a provider's own payload
)

// usage is what one family says.
type usage struct {
	fam                                family
	in, out, read, write, w5, w1       counter
	reason, total, noCache             counter
	inAudio, inImage, outAudio, outImg counter
	readAudio                          counter // the part of read that is audio
	basis                              basis   // a payload knows its own
	outExcludes                        bool    // a payload whose output leaves reasoning out
	why                                string
	searches, milliseconds, pages      uint64
	tier                               string
	plain                              bool // a payload without details, which the attributes may have
	toolPrompt                         uint64
	parts                              []part
}

// part is a further model inference that the same answer billed.
type part struct {
	model  string
	tokens schema.Tokens
}

func (u *usage) present() bool {
	return u.in.st != countMissing || u.out.st != countMissing || u.noCache.st != countMissing
}

// complete fills in the one count that a total gives away. A total of cached parts beside an
// exclusive input would not add up, so with those nothing is made of it.
func (u *usage) complete(c *schema.Call) {
	if u.total.st != countOK || u.total.n == 0 || u.hasCache() && u.read.n+u.write.n+u.w5.n+u.w1.n > 0 {
		return
	}
	switch c.Kind {
	case schema.KindEmbedding, schema.KindRerank: // there is no output
		if u.in.st == countMissing && u.out.n == 0 {
			u.in = u.total
		}
	case schema.KindModel:
		switch {
		case u.out.st == countMissing && u.in.st == countOK && u.in.n > 0 && u.total.n >= u.in.n:
			u.out = counter{u.total.n - u.in.n, countOK}
		case u.in.st == countMissing && u.out.st == countOK && u.out.n > 0 && u.total.n >= u.out.n:
			u.in = counter{u.total.n - u.out.n, countOK}
		}
	}
}

func (u *usage) invalid() bool {
	for _, c := range [...]counter{u.in, u.out, u.read, u.write, u.w5, u.w1, u.reason, u.inAudio, u.inImage, u.outAudio, u.outImg, u.noCache} {
		if c.st == countInvalid {
			return true
		}
	}
	return false
}

func (u *usage) hasCache() bool {
	return u.read.st == countOK || u.write.st == countOK || u.w5.st == countOK || u.w1.st == countOK
}

func (rec *record) genAIUsage() usage {
	return usage{fam: famGenAI,
		in: rec.get(kInput, kPrompt, kInputLLM, kInputWords), out: rec.get(kOutput, kCompletion, kOutputLLM, kOutputWords),
		read:  rec.get(kRead, kReadUnderscore, kReadTokens, kReadSentry, kReadRig, kReadLiveKit, kReadBifrost, kReadOpenLIT, kReadDetails, kReadWords),
		write: rec.get(kWrite, kWriteCreation, kWriteCreationUnderscore, kWriteStrands, kWriteSentry, kWriteBifrost, kWriteOpenLIT, kWriteDetails, kWriteWords),
		w5:    rec.get(kWrite5mAnthropic, kWrite5mWords), w1: rec.get(kWrite1hAnthropic, kWrite1hWords),
		reason:  rec.get(kReasoning, kReasoningTokens, kReasoningSentry, kReasoningBifrost, kReasoningOpenLIT, kReasoningLLM, kReasoningWords),
		total:   rec.get(kTotal, kTotalLLM, kTotalOpenLIT, kTotalWords),
		inAudio: rec.get(kInputAudio, kInputAudioMEAI, kPydanticInputAudio, kInputAudioWords), inImage: rec.get(kInputImage, kInputImageWords),
		outAudio: rec.get(kOutputAudio, kOutputAudioMEAI, kPydanticOutputAudio, kOutputAudioWords), outImg: rec.get(kOutputImage, kOutputImageWords),
		readAudio: rec.get(kReadAudio, kReadAudioPydantic, kReadAudioWords),
	}
}

func (rec *record) oiUsage() usage {
	return usage{fam: famOI, in: rec.get(kOIInput), out: rec.get(kOIOutput), read: rec.get(kOIRead), write: rec.get(kOIWrite),
		reason: rec.get(kOIReasoning), total: rec.get(kOITotal), inAudio: rec.get(kOIInputAudio), outAudio: rec.get(kOIOutputAudio)}
}

func (rec *record) aiUsage() usage {
	return usage{fam: famAI, in: rec.get(kAIInput, kAIPrompt, kAITokens), out: rec.get(kAIOutput, kAICompletion),
		read: rec.get(kAIReadDetail, kAIRead), write: rec.get(kAIWriteDetail), noCache: rec.get(kAINoCache),
		reason: rec.get(kAIReasoningDetail, kAIReasoning), total: rec.get(kAITotal)}
}

func (rec *record) bareUsage() usage {
	return usage{fam: famBare, in: rec.get(kBareInput), out: rec.get(kBareOutput), read: rec.get(kBareRead), write: rec.get(kBareCreation),
		w5: rec.get(kBareWrite5m), w1: rec.get(kBareWrite1h)}
}

func (rec *record) codexUsage() usage {
	u := usage{fam: famCodex, in: rec.get(kCodexInput), out: rec.get(kCodexOutput), read: rec.get(kCodexCached, kGeminiCached), write: rec.get(kCodexWrite),
		reason: rec.get(kCodexReasoning, kGeminiThoughts), total: rec.get(kGeminiTotal), basis: inclusive, why: "declared_inclusive"}
	if strings.HasPrefix(rec.name, "gemini_cli.") { // keeps thoughts and tool-use prompts apart
		u.outExcludes = true
		u.toolPrompt = rec.get(kGeminiTool).n
	}
	return u
}

// usage reads the counts of the last Call of dst and appends further parts.
func (rec *record) usage(dst []schema.Call) []schema.Call {
	c := &dst[len(dst)-1]
	u, found := rec.pick(c)
	rec.cost(c)
	if n := rec.get(kWebSearches, kWebSearchesOI, kSearchesWords); n.st == countOK {
		c.Units.WebSearches = n.n
	}
	if n := rec.get(kImages, kImagesWords); n.st == countOK {
		c.Units.Images = n.n
	}
	if n := rec.get(kPagesWords); n.st == countOK {
		c.Units.Pages = n.n
	}
	if rec.has(kSecondsWords) && (c.Kind == schema.KindTranscription || c.Kind == schema.KindSpeech) {
		c.Units.Milliseconds = milliseconds(rec.val[kSecondsWords])
	}
	if u.searches > 0 {
		c.Units.WebSearches = u.searches
	}
	if u.pages > 0 {
		c.Units.Pages = u.pages
	}
	if u.milliseconds > 0 {
		c.Units.Milliseconds = u.milliseconds
	}
	// An answer says which tier served; a request only which was asked for.
	if u.tier = tierName(u.tier); u.tier != "" && (c.ServiceTier == "" || rec.first(servedTier) == "") {
		c.ServiceTier = rec.cut(u.tier, 32)
		if c.ServiceTier == "batch" && c.Identity[schema.Mode] == "" {
			c.Identity[schema.Mode] = "batch"
		}
	}
	if u.invalid() {
		c.Flags |= schema.FlagUsageInvalid
		c.Usage = schema.UsageUnknown
		return dst
	}
	if !found {
		c.Usage = rec.absent(c)
		return dst
	}
	rec.resolve(c, &u)
	if rec.estimates(c, &u) {
		c.Flags |= schema.FlagEstimated
		c.Tokens = schema.Tokens{}
		c.Usage = rec.absent(c)
		return dst
	}
	zero := c.Tokens.TotalInput()+c.Tokens.TotalOutput() == 0
	switch {
	case zero && c.Units == (schema.Units{}):
		c.Tokens = schema.Tokens{}
		c.Usage = rec.absent(c)
		if c.Failure == schema.Cancelled && u.in.st == countOK && u.out.st == countOK {
			c.Usage = schema.UsageNone // the provider said so itself
		}
		if c.Failure == schema.NoFailure && c.Kind != schema.KindRerank {
			c.Usage = schema.UsageUnknown // a stream that never got its counts
		}
		return dst
	default:
		c.Usage = schema.UsageKnown
	}
	switch c.Kind {
	case schema.KindEmbedding, schema.KindRerank, schema.KindTranscription, schema.KindImage, schema.KindSpeech:
	default:
		if u.noCache.st != countOK && u.in.st != countOK || u.out.st != countOK {
			c.Flags |= schema.FlagPartialUsage
		}
		// A chat that succeeded was asked something and answered: a zero is a count that never came.
		if c.Kind == schema.KindModel && c.Failure == schema.NoFailure && (c.Tokens.TotalInput() == 0 || c.Tokens.TotalOutput() == 0) {
			c.Flags |= schema.FlagPartialUsage
		}
		// An aborted answer's output is what the opening event said, a stub.
		if c.Failure == schema.Cancelled && u.out.n <= 2 {
			c.Flags |= schema.FlagPartialUsage
		}
	}
	for _, p := range u.parts {
		dst = append(dst, dst[len(dst)-1])
		d := &dst[len(dst)-1]
		d.Part++
		d.Tokens, d.Units, d.HasReported, d.ReportedCost, d.Hidden, d.Turns = p.tokens, schema.Units{}, false, 0, 0, 0
		if p.model != "" {
			d.Model = rec.cut(p.model, 128)
			d.RequestedModel = d.Model
		}
	}
	return dst
}

// cacheHit marks what a gateway answered from its own cache, so that no provider
// billed it. Only a trusted one is believed. Its usage is known then, whatever it
// says: the call counts instead of the client's record above it.
func (rec *record) cacheHit(calls []schema.Call) {
	c := &calls[0]
	if !strings.EqualFold(rec.str(kCacheHit), "true") || !c.Kind.ModelLike() || c.Role&schema.RoleAggregate != 0 {
		return
	}
	for i := range calls {
		c := &calls[i]
		if c.Role&schema.RoleTrustedGateway == 0 {
			c.Flags |= schema.FlagClaim
			continue
		}
		c.Flags = c.Flags&^schema.FlagUsageInvalid | schema.FlagCacheHit
		c.Usage = schema.UsageKnown
	}
}

// absent says what missing counts mean: nothing due, or due and unknown.
func (rec *record) absent(c *schema.Call) schema.Usage {
	if c.Role&schema.RoleAggregate != 0 || c.Role&schema.RoleRefinesParent != 0 || !c.Kind.ModelLike() {
		return schema.UsageNone
	}
	switch c.Failure {
	case schema.RateLimited, schema.Overloaded, schema.ServerError, schema.ClientError, schema.Budget:
		return schema.UsageNone // providers bill no refused or failed request
	}
	if c.Kind == schema.KindRerank && c.Failure == schema.NoFailure || c.Units != (schema.Units{}) {
		return schema.UsageKnown // billed by the piece
	}
	return schema.UsageUnknown
}

// pick chooses the most complete family: a provider's own payload, then one with
// an explicit uncached count, then one with cache figures, then any.
func (rec *record) pick(c *schema.Call) (usage, bool) {
	raw, ok := rec.raw(c)
	if ok && !raw.plain {
		return raw, true
	}
	fams := [...]usage{rec.genAIUsage(), rec.oiUsage(), rec.aiUsage(), rec.codexUsage(), rec.bareUsage()}
	best, rank := -1, 0
	for i := range fams {
		u := &fams[i]
		if u.complete(c); !u.present() {
			continue
		}
		r := 1
		switch {
		case u.noCache.st == countOK:
			r = 4
		case u.hasCache() && (u.read.n+u.write.n+u.w5.n+u.w1.n > 0):
			r = 3
		case u.hasCache():
			r = 2
		}
		if u.in.n+u.out.n+u.noCache.n > 0 {
			r += 4 // zeros of one family do not hide another's counts
		}
		if r > rank {
			best, rank = i, r
		}
	}
	if best < 0 || rank == 1 && ok { // zeros do not hide a payload's counts
		return raw, ok
	}
	u := fams[best]
	// Output and reasoning mean the same in every family, so what one leaves out
	// another may say; input and cache are never mixed.
	for i := range fams {
		if u.noCache.st == countOK { // beside an explicit uncached count, cache figures cannot be misread
			if u.read.st == countMissing {
				u.read = fams[i].read
			}
			if u.write.st == countMissing {
				u.write = fams[i].write
			}
		}
		if u.out.st == countMissing {
			u.out = fams[i].out
		}
		if u.reason.st == countMissing && fams[i].reason.st == countOK && fams[i].out.n == u.out.n {
			u.reason = fams[i].reason
		}
	}
	return u, true
}

// resolve turns one family's counts into disjoint tokens, by the first evidence
// that decides, and notes which one did.
func (rec *record) resolve(c *schema.Call, u *usage) {
	t := &c.Tokens
	if u.read.st != countOK && u.readAudio.n > 0 {
		u.read = u.readAudio
	}
	if u.w5.st == countOK || u.w1.st == countOK {
		t.CacheWrite5m, t.CacheWrite1h = u.w5.n, u.w1.n
		switch {
		case u.write.n > u.w5.n+u.w1.n:
			t.CacheWrite5m += u.write.n - u.w5.n - u.w1.n
			c.Flags |= schema.FlagTTLAssumed
		case u.write.n > 0 && u.write.n < u.w5.n+u.w1.n: // the whole is less than its parts
			c.Flags |= schema.FlagUsageInconsistent
		}
	} else if u.write.n > 0 {
		c.Flags |= schema.FlagTTLAssumed
		if strings.HasPrefix(rec.scope, "com.anthropic.claude_code") { // writes for an hour unless told otherwise
			t.CacheWrite1h = u.write.n
		} else {
			t.CacheWrite5m = u.write.n
		}
	}
	t.CacheRead = u.read.n
	write := t.CacheWrite5m + t.CacheWrite1h
	cached := t.CacheRead + write
	in := u.in.n + u.toolPrompt

	// Google's totals hold what the counts leave out.
	claude := vendor(c.Model) == "anthropic" || vendor(c.RequestedModel) == "anthropic"
	if c.Provider == "google" && !claude && u.fam != famRaw && u.total.st == countOK && u.total.n > in+u.out.n {
		rest := u.total.n - in - u.out.n
		switch {
		case u.reason.n > 0 && rest >= u.reason.n:
			u.outExcludes = true
			in += rest - u.reason.n // tool-use prompt tokens
		case u.reason.st == countOK && u.reason.n > 0:
			in += rest
		case u.reason.st != countOK && !u.hasCache() || u.reason.st != countOK && rest != cached:
			u.out.n += rest // thoughts, the dearer reading
			u.reason = counter{rest, countOK}
		}
	}

	pin := rec.pinned(c.Provider)
	table := rec.emitterBasis(c, u.fam)
	var incl bool
	switch {
	case cached == 0 && u.noCache.st != countOK:
		incl, c.TokenBasis = true, "no_cache"
		if u.read.st != countOK && u.why != "raw" && rec.noCacheFigures(c) {
			c.Flags |= schema.FlagCacheUnknown
		}
	case pin != basisUnknown:
		incl, c.TokenBasis = pin == inclusive, [...]string{"", "pinned_inclusive", "pinned_exclusive"}[pin]
	case u.basis != basisUnknown:
		incl, c.TokenBasis = u.basis == inclusive, u.why
	case u.noCache.st == countOK:
		in, incl, c.TokenBasis = u.noCache.n, false, "uncached_reported"
	case table == exclusive:
		incl, c.TokenBasis = false, "declared_exclusive"
	case cached > in && table == basisUnknown:
		incl, c.TokenBasis = false, "proved_impossible"
		c.Flags |= schema.FlagBasisInferred
		c.Role |= schema.RoleBasisProof
	case u.total.st == countOK && u.total.n == in+cached+u.out.n:
		incl, c.TokenBasis = false, "proved_total"
		c.Flags |= schema.FlagBasisInferred
		c.Role |= schema.RoleBasisProof
	case table == inclusive:
		incl, c.TokenBasis = true, "declared_inclusive"
	case inclusiveAPI(c.Provider) && (!claude || c.Provider != "google" && c.Provider != "azure"): // which pass Anthropic's API on
		incl, c.TokenBasis = true, "provider_inclusive"
	default:
		incl, c.TokenBasis = true, "assumed_inclusive"
		c.Flags |= schema.FlagBasisAssumed
	}
	// Cached tokens have a modality too, and are priced as cached.
	audio, image := u.inAudio.n-min(u.inAudio.n, u.readAudio.n), u.inImage.n
	if incl && cached > 0 && cached <= in && audio+image <= in && audio+image > in-cached { // some of them were cached
		audio = min(audio, in-cached)
		image = min(image, in-cached-audio)
	}
	modal := audio + image
	sub := modal
	if incl {
		sub += cached
	}
	if sub > in {
		if incl && cached > in { // clamp what was declared, never below zero
			c.Flags |= schema.FlagUsageInconsistent
			if t.CacheRead > in {
				t.CacheRead = in
			}
			if left := in - t.CacheRead; write > left {
				t.CacheWrite5m = min(t.CacheWrite5m, left)
				t.CacheWrite1h = left - t.CacheWrite5m
			}
		} else {
			c.Flags |= schema.FlagUsageInconsistent
		}
		in = sub
		if incl && cached > u.in.n {
			in = t.CacheRead + t.CacheWrite5m + t.CacheWrite1h + modal
			sub = in
		}
	}
	t.Input = in - sub
	t.InputAudio, t.InputImage = audio, image

	out := u.out.n
	switch {
	case rec.countsReasoningTwice(u):
		out -= u.reason.n
	case rec.oldADK() && u.fam == famGenAI && c.Provider == "google" && !rec.byLiteLLM(): // candidates alone
		out += u.reason.n
	case u.outExcludes, u.reason.n > out && u.out.st == countOK:
		out += u.reason.n
	case u.reason.n > 0 && u.total.st == countOK && u.total.n == u.in.n+u.out.n+u.reason.n && cached != u.reason.n,
		u.reason.n > 0 && u.total.st == countOK && !incl && cached > 0 && u.total.n == u.in.n+cached+u.out.n+u.reason.n:
		out += u.reason.n // which the total shows
	case c.Provider == "google" && u.reason.n > 0 && rec.scope == "ai" && rec.aiMajor() < 6 && u.fam == famAI:
		out += u.reason.n
	}
	if modal := u.outAudio.n + u.outImg.n; modal <= out {
		out -= modal
	} else {
		c.Flags |= schema.FlagUsageInconsistent
		out = 0
	}
	t.Output, t.Reasoning = out, min(u.reason.n, out)
	t.OutputAudio, t.OutputImage = u.outAudio.n, u.outImg.n
	if c.Kind == schema.KindImage && t.OutputAudio+t.OutputImage == 0 { // what it made, but for thoughts
		t.Output, t.OutputImage = t.Reasoning, out-t.Reasoning
	}
}

// milliseconds reads a duration in seconds, 0 where it is none.
func milliseconds(v value) uint64 {
	m, ok := decimalOf(v)
	if !ok {
		return 0
	}
	if n := uint64(m) / (schema.PicoPerUSD / 1000); n <= maxCount {
		return n
	}
	return 0
}

// tierName is a service tier as price lists name it. Google's and Anthropic's words for the
// usual one and the words of SDKs for "not said" are none.
func tierName(s string) string {
	s = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "service_tier_")
	switch s {
	case "unspecified", "traffic_type_unspecified", "none", "null", "not_given", "notgiven", "undefined":
		return ""
	case "standard_only":
		return "standard"
	case "on_demand_flex":
		return "flex"
	case "on_demand_priority":
		return "priority"
	}
	return s
}

// inclusiveAPI lists providers whose own API counts cached tokens inside the
// input, and for which no emitter is known that changes it.
func inclusiveAPI(p string) bool {
	switch p {
	case "openai", "azure", "google", "xai", "deepseek", "mistral", "groq", "moonshot", "openrouter", "alibaba", "fireworks", "together":
		return true
	}
	return false
}

// cost reads what the emitter says the call cost: evidence, never a figure.
func (rec *record) cost(c *schema.Call) {
	for _, k := range costKeys {
		if !rec.has(k) {
			continue
		}
		m, ok := decimalOf(rec.val[k])
		if !ok {
			c.Flags |= schema.FlagReportedImplausible
			return
		}
		if m == 0 && k != kCostLiteLLM1 && k != kCostLiteLLM2 { // a price table that lacks the model writes 0
			return
		}
		c.ReportedCost, c.HasReported = m, true
		return
	}
	if s := rec.str(kLangfuseCost); s != "" {
		if r := gjson.Get(s, "total"); r.Exists() && r.Num > 0 {
			if m, ok := decimalText(r.Raw); ok {
				c.ReportedCost, c.HasReported = m, true
			}
		}
	}
}

// decimalOf reads an amount without passing it through binary rounding twice:
// the shortest decimal of a double is what its writer meant.
func decimalOf(v value) (schema.Money, bool) {
	switch v.t {
	case valueDouble:
		f := math.Float64frombits(v.n)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return 0, false
		}
		return decimalText(strconv.FormatFloat(f, 'f', -1, 64))
	case valueInt, valueText:
		return decimalText(v.text())
	}
	return 0, false
}

func decimalText(s string) (schema.Money, bool) {
	s = strings.Trim(strings.TrimSpace(s), `"`)
	if strings.ContainsAny(s, "eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsInf(f, 0) {
			return 0, false
		}
		s = strconv.FormatFloat(f, 'f', -1, 64)
	}
	if whole, frac, ok := strings.Cut(s, "."); ok && len(frac) > 12 {
		s = whole + "." + frac[:12]
	}
	m, err := schema.ParseMoney(s)
	return m, err == nil && m >= 0
}
