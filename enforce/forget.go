package enforce

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// Forget gives everything that is kept of a user to his pseudonym, and names him so from
// now on wherever he comes in: in the log, in questions about calls, in leases. His
// counters go on under the pseudonym. What guards did to him is released, with events,
// and holds for the pseudonym only when a higher rung is reached. Calls of the user's
// own id find no counter once this ends: with EndForget, after ForgetStored.
func (l *Loop) Forget(f *schema.Forgetting) error {
	if f == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	// What is on its way has the id, and is renamed where it is stored.
	l.drainLeaks(now)
	if err := l.flush(); err != nil {
		return err
	}
	var held []*live
	for _, h := range l.live {
		if f.Is(h.Tenant, h.Scope.Values["user"]) {
			held = append(held, h)
		}
	}
	for _, h := range held {
		l.release(h, "the user is forgotten", "", now)
	}
	// Events and pages of that are to say whom they are about now.
	l.forget = f
	for i := range l.effects.pages {
		p := &l.effects.pages[i]
		for _, s := range []*string{&p.Scope, &p.Title, &p.Undo} {
			*s = f.Text(*s)
		}
	}
	var promises []*promise
	for _, p := range l.book.leases {
		if !f.Is(p.Call.Tenant, p.Call.User) {
			continue
		}
		promises = append(promises, p)
		if !p.Posted {
			if err := l.move(p, -1); err != nil {
				return err
			}
		}
	}
	renamed := map[string]string{}
	if err := l.ledger.Rename(f, func(a *ledger.Account, before string) { renamed[before] = a.Key() }); err != nil {
		return err
	}
	for i := range l.policy.Guards {
		u := &l.policy.Guards[i].used
		for before, key := range renamed {
			if s, ok := u.scopes[before]; ok {
				delete(u.scopes, before)
				u.scopes[key] = s
			}
		}
	}
	for _, p := range promises {
		l.forgetPromise(p)
		if !p.Posted {
			if err := l.move(p, 1); err != nil {
				return err
			}
		}
		l.book.changed[p.ID] = true
	}
	for _, h := range held {
		if h.Index < 0 || h.guard == nil || h.account == nil {
			continue
		}
		h.Key, h.ID = []byte(h.account.Key()), directiveID(h.guard, h.account)
		h.Scope.Values = map[string]string{}
		values, _ := l.ledger.Scope(h.account)
		for d, v := range values {
			h.Scope.Values[d] = v
		}
		h.Scoped = f.Text(h.Scoped)
		l.pardon(h, now)
		l.live[h.ID].Reason = "the user is forgotten"
	}
	for i := range l.limiters.recent {
		forgetEvent(f, &l.limiters.recent[i].of)
	}
	if reason := f.Text(l.kill.Reason); reason != l.kill.Reason {
		l.kill.Reason, l.effects.kill = reason, true
	}
	l.renamings++
	return l.flush()
}

// forgetPromise renames the user of a lease, on whose accounts it is not counted.
func (l *Loop) forgetPromise(p *promise) {
	if !l.forget.Rename(p.Call.Tenant, &p.Call.User) {
		return
	}
	for i := range p.Accounts {
		p.Accounts[i].Key = []byte(l.ledger.Renamed(l.forget, string(p.Accounts[i].Key)))
	}
}

// forgetEvent renames the user in an event. The id of a directive is made with that of
// its user, among others.
func forgetEvent(f *schema.Forgetting, e *Event) {
	if f == nil || e.Tenant != "" && e.Tenant != f.Tenant {
		return
	}
	scope := f.Text(e.Scope)
	if f.Rename(e.Tenant, &e.User) || scope != e.Scope {
		if guard, _, ok := strings.Cut(e.Directive, "/"); ok {
			e.Directive = guard + "/" + f.Pseudonym
		}
	}
	e.Scope, e.Reason = scope, f.Text(e.Reason)
}

// EndForget ends what Forget began: who comes with the id from now on is somebody new.
func (l *Loop) EndForget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget = nil
}

// ForgetArchive renames the user in rows that ClickHouse does not have yet. Once it
// returns none is sent that names him.
func (l *Loop) ForgetArchive(ctx context.Context, f *schema.Forgetting) error {
	for !l.archive.busy.TryLock() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	defer l.archive.busy.Unlock()
	return l.forgetEvents(keyArchive, f)
}

func (l *Loop) forgetEvents(prefix string, f *schema.Forgetting) error {
	b := l.o.Store.NewBatch()
	err := l.o.Store.Each(prefix, func(name string, v []byte) error {
		var e Event
		if err := json.Unmarshal(v, &e); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		forgetEvent(f, &e)
		fresh, err := json.Marshal(&e)
		if err != nil || string(fresh) == string(v) {
			return err
		}
		return b.Put(name, fresh)
	})
	if err != nil {
		return err
	}
	return b.Commit(false)
}

// ForgetStored renames the user in what the local store has beside the counters: events,
// pages, earlier versions of the policy; and saves the counters.
func (l *Loop) ForgetStored(ctx context.Context, f *schema.Forgetting) error {
	if err := l.forgetEvents(keyEvents, f); err != nil {
		return err
	}
	if err := l.pager.Rewrite(ctx, f.Text); err != nil {
		return err
	}
	l.mu.Lock()
	err := l.ledger.Purge(f)
	if err == nil {
		err = l.forgetPolicies(f)
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	// The loop may be in the middle of a record; then there is nothing to save now.
	for {
		saved, err := l.checkpoint(true)
		if err != nil || saved {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// forgetPolicies renames the user in policies that are not in force any more, and drops
// what is kept for guards that no policy has.
func (l *Loop) forgetPolicies(f *schema.Forgetting) error {
	b := l.o.Store.NewBatch()
	err := l.o.Store.Each(keyPolicy, func(name string, v []byte) error {
		var p PolicyVersion
		if err := json.Unmarshal(v, &p); err != nil {
			return fmt.Errorf("read policy %s: %w", name, err)
		}
		text, reason := f.Text(p.Text), f.Text(p.Reason)
		if text == p.Text && reason == p.Reason {
			return nil
		}
		if p.Version != l.version {
			p.Text = text
		}
		p.Reason = reason
		fresh, err := json.Marshal(p)
		if err != nil {
			return err
		}
		return b.Put(name, fresh)
	})
	if err != nil {
		return err
	}
	if err := l.o.Store.Each(keyUsed, func(name string, _ []byte) error {
		if !slices.ContainsFunc(l.policy.Guards, func(g Guard) bool { return keyUsed+g.Name == name }) {
			return b.Delete(name)
		}
		return nil
	}); err != nil {
		return err
	}
	return b.Commit(false)
}

// Obstacles says why a user cannot be forgotten now: the policy in force names him, or,
// unless what holds is to be released, a guard refuses his calls.
func (l *Loop) Obstacles(f *schema.Forgetting, release bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text := string(l.policy.source); f.Text(text) != text {
		return conflict("the policy in force names the user; take that out first, see `flyball guard list` and GET /api/v1/policy")
	}
	for _, h := range l.live {
		if !release && h.published() && h.Action.Denies() && f.Is(h.Tenant, h.Scope.Values["user"]) {
			return conflict("guard %s refuses the user's calls (%s), which would end: release it first, or say so with release, --release", h.Guard, h.Action)
		}
	}
	return nil
}

// Record keeps an event of somebody else's, for audit.
func (l *Loop) Record(e Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.event(e)
	return l.flush()
}
