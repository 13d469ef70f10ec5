package price

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"sort"
	"strings"
)

// parseGenAI reads the JSON of pydantic/genai-prices: an array of providers with
// models, match clauses and prices in USD per million tokens.
func parseGenAI(data []byte, source string) (*File, []Rejection, error) {
	type clause struct {
		Equals     string            `json:"equals"`
		StartsWith string            `json:"starts_with"`
		Or         []json.RawMessage `json:"or"`
	}
	var providers []struct {
		ID       string   `json:"id"`
		Fallback []string `json:"fallback_model_providers"`
		Models   []struct {
			ID     string          `json:"id"`
			Match  json.RawMessage `json:"match"`
			Prices json.RawMessage `json:"prices"`
		} `json:"models"`
	}
	if err := json.Unmarshal(data, &providers); err != nil {
		return nil, nil, fmt.Errorf("parse genai-prices JSON: %w", err)
	}
	renamed := map[string]string{"aws": "bedrock", "x-ai": "xai", "moonshotai": "moonshot"}
	canon := func(p string) string {
		if n := renamed[p]; n != "" {
			return n
		}
		return p
	}
	fields := map[string]string{"input_mtok": "input", "cache_read_mtok": "cache_read", "cache_write_mtok": "cache_write_5m", "cache_write_1h_mtok": "cache_write_1h", "output_mtok": "output", "input_audio_mtok": "input_audio", "input_image_mtok": "input_image", "output_audio_mtok": "output_audio", "output_image_mtok": "output_image"}
	out := &File{Version: "genai-prices JSON", Fallback: map[string][]string{}}
	var rejected []Rejection
	var names func(raw json.RawMessage) []string
	names = func(raw json.RawMessage) []string {
		var c clause
		if json.Unmarshal(raw, &c) != nil {
			return nil
		}
		var n []string
		if c.Equals != "" {
			n = append(n, c.Equals)
		}
		if len(c.StartsWith) > 3 {
			n = append(n, strings.TrimRight(c.StartsWith, "-:@"))
		}
		for _, o := range c.Or {
			n = append(n, names(o)...)
		}
		return n
	}
	for _, p := range providers {
		for _, f := range p.Fallback {
			out.Fallback[canon(p.ID)] = append(out.Fallback[canon(p.ID)], canon(f))
		}
		for _, m := range p.Models {
			models := append([]string{m.ID}, names(m.Match)...)
			reject := func(format string, args ...any) {
				rejected = append(rejected, Rejection{source, p.ID + " " + m.ID, fmt.Sprintf(format, args...)})
			}
			type conditional struct {
				Constraint *struct {
					StartDate string `json:"start_date"`
					StartTime string `json:"start_time"`
					EndTime   string `json:"end_time"`
				} `json:"constraint"`
				Prices map[string]json.RawMessage `json:"prices"`
			}
			var list []conditional
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
				list = []conditional{{Prices: one}}
			}
			start := len(out.Prices)
			for _, c := range list {
				row := Row{Provider: canon(p.ID), Models: models, PerMillion: map[string]string{}}
				above := map[uint64]map[string]string{}
				bad := false
				for field, raw := range c.Prices {
					name, ok := fields[field]
					if !ok {
						if field == "web_searches_kcount" || field == "requests_kcount" {
							if d, err := scaled(raw, 1000); err == nil {
								if row.PerUnit == nil {
									row.PerUnit = map[string]string{}
								}
								row.PerUnit[map[string]string{"web_searches_kcount": "web_search", "requests_kcount": "request"}[field]] = d
							}
						}
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
							d, err := scaled(t.Price, 1)
							if err != nil {
								bad = true
								reject("%s: %v", field, err)
								continue
							}
							if above[t.Start] == nil {
								above[t.Start] = map[string]string{}
							}
							above[t.Start][name] = d
						}
					}
					d, err := scaled(raw, 1)
					if err != nil {
						bad = true
						reject("%s: %v", field, err)
						continue
					}
					row.PerMillion[name] = d
				}
				if bad || len(row.PerMillion)+len(row.PerUnit) == 0 {
					continue
				}
				for over, r := range above {
					row.AboveInput = append(row.AboveInput, Above{over, r})
				}
				sort.Slice(row.AboveInput, func(i, j int) bool { return row.AboveInput[i].Over < row.AboveInput[j].Over })
				if c.Constraint != nil && c.Constraint.StartTime != "" && len(out.Prices) > start {
					hm := func(s string) string { return s[:min(5, len(s))] }
					base := &out.Prices[len(out.Prices)-1]
					base.TimeBands = append(base.TimeBands, Band{From: hm(c.Constraint.StartTime), To: hm(c.Constraint.EndTime), PerMillion: row.PerMillion})
					continue
				}
				if c.Constraint != nil && c.Constraint.StartDate != "" {
					row.From = c.Constraint.StartDate
					if len(out.Prices) > start {
						out.Prices[len(out.Prices)-1].To = row.From
					}
				}
				out.Prices = append(out.Prices, row)
			}
		}
	}
	return out, rejected, nil
}

// parseLiteLLM reads LiteLLM's model_prices_and_context_window.json: a map of
// models with prices in USD per single token.
func parseLiteLLM(models map[string]json.RawMessage, source string) (*File, []Rejection, error) {
	fields := map[string]string{"input_cost_per_token": "input", "output_cost_per_token": "output", "cache_read_input_token_cost": "cache_read", "cache_creation_input_token_cost": "cache_write_5m", "cache_creation_input_token_cost_above_1hr": "cache_write_1h", "input_cost_per_audio_token": "input_audio", "output_cost_per_audio_token": "output_audio"}
	providers := map[string]string{"bedrock_converse": "bedrock", "vertex_ai-language-models": "google", "vertex_ai": "google", "gemini": "google", "text-completion-openai": "openai", "cohere_chat": "cohere", "azure_ai": "azure"}
	out := &File{Version: "LiteLLM JSON"}
	var rejected []Rejection
	names := make([]string, 0, len(models))
	for name := range models {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if name == "sample_spec" {
			continue
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(models[name], &m); err != nil {
			rejected = append(rejected, Rejection{source, name, "want an object"})
			continue
		}
		var provider string
		_ = json.Unmarshal(m["litellm_provider"], &provider)
		if provider == "" {
			rejected = append(rejected, Rejection{source, name, "litellm_provider is missing"})
			continue
		}
		if p := providers[provider]; p != "" {
			provider = p
		}
		row := Row{Provider: provider, Models: []string{name}, PerMillion: map[string]string{}}
		if base := name[strings.LastIndexByte(name, '/')+1:]; base != name {
			row.Models = append(row.Models, base)
		}
		above := map[string]string{}
		bad := ""
		for field, raw := range m {
			long := strings.TrimSuffix(field, "_above_200k_tokens")
			comp, ok := fields[long]
			if !ok || string(raw) == "null" {
				continue
			}
			d, err := scaledUp(raw, 1_000_000)
			if err != nil {
				bad = field + ": " + err.Error()
				continue
			}
			if long != field {
				above[comp] = d
			} else {
				row.PerMillion[comp] = d
			}
		}
		if bad != "" {
			rejected = append(rejected, Rejection{source, name, bad})
			continue
		}
		if len(row.PerMillion) == 0 {
			continue
		}
		if len(above) > 0 {
			row.AboveInput = []Above{{200_000, above}}
		}
		out.Prices = append(out.Prices, row)
	}
	return out, rejected, nil
}

// number is the exact value of a JSON number or numeric string.
func number(raw json.RawMessage) (*big.Rat, error) {
	s := strings.Trim(string(bytes.TrimSpace(raw)), `"`)
	v, ok := new(big.Rat).SetString(s)
	if !ok || strings.Contains(s, "/") || v.Sign() < 0 {
		return nil, fmt.Errorf("price %s: want a number of at least 0", s)
	}
	return v, nil
}

func scaled(raw json.RawMessage, div int64) (string, error) {
	v, err := number(raw)
	if err != nil {
		return "", err
	}
	return ratString(v.Quo(v, big.NewRat(div, 1))), nil
}

func scaledUp(raw json.RawMessage, mul int64) (string, error) {
	v, err := number(raw)
	if err != nil {
		return "", err
	}
	return ratString(v.Mul(v, big.NewRat(mul, 1))), nil
}

// ratString renders with 12 decimals, trailing zeros dropped.
func ratString(v *big.Rat) string {
	s := v.FloatString(12)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
