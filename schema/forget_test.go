package schema_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/schematest"
)

func TestForgettingText(t *testing.T) {
	f := func(user, in, want string) {
		t.Helper()
		if got := schema.NewForgetting("t", user, "forgotten-1").Text(in); got != want {
			t.Errorf("%q in %q: got %q, want %q", user, in, got, want)
		}
	}
	f("Ann@Example.com", "user ann@example.com of tenant t: ask Ann@Example.com.", "user forgotten-1 of tenant t: ask forgotten-1.")
	f("ann@example.com", "joann@example.com ann@example.com.au ann@example.com", "joann@example.com ann@example.com.au forgotten-1")
	f("7", "user 7 spent 7 of 70 for user 70", "user forgotten-1 spent 7 of 70 for user 70")
	f("user-1234", "user-1234, (user-1234) user-12345", "forgotten-1, (forgotten-1) user-12345")
}

func TestForgettingForms(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	e := randomEntry(r)
	e.Tenant, e.Call.Identity[schema.User], e.Posting.Identity[schema.User] = "t", "", " ANN "
	call, post := schema.AppendCall(nil, &e.Call), schema.AppendPosting(nil, &e.Posting, &e.Call)
	newCall, newPost, err := schema.NewForgetting("t", "ann", "forgotten-1").Forms(call, post)
	if err != nil {
		t.Fatal(err)
	}
	var got schema.Entry
	if err := errors.Join(schema.DecodeCall(newCall, &got.Call), schema.DecodePosting(newPost, &got.Posting, &got.Call)); err != nil {
		t.Fatal(err)
	}
	if got.Call.Identity[schema.User] != "" || got.Posting.Identity[schema.User] != "forgotten-1" {
		t.Errorf("users %q and %q", got.Call.Identity[schema.User], got.Posting.Identity[schema.User])
	}
	got.Posting.Identity[schema.User] = " ANN "
	if got.Posting != e.Posting {
		t.Errorf("got %+v, want %+v", got.Posting, e.Posting)
	}
	for _, f := range []*schema.Forgetting{nil, schema.NewForgetting("t", "anne", "x"), schema.NewForgetting("u", "ann", "x")} {
		if c, p, err := f.Forms(call, post); c != nil || p != nil || err != nil {
			t.Errorf("%+v changes somebody else's call", f)
		}
	}
}

// A user has entries of several months, in several spellings, beside users whose ids
// are like his. After he was forgotten no column and no file has the id, and every sum
// is what it was.
func TestForgetRows(t *testing.T) {
	e := schematest.Open(t)
	ctx := context.Background()
	const id = "Zoe.O'Hara\\Unique@example.com"
	r := rand.New(rand.NewPCG(5, 6))
	users := []string{id, strings.ToUpper(id), " " + id, id + ".au", "x" + id, "bob", ""}
	for month := range 3 {
		cols := schema.NewColumns()
		var runs []schema.RunInfo
		for i := range 300 {
			var x schema.Entry
			fill(r, reflect.ValueOf(&x).Elem())
			x.Version, x.Tenant = 1, fmt.Sprintf("t-%d", i%2)
			x.RecordedAt = time.Date(2026, time.Month(9+month), 3, 0, 0, i, 0, time.UTC).UnixMicro()
			x.Start = x.RecordedAt * 1000
			x.Posting.Identity[schema.User] = users[i%len(users)]
			x.Posting.Identity[schema.Run] = fmt.Sprintf("r-%d-%d", month, i)
			cols.Append(&x, uint64(month+1))
			runs = append(runs, schema.RunInfo{Tenant: x.Tenant, RunID: x.Posting.Identity[schema.Run], Version: uint64(x.RecordedAt), Start: x.Start, End: x.Start, Identity: x.Posting.Identity})
		}
		if err := errors.Join(schema.SendRunInfo(ctx, e.Conn(), fmt.Sprintf("runs-%d", month), runs), cols.Send(ctx, e.Conn(), fmt.Sprintf("m-%d", month))); err != nil {
			t.Fatal(err)
		}
	}
	var events []schema.Enforcement
	for i, who := range users {
		events = append(events, schema.Enforcement{Seq: uint64(i), Node: "n", At: time.Date(2026, 11, 3, 0, 0, i, 0, time.UTC), Kind: "directive", Guard: "g", Tenant: "t-1", User: who, Scope: "user " + who + " of tenant t-1", Directive: "g/1234", Reason: "g: user " + who + " spent"})
	}
	events = append(events, schema.Enforcement{Seq: 99, Node: "n", At: time.Date(2026, 11, 3, 0, 1, 0, 0, time.UTC), Kind: "kill", Scope: "the whole org", Reason: "it was " + id})
	if err := schema.SendEnforcement(ctx, e.Conn(), "events", events); err != nil {
		t.Fatal(err)
	}
	one := func(sql string) (out string) {
		t.Helper()
		if err := e.Conn().QueryRow(ctx, sql).Scan(&out); err != nil {
			t.Fatal(sql, err)
		}
		return out
	}
	for n := 0; ; n++ {
		if _, folded, err := schema.FoldRuns(ctx, e.Conn(), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
			t.Fatal(err)
		} else if !folded {
			if n != 3 {
				t.Errorf("%d days of states, want 3", n)
			}
			break
		}
	}
	tables := []string{"journal", "spend_15m", "run_info", "run_states", "enforcement"}
	sums := func(user string) (out []string) {
		for _, by := range []string{"tenant", "feature", user} {
			out = append(out, one("SELECT toString(arraySort(groupArray(x))) FROM (SELECT ("+by+", sum(sign * cost), sum(sign)) AS x FROM run_states GROUP BY "+by+")"))
		}
		for _, table := range []string{"journal", "spend_15m"} {
			for _, by := range []string{"tenant", "model", "feature", user} {
				sign := map[string]string{"journal": "sign * ", "spend_15m": ""}[table]
				out = append(out, one("SELECT toString(arraySort(groupArray(x))) FROM (SELECT ("+by+", sum("+sign+"toInt128(ifNull(cost, 0))), sum("+sign+"toInt128(tok_input))) AS x FROM "+table+" GROUP BY "+by+")"))
			}
		}
		return append(out, one("SELECT toString(count()) FROM journal"), one("SELECT toString(uniqExact(tenant, run_id)) FROM run_info"))
	}
	like := "lower(trim(user)) = lower('Zoe.O\\'Hara\\\\Unique@example.com') AND tenant = 't-1'"
	before := sums("if(" + like + ", 'p', user)")
	inTenant0 := one("SELECT toString(count()) FROM journal WHERE tenant = 't-0' AND user != '' AND user != 'bob'")
	if one("SELECT toString(count()) FROM journal WHERE "+like) == "0" {
		t.Fatal("there is nothing to forget: the test tests nothing")
	}

	f := schema.NewForgetting("t-1", strings.ToLower(id), "forgotten-00112233aabbccdd")
	turns := 0
	alone := func(f func() error) error { turns++; return f() }
	if err := schema.ForgetRows(ctx, e.Conn(), f, alone); err != nil {
		t.Fatal(err)
	}
	if after := sums("if(user = 'forgotten-00112233aabbccdd', 'p', user)"); !reflect.DeepEqual(after, before) {
		t.Errorf("sums are\n%v\nand were\n%v", after, before)
	}
	if got, want := one("SELECT toString(groupArray((user, scope, directive))) FROM (SELECT * FROM enforcement WHERE seq IN (0, 3, 5) ORDER BY seq)"), "[('forgotten-00112233aabbccdd','user forgotten-00112233aabbccdd of tenant t-1','g/forgotten-00112233aabbccdd'),('"+strings.NewReplacer("\\", "\\\\", "'", "\\'").Replace(id)+".au','user "+strings.NewReplacer("\\", "\\\\", "'", "\\'").Replace(id)+".au of tenant t-1','g/1234'),('bob','user bob of tenant t-1','g/1234')]"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
	if got := one("SELECT reason FROM enforcement WHERE seq = 99"); got != "it was forgotten-00112233aabbccdd" {
		t.Errorf("a reason is %q", got)
	}
	if turns != 7 { // journal, run_info, run_states, enforcement and three partitions of spend_15m
		t.Errorf("inserts were held up %d times, want 7", turns)
	}
	for _, table := range tables {
		if n := one("SELECT toString(count()) FROM " + table + " WHERE " + like); n != "0" {
			t.Errorf("%s has %s rows of the user", table, n)
		}
		if n := one("SELECT toString(count()) FROM system.parts WHERE database = currentDatabase() AND table = '" + table + "' AND NOT active AND remove_time < now() - 20"); n != "0" {
			t.Errorf("%s has %s old parts", table, n)
		}
		if s := one("SELECT create_table_query FROM system.tables WHERE database = currentDatabase() AND name = '" + table + "'"); strings.Contains(s, "old_parts_lifetime") || strings.Contains(s, "finished_mutations_to_keep") {
			t.Errorf("settings stay: %s", s)
		}
	}
	if n := one("SELECT toString(count()) FROM journal WHERE tenant = 't-0' AND user != '' AND user != 'bob'"); n != inTenant0 {
		t.Errorf("the other tenant has %s rows, had %s", n, inTenant0)
	}
	// Again there is nothing to do.
	turns = 0
	if err := schema.ForgetRows(ctx, e.Conn(), f, alone); err != nil || turns != 0 {
		t.Errorf("again: %v, %d turns", err, turns)
	}
	if n := one("SELECT toString(count()) FROM system.mutations WHERE database = currentDatabase() AND positionCaseInsensitive(command, 'unique') > 0"); n != "0" {
		t.Errorf("%s texts of updates have the id", n)
	}
}
