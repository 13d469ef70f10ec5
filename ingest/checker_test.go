package ingest

import (
	"context"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/schematest"
)

func TestCheckConservationFindsWhatIsBroken(t *testing.T) {
	e := schematest.Open(t)
	ctx := context.Background()
	now := time.Now().UTC()
	send := func(token string, chunk uint64, signs ...int8) {
		t.Helper()
		cols := schema.NewColumns()
		for i, sign := range signs {
			en := schema.Entry{Call: schema.Call{Tenant: "t", Trace: schema.TraceID{1}, Span: schema.SpanID{byte(chunk)}, Start: now.UnixNano(), Kind: schema.KindModel}, Sign: sign, Version: uint32(i/2 + 1), RecordedAt: now.UnixMicro()}
			en.Posting = schema.Posting{Kind: schema.KindModel, Status: schema.CostPriced, Cost: schema.PicoPerUSD, ModelCalls: 1}
			cols.Append(&en, chunk)
		}
		if err := cols.Send(ctx, e.Conn(), token); err != nil {
			t.Fatal(err)
		}
	}
	check := func(since, until uint64, want Drift) {
		t.Helper()
		got, err := CheckConservation(ctx, e.Conn(), since, until)
		if err != nil || got != want {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	}
	send("a", 1, 1, -1, 1)
	send("b", 2, 1)
	check(0, 2, Drift{})
	send("c", 3, 1, 1)
	check(2, 3, Drift{Lines: 1})
	check(0, 2, Drift{})
	if err := e.Conn().Exec(ctx, "INSERT INTO spend_15m (tenant, at, booked_on, lines, cost) SELECT 't', now(), today(), 1, 5"); err != nil {
		t.Fatal(err)
	}
	check(0, 2, Drift{Rollup: 1})
}
