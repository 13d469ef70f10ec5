package price

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/flyball/flyball/schema"
)

// litellmTokens are the fields with a price per token, without what may follow: above how
// many thousand tokens, and of which service tier.
var litellmTokens = map[string]string{
	"input_cost_per_token": "input", "output_cost_per_token": "output",
	"cache_read_input_token_cost": "cache_read", "cache_creation_input_token_cost": "cache_write_5m", "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
	"input_cost_per_audio_token": "input_audio", "output_cost_per_audio_token": "output_audio",
	"input_cost_per_image_token": "input_image", "output_cost_per_image_token": "output_image",
}

// litellmTiers are the endings of fields that hold the prices of a service tier.
var litellmTiers = map[string]string{"batches": "batch", "flex": "flex", "priority": "priority", "fast": "fast", "ultrafast": "ultrafast", "balanced": "balanced", "decisions": "decisions"}

// litellmSeconds are the modes in which a price per second is one per second of what is
// heard, said or shown. Elsewhere it is capacity that is rented by the hour.
var litellmSeconds = []string{"audio_transcription", "audio_speech", "realtime", "video_generation"}

// litellmPart is a segment of a key that says at what price, not which model: a region, a
// kind of deployment, the size, quality or steps of an image, a commitment.
var litellmPart = regexp.MustCompile(`^(\*|[a-z]{2}(-[a-z]+)+-\d+|(global|data-?zone)(-\w+)*|(\d+|max)-x-(\d+|max)|(\d+|max)-steps|\d+-month-commitment|hd|standard|low|medium|high|max|auto)$`)

// litellmRow is one model of the list.
type litellmRow struct {
	name, provider, mode string
	fields               map[string]json.RawMessage
	unread               []string // prices by what calls have no count of
}

// parseLiteLLM reads LiteLLM's model_prices_and_context_window.json: a map of
// models with prices in USD per single token or piece. A row none of whose prices can be
// used is named, and so is one whose price calls cannot be sorted by.
func parseLiteLLM(models map[string]json.RawMessage, source string) (*File, []Rejection, error) {
	out := &File{Version: "LiteLLM JSON"}
	var rejected []Rejection
	for _, name := range slices.Sorted(maps.Keys(models)) {
		if name == "sample_spec" {
			continue
		}
		m := litellmRow{name: name}
		if err := json.Unmarshal(models[name], &m.fields); err != nil {
			rejected = append(rejected, Rejection{source, name, "want an object"})
			continue
		}
		_ = json.Unmarshal(m.fields["litellm_provider"], &m.provider)
		_ = json.Unmarshal(m.fields["mode"], &m.mode)
		if m.provider == "" {
			rejected = append(rejected, Rejection{source, name, "litellm_provider is missing"})
			continue
		}
		row, err := m.row()
		if err != nil {
			rejected = append(rejected, Rejection{source, name, err.Error()})
			continue
		}
		if row != nil {
			out.Prices = append(out.Prices, *row)
		}
	}
	litellmNames(out.Prices)
	return out, rejected, nil
}

// row is the price line, nil where the list says no price.
func (m *litellmRow) row() (*Row, error) {
	rates, paid := newRateSet(), false
	for field, raw := range m.fields {
		comp, over, tier, ok := litellmToken(field)
		if !ok {
			if strings.Contains(field, "cost") && !isZero(raw) {
				m.unread = append(m.unread, field)
			}
			continue
		}
		if string(raw) == "null" {
			continue
		}
		d, err := scaled(raw, tokensPerPrice, 1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		rates.at(tier, over)[comp] = d
		paid = paid || d != "0"
	}
	ranged, err := m.ranges(rates)
	if err != nil {
		return nil, err
	}
	paid = paid || ranged
	if err := m.reasoning(m.fields); err != nil {
		return nil, err
	}
	units, err := m.units(paid)
	if err != nil {
		return nil, err
	}
	for _, u := range units {
		rates.piece(u.tier, u.name, u.price)
		paid = paid || u.price != "0"
	}
	bands, err := m.offPeak()
	if err != nil {
		return nil, err
	}
	base := rates.tier("")
	row := &Row{Provider: m.provider, Models: []string{m.name}, PerMillion: base.PerMillion, PerUnit: base.PerUnit, AboveInput: base.AboveInput, TimeBands: bands}
	for _, name := range tierNames {
		if rates.tokens[name] == nil && rates.units[name] == nil {
			continue
		}
		// Above a size for which a tier has no price, the list means the standard one.
		for _, a := range base.AboveInput {
			for comp, d := range a.PerMillion {
				if rates.tokens[name][0][comp] != "" && rates.at(name, a.Over)[comp] == "" {
					rates.at(name, a.Over)[comp] = d
				}
			}
		}
		if row.ServiceTiers == nil {
			row.ServiceTiers = map[string]TierRow{}
		}
		row.ServiceTiers[name] = rates.tier(name)
	}
	slices.Sort(m.unread)
	switch {
	case !paid && len(m.unread) > 0:
		return nil, fmt.Errorf("calls do not tell what it is priced by: %s", strings.Join(m.unread, ", "))
	case len(row.PerMillion)+len(row.PerUnit) == 0 && len(row.ServiceTiers) == 0:
		return nil, nil
	}
	return row, nil
}

// litellmToken takes a field's name apart.
func litellmToken(field string) (comp string, over uint64, tier string, ok bool) {
	if i := strings.LastIndexByte(field, '_'); i > 0 && litellmTiers[field[i+1:]] != "" {
		field, tier = field[:i], litellmTiers[field[i+1:]]
	}
	if base, above, found := strings.Cut(field, "_tokens"); found && above == "" {
		if i := strings.LastIndex(base, "_above_"); i > 0 {
			n, err := strconv.ParseUint(strings.TrimSuffix(base[i+len("_above_"):], "k"), 10, 32)
			if err != nil || n == 0 {
				return "", 0, "", false
			}
			if field, over = base[:i], n; strings.HasSuffix(base, "k") {
				over *= 1000
			}
		}
	}
	comp, ok = litellmTokens[field]
	return comp, over, tier, ok
}

// ranges reads prices that depend on the size of the input by a list of ranges.
func (m *litellmRow) ranges(rates *rateSet) (paid bool, err error) {
	raw := m.fields["tiered_pricing"]
	if len(raw) == 0 || string(raw) == "null" {
		return false, nil
	}
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return false, fmt.Errorf("tiered_pricing: want a list of ranges")
	}
	for _, fields := range list {
		var span []float64
		if json.Unmarshal(fields["range"], &span) != nil || len(span) != 2 || span[0] < 0 || span[0] != math.Trunc(span[0]) || span[0] > 1e12 {
			return false, fmt.Errorf("tiered_pricing: want range: [from, to] in input tokens")
		}
		if err := m.reasoning(fields); err != nil {
			return false, err
		}
		for field, raw := range fields {
			comp, over, tier, ok := litellmToken(field)
			if !ok || over > 0 {
				continue
			}
			d, err := scaled(raw, tokensPerPrice, 1)
			if err != nil {
				return false, fmt.Errorf("tiered_pricing: %s: %w", field, err)
			}
			rates.at(tier, uint64(span[0]))[comp] = d
			paid = paid || d != "0"
		}
	}
	return paid, nil
}

// reasoning refuses a price of reasoning of its own: it is part of the output.
func (m *litellmRow) reasoning(fields map[string]json.RawMessage) error {
	raw := fields["output_cost_per_reasoning_token"]
	if len(raw) == 0 || string(raw) == "null" || isZero(raw) {
		return nil
	}
	thought, err1 := number(raw)
	said, err2 := number(fields["output_cost_per_token"])
	if err1 != nil || err2 != nil || thought.Cmp(said) != 0 {
		return fmt.Errorf("output_cost_per_reasoning_token differs from output_cost_per_token; reasoning is part of the output, whose tokens have one price")
	}
	m.unread = slices.DeleteFunc(m.unread, func(f string) bool { return f == "output_cost_per_reasoning_token" })
	return nil
}

type litellmUnit struct{ name, tier, price string }

// units are the prices by the piece. An image or a second also has a price in tokens in some
// rows, which is then the one that calls are priced by; both would count twice.
func (m *litellmRow) units(tokens bool) (out []litellmUnit, err error) {
	// The first field that is more than zero counts, else a zero that stands there.
	add := func(name, tier string, fields ...string) {
		fields = slices.DeleteFunc(fields, func(f string) bool { raw := m.fields[f]; return len(raw) == 0 || string(raw) == "null" })
		if len(fields) == 0 || err != nil {
			return
		}
		field := fields[max(0, slices.IndexFunc(fields, func(f string) bool { return !isZero(m.fields[f]) }))]
		var d string
		if d, err = scaled(m.fields[field], 1, 1); err != nil {
			err = fmt.Errorf("%s: %w", field, err)
			return
		}
		out = append(out, litellmUnit{name, tier, d})
		m.unread = slices.DeleteFunc(m.unread, func(f string) bool { return f == field })
	}
	if m.mode == "rerank" || m.mode == "search" {
		add("request", "", "input_cost_per_query")
	}
	add("request", "", "input_cost_per_request")
	add("page", "", "ocr_cost_per_page")
	add("page", "batch", "ocr_cost_per_page_batches")
	var bySize map[string]json.RawMessage
	if json.Unmarshal(m.fields["search_context_cost_per_query"], &bySize) == nil && len(bySize) > 0 {
		m.unread = slices.DeleteFunc(m.unread, func(f string) bool { return f == "search_context_cost_per_query" })
		prices := map[string]bool{}
		for _, raw := range bySize {
			d, err := scaled(raw, 1, 1)
			if err != nil {
				return nil, fmt.Errorf("search_context_cost_per_query: %w", err)
			}
			prices[d] = true
		}
		if one := slices.Collect(maps.Keys(prices)); len(one) == 1 { // else it depends on what calls do not say
			out = append(out, litellmUnit{"web_search", "", one[0]})
		}
	}
	if tokens {
		return out, err
	}
	if !m.varies("output_cost_per_image") && (m.mode == "image_generation" || m.mode == "image_edit" || m.mode == "chat") {
		if m.mode == "chat" {
			add("image", "", "output_cost_per_image")
		} else {
			add("image", "", "output_cost_per_image", "input_cost_per_image")
		}
	}
	if slices.Contains(litellmSeconds, m.mode) && !m.varies("output_cost_per_second") {
		in, said := m.fields["input_cost_per_second"], m.fields["output_cost_per_second"]
		if len(in) > 0 && len(said) > 0 && !isZero(in) && !isZero(said) && string(in) != string(said) {
			return nil, fmt.Errorf("input_cost_per_second and output_cost_per_second differ; calls have one count of seconds")
		}
		add("second", "", "output_cost_per_second", "input_cost_per_second")
	}
	return out, err
}

// varies reports whether a price depends on the size of what comes out, which calls do not say.
func (m *litellmRow) varies(field string) bool {
	for f, raw := range m.fields {
		if rest, ok := strings.CutPrefix(f, field+"_"); ok && !strings.Contains(rest, "token") && string(raw) != string(m.fields[field]) {
			return true
		}
	}
	return false
}

// offPeak reads the hours, UTC, at which other prices hold.
func (m *litellmRow) offPeak() ([]Band, error) {
	raw := m.fields["off_peak_pricing"]
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	bad := fmt.Errorf("off_peak_pricing: want prices and windows: [{hours_utc: \"16:30-00:30\", weekdays: [1, …]}]")
	var fields map[string]json.RawMessage
	var windows []struct {
		Hours    json.RawMessage `json:"hours_utc"`
		Weekdays []int           `json:"weekdays"`
	}
	if json.Unmarshal(raw, &fields) != nil || json.Unmarshal(fields["windows"], &windows) != nil {
		return nil, bad
	}
	prices := map[string]string{}
	for field, raw := range fields {
		comp, over, tier, ok := litellmToken(field)
		if !ok || over > 0 || tier != "" {
			continue
		}
		d, err := scaled(raw, tokensPerPrice, 1)
		if err != nil {
			return nil, fmt.Errorf("off_peak_pricing: %s: %w", field, err)
		}
		prices[comp] = d
	}
	var out []Band
	for _, w := range windows {
		var hours []string
		if json.Unmarshal(w.Hours, &hours) != nil {
			hours = make([]string, 1)
			if json.Unmarshal(w.Hours, &hours[0]) != nil {
				return nil, bad
			}
		}
		var days []string
		for _, d := range w.Weekdays {
			if d < 1 || d > 7 {
				return nil, bad
			}
			days = append(days, [...]string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}[d-1])
		}
		for _, h := range hours {
			from, to, ok := strings.Cut(h, "-")
			if !ok {
				return nil, bad
			}
			out = append(out, Band{Days: days, From: from, To: to, PerMillion: prices})
		}
	}
	return out, nil
}

// litellmNames adds the shorter names under which rows are found: without the provider
// before a slash, and without publishers. A row's own name is never given to another; a key
// with a region or a size in it keeps its own alone; and of two rows that could have a
// name it is the one that says more, or neither where they contradict each other.
func litellmNames(rows []Row) {
	type key struct{ provider, name string }
	type claim struct {
		rank, row int
		prices    map[string]string
		disputed  bool
	}
	claims := map[key]claim{}
	stake := func(i, rank int, name string, prices map[string]string) {
		k := key{schema.Provider(rows[i].Provider), strings.ToLower(name)}
		old, taken := claims[k]
		switch {
		case !taken || rank < old.rank:
			claims[k] = claim{rank: rank, row: i, prices: prices}
		case rank > old.rank || says(old.prices, prices):
		case says(prices, old.prices):
			claims[k] = claim{rank, i, prices, old.disputed}
		default:
			old.disputed = true
			claims[k] = old
		}
	}
	for i := range rows {
		name := rows[i].Models[0]
		provider, prices := schema.Provider(rows[i].Provider), flatten(&rows[i])
		stake(i, 0, name, prices)
		rank := 3
		for first := true; ; first = false {
			part, rest, ok := strings.Cut(name, "/")
			if !ok {
				break
			}
			part = strings.ToLower(part)
			switch host := schema.Provider(part) == provider; {
			case first && part == provider:
				rank = 1
			case first && host:
				rank = 2
			case litellmPart.MatchString(part) || bedrockGeos[part]:
				ok = false
			default:
				rank = 3
			}
			if !ok {
				break
			}
			name = rest
			stake(i, rank, name, prices)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(claims), func(a, b key) int { return strings.Compare(a.name, b.name) }) {
		if c := claims[k]; c.rank > 0 && !c.disputed {
			rows[c.row].Models = append(rows[c.row].Models, k.name)
		}
	}
}

// flatten lists everything that a row says of prices.
func flatten(r *Row) map[string]string {
	out := map[string]string{}
	list := func(prefix string, t TierRow) {
		for comp, d := range t.PerMillion {
			out[prefix+comp] = d
		}
		for unit, d := range t.PerUnit {
			out[prefix+unit] = d
		}
		for _, a := range t.AboveInput {
			for comp, d := range a.PerMillion {
				out[fmt.Sprintf("%s%s over %d", prefix, comp, a.Over)] = d
			}
		}
	}
	list("", TierRow{PerMillion: r.PerMillion, PerUnit: r.PerUnit, AboveInput: r.AboveInput})
	for name, t := range r.ServiceTiers {
		list(name+" ", t)
	}
	if len(r.TimeBands) > 0 {
		out["hours"] = fmt.Sprint(r.TimeBands)
	}
	return out
}

// says reports whether a says all that b says.
func says(a, b map[string]string) bool {
	for k, d := range b {
		if a[k] != d {
			return false
		}
	}
	return true
}
