package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// drainPatience is how long the journal may take to catch up.
const drainPatience = 10 * time.Minute

// verifier compares what the service counts with what was acknowledged.
type verifier struct {
	base string // http://127.0.0.1:8080
	key  string
	from time.Time // spans of this load began later
	was  int64     // calls counted before it

	client http.Client
}

// newVerifier waits for the journal and reads how many calls it holds already.
// oldest is when the first span of the load can have begun.
func newVerifier(ctx context.Context, base, key string, oldest time.Time) (*verifier, error) {
	v := &verifier{base: strings.TrimRight(base, "/"), key: key, from: oldest.Add(-time.Hour), client: http.Client{Timeout: time.Minute}}
	if _, err := v.drain(ctx); err != nil {
		return nil, err
	}
	var err error
	v.was, err = v.calls(ctx)
	return v, err
}

func (v *verifier) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+path, nil)
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	if v.key != "" {
		req.Header.Set("Authorization", "Bearer "+v.key)
	}
	res, err := v.client.Do(req)
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: status %s: %.300q", path, res.Status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}

// drain waits until no entry is queued for the journal, and returns for how long.
func (v *verifier) drain(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	begun := time.Now()
	for {
		var ready struct {
			Ingest json.RawMessage `json:"ingest"`
		}
		if err := v.get(ctx, "/readyz", &ready); err != nil {
			return 0, err
		}
		queued, ok := findNumber(ready.Ingest, "queued")
		if !ok {
			return 0, fmt.Errorf("get /readyz: no number \"queued\" under \"ingest\"")
		}
		if queued == 0 {
			return time.Since(begun), nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for the journal: %.0f entries are still queued: %w", queued, ctx.Err())
		}
	}
}

// findNumber finds the first number of that name at any depth.
func findNumber(b []byte, name string) (float64, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(b, &m) != nil {
		return 0, false
	}
	var n float64
	if raw, ok := m[name]; ok && json.Unmarshal(raw, &n) == nil {
		return n, true
	}
	for _, raw := range m {
		if n, ok := findNumber(raw, name); ok {
			return n, true
		}
	}
	return 0, false
}

// calls asks for the number of calls since from.
func (v *verifier) calls(ctx context.Context) (int64, error) {
	q := url.Values{
		"group_by": {""},
		"from":     {v.from.UTC().Format(time.RFC3339)},
		"to":       {time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
	}
	var spend struct {
		Total struct {
			Calls *int64 `json:"calls"`
		} `json:"total"`
	}
	if err := v.get(ctx, "/api/v1/spend?"+q.Encode(), &spend); err != nil {
		return 0, err
	}
	if spend.Total.Calls == nil {
		return 0, fmt.Errorf("get /api/v1/spend: no total.calls")
	}
	return *spend.Total.Calls, nil
}

// verdict is the comparison. Requests that were rejected in part or given up
// may or may not have been counted, so the expectation is a range.
type verdict struct {
	Calls        int64   `json:"calls"`
	ExpectedFrom int64   `json:"expected_from"`
	ExpectedTo   int64   `json:"expected_to"`
	DrainSeconds float64 `json:"drain_seconds"` // until nothing was queued
	Match        bool    `json:"match"`
}

func (v *verifier) check(ctx context.Context, t *tally) (*verdict, error) {
	drained, err := v.drain(ctx)
	if err != nil {
		return nil, err
	}
	now, err := v.calls(ctx)
	if err != nil {
		return nil, err
	}
	d := &verdict{Calls: now - v.was, ExpectedFrom: t.callsSure, ExpectedTo: t.callsSure + t.callsMay, DrainSeconds: drained.Seconds()}
	d.Match = d.ExpectedFrom <= d.Calls && d.Calls <= d.ExpectedTo
	return d, nil
}
