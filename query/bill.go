package query

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/flyball/flyball/schema"
)

// A provider's bill is read as a stream: what is kept of it is a sum for each UTC day
// and item. Fields that are not needed may be missing or new, those that are needed
// are read strictly: an error says where it is and what was expected.

// billLines is how many days and items a bill may have.
const billLines = 200_000

// bill is what a provider says that it charges.
type bill struct {
	from, to time.Time // the UTC days that it covers, half open
	currency string    // of every amount; "" is not known yet
	lines    map[billKey]*billLine
	usage    map[billKey]*usage // of usage reports, by the name of the model
	rows     int64
	counted  int64 // tokens, without regard to their sign
	skipped  int64 // rows that are not about models
	skippedC map[time.Time]*big.Int
	unit     *big.Int // the finest digit of its amounts, 1e-12 of the currency, at most a hundredth
	window   [2]time.Time
	covered  map[time.Time][][2]time.Time // what of a day the buckets of an API are about
}

type billKey struct {
	day            time.Time
	provider, item string
}

type billLine struct {
	names  []string // of a model, in the order in which they are tried; none for a tax
	cost   *big.Int // 1e-12 of the currency
	rows   int64
	tokens int64
	bare   bool // a row that costs something says no tokens
	kinds  map[string]*billed
}

// billed is what a kind of token cost; the kind "" is what is of none.
type billed struct {
	cost   *big.Int
	tokens int64
}

// usage is what a usage report counts.
type usage struct {
	tokens int64
	kinds  map[string]int64
	bare   bool // a row does not tell the kinds
}

func newBill(from, to time.Time) *bill {
	return &bill{lines: map[billKey]*billLine{}, usage: map[billKey]*usage{}, skippedC: map[time.Time]*big.Int{}, unit: big.NewInt(maxBillUnit), window: [2]time.Time{from, to}, covered: map[time.Time][][2]time.Time{}}
}

// maxBillUnit is the coarsest digit that an amount is taken to be rounded to: a hundredth.
const maxBillUnit = schema.PicoPerUSD / 100

// covers notes that the bill is about a time, and reports whether that is asked for.
func (b *bill) covers(from, to time.Time) bool {
	if !b.window[0].IsZero() && from.Before(b.window[0]) || !b.window[1].IsZero() && !from.Before(b.window[1]) {
		return false
	}
	first, last := utcDay(from), utcDay(to.Add(-1)).AddDate(0, 0, 1)
	if b.from.IsZero() || first.Before(b.from) {
		b.from = first
	}
	if last.After(b.to) {
		b.to = last
	}
	return true
}

func utcDay(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// costs notes that a bucket has the costs of its time: one of usage does not tell what
// was billed.
func (b *bill) costs(bk bucket) {
	day := utcDay(bk.from)
	b.covered[day] = append(b.covered[day], [2]time.Time{bk.from, bk.to})
}

// whole refuses the bill of an API that is not about every hour of its days: what was
// booked in the others would stand there as if it were not billed.
func (b *bill) whole() error {
	if b.rows == 0 {
		return nil
	}
	for day := b.from; day.Before(b.to); day = day.AddDate(0, 0, 1) {
		list := b.covered[day]
		slices.SortFunc(list, func(x, y [2]time.Time) int { return x[0].Compare(y[0]) })
		until := day
		for _, c := range list {
			if c[0].After(until) {
				break
			}
			until = maxTime(until, c[1])
		}
		if until.Before(day.AddDate(0, 0, 1)) {
			return badRequest("the file has no costs of %s from %s on, and bills are compared by whole UTC days; fetch that day as well, or leave it out with from and to", day.Format(time.DateOnly), until.UTC().Format("15:04:05Z"))
		}
	}
	return nil
}

// in notes the currency of an amount, which is that of the others.
func (b *bill) in(code string) error {
	code = strings.ToUpper(code)
	switch {
	case !currencyForm.MatchString(code):
		return errors.New("want a code such as USD or EUR")
	case b.currency == "":
		b.currency = code
	case b.currency != code:
		return fmt.Errorf("what stands before is in %s; compare the bill of each currency by itself", b.currency)
	}
	return nil
}

// minorUnit is the least unit of a currency by ISO 4217, 1e-12 of it: a cent of most.
func minorUnit(code string) int64 {
	switch code {
	case "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF":
		return schema.PicoPerUSD
	case "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND":
		return schema.PicoPerUSD / 1000
	}
	return schema.PicoPerUSD / 100
}

// tokenKinds are the kinds of token that are priced apart, and which is the coarser
// one that a bill may mean instead.
var (
	tokenKinds = []string{"input", "cache_read", "cache_write_5m", "cache_write_1h", "output", "input_audio", "input_image", "output_audio", "output_image"}
	coarser    = map[string]string{"cache_write_1h": "cache_write_5m", "input_audio": "input", "input_image": "input", "output_audio": "output", "output_image": "output"}
)

// tokenKind reads the kind out of the words of a bill; "" is none that is known.
func tokenKind(words string) string {
	low := strings.NewReplacer("uncached", "", "non-cached", "", "not cached", "").Replace(strings.ToLower(words))
	has := func(list ...string) bool {
		return slices.ContainsFunc(list, func(w string) bool { return strings.Contains(low, w) })
	}
	in, out, kind := has("input", "inp ", "prompt"), has("output", "outp ", "completion"), ""
	switch {
	case has("cache", "cachd", "cchd"):
		switch {
		case !has("write", "creation"):
			return "cache_read"
		case has("1h", "1 hour", "1-hour", "one hour"):
			return "cache_write_1h"
		}
		return "cache_write_5m"
	case in == out:
		return ""
	case in:
		kind = "input"
	default:
		kind = "output"
	}
	switch {
	case has("audio"):
		kind += "_audio"
	case has("image"):
		kind += "_image"
	}
	return kind
}

// report takes a row of a usage report; kinds that are nil are not told.
func (b *bill) report(k billKey, tokens int64, kinds map[string]int64) {
	u := b.usage[k]
	if u == nil {
		u = &usage{kinds: map[string]int64{}}
		b.usage[k] = u
	}
	u.tokens += tokens
	u.bare = u.bare || kinds == nil
	for kind, n := range kinds {
		u.kinds[kind] += n
	}
}

// add takes a row of the bill; noTokens are not known, below zero they are given back.
func (b *bill) add(k billKey, names []string, kind string, cost *big.Int, tokens int64) error {
	b.rows++
	l := b.lines[k]
	if l == nil {
		if len(b.lines) >= billLines {
			return badRequest("the file has more than %d days and items; name fewer days with from and to", billLines)
		}
		l = &billLine{names: names, cost: new(big.Int), kinds: map[string]*billed{}}
		b.lines[k] = l
	}
	l.rows++
	l.cost.Add(l.cost, cost)
	of := l.kinds[kind]
	if of == nil {
		of = &billed{cost: new(big.Int)}
		l.kinds[kind] = of
	}
	of.cost.Add(of.cost, cost)
	switch {
	case tokens != noTokens:
		if err := b.count(tokens); err != nil {
			return badRequest("%s of %s: %v", k.item, k.day.Format(time.DateOnly), err)
		}
		l.tokens += tokens
		of.tokens += tokens
	case cost.Sign() != 0:
		l.bare = true
	}
	return nil
}

var decimalForm = regexp.MustCompile(`^-?[0-9]{1,30}(?:\.([0-9]{1,40}))?(?:[eE]([+-]?[0-9]{1,2}))?$`)

// billBits is how large an amount may be: 200,000 of them are still an Int128.
const billBits = 100

// billTokens is how many tokens a bill may have.
const billTokens = 1 << 60

// count notes tokens, so that no sum of them overflows.
func (b *bill) count(list ...int64) error {
	for _, n := range list {
		if n < 0 {
			n = -n
		}
		if n < 0 || n > billTokens-b.counted {
			return fmt.Errorf("more than %d tokens are nothing that anybody used", int64(billTokens))
		}
		b.counted += n
	}
	return nil
}

// noTokens stands for a number that a row does not tell.
const noTokens = math.MinInt64

// amount reads a decimal in units of so many 1e-12 of the currency; it is rounded half even once.
func (b *bill) amount(text string, unit int64) (*big.Int, error) {
	m := decimalForm.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("%q: want a decimal number such as 12.34", text)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, fmt.Errorf("%q: want a decimal number such as 12.34", text)
	}
	r.Mul(r, new(big.Rat).SetInt64(unit))
	digits := len(m[1])
	if m[2] != "" {
		var exp int
		if _, err := fmt.Sscan(m[2], &exp); err != nil {
			return nil, fmt.Errorf("%q: want a decimal number such as 12.34", text)
		}
		digits -= exp
	}
	finest := big.NewInt(unit)
	for range min(max(digits, 0), 20) {
		finest.Quo(finest, big.NewInt(10))
	}
	if finest.Sign() == 0 {
		finest.SetInt64(1)
	}
	if finest.Cmp(b.unit) < 0 {
		b.unit = finest
	}
	v := schema.RoundHalfEven(r)
	if v.BitLen() > billBits {
		return nil, fmt.Errorf("%q is no amount that anybody pays", text)
	}
	return v, nil
}

// billPages calls f for each element of data of the pages of an API's answers, which follow
// one another or stand in one array.
func billPages(r io.Reader, api string, f func(where string, raw json.RawMessage) error) error {
	dec := json.NewDecoder(r)
	n, more := 0, false
	array := false
	broken := func(err error) error {
		var p problem
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &p):
			return err
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
			return badRequest("the file ends in the middle of page %d, after %d bytes; fetch it again", max(n, 1), dec.InputOffset())
		case errors.As(err, &syntax):
			return badRequest("byte %d: %v; want the answer of %s as it came", dec.InputOffset(), syntax, api)
		}
		return fmt.Errorf("read bill: %w", err)
	}
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) && !array {
			break
		}
		if err != nil {
			return broken(err)
		}
		switch tok {
		case json.Delim('['):
			if array {
				return badRequest("page %d is a list; want an object with data, the answer of %s", n+1, api)
			}
			array = true
		case json.Delim(']'):
			array = false
		case json.Delim('{'):
			n++
			if more, err = billPage(dec, n, api, f); err != nil {
				return broken(err)
			}
		default:
			return badRequest("page %d is %v; want an object with data, the answer of %s", n+1, tok, api)
		}
	}
	switch {
	case n == 0:
		return badRequest("the file is empty; want the answer of %s", api)
	case more:
		return badRequest("page %d, the last one, has has_more: true; fetch the rest with page= its next_page and put it behind", n)
	}
	return nil
}

// billPage reads the rest of an object; more says that another follows it.
func billPage(dec *json.Decoder, n int, api string, f func(where string, raw json.RawMessage) error) (more bool, err error) {
	seen := false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return false, err
		}
		switch key {
		case "data":
			tok, err := dec.Token()
			if err != nil {
				return false, err
			}
			if tok != json.Delim('[') {
				return false, badRequest("page %d, data is no list; want the answer of %s", n, api)
			}
			seen = true
			for i := 0; dec.More(); i++ {
				var raw json.RawMessage
				if err := dec.Decode(&raw); err != nil {
					return false, err
				}
				if err := f(fmt.Sprintf("page %d, data[%d]", n, i), raw); err != nil {
					return false, err
				}
			}
			if _, err := dec.Token(); err != nil {
				return false, err
			}
		case "has_more":
			if err := dec.Decode(&more); err != nil {
				return false, badRequest("page %d, has_more is neither true nor false", n)
			}
		case "error":
			return false, badRequest("page %d is an answer with an error; want the answer of %s", n, api)
		default:
			var raw json.RawMessage
			if err := dec.Decode(&raw); err != nil {
				return false, err
			}
		}
	}
	if _, err := dec.Token(); err != nil {
		return false, err
	}
	if !seen {
		return false, badRequest("page %d has no data; want the answer of %s", n, api)
	}
	return more, nil
}

// decodeAt decodes what lies at a place of the file.
func decodeAt(where string, raw json.RawMessage, into any) error {
	err := json.Unmarshal(raw, into)
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		if typ.Field != "" {
			where += "." + typ.Field
		}
		return badRequest("%s is a %s; want a %s", where, typ.Value, typ.Type)
	}
	if err != nil {
		return badRequest("%s: %v", where, err)
	}
	return nil
}

// bucket is a time and what was billed or used in it.
type bucket struct {
	from, to time.Time
	results  []json.RawMessage
}

// dated reports whether anybody bills for a time.
func dated(t time.Time) bool { return t.UTC().Year() >= 2000 && t.UTC().Year() < 2100 }

// within refuses a bucket that is not part of one UTC day.
func (b bucket) within(where, unit string) error {
	if !dated(b.from) {
		return badRequest("%s is of the year %d; want one from 2000 to 2099", where, b.from.UTC().Year())
	}
	if !b.from.Before(b.to) || b.to.After(utcDay(b.from).AddDate(0, 0, 1)) {
		return badRequest("%s is from %s to %s; want parts of one UTC day: fetch it with %s", where, b.from.UTC().Format(time.RFC3339), b.to.UTC().Format(time.RFC3339), unit)
	}
	return nil
}

// once refuses what the file has twice, by its kind and time.
type once map[string]string

func (o once) see(where, kind string, b bucket) error {
	key := kind + b.from.UTC().Format(time.RFC3339)
	if before := o[key]; before != "" {
		return badRequest("%s is the %s of %s, as is %s; put each page into the file once, of all projects together", where, kind, b.from.UTC().Format(time.RFC3339), before)
	}
	o[key] = where
	return nil
}

// openAIItem takes a line item apart: what a model may be called in it, and the kind of
// token. It is "gpt-5, cached input" or "priority | gpt-5, output, long context" or
// "gpt-audio audio, input", where the modality stands behind the model.
func openAIItem(item string) (names []string, kind string) {
	name, rest, _ := strings.Cut(item, ", ")
	before, after, tiered := strings.Cut(name, " | ")
	if tiered {
		names = append(names, strings.TrimSpace(after))
	}
	names = append(names, strings.TrimSpace(before))
	for _, n := range slices.Clone(names) {
		if i := strings.LastIndexByte(n, ' '); i > 0 && slices.Contains([]string{"audio", "text", "image"}, n[i+1:]) {
			names = append(names, n[:i])
			rest = n[i+1:] + " " + rest
		}
	}
	return names, tokenKind(rest)
}

const (
	openAICosts    = "GET /v1/organization/costs?bucket_width=1d&group_by[]=line_item"
	anthropicCosts = "GET /v1/organizations/cost_report?group_by[]=description"
)

// openAI reads pages of the costs of an organization, and among them pages of its
// usage, which know the tokens.
func (b *bill) openAI(r io.Reader) error {
	const provider = "openai"
	seen, items := once{}, 0
	err := billPages(r, openAICosts, func(where string, raw json.RawMessage) error {
		var in struct {
			Start   *int64             `json:"start_time"`
			End     *int64             `json:"end_time"`
			Results *[]json.RawMessage `json:"results"`
		}
		if err := decodeAt(where, raw, &in); err != nil {
			return err
		}
		if in.Start == nil || in.End == nil || in.Results == nil {
			return badRequest("%s has no start_time, end_time or results; want a bucket of %s", where, openAICosts)
		}
		bk := bucket{time.Unix(*in.Start, 0), time.Unix(*in.End, 0), *in.Results}
		if err := bk.within(where, "bucket_width=1d"); err != nil {
			return err
		}
		wanted := b.covers(bk.from, bk.to)
		if wanted && len(bk.results) == 0 {
			b.costs(bk)
		}
		for i, raw := range bk.results {
			where := fmt.Sprintf("%s.results[%d]", where, i)
			var res struct {
				Object string `json:"object"`
				Amount *struct {
					Value    json.RawMessage `json:"value"`
					Currency string          `json:"currency"`
				} `json:"amount"`
				LineItem *string         `json:"line_item"`
				Quantity json.RawMessage `json:"quantity"`
				Unit     *string         `json:"quantity_unit"`
				Model    *string         `json:"model"`
				Input    *int64          `json:"input_tokens"`
				Cached   *int64          `json:"input_cached_tokens"`
				AudioIn  int64           `json:"input_audio_tokens"`
				Output   int64           `json:"output_tokens"`
				AudioOut int64           `json:"output_audio_tokens"`
			}
			if err := decodeAt(where, raw, &res); err != nil {
				return err
			}
			if i == 0 {
				if err := seen.see(where, res.Object, bk); err != nil {
					return err
				}
				if wanted && res.Amount != nil {
					b.costs(bk)
				}
			}
			switch {
			case res.Object == "organization.costs.result" && res.Amount != nil:
				if err := b.in(res.Amount.Currency); err != nil {
					return badRequest("%s.amount.currency is %q: %v", where, res.Amount.Currency, err)
				}
				cost, err := b.amount(strings.Trim(string(res.Amount.Value), `"`), schema.PicoPerUSD)
				if err != nil {
					return badRequest("%s.amount.value %v", where, err)
				}
				item := "(no line item)"
				if res.LineItem != nil && *res.LineItem != "" {
					item = *res.LineItem
					items++
				} else if cost.Sign() == 0 {
					items++
				}
				if wanted {
					names, kind := openAIItem(item)
					tokens := int64(noTokens)
					if unit := res.Unit; kind != "" && (unit == nil || strings.EqualFold(*unit, "tokens")) && len(res.Quantity) > 0 {
						if n, err := tokenCount(strings.Trim(string(res.Quantity), `"`), "tokens"); err == nil {
							tokens = n
						}
					}
					if err := b.add(billKey{utcDay(bk.from), provider, item}, names, kind, cost, tokens); err != nil {
						return err
					}
				}
			case strings.HasPrefix(res.Object, "organization.usage.") && res.Input != nil:
				if res.Model == nil || *res.Model == "" {
					return badRequest("%s.model is missing; fetch the usage with group_by[]=model", where)
				}
				if err := b.count(*res.Input, res.Output); err != nil {
					return badRequest("%s: %v", where, err)
				}
				var kinds map[string]int64
				if res.Cached != nil { // the counts of input and output hold the others
					kinds = map[string]int64{"input": *res.Input - *res.Cached - res.AudioIn, "cache_read": *res.Cached, "input_audio": res.AudioIn, "output": res.Output - res.AudioOut, "output_audio": res.AudioOut}
				}
				if *res.Input < 0 || res.Output < 0 || res.Cached != nil && *res.Cached < 0 || res.AudioIn < 0 || res.AudioOut < 0 {
					return badRequest("%s: tokens below zero", where)
				}
				if kinds["input"] < 0 || kinds["output"] < 0 { // cached audio is in both
					kinds = nil
				}
				if wanted {
					b.report(billKey{utcDay(bk.from), provider, *res.Model}, *res.Input+res.Output, kinds)
				}
			default:
				return badRequest("%s.object is %q; want results of %s, and beside them usage that counts tokens (completions, embeddings, moderations)", where, res.Object, openAICosts)
			}
		}
		return nil
	})
	if err == nil && b.rows > 0 && items == 0 {
		return badRequest("no result has a line_item, so that no cost has a model; fetch %s", openAICosts)
	}
	if err == nil {
		err = b.whole()
	}
	return err
}

// anthropic reads pages of a cost report, whose amounts are cents, and among them
// pages of the usage report for messages.
func (b *bill) anthropic(r io.Reader) error {
	const provider = "anthropic"
	seen, models := once{}, 0
	err := billPages(r, anthropicCosts, func(where string, raw json.RawMessage) error {
		var in struct {
			Start   *time.Time         `json:"starting_at"`
			End     *time.Time         `json:"ending_at"`
			Results *[]json.RawMessage `json:"results"`
		}
		if err := decodeAt(where, raw, &in); err != nil {
			return err
		}
		if in.Start == nil || in.End == nil || in.Results == nil {
			return badRequest("%s has no starting_at, ending_at or results; want a bucket of %s", where, anthropicCosts)
		}
		bk := bucket{*in.Start, *in.End, *in.Results}
		if err := bk.within(where, "bucket_width=1d"); err != nil {
			return err
		}
		wanted := b.covers(bk.from, bk.to)
		if wanted && len(bk.results) == 0 {
			b.costs(bk)
		}
		for i, raw := range bk.results {
			where := fmt.Sprintf("%s.results[%d]", where, i)
			var res struct {
				Amount      json.RawMessage `json:"amount"`
				Currency    string          `json:"currency"`
				CostType    string          `json:"cost_type"`
				TokenType   string          `json:"token_type"`
				Model       *string         `json:"model"`
				Description string          `json:"description"`
				Uncached    *int64          `json:"uncached_input_tokens"`
				CacheRead   int64           `json:"cache_read_input_tokens"`
				CacheWrite  struct {
					M5 int64 `json:"ephemeral_5m_input_tokens"`
					H1 int64 `json:"ephemeral_1h_input_tokens"`
				} `json:"cache_creation"`
				Output int64 `json:"output_tokens"`
			}
			if err := decodeAt(where, raw, &res); err != nil {
				return err
			}
			kind := "cost"
			if res.Uncached != nil {
				kind = "usage"
			}
			if i == 0 {
				if err := seen.see(where, kind, bk); err != nil {
					return err
				}
				if wanted && kind == "cost" {
					b.costs(bk)
				}
			}
			if kind == "usage" {
				kinds, tokens := map[string]int64{"input": *res.Uncached, "cache_read": res.CacheRead, "cache_write_5m": res.CacheWrite.M5, "cache_write_1h": res.CacheWrite.H1, "output": res.Output}, int64(0)
				if res.Model == nil || *res.Model == "" {
					return badRequest("%s.model is missing; fetch the usage report with group_by[]=model", where)
				}
				for _, v := range kinds {
					if v < 0 {
						return badRequest("%s: tokens below zero", where)
					}
					if err := b.count(v); err != nil {
						return badRequest("%s: %v", where, err)
					}
					tokens += v
				}
				if wanted {
					b.report(billKey{utcDay(bk.from), provider, *res.Model}, tokens, kinds)
				}
				continue
			}
			var cents string
			if json.Unmarshal(res.Amount, &cents) != nil || len(res.Amount) == 0 {
				return badRequest("%s.amount is %s; want cents in a string, such as \"1234.5\", as %s answers", where, orNothing(res.Amount), anthropicCosts)
			}
			if err := b.in(res.Currency); err != nil {
				return badRequest("%s.currency is %q: %v", where, res.Currency, err)
			}
			cost, err := b.amount(cents, minorUnit(b.currency))
			if err != nil {
				return badRequest("%s.amount %v", where, err)
			}
			item, names := res.Description, []string(nil)
			switch {
			case res.Model != nil && *res.Model != "":
				item, names = *res.Model, []string{*res.Model}
				models++
			case item == "":
				item = res.CostType
			default:
				models++
			}
			if item == "" {
				item = "(no description)"
			}
			if wanted {
				if err := b.add(billKey{utcDay(bk.from), provider, item}, names, tokenKind(res.TokenType), cost, noTokens); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil && b.rows > 0 && models == 0 {
		return badRequest("no result has a model or a description, so that no cost has a model; fetch %s", anthropicCosts)
	}
	if err == nil {
		err = b.whole()
	}
	return err
}

func orNothing(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "missing"
	}
	return string(raw[:min(len(raw), 40)])
}

// longestDay is that of a zone whose clocks go back.
const longestDay = 25 * time.Hour

// focusWanted are the columns of FOCUS 1.0 to 1.2 that a bill must have.
var focusWanted = []string{"BilledCost", "BillingCurrency", "ChargeCategory", "ChargePeriodStart", "ChargePeriodEnd", "ProviderName", "ServiceCategory", "ServiceName"}

// focusCSV reads a FOCUS file.
func (b *bill) focusCSV(r io.Reader) error {
	in := csv.NewReader(schema.WithoutBOM(r))
	in.ReuseRecord = true
	head, err := in.Read()
	if err != nil {
		return badRequest("line 1: want the header of a FOCUS file (1.0 to 1.2, CSV): %v", err)
	}
	head = slices.Clone(head)
	column := map[string]int{}
	for i, name := range head {
		if _, twice := column[name]; twice {
			return badRequest("line 1: column %s stands twice", name)
		}
		column[name] = i
	}
	for _, name := range focusWanted {
		if _, ok := column[name]; !ok {
			return badRequest("line 1 has no column %s; want a FOCUS file (1.0 to 1.2, CSV with its header), with %s", name, strings.Join(focusWanted, ", "))
		}
	}
	for {
		rec, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			var bad *csv.ParseError
			if errors.As(err, &bad) {
				return badRequest("line %d: %v; want a FOCUS file (1.0 to 1.2, CSV)", bad.Line, bad.Err)
			}
			return fmt.Errorf("read bill: %w", err)
		}
		cell := func(name string) string {
			if i, ok := column[name]; ok {
				return strings.TrimSpace(rec[i])
			}
			return ""
		}
		wrong := func(name, want string) error {
			line, _ := in.FieldPos(column[name])
			return badRequest("line %d, %s %q: want %s", line, name, cell(name), want)
		}
		cost, err := b.amount(cell("BilledCost"), schema.PicoPerUSD)
		if err != nil {
			return wrong("BilledCost", "a decimal number such as 12.34")
		}
		from, err := focusTimeOf(cell("ChargePeriodStart"))
		if err != nil || !dated(from) {
			return wrong("ChargePeriodStart", "a time such as 2026-11-01T00:00:00Z")
		}
		to, err := focusTimeOf(cell("ChargePeriodEnd"))
		if err != nil || !from.Before(to) || !dated(to) {
			return wrong("ChargePeriodEnd", "a time such as 2026-11-02T00:00:00Z, after ChargePeriodStart")
		}
		if !b.covers(from, minTime(to, utcDay(from).AddDate(0, 0, 1))) {
			continue
		}
		if err := b.in(cell("BillingCurrency")); err != nil {
			line, _ := in.FieldPos(column["BillingCurrency"])
			return badRequest("line %d, BillingCurrency %q: %v", line, cell("BillingCurrency"), err)
		}
		if cell("ServiceCategory") != "AI and Machine Learning" {
			b.skipped++
			sum := b.skippedC[utcDay(from)]
			if sum == nil {
				sum = new(big.Int)
				b.skippedC[utcDay(from)] = sum
			}
			sum.Add(sum, cost)
			continue
		}
		tokens := int64(noTokens)
		if unit := strings.ToLower(cell("ConsumedUnit")); strings.HasSuffix(unit, "tokens") && cell("ConsumedQuantity") != "" {
			if tokens, err = tokenCount(cell("ConsumedQuantity"), unit); err != nil {
				return wrong("ConsumedQuantity", "whole tokens")
			}
		}
		item := firstOf(cell("SkuId"), cell("ResourceName"), cell("ResourceId"), cell("ServiceName"))
		var names []string
		switch category := cell("ChargeCategory"); {
		case category == "":
			return wrong("ChargeCategory", "Usage, Purchase, Tax, Credit or Adjustment")
		case category == "Tax" || category == "Credit":
			item = category + ": " + firstOf(cell("ChargeDescription"), item)
		case to.Sub(from) > longestDay: // a commitment, not the use of a model on a day
			item = fmt.Sprintf("%s (%s to %s)", item, from.Format(time.DateOnly), to.Format(time.DateOnly))
		default:
			for _, name := range []string{cell("SkuId"), cell("ResourceName"), cell("ResourceId"), cell("ServiceName")} {
				if _, model, ok := strings.Cut(name, "/"); ok {
					names = append(names, model)
				}
				if name != "" {
					names = append(names, name)
				}
			}
		}
		if cost.Sign() == 0 && (tokens == noTokens || tokens == 0) {
			continue
		}
		kind := ""
		for _, name := range []string{"SkuMeter", "ConsumedUnit", "SkuId", "ChargeDescription"} {
			if kind = tokenKind(cell(name)); kind != "" {
				break
			}
		}
		if err := b.add(billKey{utcDay(from), biller(cell("ProviderName")), item}, names, kind, cost, tokens); err != nil {
			return err
		}
	}
}

func focusTimeOf(v string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z", "2006-01-02 15:04:05", "2006-01-02 15:04:05 UTC", time.DateOnly} {
		if t, err := time.Parse(layout, v); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, errors.New("no time")
}

// tokenCount reads a quantity in tokens, thousands of them or millions.
func tokenCount(v, unit string) (int64, error) {
	if !decimalForm.MatchString(v) {
		return 0, errors.New("no number")
	}
	n, ok := new(big.Rat).SetString(v)
	if !ok {
		return 0, errors.New("no number")
	}
	for prefix, times := range map[string]int64{"1000 ": 1000, "1k ": 1000, "1000000 ": 1_000_000, "1m ": 1_000_000} {
		if strings.HasPrefix(unit, prefix) {
			n.Mul(n, new(big.Rat).SetInt64(times))
		}
	}
	if !n.IsInt() || !n.Num().IsInt64() {
		return 0, errors.New("no whole number")
	}
	return n.Num().Int64(), nil
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return "(no name)"
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// billers are the names of those who sell several things, and spellings of others.
var billers = map[string]string{"aws": "bedrock", "amazon web services": "bedrock", "aws.bedrock": "bedrock", "microsoft": "azure", "azure": "azure", "google": "google", "google cloud": "google", "gcp": "google", "x-ai": "xai"}

// biller is the one name under which a provider of the journal and one of a bill meet.
func biller(name string) string {
	low := strings.ToLower(strings.TrimSpace(name))
	if id := billers[low]; id != "" {
		return id
	}
	for id, seller := range sellers {
		if strings.ToLower(seller) == low && billers[id] == "" {
			return id
		}
	}
	return low
}
