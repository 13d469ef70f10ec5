package main

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

func TestEnforcementPrints(t *testing.T) {
	decode := func(answer string) map[string]any {
		t.Helper()
		d := json.NewDecoder(strings.NewReader(answer))
		d.UseNumber()
		var m map[string]any
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	f := func(got string, err error, want ...string) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		for _, w := range want {
			if !strings.Contains(strings.Join(strings.Fields(got), " "), w) {
				t.Errorf("got %q, want %q in it", got, w)
			}
		}
	}
	var b strings.Builder
	err := printEnforcement(&b, decode(`{"complete":false,"events":[{"at":"2026-11-29T10:00:00Z","kind":"kill","guard":"kill","action":"on","actor":"admin"}]}`))
	f(b.String(), err, "2026-11-29T10:00:00Z kill kill on - - - admin -", "ClickHouse cannot be asked")
	b.Reset()
	err = printLeakage(&b, decode(`{"rows":[{"guard":"task","limiter":"","at":"2026-11-29","propagation_calls":2,"propagation_usd":"0.000000000001","leak_calls":0,"leak_usd":"0","unguarded_calls":1,"unguarded_usd":"7"}]}`), url.Values{"group_by": {"guard,limiter"}, "interval": {"1d"}})
	f(b.String(), err, "GUARD LIMITER AT BEFORE ACK USD AFTER ACK USD UNGUARDED USD", "task - 2026-11-29 2 0.000000000001 0 0 1 7")
	b.Reset()
	err = printTimes(&b, decode(`{"rows":[{"limiter":"gw","count":3,"p50_ns":1500000,"p90_ns":null,"p99_ns":2000000000,"max_ns":90000000000}]}`), url.Values{"group_by": {"limiter"}})
	f(b.String(), err, "gw 3 1.5ms - 2s 1m30s")
}
