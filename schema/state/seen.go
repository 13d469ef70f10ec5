package state

import (
	"encoding/binary"
	"sync"

	"github.com/bits-and-blooms/bloom/v3"
)

const (
	seenKeys    = 4 << 20 // traces of a filter, at which one in a hundred of the others is looked for in vain
	seenFilters = 12      // that there may be, of 5 MB each
)

// seen knows which traces may be stored, by day, so that a new one is not looked for on
// disk. Of days on which there are more than it has room for it says that all may be.
type seen struct {
	mu   sync.RWMutex
	days map[uint32]*seenDay
	keys int    // of a filter
	room int    // filters that may still be made
	old  uint32 // of this day and earlier ones not all keys were read yet; 0 is none
}

type seenDay struct {
	filters []*bloom.BloomFilter
	last    int // keys of the last one
	full    bool
}

func newSeen(old uint32) *seen {
	return &seen{days: map[uint32]*seenDay{}, keys: seenKeys, room: seenFilters, old: old}
}

func (s *seenDay) has(key []byte) bool {
	for _, f := range s.filters {
		if f.Test(key) {
			return true
		}
	}
	return s.full
}

// may reports whether the trace may be stored under that day. false is certain.
func (s *seen) may(day uint32, key []byte) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	d := s.days[day]
	return day <= s.old || d != nil && d.has(key)
}

// any reports whether a trace may be stored under that day.
func (s *seen) any(day uint32) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return day <= s.old || s.days[day] != nil
}

// add has to come before the trace is stored.
func (s *seen) add(day uint32, key []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.days[day]
	if d == nil {
		d = &seenDay{}
		s.days[day] = d
	}
	if d.has(key) {
		return
	}
	if len(d.filters) == 0 || d.last == s.keys {
		if s.room == 0 {
			d.full = true
			return
		}
		s.room--
		d.filters, d.last = append(d.filters, bloom.NewWithEstimates(uint(s.keys), 0.01)), 0
	}
	d.filters[len(d.filters)-1].Add(key)
	d.last++
}

// forget drops what it knows of days before that one.
func (s *seen) forget(before uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for day, d := range s.days {
		if day < before {
			s.room += len(d.filters)
			delete(s.days, day)
		}
	}
}

// read says that every key of the days before the store was opened was added.
func (s *seen) read() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.old = 0
}

// readKeys adds the traces that were stored when the store was opened. Until it has, they
// are looked for on disk.
func (s *Store) readKeys() {
	defer close(s.keysRead)
	it, err := s.db.NewIter(traceBounds())
	if err != nil {
		s.o.Logger.Error("the keys of stored traces are not read; new ones are looked for on disk", "err", err)
		return
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		select {
		case <-s.closing:
			return
		default:
		}
		if k := it.Key(); len(k) > 9 && binary.BigEndian.Uint32(k[len(k)-4:]) == 0 { // the first page
			s.seen.add(binary.BigEndian.Uint32(k[1:]), k[5:len(k)-4])
		}
	}
	if err := it.Error(); err != nil {
		s.o.Logger.Error("the keys of stored traces are not read; new ones are looked for on disk", "err", err)
		return
	}
	s.seen.read()
}
