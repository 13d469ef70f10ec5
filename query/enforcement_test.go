package query

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/flyball/flyball/schema"
)

// happenings are a day of enforcement for two tenants and the org.
func happenings() []schema.Enforcement {
	var out []schema.Enforcement
	add := func(minute int, e schema.Enforcement) {
		e.Seq, e.Node, e.At = uint64(len(out)+1), "n1", noon.Add(time.Duration(minute)*time.Minute)
		out = append(out, e)
	}
	leak := func(minute int, tenant, guard, limiter, class, dollars string, calls int64) {
		m, err := schema.ParseMoney(dollars)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		sum := schema.SumOf(int64(m))
		add(minute, schema.Enforcement{Kind: schema.EnforcementLeak, Tenant: tenant, Guard: guard, Limiter: limiter, Class: class, Calls: calls, USD: &sum})
	}
	applied := func(minute int, tenant, limiter string, ms int64, span *int64) {
		ns := ms * 1e6
		add(minute, schema.Enforcement{Kind: schema.EnforcementApplied, Tenant: tenant, Guard: "task", Limiter: limiter, Took: &ns, AfterSpan: span})
	}
	add(0, schema.Enforcement{Kind: "directive", Tenant: "t-1", Guard: "task", Action: "terminate", Scope: "run r of tenant t-1", Value: "$2", Limit: "$1"})
	add(1, schema.Enforcement{Kind: "directive", Tenant: "t-2", Guard: "user-day", Action: "warn", User: "u-2", Shadow: true})
	add(2, schema.Enforcement{Kind: "kill", Guard: "kill", Action: "on", Actor: "admin", Reason: "=cmd|' /C calc'!A0"})
	leak(3, "t-1", "task", "gw", "propagation", "0.000000000001", 1)
	leak(4, "t-1", "task", "gw", "leak", "9000000.5", 2)
	leak(5, "t-1", "task", "gw", "leak", "9000000.5", 2) // more than 64 bits together
	leak(6, "t-2", "task", "", "unguarded", "0.25", 3)
	leak(24*60, "t-1", "task", "gw", "propagation", "1", 1)
	for i := range int64(100) {
		var span *int64
		if i == 0 {
			span = new(int64)
			*span = 7e9
		}
		applied(10, "t-1", "gw", i+1, span)
	}
	applied(70, "t-2", "other", 3000, nil)
	add(80, schema.Enforcement{Kind: "release", Tenant: "t-1", Guard: "task", Action: "terminate", Actor: "ops"})
	return out
}

func (s *store) happen(rows ...schema.Enforcement) {
	s.t.Helper()
	s.sent++
	if err := schema.SendEnforcement(s.t.Context(), s.e.Conn(), fmt.Sprintf("happen-%d", s.sent), rows); err != nil {
		s.t.Fatal(err)
	}
}

const days = "from=2026-03-10&to=2026-03-12"

func TestEnforcementHistory(t *testing.T) {
	s := newStore(t)
	rows := happenings()
	s.happen(rows...)
	s.happen(rows[:5]...) // again, as after a crash
	f := func(query, want string) {
		t.Helper()
		m := s.get("/api/v1/enforcement?" + days + query)
		equal(t, query, show(list(m["events"]), "kind", "tenant", "guard"), want)
		if m["complete"] != true {
			t.Errorf("%s: not complete", query)
		}
	}
	f("", "release t-1 task\nkill <nil> kill\ndirective t-2 user-day\ndirective t-1 task")
	f("&tenant=t-1", "release t-1 task\ndirective t-1 task")
	f("&kind=kill", "kill <nil> kill")
	f("&guard=task&action=terminate&actor=ops", "release t-1 task")
	f("&user=u-2", "directive t-2 user-day")
	f("&kind=leak&limiter=gw&class=propagation", "leak t-1 task\nleak t-1 task")
	equal(t, "leak", show(list(s.get("/api/v1/enforcement?kind=leak&class=unguarded&" + days)["events"]), "calls", "usd"), "3 0.25")
	// Page after page is the list, once each.
	path, seen := "/api/v1/enforcement?limit=7&kind=applied&"+days, map[float64]bool{}
	for next := ""; ; {
		m := s.get(path + next)
		for _, e := range list(m["events"]) {
			if n := e["seq"].(float64); seen[n] {
				t.Errorf("row %v is on two pages", n)
			} else {
				seen[n] = true
			}
		}
		if m["next"] == "" {
			break
		}
		next = "&cursor=" + url.QueryEscape(m["next"].(string))
	}
	if len(seen) != 101 {
		t.Errorf("pages have %d rows, want 101", len(seen))
	}
	cursor := s.get(path)["next"].(string)
	s.refuse("/api/v1/enforcement?"+days+"&cursor="+cursor, http.StatusBadRequest, "another question")
	s.refuse("/api/v1/enforcement?cursor=x", http.StatusBadRequest, "not one of ours")
	s.refuse("/api/v1/enforcement?rung=80", http.StatusBadRequest, "unknown parameter")
	s.refuse("/api/v1/enforcement?limit=10001", http.StatusBadRequest, "from 1 to 10000")
	_, h, csv := s.do("/api/v1/enforcement?format=csv&"+days, "")
	if !strings.HasPrefix(csv, "at,kind,guard,tenant,") || !strings.Contains(csv, ",'=cmd|") || strings.Count(csv, "\n") != 5 || h.Get("X-Flyball-Truncated") != "false" {
		t.Errorf("csv: %s", csv)
	}
}

// What ClickHouse lacks comes from the local store, once; without ClickHouse all of it.
func TestEnforcementBeforeItIsStored(t *testing.T) {
	rows := happenings()
	var broken error
	up := true
	s := newStore(t, func(o *Options) {
		conn := o.Conn
		o.Conn = func() driver.Conn {
			if !up {
				return nil
			}
			return conn()
		}
		o.Enforcement = func(from, to time.Time, every bool) (out []schema.Enforcement, err error) {
			for _, e := range rows {
				measured := e.Kind == schema.EnforcementLeak || e.Kind == schema.EnforcementApplied
				if e.At.Before(from) || !e.At.Before(to) || every && measured || !every && e.Seq < 2 {
					continue
				}
				out = append(out, e)
			}
			return out, broken
		}
	})
	s.happen(rows[:2]...) // the second one is stored, and not yet gone from the local store
	want := "release t-1\nkill <nil>\ndirective t-2\ndirective t-1"
	f := func(query, want string, complete bool) {
		t.Helper()
		m := s.get("/api/v1/enforcement?" + days + query)
		equal(t, query, show(list(m["events"]), "kind", "tenant"), want)
		if m["complete"] != complete {
			t.Errorf("%s: complete is %v", query, m["complete"])
		}
	}
	f("", want, true)
	f("&tenant=t-2", "directive t-2", true)
	f("&limit=1", "release t-1", true)
	next := s.get("/api/v1/enforcement?limit=2&" + days)["next"].(string)
	f("&limit=2&cursor="+next, "directive t-2\ndirective t-1", true)
	up = false
	f("", want, false)
	f("&kind=leak&class=unguarded", "leak t-2", false)
	s.refuse("/api/v1/enforcement/leakage", http.StatusServiceUnavailable, "not up yet")
	broken = errors.New("disk")
	if code, _, _ := s.do("/api/v1/enforcement?"+days, ""); code != http.StatusInternalServerError {
		t.Errorf("a broken store: %d", code)
	}
}

func TestLeakage(t *testing.T) {
	s := newStore(t)
	rows := happenings()
	s.happen(rows...)
	s.happen(rows...)
	f := func(query string, fields []string, want string) {
		t.Helper()
		equal(t, query, show(list(s.get("/api/v1/enforcement/leakage?" + days + query)["rows"]), fields...), want)
	}
	all := []string{"guard", "limiter", "propagation_calls", "propagation_usd", "leak_calls", "leak_usd", "unguarded_calls", "unguarded_usd"}
	f("", all, "task gw 2 1.000000000001 4 18000001 0 0\ntask  0 0 0 0 3 0.25")
	f("&group_by=limiter&interval=1d&limiter=gw", []string{"at", "propagation_calls", "leak_calls"}, "2026-03-10T00:00:00Z 1 4\n2026-03-11T00:00:00Z 1 0")
	f("&group_by=tenant&tenant=t-2", []string{"tenant", "unguarded_calls"}, "t-2 3")
	f("&group_by=", []string{"propagation_calls", "leak_calls", "unguarded_calls"}, "2 4 3")
	f("&guard=none", all, "")
	m := s.get("/api/v1/enforcement/leakage?limit=1&" + days)
	if m["truncated"] != true {
		t.Errorf("one of two rows: %v", m)
	}
	f("&limit=1&cursor="+m["next"].(string), []string{"limiter", "unguarded_calls"}, " 3")
	s.refuse("/api/v1/enforcement/leakage?group_by=reason", http.StatusBadRequest, "want any of tenant, guard, limiter")
	if _, _, csv := s.do("/api/v1/enforcement/leakage?format=csv&"+days, ""); !strings.HasPrefix(csv, "guard,limiter,propagation_calls,propagation_usd,") || !strings.Contains(csv, "\ntask,gw,2,1.000000000001,4,18000001,0,0\n") {
		t.Errorf("csv: %s", csv)
	}
}

func TestTimesToEnforce(t *testing.T) {
	s := newStore(t)
	rows := happenings()
	s.happen(rows...)
	s.happen(rows...)
	f := func(query string, fields []string, want string) {
		t.Helper()
		equal(t, query, show(list(s.get("/api/v1/enforcement/times?" + days + query)["rows"]), fields...), want)
	}
	f("", []string{"limiter", "count", "p50_ns", "p90_ns", "p99_ns", "max_ns"}, "gw 100 5.1e+07 9.1e+07 1e+08 1e+08\nother 1 3e+09 3e+09 3e+09 3e+09")
	f("&interval=1h", []string{"at", "limiter", "count"}, "2026-03-10T12:00:00Z gw 100\n2026-03-10T13:00:00Z other 1")
	f("&tenant=t-2&group_by=tenant,guard", []string{"tenant", "guard", "count", "after_span"}, "t-2 task 1 map[count:0 max_ns:<nil> p50_ns:<nil> p90_ns:<nil> p99_ns:<nil>]")
	f("&limiter=gw", []string{"after_span"}, "map[count:1 max_ns:7e+09 p50_ns:7e+09 p90_ns:7e+09 p99_ns:7e+09]")
	if _, _, csv := s.do("/api/v1/enforcement/times?format=csv&limiter=other&"+days, ""); csv != "limiter,count,p50_ns,p90_ns,p99_ns,max_ns,after_span_count,after_span_p50_ns,after_span_p90_ns,after_span_p99_ns,after_span_max_ns\nother,1,3000000000,3000000000,3000000000,3000000000,0,,,,\n" {
		t.Errorf("csv: %s", csv)
	}
}
