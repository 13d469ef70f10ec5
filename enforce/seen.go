package enforce

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema/state"
)

// seen is which spans and answers were posted lately: the last seenEntries that differ.
// What is promised for one of them has nothing to wait for. A checkpoint takes along what
// came since the one before, so that a restart forgets none.
type seen struct {
	has   map[uint64]bool
	ring  []uint64
	n     uint64 // how many were added ever: the next one's place is n % seenEntries
	saved uint64 // n at the last checkpoint
}

const (
	seenEntries = 1 << 18
	seenBlock   = 256 // places of the ring that are stored under one name
)

// Names of the ring in the local store: how many were ever added, and its blocks.
const (
	keySeen      = "enforce/seen"
	keySeenBlock = "enforce/seen/"
)

func (s *seen) add(h uint64) {
	if s.has[h] {
		return
	}
	if len(s.ring) < seenEntries {
		s.ring = append(s.ring, h)
	} else {
		delete(s.has, s.ring[s.n%seenEntries])
		s.ring[s.n%seenEntries] = h
	}
	s.has[h] = true
	s.n++
}

// call reports whether the call's span, or its answer, was posted.
func (s *seen) call(c *directive.Call, response string) bool {
	return response != "" && s.has[hashOf(responseKey(c.Tenant, response))] ||
		c.TraceID != "" && c.SpanID != "" && s.has[hashOf(spanKey(c.Tenant, strings.ToLower(c.TraceID), strings.ToLower(c.SpanID)))]
}

// save adds the blocks that changed since the last save to a batch.
func (s *seen) save(b *state.Batch) error {
	if s.n == s.saved {
		return nil
	}
	from := max(s.saved, s.n-min(s.n, seenEntries))
	var v []byte
	for block := from / seenBlock; block <= (s.n-1)/seenBlock; block++ {
		at := block * seenBlock % seenEntries
		v = v[:0]
		for _, h := range s.ring[at:min(at+seenBlock, uint64(len(s.ring)))] {
			v = binary.LittleEndian.AppendUint64(v, h)
		}
		if err := b.Put(fmt.Sprintf("%s%04x", keySeenBlock, at/seenBlock), v); err != nil {
			return err
		}
	}
	s.saved = s.n
	return b.Put(keySeen, binary.AppendUvarint(nil, s.n))
}

// restore reads the ring as the last save left it.
func (s *seen) restore(store *state.Store) error {
	*s = seen{has: map[uint64]bool{}}
	v, err := store.Get(keySeen)
	if err != nil || v == nil {
		return err
	}
	s.n, _ = binary.Uvarint(v)
	s.saved = s.n
	if err := store.Each(keySeenBlock, func(_ string, v []byte) error {
		for ; len(v) >= 8; v = v[8:] {
			h := binary.LittleEndian.Uint64(v)
			s.ring = append(s.ring, h)
			s.has[h] = true
		}
		return nil
	}); err != nil {
		return err
	}
	if uint64(len(s.ring)) != min(s.n, seenEntries) {
		return fmt.Errorf("the local store has %d of %d spans that were posted lately", len(s.ring), min(s.n, seenEntries))
	}
	return nil
}
