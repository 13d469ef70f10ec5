package ingest

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/flyball/flyball/schema"
)

// teachable are the dimensions that a limiter may tell of a trace: not the agent, of which a
// trace has several.
var teachable = []schema.Dim{schema.Run, schema.User, schema.Feature, schema.Workflow, schema.Mode}

// maxTaught is how many traces are remembered that limiters told of; the oldest go.
const maxTaught = 100_000

// taught is who traces are for, as limiters said when they asked about a call: often
// long before the root of the trace arrives that says it too.
type taught struct {
	any  atomic.Bool // most services never hear anything
	mu   sync.Mutex  // guards the rest
	of   map[taughtKey]schema.Identity
	ring []taughtKey
	at   int
}

type taughtKey struct {
	tenant string
	trace  schema.TraceID
}

// Teach says who a trace is for. Spans of it that arrive from now on and do not say
// so themselves, in each dimension, are taken as if they did.
func (p *Pipeline) Teach(tenant string, trace schema.TraceID, id schema.Identity) {
	t := &p.taught
	key := taughtKey{tenant, trace}
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.of[key]
	for _, d := range teachable {
		if old[d] == "" {
			old[d] = strings.Clone(id[d])
		}
	}
	if known {
		t.of[key] = old
		return
	}
	if t.of == nil {
		t.of = map[taughtKey]schema.Identity{}
	}
	key.tenant = strings.Clone(tenant)
	if len(t.ring) < maxTaught {
		t.ring = append(t.ring, key)
	} else {
		delete(t.of, t.ring[t.at])
		t.ring[t.at] = key
		t.at = (t.at + 1) % maxTaught
	}
	t.of[key] = old
	t.any.Store(true)
}

// forget renames a user in what was told so far.
func (t *taught) forget(f *schema.Forgetting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, id := range t.of {
		if f.Rename(key.tenant, &id[schema.User]) {
			t.of[key] = id
		}
	}
}

// fill completes the identity of calls whose traces somebody told of.
func (t *taught) fill(calls []schema.Call) {
	if !t.any.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var last taughtKey
	var id schema.Identity
	var known bool
	for i := range calls {
		c := &calls[i]
		if key := (taughtKey{c.Tenant, c.Trace}); i == 0 || key != last {
			last = key
			id, known = t.of[key]
		}
		if !known {
			continue
		}
		for _, d := range teachable {
			if c.Identity[d] == "" {
				c.Identity[d] = id[d]
			}
		}
	}
}
