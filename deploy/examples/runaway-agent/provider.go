package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// The two models and what one answer of each costs, in cents: see prices.yaml.
const (
	large = "atlas-large"
	small = "atlas-small"
)

var cents = map[string]int64{large: 10, small: 1}

// What every answer uses.
const (
	tokensIn  = 7000
	tokensOut = 1000
)

// latency is how long the provider thinks.
const latency = 30 * time.Millisecond

// provider is a model provider that speaks OpenAI's API. It keeps a bill of its own,
// so that what guards claim can be compared with what really arrived.
type provider struct {
	mu    sync.Mutex // guards calls
	calls []arrival
}

// arrival is one call as the provider saw it.
type arrival struct {
	at                  time.Time
	run, feature, model string
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Model    string            `json:"model"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || cents[in.Model] == 0 {
		http.Error(w, `{"error":{"type":"invalid_request_error","message":"no such model"}}`, http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.calls = append(p.calls, arrival{time.Now(), in.Metadata["run"], in.Metadata["feature"], in.Model})
	n := len(p.calls)
	p.mu.Unlock()
	time.Sleep(latency)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": fmt.Sprintf("chatcmpl-%d", n), "object": "chat.completion", "model": in.Model,
		"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": "I should look that up once more."}}},
		"usage":   map[string]any{"prompt_tokens": tokensIn, "completion_tokens": tokensOut, "total_tokens": tokensIn + tokensOut},
	})
}

// seen are the calls that arrived so far and meet the condition.
func (p *provider) seen(cond func(arrival) bool) (out []arrival) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.calls {
		if cond(a) {
			out = append(out, a)
		}
	}
	return out
}

// crossed is when the bill went over an amount, in cents.
func (p *provider) crossed(limit int64) time.Time {
	var sum int64
	for _, a := range p.seen(all) {
		if sum += cents[a.model]; sum > limit {
			return a.at
		}
	}
	return time.Time{}
}

func all(arrival) bool { return true }

func halted(a arrival) bool { return a.feature != critical }

func bill(calls []arrival) (sum int64) {
	for _, a := range calls {
		sum += cents[a.model]
	}
	return sum
}

// dollars writes cents.
func dollars(cents int64) string { return fmt.Sprintf("$%d.%02d", cents/100, cents%100) }
