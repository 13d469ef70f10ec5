package ledger

import (
	"fmt"
	"hash/maphash"

	"github.com/flyball/flyball/schema/state"
)

// known is a Bloom filter of the accounts that the store has. Most accounts are of
// runs that are new, and asking the store for each costs more than all the counting.
type known struct {
	bits  []uint64
	n     int  // keys in it
	whole bool // it has every stored account; until then the store is asked
}

var knownSeed = maphash.MakeSeed()

const knownLeast = 1 << 18 // words: 16 million bits, two megabytes, for about a million accounts

func newKnown(keys int) *known {
	words := knownLeast
	for words*64 < 12*keys {
		words *= 2
	}
	return &known{bits: make([]uint64, words)}
}

// each calls f for the four bits of a key.
func (k *known) each(key []byte, f func(word int, bit uint64) bool) bool {
	h := maphash.Bytes(knownSeed, key)
	step := h>>32 | 1
	for range 4 {
		i := h & uint64(len(k.bits)*64-1)
		if !f(int(i>>6), 1<<(i&63)) {
			return false
		}
		h += step
	}
	return true
}

func (k *known) add(key []byte) {
	k.n++
	k.each(key, func(w int, bit uint64) bool { k.bits[w] |= bit; return true })
}

// has reports whether the store may have the account.
func (k *known) has(key []byte) bool {
	return !k.whole || k.each(key, func(w int, bit uint64) bool { return k.bits[w]&bit != 0 })
}

// full reports that the filter is too crowded to be of use.
func (k *known) full() bool { return k.n > len(k.bits)*64/8 }

// Scan reads which accounts the store has. It may run beside everything else; Known
// takes the result, before which the store is asked for every account.
func Scan(s *state.Store) (*known, error) {
	n := 0
	if err := s.Each(prefixAccount, func(string, []byte) error { n++; return nil }); err != nil {
		return nil, fmt.Errorf("scan ledger: %w", err)
	}
	k := newKnown(2*n + 1)
	err := s.Each(prefixAccount, func(name string, _ []byte) error {
		k.add([]byte(name[len(prefixAccount):]))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("scan ledger: %w", err)
	}
	return k, nil
}

// Known puts a scan to use. What was saved since it began has to be in it too.
func (l *Ledger) Known(k *known) {
	for _, key := range l.saved {
		k.add([]byte(key))
	}
	k.whole = true
	l.known, l.saved = k, nil
}

// Crowded reports that another Scan is due.
func (l *Ledger) Crowded() bool { return l.known != nil && l.known.full() }

// Rescan is to be called before a further Scan begins.
func (l *Ledger) Rescan() { l.saved = []string{} }
