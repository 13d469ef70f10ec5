package directive

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var names = []string{"", "a", "b", "ab", "U-1", "u-1 "}

func randomCall(r *rand.Rand) Call {
	pick := func() string { return names[r.IntN(len(names))] }
	return Call{Tenant: pick(), User: pick(), Feature: pick(), Workflow: pick(), Agent: pick(), Model: pick(), RunID: pick(), TraceID: pick(), Mode: []string{"", "batch"}[r.IntN(2)], Criticality: []string{"", Background, Critical}[r.IntN(3)]}
}

func randomDirective(r *rand.Rand, id int, now time.Time) Directive {
	d := Directive{ID: fmt.Sprint(id), Guard: fmt.Sprint("g", id), Action: Actions[r.IntN(len(Actions))], Reason: "r"}
	for dim := range Run {
		if r.IntN(3) == 0 {
			if d.Scope.Values == nil {
				d.Scope.Values = map[string]string{}
			}
			v := names[r.IntN(len(names))]
			if dim == User {
				v = NormalUser(v) // as accounts have it
			}
			d.Scope.Values[DimNames[dim]] = v
		}
	}
	if r.IntN(3) == 0 {
		d.Scope.Runs = []string{names[r.IntN(len(names))], names[r.IntN(len(names))]}
	}
	if r.IntN(4) == 0 {
		d.Match = map[string][]string{"mode": {"batch"}}
	}
	if r.IntN(4) == 0 {
		d.Exempt = []string{Background}
	}
	if r.IntN(4) == 0 {
		d.Expires = now.Add(time.Duration(r.IntN(3)-1) * time.Minute)
	}
	switch d.Action {
	case Downgrade:
		d.Models = map[string]string{"a": "b", "*": "ab"}
	case Throttle:
		d.IntervalMS = 1000
	}
	return d
}

// applies is what the set's index has to agree with, written the long way.
func applies(d *Directive, c *Call, criticality string, now time.Time) bool {
	values := map[string]string{"tenant": c.Tenant, "user": NormalUser(c.User), "feature": c.Feature, "workflow": c.Workflow, "agent": c.Agent, "model": c.Model}
	for k, v := range d.Scope.Values {
		if values[k] != v {
			return false
		}
	}
	if len(d.Scope.Runs) > 0 && !slices.Contains(d.Scope.Runs, c.RunID) && !slices.Contains(d.Scope.Runs, c.TraceID) {
		return false
	}
	if m := d.Match["mode"]; m != nil && c.Mode != "batch" {
		return false
	}
	if !d.Expires.IsZero() && !d.Action.Lasting() && !now.Before(d.Expires) {
		return false
	}
	return !slices.Contains(d.Exempt, criticality)
}

// TestSetAgrees compares the set with a walk over all directives, while directives
// come and go, and says that another directive never turns a denial into anything else.
func TestSetAgrees(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	x := NewSet()
	v := Version{Epoch: 1}
	if err := x.Replace(&State{Version: v}); err != nil {
		t.Fatal(err)
	}
	held := map[string]Directive{}
	denied := 0
	for i := range 3000 {
		calls := []Call{randomCall(r), randomCall(r), randomCall(r)}
		var before []Decision
		for j := range calls {
			before = append(before, x.Decide(&calls[j], now))
		}
		c := Change{From: v}
		v.Revision++
		c.Version = v
		if len(held) > 40 || i%3 == 2 {
			for id := range held {
				c.Remove = append(c.Remove, id)
				delete(held, id)
				if len(held) < 20 {
					break
				}
			}
		} else {
			d := randomDirective(r, r.IntN(60), now)
			if _, replaced := held[d.ID]; replaced {
				before = nil
			}
			held[d.ID] = d
			c.Upsert = []Directive{d}
		}
		if err := x.Apply(&c); err != nil {
			t.Fatal(err)
		}
		for j := range calls {
			call := &calls[j]
			got := x.Decide(call, now)
			deny, wait := false, false
			for _, d := range held {
				if applies(&d, call, got.Criticality, now) {
					deny = deny || d.Action.Denies()
					wait = wait || d.Action == Throttle
				}
			}
			switch {
			case deny && got.Verdict != Deny, !deny && wait && got.Verdict != Wait, !deny && !wait && got.Verdict == Wait:
				t.Fatalf("call %+v: %+v, denied %v, throttled %v", *call, got, deny, wait)
			case !deny && got.Verdict == Deny && !downgradedIntoDenial(held, call, got.Criticality, now):
				t.Fatalf("call %+v: denied by nobody: %+v", *call, got)
			}
			if deny {
				denied++
			}
			if len(c.Upsert) > 0 && len(before) > 0 && before[j].Verdict == Deny && got.Verdict != Deny && c.Upsert[0].Action.Denies() {
				t.Fatalf("another denial admits: %+v, then %+v", before[j], got)
			}
		}
	}
	if denied < 500 {
		t.Fatalf("%d denials: the test tests little", denied)
	}
}

// downgradedIntoDenial reports whether the model a call is sent to is denied.
func downgradedIntoDenial(held map[string]Directive, c *Call, criticality string, now time.Time) bool {
	for _, m := range []string{"b", "ab"} {
		other := *c
		other.Model = m
		for _, d := range held {
			if d.Action.Denies() && applies(&d, &other, criticality, now) {
				return true
			}
		}
	}
	return false
}

func TestPrecedence(t *testing.T) {
	x := NewSet()
	scope := func(kv ...string) Scope {
		s := Scope{Values: map[string]string{}}
		for i := 0; i < len(kv); i += 2 {
			if kv[i] == "run" {
				s.Runs = []string{kv[i+1]}
			} else {
				s.Values[kv[i]] = kv[i+1]
			}
		}
		return s
	}
	all := []Directive{
		{ID: "1", Guard: "org", Action: Halt},
		{ID: "2", Guard: "tenant", Action: SoftBlock, Scope: scope("tenant", "t")},
		{ID: "3", Guard: "feature", Action: SoftBlock, Scope: scope("tenant", "t", "feature", "f")},
		{ID: "4", Guard: "user", Action: SoftBlock, Scope: scope("tenant", "t", "user", "u")},
		{ID: "5", Guard: "run", Action: Terminate, Scope: scope("tenant", "t", "run", "r")},
	}
	c := Call{Tenant: "t", Feature: "f", User: "u", RunID: "r"}
	for n, d := range all {
		if err := x.Replace(&State{Version: Version{1, 1}, Directives: all[:n+1]}); err != nil {
			t.Fatal(err)
		}
		if got := x.Decide(&c, time.Now()); got.Guard != d.Guard {
			t.Errorf("with %d directives the reason is %s, want %s", n+1, got.Guard, d.Guard)
		}
	}
	if err := x.Replace(&State{Version: Version{1, 2}, Kill: Kill{On: true}, Directives: all}); err != nil {
		t.Fatal(err)
	}
	if got := x.Decide(&c, time.Now()); got.Guard != "kill" {
		t.Errorf("the reason is %s, want kill", got.Guard)
	}
}

// TestDowngradeIntoDenial: the way out to a cheaper model is closed where that model
// is refused itself.
func TestDowngradeIntoDenial(t *testing.T) {
	x := NewSet()
	if err := x.Replace(&State{Version: Version{1, 1}, Directives: []Directive{
		{ID: "1", Guard: "down", Action: Downgrade, Scope: Scope{Values: map[string]string{"tenant": "t"}}, Models: map[string]string{"dear": "cheap"}},
		{ID: "2", Guard: "cheap-cap", Action: SoftBlock, Scope: Scope{Values: map[string]string{"tenant": "t", "model": "cheap"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	if d := x.Decide(&Call{Tenant: "t", Model: "dear"}, time.Now()); d.Verdict != Deny || d.Guard != "cheap-cap" {
		t.Errorf("got %+v", d)
	}
	if d := x.Decide(&Call{Tenant: "t", Model: "other"}, time.Now()); d.Verdict != Allow {
		t.Errorf("got %+v", d)
	}
}

// TestLapse: a soft block ends with its window, a terminate only with a revision.
func TestLapse(t *testing.T) {
	now := time.Now()
	x := NewSet()
	if err := x.Replace(&State{Version: Version{1, 1}, Directives: []Directive{
		{ID: "1", Action: SoftBlock, Scope: Scope{Values: map[string]string{"tenant": "soft"}}, Expires: now.Add(30 * time.Second)},
		{ID: "2", Action: Terminate, Scope: Scope{Values: map[string]string{"tenant": "hard"}}, Expires: now.Add(30 * time.Second)},
	}}); err != nil {
		t.Fatal(err)
	}
	soft, hard := Call{Tenant: "soft"}, Call{Tenant: "hard"}
	if d := x.Decide(&soft, now); d.Verdict != Deny || d.Status() != 429 || d.RetryAfter != 30*time.Second {
		t.Errorf("a block that ends within a minute: %+v, status %d", d, d.Status())
	}
	if d := x.Decide(&hard, now); d.Verdict != Deny || d.Status() != 403 || d.RetryAfter != 0 {
		t.Errorf("a terminate: %+v", d)
	}
	later := now.Add(time.Hour)
	if d := x.Decide(&soft, later); d.Verdict != Allow {
		t.Errorf("after its window: %+v", d)
	}
	if d := x.Decide(&hard, later); d.Verdict != Deny {
		t.Errorf("a terminate lapsed: %+v", d)
	}
}

func TestCriticality(t *testing.T) {
	l := CriticalList{Features: []string{"checkout"}, Workflows: []string{"pay"}, Keys: []string{"gw"}}
	f := func(c Call, want string) {
		t.Helper()
		if got := l.Criticality(&c); got != want {
			t.Errorf("%+v is %s, want %s", c, got, want)
		}
	}
	f(Call{}, Standard)
	f(Call{Criticality: Critical}, Standard) // a claim
	f(Call{Criticality: "CRITICAL"}, Standard)
	f(Call{Criticality: "SHEDDABLE"}, Background)
	f(Call{Criticality: Background, Feature: "checkout"}, Background) // it may lower itself
	f(Call{Criticality: Standard, Feature: "checkout"}, Standard)
	f(Call{Feature: "checkout"}, Critical)
	f(Call{Workflow: "pay"}, Critical)
	f(Call{Key: "gw"}, Critical)
}
