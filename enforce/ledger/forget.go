package ledger

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// renamed is a key with the pseudonym in the place of the user, of a family in use.
func (l *Ledger) renamed(f *schema.Forgetting, key string) (string, bool) {
	i := l.familyOf(key)
	if i < 0 || !slices.Contains(l.families[i].Scope, directive.User) {
		return key, false
	}
	r := reader{b: []byte(key[17:])}
	tenant := ""
	if !l.families[i].Org {
		tenant = r.string()
	}
	for _, d := range l.families[i].Scope {
		if d == directive.Tenant {
			continue
		}
		at := len(key) - len(r.b)
		v := r.string()
		if d == directive.User && !r.bad && f.Is(tenant, v) {
			b := binary.AppendUvarint([]byte(key[:at]), uint64(len(f.Pseudonym)))
			return string(append(append(b, f.Pseudonym...), r.b...)), true
		}
	}
	return key, false
}

// Rename gives the accounts of a user to his pseudonym, sums and all, and calls f with
// the old and the new key of each. The next Save takes the old ones out of the store.
// No account of the pseudonym may exist.
func (l *Ledger) Rename(who *schema.Forgetting, f func(a *Account, before string)) error {
	keys := map[string]bool{}
	for key := range l.accounts {
		keys[key] = true
	}
	for i, fam := range l.families {
		if l.o.Store == nil || !slices.Contains(fam.Scope, directive.User) {
			continue
		}
		for _, letter := range "ar" {
			prefix := prefixAccount + string(letter) + string(l.families[i].id[:])
			if err := l.o.Store.Each(prefix, func(name string, _ []byte) error { keys[name[len(prefixAccount):]] = true; return nil }); err != nil {
				return fmt.Errorf("rename in ledger: %w", err)
			}
		}
	}
	for before := range keys {
		key, ok := l.renamed(who, before)
		if !ok {
			continue
		}
		a, err := l.account([]byte(before), l.familyOf(before), 0, 0, true)
		if err != nil {
			return err
		}
		delete(l.accounts, before)
		a.key, a.stored = key, false
		l.accounts[key] = a
		l.gone = append(l.gone, before)
		if !a.dirty {
			a.dirty = true
			l.dirty = append(l.dirty, a)
		}
		f(a, before)
	}
	return nil
}

// Renamed is a key of an account as it is after Rename.
func (l *Ledger) Renamed(who *schema.Forgetting, key string) string {
	key, _ = l.renamed(who, key)
	return key
}

// Purge deletes what the store has of a user beyond the families in use: accounts and
// names of families that are gone, of which nothing is read any more.
func (l *Ledger) Purge(who *schema.Forgetting) error {
	b := l.o.Store.NewBatch()
	lower := strings.ToLower(strings.TrimSpace(who.User))
	scoped := string(binary.AppendUvarint(nil, uint64(len(lower)))) + lower
	err := l.o.Store.Each(prefixAccount, func(name string, _ []byte) error {
		if key := name[len(prefixAccount):]; len(key) > 17 && l.familyOf(key) < 0 && strings.Contains(key[17:], scoped) {
			return b.Delete(name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("purge ledger: %w", err)
	}
	if err := l.o.Store.Each(prefixFamily, func(name string, v []byte) error { return l.purgeFamily(b, who, name[len(prefixFamily):], v) }); err != nil {
		return fmt.Errorf("purge ledger: %w", err)
	}
	return b.Commit(false)
}

// purgeFamily deletes a family that is gone and was about the user, with its accounts.
func (l *Ledger) purgeFamily(b *state.Batch, who *schema.Forgetting, name string, v []byte) error {
	r := reader{b: v}
	_, state, incarnation := r.uvarint(), r.uvarint(), r.uvarint()
	if state != familyGone || !slices.ContainsFunc(quoted(name), func(s string) bool { return who.Is(who.Tenant, s) }) {
		return nil
	}
	for n := uint64(0); n <= incarnation; n++ {
		f := family{name: name, incarnation: n}
		f.identify()
		for _, letter := range "ar" {
			if err := b.DeletePrefix(prefixAccount + string(letter) + string(f.id[:])); err != nil {
				return err
			}
		}
	}
	return b.Delete(prefixFamily + name)
}

// quoted are the quoted words of a family's name.
func quoted(name string) (out []string) {
	for i := 0; i < len(name); i++ {
		if name[i] != '"' {
			continue
		}
		q, err := strconv.QuotedPrefix(name[i:])
		if err != nil {
			return out
		}
		s, _ := strconv.Unquote(q)
		out, i = append(out, s), i+len(q)-1
	}
	return out
}
