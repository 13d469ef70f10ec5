package ingest

import (
	"errors"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// What a person books is an entry like any other: it survives a crash, posts once for
// an id, is left alone by a new price, and another one takes it back.
func TestAdjustments(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	at := time.Now().Add(-48 * time.Hour)
	in := Adjustment{Tenant: "t-1", ID: "credit-7", At: at, Cost: -12_340_000_000_000, Amount: -12_340_000_000_000, Currency: "USD", Reason: "credit note 7", Actor: "jo", Provider: "openai", Model: "gpt-4o"}
	in.Identity[schema.Feature] = "search"
	adjust := func(in Adjustment) Adjusted {
		t.Helper()
		out, err := r.p.Adjust(t.Context(), r.engine.Reader(), in)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := adjust(in)
	if again := adjust(in); first.Already || !again.Already || again.Trace != first.Trace || again.Cost != in.Cost {
		t.Errorf("twice: %+v, %+v", first, again)
	}
	other := in
	other.Amount++
	if _, err := r.p.Adjust(t.Context(), r.engine.Reader(), other); !errors.Is(err, ErrAdjusted) {
		t.Errorf("another amount under the id: %v", err)
	}
	elsewhere := in
	elsewhere.Tenant = "t-2"
	if adjust(elsewhere).Already {
		t.Error("an id is the tenant's own")
	}
	late := in
	late.ID = "credit-8"
	adjust(late)
	r.crash() // the log has it, and perhaps nothing else has
	if !adjust(late).Already {
		t.Error("an adjustment from before a crash is posted again")
	}
	r.drain()
	r.spans(3)
	sum := func(what, sql string, want int64, args ...any) {
		t.Helper()
		if got := r.one(sql, args...); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	sum("the rollup", "SELECT sum(cost) FROM spend_15m WHERE tenant = 't-1' AND kind = 'adjustment' AND feature = 'search' AND provider = 'openai' AND model = 'gpt-4o' AND at = ?", -24_680_000_000_000, at.UTC().Truncate(15*time.Minute))
	sum("calls", "SELECT sum(calls) + sum(unpriced) + sum(unknown) FROM spend_15m", 0)
	sum("who and why", "SELECT count() FROM journal WHERE source = 'adjustment' AND scope = 'jo' AND name = 'credit note 7' AND exposure = cost AND amount = cost AND currency = 'USD' AND run_id = ''", 3)
	sum("runs", "SELECT count() FROM run_info", 0)

	if out, err := r.p.Reprice(t.Context(), r.engine.Reader(), Repricing{Since: at.Add(-time.Hour)}); err != nil || out.Lines != 0 {
		t.Errorf("reprice: %+v %v", out, err)
	}
	for _, id := range []string{"credit-7", "credit-8"} {
		back := in
		back.ID, back.Cost, back.Amount, back.Reason = id+"-back", -in.Cost, -in.Amount, "was a mistake"
		adjust(back)
	}
	r.drain()
	r.spans(5)
	sum("taken back", "SELECT sum(cost) FROM spend_15m WHERE tenant = 't-1'", 0)
	if d, err := NewChecker(r.p).Check(t.Context(), r.engine.Reader()); err != nil || d != (Drift{}) {
		t.Errorf("conservation: %+v %v", d, err)
	}
}
