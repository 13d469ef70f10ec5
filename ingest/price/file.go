package price

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

//go:embed catalogue.json
var embedded []byte

// File is a price file in the project's own form, YAML or JSON. Amounts are
// decimal strings, USD per million tokens unless Currency says otherwise.
type File struct {
	Version   string                `yaml:"version,omitempty" json:"version"`
	Generated string                `yaml:"generated,omitempty" json:"generated"`
	Fallback  map[string][]string   `yaml:"fallback,omitempty" json:"fallback"`
	Prices    []Row                 `yaml:"prices,omitempty" json:"prices"`
	Aliases   []Alias               `yaml:"aliases,omitempty" json:"aliases"`
	Tenants   map[string]TenantFile `yaml:"tenants,omitempty" json:"tenants"`
	FX        []FX                  `yaml:"fx,omitempty" json:"fx"`
}

// TenantFile is what one tenant has negotiated.
type TenantFile struct {
	Discount string `yaml:"discount,omitempty" json:"discount"`
	Prices   []Row  `yaml:"prices,omitempty" json:"prices"`
}

// Row is one price line.
type Row struct {
	Provider     string             `yaml:"provider" json:"provider"`
	Models       []string           `yaml:"models" json:"models"`
	From         string             `yaml:"from,omitempty" json:"from"`
	To           string             `yaml:"to,omitempty" json:"to"`
	Currency     string             `yaml:"currency,omitempty" json:"currency"`
	PerMillion   map[string]string  `yaml:"per_million,omitempty" json:"per_million,omitempty"`
	PerUnit      map[string]string  `yaml:"per_unit,omitempty" json:"per_unit,omitempty"`
	AboveInput   []Above            `yaml:"above_input_tokens,omitempty" json:"above_input_tokens,omitempty"`
	ServiceTiers map[string]TierRow `yaml:"service_tiers,omitempty" json:"service_tiers,omitempty"`
	TimeBands    []Band             `yaml:"time_bands,omitempty" json:"time_bands,omitempty"`
}

// Above moves the whole call to other rates once its input passes Over tokens.
type Above struct {
	Over       uint64            `yaml:"over" json:"over"`
	PerMillion map[string]string `yaml:"per_million" json:"per_million"`
}

// TierRow is what a service tier changes. What it leaves out keeps the base price.
type TierRow struct {
	From       string            `yaml:"from,omitempty" json:"from"`
	PerMillion map[string]string `yaml:"per_million,omitempty" json:"per_million,omitempty"`
	PerUnit    map[string]string `yaml:"per_unit,omitempty" json:"per_unit,omitempty"`
	AboveInput []Above           `yaml:"above_input_tokens,omitempty" json:"above_input_tokens,omitempty"`
}

// Band is a time of day, UTC, half open; a band whose end is not after its start spans midnight.
type Band struct {
	Days       []string          `yaml:"days,omitempty" json:"days,omitempty"`
	From       string            `yaml:"from" json:"from"`
	To         string            `yaml:"to" json:"to"`
	PerMillion map[string]string `yaml:"per_million" json:"per_million"`
}

// Alias says what an opaque deployment name stands for.
type Alias struct {
	Tenant   string `yaml:"tenant,omitempty" json:"tenant"` // "" is every tenant
	Provider string `yaml:"provider" json:"provider"`
	Model    string `yaml:"model" json:"model"`
	Is       struct {
		Provider string `yaml:"provider" json:"provider"`
		Model    string `yaml:"model" json:"model"`
	} `yaml:"is" json:"is"`
}

// FX is a dated exchange rate; the newest that is not after the call's start is used.
type FX struct {
	From string `yaml:"from" json:"from"`
	To   string `yaml:"to" json:"to"`
	Rate string `yaml:"rate" json:"rate"`
	AsOf string `yaml:"as_of" json:"as_of"`
}

// Rejection names a row that was not taken and why.
type Rejection struct {
	Source string `json:"source"`
	Row    string `json:"row"`
	Reason string `json:"reason"`
}

func (r Rejection) String() string { return r.Source + ": " + r.Row + ": " + r.Reason }

// Options of Load.
type Options struct {
	NoEmbedded bool
	Files      []string // own YAML, genai-prices JSON or LiteLLM JSON; later ones win
	// Own holds further own rows, for tests and callers without a file.
	Own *File
	// AssumedInput and AssumedOutput tokens stand for a call of unknown usage in
	// its exposure; zero means 8,000 and 1,000.
	AssumedInput, AssumedOutput uint64
}

// Load builds a catalogue. Rows that cannot be trusted are left out and named;
// a file that cannot be read or parsed at all is an error, so that a reload
// keeps the last good catalogue.
func Load(o Options) (*Catalogue, []Rejection, error) {
	b := newBuilder(o)
	var sources []source
	if !o.NoEmbedded {
		var f File
		if err := json.Unmarshal(embedded, &f); err != nil {
			return nil, nil, fmt.Errorf("read embedded catalogue: %w", err)
		}
		sources = append(sources, source{&f, "embedded " + f.Version, levelEmbedded})
		b.cat.Origins = append(b.cat.Origins, Origin{Name: "embedded", Version: f.Version, At: f.Generated, Rows: len(f.Prices)})
	}
	for _, path := range o.Files {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, fmt.Errorf("read prices: %w", err)
		}
		name := filepath.Base(path)
		f, lvl, rejected, err := parse(data, name)
		if err != nil {
			return nil, nil, fmt.Errorf("read prices %s: %w", path, err)
		}
		b.rejected = append(b.rejected, rejected...)
		sources = append(sources, source{f, name, lvl})
		at := ""
		if st, err := os.Stat(path); err == nil {
			at = st.ModTime().UTC().Format(time.RFC3339)
		}
		b.cat.Origins = append(b.cat.Origins, Origin{Name: name, Version: f.Version, At: at, Rows: len(f.Prices)})
	}
	if o.Own != nil {
		sources = append(sources, source{o.Own, "own", levelOwn})
	}
	return b.build(sources...), b.rejected, nil
}

// parse recognises the three forms by their content.
func parse(data []byte, name string) (*File, level, []Rejection, error) {
	trimmed := bytes.TrimSpace(data)
	if len(trimmed) > 0 && trimmed[0] == '[' {
		f, rej, err := parseGenAI(trimmed, name)
		return f, levelOther, rej, err
	}
	if len(trimmed) > 0 && trimmed[0] == '{' {
		var probe map[string]json.RawMessage
		if err := json.Unmarshal(trimmed, &probe); err == nil {
			_, own := probe["prices"]
			_, tenants := probe["tenants"]
			_, aliases := probe["aliases"]
			if !own && !tenants && !aliases {
				if providers, ok := probe["providers"]; ok {
					f, rej, err := parseGenAI(providers, name)
					return f, levelOther, rej, err
				}
				f, rej, err := parseLiteLLM(probe, name)
				return f, levelOther, rej, err
			}
		}
	}
	var f File
	if len(trimmed) == 0 {
		return &f, levelOwn, nil, nil
	}
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&f); err != nil {
		return nil, 0, nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	return &f, levelOwn, nil, nil
}
