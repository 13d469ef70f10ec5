package app

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/flyball/flyball/ingest/price"
)

// LoadPrices reads the prices of a configuration. Rows of public lists that cannot be
// trusted are left out and returned. One of a file in Flyball's own form is an error: it is
// what was agreed, and without it a public price would take its place.
func LoadPrices(cfg Config) (*price.Catalogue, []price.Rejection, error) {
	cat, rejected, err := price.Load(price.Options{NoEmbedded: !cfg.Prices.Embedded, Files: cfg.Prices.Files, AssumedInput: cfg.Limits.AssumedTokens.Input, AssumedOutput: cfg.Limits.AssumedTokens.Output})
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, path := range cfg.Prices.Files {
		name := filepath.Base(path) // as rejections say it
		var of []price.Rejection
		for _, r := range rejected {
			if r.Source == name || strings.HasPrefix(r.Source, name+" tenant ") {
				of = append(of, r)
			}
		}
		if len(of) == 0 || !ownForm(path) {
			continue
		}
		for _, r := range of {
			errs = append(errs, fmt.Errorf("read prices %s: %s%s: %s; mend it or take it out: a file of one's own is taken as it is written or not at all", path, strings.TrimPrefix(r.Source+" ", name+" "), r.Row, r.Reason))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	return cat, rejected, nil
}

// ownForm tells whether a price file is in Flyball's own form, which no other list can be
// read as.
func ownForm(path string) bool {
	data, err := os.ReadFile(path)
	return err == nil && yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&price.File{}) == nil
}
