package price

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// genaiTokens and genaiUnits are the fields of a price in USD per million tokens, and per
// so many pieces. gen/gen.py has the same tables for the embedded catalogue.
var genaiTokens = map[string]string{"input_mtok": "input", "cache_read_mtok": "cache_read", "cache_write_mtok": "cache_write_5m", "cache_write_1h_mtok": "cache_write_1h", "output_mtok": "output", "input_audio_mtok": "input_audio", "input_image_mtok": "input_image", "output_audio_mtok": "output_audio", "output_image_mtok": "output_image"}

var genaiUnits = map[string]struct {
	name string
	per  int64
}{"web_searches_kcount": {"web_search", 1000}, "requests_kcount": {"request", 1000}, "input_document_kpages": {"page", 1000}, "audio_hours": {"second", 3600}, "input_audio_hours": {"second", 3600}}

// genaiTiers are the conditions of a variant that are a service tier.
var genaiTiers = map[[2]string]string{{"processing", "batch"}: "batch", {"processing", "flex"}: "flex", {"processing", "priority"}: "priority", {"speed", "fast"}: "fast", {"service_tier", "fast"}: "fast", {"service_tier", "flex"}: "flex", {"service_tier", "priority"}: "priority"}

// genaiPrice is one price of a model: always, from a day on, or at hours of the day.
type genaiPrice struct {
	When       map[string]string `json:"when"` // of variants: what the request said
	Constraint *struct {
		StartDate string `json:"start_date"`
		StartTime string `json:"start_time"`
		EndTime   string `json:"end_time"`
	} `json:"constraint"`
	Prices map[string]json.RawMessage `json:"prices"`
}

func (p *genaiPrice) from() string {
	if p.Constraint == nil {
		return ""
	}
	return p.Constraint.StartDate
}

func (p *genaiPrice) hourly() bool { return p.Constraint != nil && p.Constraint.StartTime != "" }

// rates are the prices, as a tier has them.
func (p *genaiPrice) rates() (TierRow, error) {
	set := newRateSet()
	for field, raw := range p.Prices {
		if string(raw) == "null" {
			continue
		}
		if u, ok := genaiUnits[field]; ok {
			d, err := scaled(raw, 1, u.per)
			if err != nil {
				return TierRow{}, fmt.Errorf("%s: %w", field, err)
			}
			set.piece("", u.name, d)
			continue
		}
		name, ok := genaiTokens[field]
		if !ok {
			continue
		}
		var tiered struct {
			Base  json.RawMessage `json:"base"`
			Tiers []struct {
				Start uint64          `json:"start"`
				Price json.RawMessage `json:"price"`
			} `json:"tiers"`
		}
		if json.Unmarshal(raw, &tiered) == nil && tiered.Base != nil {
			raw = tiered.Base
			for _, t := range tiered.Tiers {
				d, err := scaled(t.Price, 1, 1)
				if err != nil {
					return TierRow{}, fmt.Errorf("%s: %w", field, err)
				}
				set.at("", t.Start)[name] = d
			}
		}
		d, err := scaled(raw, 1, 1)
		if err != nil {
			return TierRow{}, fmt.Errorf("%s: %w", field, err)
		}
		set.at("", 0)[name] = d
	}
	return set.tier(""), nil
}

// parseGenAI reads the JSON of pydantic/genai-prices: an array of providers with
// models, match clauses and prices in USD per million tokens.
func parseGenAI(data []byte, source string) (*File, []Rejection, error) {
	var providers []struct {
		ID       string   `json:"id"`
		Fallback []string `json:"fallback_model_providers"`
		Models   []struct {
			ID       string          `json:"id"`
			Match    json.RawMessage `json:"match"`
			Prices   json.RawMessage `json:"prices"`
			Variants []genaiPrice    `json:"price_variants"`
		} `json:"models"`
	}
	if err := json.Unmarshal(data, &providers); err != nil {
		return nil, nil, fmt.Errorf("parse genai-prices JSON: %w", err)
	}
	out := &File{Version: "genai-prices JSON", Fallback: map[string][]string{}}
	var rejected []Rejection
	for _, p := range providers {
		if len(p.Fallback) > 0 {
			out.Fallback[p.ID] = p.Fallback
		}
		for _, m := range p.Models {
			reject := func(format string, args ...any) {
				rejected = append(rejected, Rejection{source, p.ID + " " + m.ID, fmt.Sprintf(format, args...)})
			}
			var list []genaiPrice
			if len(m.Prices) > 0 && m.Prices[0] == '[' {
				if err := json.Unmarshal(m.Prices, &list); err != nil {
					reject("prices: %v", err)
					continue
				}
			} else {
				var one map[string]json.RawMessage
				if err := json.Unmarshal(m.Prices, &one); err != nil {
					reject("prices: %v", err)
					continue
				}
				list = []genaiPrice{{Prices: one}}
			}
			rows, err := genaiRows(list, m.Variants, reject)
			if err != nil {
				reject("%v", err)
				continue
			}
			for _, r := range rows {
				r.Provider, r.Models = p.ID, genaiNames(m.ID, m.Match)
				out.Prices = append(out.Prices, r)
			}
		}
	}
	return out, rejected, nil
}

// genaiRows makes a row of each price that holds from a day on. Prices for hours of the day
// are bands of every row, and those for a service tier are tiers of every row that is still
// in force when they begin.
func genaiRows(list, variants []genaiPrice, reject func(string, ...any)) ([]Row, error) {
	dated := slices.DeleteFunc(slices.Clone(list), func(p genaiPrice) bool { return p.hourly() })
	var bands []Band
	for _, p := range list {
		if !p.hourly() {
			continue
		}
		r, err := p.rates()
		if err != nil {
			return nil, err
		}
		minute := func(s string) string { return s[:min(5, len(s))] }
		bands = append(bands, Band{From: minute(p.Constraint.StartTime), To: minute(p.Constraint.EndTime), PerMillion: r.PerMillion})
	}
	type tier struct {
		name string
		row  TierRow
	}
	var tiers []tier
	for _, v := range variants {
		var name string
		if len(v.When) == 1 {
			for k, value := range v.When {
				if k == "service_tier" && standard(value) {
					name = "standard"
				} else {
					name = genaiTiers[[2]string{k, value}]
				}
			}
		}
		if name == "standard" {
			continue // what the list calls the base price
		}
		if name == "" || v.hourly() {
			reject("variant %v: calls do not tell whether it holds; the model's other prices are taken", v.When)
			continue
		}
		r, err := v.rates()
		if err != nil {
			return nil, fmt.Errorf("variant %v: %w", v.When, err)
		}
		r.From = v.from()
		tiers = append(tiers, tier{name, r})
	}
	var rows []Row
	for i, p := range dated {
		r, err := p.rates()
		if err != nil {
			return nil, err
		}
		row := Row{From: p.from(), PerMillion: r.PerMillion, PerUnit: r.PerUnit, AboveInput: r.AboveInput, TimeBands: bands}
		if i+1 < len(dated) {
			row.To = dated[i+1].from()
		}
		for _, t := range tiers {
			if row.To != "" && t.row.From >= row.To { // both are days, as YYYY-MM-DD
				continue
			}
			if row.ServiceTiers == nil {
				row.ServiceTiers = map[string]TierRow{}
			}
			row.ServiceTiers[t.name] = t.row
		}
		if len(row.PerMillion)+len(row.PerUnit) > 0 {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// genaiNames are the exact names of a model. A rule about how a name begins becomes that
// beginning itself: a new model must never match an older one's line.
func genaiNames(id string, match json.RawMessage) []string {
	names := []string{strings.ToLower(id)}
	var walk func(json.RawMessage)
	walk = func(raw json.RawMessage) {
		var c struct {
			Equals     string            `json:"equals"`
			StartsWith string            `json:"starts_with"`
			Or         []json.RawMessage `json:"or"`
		}
		if json.Unmarshal(raw, &c) != nil {
			return
		}
		if c.Equals != "" {
			names = append(names, strings.ToLower(c.Equals))
		}
		if len(c.StartsWith) > 3 {
			names = append(names, strings.TrimRight(strings.ToLower(c.StartsWith), "-:@"))
		}
		for _, o := range c.Or {
			walk(o)
		}
	}
	walk(match)
	slices.Sort(names)
	return slices.Compact(names)
}

// rateSet gathers the prices of a row by service tier, "" the standard one, and by the
// input tokens above which they hold.
type rateSet struct {
	tokens map[string]map[uint64]map[string]string
	units  map[string]map[string]string
}

func newRateSet() *rateSet {
	return &rateSet{map[string]map[uint64]map[string]string{}, map[string]map[string]string{}}
}

// at are the prices of tokens to fill in.
func (s *rateSet) at(tier string, over uint64) map[string]string {
	if s.tokens[tier] == nil {
		s.tokens[tier] = map[uint64]map[string]string{}
	}
	if s.tokens[tier][over] == nil {
		s.tokens[tier][over] = map[string]string{}
	}
	return s.tokens[tier][over]
}

// piece sets the price of a piece.
func (s *rateSet) piece(tier, unit, price string) {
	if s.units[tier] == nil {
		s.units[tier] = map[string]string{}
	}
	s.units[tier][unit] = price
}

// tier is what the set says of one service tier.
func (s *rateSet) tier(name string) TierRow {
	t := TierRow{PerMillion: s.tokens[name][0], PerUnit: s.units[name]}
	for _, over := range slices.Sorted(maps.Keys(s.tokens[name])) {
		if over > 0 {
			t.AboveInput = append(t.AboveInput, Above{over, s.tokens[name][over]})
		}
	}
	return t
}

// number is the exact value of a JSON number or numeric string.
func number(raw json.RawMessage) (*big.Rat, error) {
	s := strings.Trim(string(bytes.TrimSpace(raw)), `"`)
	_, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	if len(exponent) <= 3 && len(s) <= 64 && !strings.ContainsAny(s, "pP/") { // a longer one would be written out in all its digits
		if v, ok := new(big.Rat).SetString(s); ok && v.Sign() >= 0 {
			return v, nil
		}
	}
	return nil, fmt.Errorf("price %.64s: want a number of at least 0", s)
}

func isZero(raw json.RawMessage) bool {
	v, err := number(raw)
	return string(raw) == "null" || err == nil && v.Sign() == 0
}

// scaled is a JSON number times mul / div as prices are written, rounded to their
// decimals. What would be rounded to nothing is no price of nothing.
func scaled(raw json.RawMessage, mul, div int64) (string, error) {
	v, err := number(raw)
	if err != nil {
		return "", err
	}
	s := v.Mul(v, big.NewRat(mul, div)).FloatString(decimals)
	if s = strings.TrimRight(strings.TrimRight(s, "0"), "."); s == "0" && v.Sign() > 0 {
		return "", fmt.Errorf("price %s: too small for %d decimals", bytes.TrimSpace(raw), decimals)
	}
	return s, nil
}
