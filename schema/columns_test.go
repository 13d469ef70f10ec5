package schema_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/schematest"
)

// fill sets every field of v, so that a column that gets another one's value shows.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("%x\x00\xff'\\\n", r.Uint64()))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 1)
	case reflect.Int64:
		v.SetInt(r.Int64() - r.Int64())
	case reflect.Int8:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1 + r.Uint64N(2))
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1 + r.Uint64N(1<<15))
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	default:
		panic("BUG: columns test does not know " + v.Kind().String())
	}
}

func randomEntry(r *rand.Rand) schema.Entry {
	var e schema.Entry
	fill(r, reflect.ValueOf(&e).Elem())
	e.Version = 1
	e.Start = time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC).UnixNano() + r.Int64N(int64(24*time.Hour))
	e.Duration = r.Int64N(int64(time.Hour))
	e.RecordedAt = time.Date(2026, 3, 11, 0, 0, 0, 0, time.UTC).UnixMicro() + r.Int64N(int64(time.Hour/time.Microsecond))
	e.Posting.Status = schema.CostStatus(r.IntN(len(schema.CostStatusNames)))
	if r.IntN(2) == 1 {
		e.Posting.Aggregate, e.Posting.DuplicateOf = false, ""
	}
	return e
}

func send(t testing.TB, conn driver.Conn, token string, entries ...schema.Entry) {
	t.Helper()
	c := schema.NewColumns()
	for i := range entries {
		c.Append(&entries[i], 42)
	}
	if err := c.Send(t.Context(), conn, token); err != nil {
		t.Fatal(err)
	}
}

// texts are the values of the journal's columns that an entry has to leave there, as toString gives them.
func texts(e *schema.Entry) map[string]string {
	p := &e.Posting
	n := func(v any) string { return fmt.Sprint(v) }
	b := func(v bool) string { return map[bool]string{true: "1", false: "0"}[v] }
	money := func(m schema.Money, known bool) string {
		if !known {
			return "NULL"
		}
		return strconv.FormatInt(int64(m), 10)
	}
	m := map[string]string{
		"tenant": e.Tenant, "trace_id": e.Trace.String(), "span_id": hex.EncodeToString(e.Span[:]), "parent_span_id": hex.EncodeToString(e.Parent[:]), "part": n(e.Part), "sign": n(e.Sign), "version": n(e.Version),
		"recorded_at": time.UnixMicro(e.RecordedAt).UTC().Format("2006-01-02 15:04:05.000000"), "chunk": "42", "started_at": time.Unix(0, e.Start).UTC().Format("2006-01-02 15:04:05.000000000"), "duration_ns": n(e.Duration),
		"kind": schema.KindNames[p.Kind], "name": e.Name, "operation": e.Operation, "provider": e.Provider, "model": e.Model, "requested_model": e.RequestedModel, "service_tier": e.ServiceTier,
		"response_id": e.ResponseID, "scope": e.Scope, "token_basis": e.TokenBasis, "usage": schema.UsageNames[e.Usage], "cost_status": schema.CostStatusNames[p.Status],
		"cost":     money(p.Cost, p.Status != schema.CostUnpriced && p.Status != schema.CostUnknown && !p.Aggregate && p.DuplicateOf == ""),
		"exposure": money(p.Exposure, true), "estimate": money(p.Estimate, p.HasEstimate), "reported_cost": money(e.ReportedCost, e.HasReported), "amount": money(p.Amount, true), "currency": p.Currency,
		"price_id": p.PriceID, "aggregate": b(p.Aggregate), "duplicate_of": p.DuplicateOf, "tool": e.Tool, "tool_effect": schema.EffectNames[e.Effect], "args_hash": n(e.ArgsHash),
		"payload_bytes": n(e.PayloadBytes), "payload_type": e.PayloadType, "attempt": n(p.Attempt), "retry_layer": schema.LayerNames[p.Layer], "retry_cause": schema.FailureNames[p.Cause],
		"fallback": b(p.Fallback), "hedge": b(p.Hedge), "hidden_attempts": n(p.Hidden), "hidden_cause": schema.FailureNames[p.HiddenCause], "failure": schema.FailureNames[e.Failure], "http_status": n(e.HTTPStatus),
		"source": schema.SourceNames[e.Source], "model_calls": n(p.ModelCalls), "tool_calls": n(p.ToolCalls), "retries": n(p.Retries), "fallbacks": n(p.Fallbacks), "hedges": n(p.Hedges), "repeats": n(p.Repeats),
		"wasted": money(p.Wasted, true), "flags": n(uint64(e.AllFlags())),
		"web_searches": n(e.Units.WebSearches), "images": n(e.Units.Images), "pages": n(e.Units.Pages), "media_ms": n(e.Units.Milliseconds),
	}
	for i, d := range schema.Dims {
		m[d] = p.Identity[i]
	}
	for i, f := range p.Tokens.Fields() {
		m["tok_"+schema.TokenNames[i]] = n(*f)
	}
	return m
}

// TestEntryReachesEveryColumn: with all columns at their defaults, filled, and in a block whose memory others had before.
func TestEntryReachesEveryColumn(t *testing.T) {
	conn := schematest.Open(t).Conn()
	r := rand.New(rand.NewPCG(5, 6))
	entries := []schema.Entry{{Sign: 1, Version: 1}}
	entries[0].Trace[0] = 1
	for range 12 {
		entries = append(entries, randomEntry(r))
	}
	c := schema.NewColumns()
	add := func(ctx context.Context, from, to int) error {
		c.Reset()
		for i := range entries[from:to] {
			c.Append(&entries[from+i], 42)
		}
		return c.Send(ctx, conn, fmt.Sprint("token-", from))
	}
	failed, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range []error{add(t.Context(), 1, 8), add(t.Context(), 0, 1), add(t.Context(), 8, 10)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if add(failed, 10, 13) == nil {
		t.Error("sent in a context that is over")
	}
	if err := add(t.Context(), 10, 13); err != nil {
		t.Fatal(err)
	}
	var names []string
	each(t, conn, "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'journal' AND default_kind = ''", func(rows driver.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	})
	for name := range texts(&entries[0]) {
		if !slices.Contains(names, name) {
			t.Errorf("the journal has no column %s", name)
		}
	}
	for i := range entries {
		e := &entries[i]
		want := texts(e)
		exprs := make([]string, len(names))
		for j, name := range names {
			exprs[j] = "ifNull(toString(" + name + "), 'NULL')"
			switch name {
			case "trace_id", "span_id", "parent_span_id":
				exprs[j] = "lower(hex(" + name + "))" // toString drops trailing zeros
			}
			if _, ok := want[name]; !ok {
				t.Fatalf("nothing says what is in the column %s", name)
			}
		}
		found := 0
		each(t, conn, "SELECT ["+strings.Join(exprs, ", ")+"], trace, span FROM journal WHERE trace_id = unhex('"+e.Trace.String()+"')", func(rows driver.Rows) error {
			var got []string
			var trace, span string
			if err := rows.Scan(&got, &trace, &span); err != nil {
				return err
			}
			found++
			for j, name := range names {
				if got[j] != want[name] {
					t.Errorf("entry %d, %s: got %q, want %q", i, name, got[j], want[name])
				}
			}
			if trace != e.Trace.String() || span != hex.EncodeToString(e.Span[:]) {
				t.Errorf("entry %d: ids read %s %s", i, trace, span)
			}
			return nil
		})
		if found != 1 {
			t.Errorf("entry %d: got %d rows", i, found)
		}
	}
	var usd string
	if err := conn.QueryRow(t.Context(), "SELECT toString(any(cost_usd)) FROM journal WHERE trace_id = unhex('"+entries[0].Trace.String()+"')").Scan(&usd); err != nil || usd != "0" {
		t.Errorf("cost_usd of nothing billable: got %q, %v", usd, err)
	}
}

// sums are signed sums of the entries by a key, in the order of columns.
type sums map[string][]*big.Int

var (
	runColumns   = []string{"lines", "model_calls", "tool_calls", "retries", "hidden_attempts", "fallbacks", "hedges", "repeats", "unpriced", "unknown", "failures", "tokens", "cost", "wasted"}
	spendColumns = []string{"lines", "calls", "model_calls", "tool_calls", "retries", "hidden_attempts", "fallbacks", "hedges", "repeats", "unpriced", "unknown", "estimated", "sampled", "assumed", "cost", "wasted",
		"tok_input", "tok_cache_read", "tok_cache_write_5m", "tok_cache_write_1h", "tok_output", "tok_reasoning", "tok_input_audio", "tok_input_image", "tok_output_audio", "tok_output_image"}
)

func (s sums) add(e *schema.Entry, key string, columns []string) {
	p := &e.Posting
	is := func(b bool) int64 {
		if b {
			return 1
		}
		return 0
	}
	calls := int64(p.ModelCalls + p.ToolCalls + p.Retries + p.Fallbacks + p.Hedges)
	v := map[string]int64{"lines": 1, "calls": calls, "model_calls": int64(p.ModelCalls), "tool_calls": int64(p.ToolCalls), "retries": int64(p.Retries), "hidden_attempts": int64(p.Hidden), "fallbacks": int64(p.Fallbacks),
		"hedges": int64(p.Hedges), "repeats": int64(p.Repeats), "unpriced": is(p.Status == schema.CostUnpriced), "unknown": is(p.Status == schema.CostUnknown), "failures": is(calls > 0 && e.Failure != 0),
		"estimated": is(e.AllFlags()&schema.FlagEstimated != 0), "sampled": is(e.AllFlags()&schema.FlagSampled != 0), "assumed": is(e.AllFlags()&schema.FlagBasisAssumed != 0),
		"tokens": int64(p.Tokens.TotalInput() + p.Tokens.TotalOutput()), "wasted": int64(p.Wasted)}
	if p.Billed() && !p.Aggregate && p.DuplicateOf == "" {
		v["cost"] = int64(p.Cost)
	}
	for i, f := range p.Tokens.Fields() {
		v["tok_"+schema.TokenNames[i]] = int64(*f)
	}
	if s[key] == nil {
		s[key] = make([]*big.Int, len(columns))
		for i := range columns {
			s[key][i] = new(big.Int)
		}
	}
	for i, c := range columns {
		s[key][i].Add(s[key][i], new(big.Int).Mul(big.NewInt(int64(e.Sign)), big.NewInt(v[c])))
	}
}

func (s sums) check(t *testing.T, conn driver.Conn, what, key, table string, columns []string) {
	t.Helper()
	exprs := make([]string, len(columns))
	for i, c := range columns {
		exprs[i] = "toString(sum(" + c + "))"
	}
	found := map[string]bool{}
	each(t, conn, "SELECT "+key+" AS key, ["+strings.Join(exprs, ", ")+"] FROM "+table+" GROUP BY key", func(rows driver.Rows) error {
		var k string
		var got []string
		if err := rows.Scan(&k, &got); err != nil {
			return err
		}
		found[k] = true
		if s[k] == nil {
			t.Errorf("%s: %s knows %q, the entries do not", what, table, k)
			return nil
		}
		for i, c := range columns {
			if got[i] != s[k][i].String() {
				t.Errorf("%s: %s of %q, %s: got %s, want %s", what, table, k, c, got[i], s[k][i])
			}
		}
		return nil
	})
	for k, v := range s {
		// A row of zeros may be merged away or not.
		if !found[k] && slices.ContainsFunc(v, func(b *big.Int) bool { return b.Sign() != 0 }) {
			t.Errorf("%s: %s misses %q", what, table, k)
		}
	}
}

func TestRollupsAreSignedSumsOfTheJournal(t *testing.T) {
	conn := schematest.Open(t).Conn()
	r := rand.New(rand.NewPCG(7, 8))
	var entries []schema.Entry
	for i := range 30 {
		// A line is posted, cancelled and posted again, sometimes as something else
		// and with or without a known cost, in turns of its own.
		e := randomEntry(r)
		e.Tenant, e.Posting.Identity[schema.Run], e.Model = fmt.Sprintf("t-%d", i%3), fmt.Sprintf("run-%d", i%5), "m-5"
		for v := range uint32(1 + i%4) {
			if v > 0 {
				out := e
				out.Sign, out.RecordedAt = -1, e.RecordedAt+1
				entries = append(entries, out)
				next := randomEntry(r)
				next.Tenant, next.Trace, next.Span, next.Part, next.Start = e.Tenant, e.Trace, e.Span, e.Part, e.Start
				next.Posting.Identity[schema.Run], next.Model = fmt.Sprintf("run-%d", (i+int(v))%5), "m-5"
				next.RecordedAt = out.RecordedAt + int64(v)*int64(24*time.Hour/time.Microsecond)
				e = next
			}
			e.Version = v + 1
			entries = append(entries, e)
		}
	}
	for i := 3; i < len(entries); i += 7 {
		entries[i].Posting.Cost = math.MaxInt64 // sums leave 64 bits
	}
	// A cancelling entry carries what it cancels.
	last := map[string]schema.Posting{}
	for i := range entries {
		e := &entries[i]
		line := fmt.Sprint(e.Tenant, e.Trace, e.Span, e.Part, e.Version)
		if e.Sign > 0 {
			last[line] = e.Posting
		} else {
			e.Posting = last[line]
		}
	}
	runs, spend := sums{}, sums{}
	post := func(token string, entries []schema.Entry) {
		send(t, conn, token, entries...)
		for i := range entries {
			e := &entries[i]
			runs.add(e, e.Tenant+"/"+e.Posting.Identity[schema.Run], runColumns)
			spend.add(e, e.Tenant+"/"+time.Unix(0, e.Start).UTC().Truncate(15*time.Minute).Format("2006-01-02 15:04:05"), spendColumns)
		}
	}
	check := func(what string) {
		t.Helper()
		runs.check(t, conn, what, "concat(tenant, '/', run_id)", "runs", runColumns)
		spend.check(t, conn, what, "concat(tenant, '/', toString(at))", "spend_15m", spendColumns)
		var journal uint64
		if err := conn.QueryRow(t.Context(), "SELECT count() FROM journal").Scan(&journal); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, v := range runs {
			n += int(v[0].Int64())
		}
		var net int64
		if err := conn.QueryRow(t.Context(), "SELECT sum(toInt64(sign)) FROM journal").Scan(&net); err != nil || net != int64(n) {
			t.Errorf("%s: net lines: got %d, want %d, %v", what, net, n, err)
		}
		var odd uint64
		if err := conn.QueryRow(t.Context(), "SELECT count() FROM (SELECT sum(toInt64(sign)) AS s FROM journal GROUP BY tenant, trace_id, span_id, part HAVING s NOT IN (0, 1))").Scan(&odd); err != nil || odd != 0 {
			t.Errorf("%s: %d lines have neither none nor one version, %v", what, odd, err)
		}
	}
	half := len(entries) / 2
	post("first", entries[:half])
	post("second", entries[half:])
	check("posted")
	// The same token again, by a block that was built again.
	send(t, conn, "first", entries[:half]...)
	send(t, conn, "second", entries[half:]...)
	check("sent twice")
	var stored uint64
	if err := conn.QueryRow(t.Context(), "SELECT count() FROM journal").Scan(&stored); err != nil || stored != uint64(len(entries)) {
		t.Errorf("journal: got %d rows, want %d, %v", stored, len(entries), err)
	}
	for _, table := range []string{"journal", "spend_15m", "runs"} {
		exec(t, conn, "OPTIMIZE TABLE "+table+" FINAL")
	}
	check("merged")
}

// Starts of more months than a block may have partitions: tables are partitioned
// by when an entry was recorded.
func TestManyMonthsInOneBlock(t *testing.T) {
	conn := schematest.Open(t).Conn()
	var entries []schema.Entry
	var runs []schema.RunInfo
	const months = 120
	for i := range months {
		var e schema.Entry
		e.Tenant, e.Sign, e.Version, e.Trace[0], e.Posting.ModelCalls = "t-1", 1, 1, byte(i), 1
		e.Start = time.Date(2016, time.Month(1+i), 15, 0, 0, 0, 0, time.UTC).UnixNano()
		e.RecordedAt = time.Date(2026, 3, 11, 0, 0, 0, 0, time.UTC).UnixMicro()
		e.Posting.Identity[schema.Run] = e.Trace.String()
		entries = append(entries, e)
		runs = append(runs, schema.RunInfo{Tenant: "t-1", RunID: e.Trace.String(), Version: uint64(e.RecordedAt), Start: e.Start, End: e.Start})
	}
	send(t, conn, "months", entries...)
	if err := schema.SendRunInfo(t.Context(), conn, "months-runs", runs); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"SELECT count() FROM journal", "SELECT toUInt64(sum(model_calls)) FROM spend_15m", "SELECT uniqExact(at) FROM spend_15m", "SELECT toUInt64(sum(model_calls)) FROM runs", "SELECT uniqExact(toYYYYMM(started_at)) FROM run_info"} {
		var n uint64
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil || n != months {
			t.Errorf("%s: got %d, %v", sql, n, err)
		}
	}
}

func TestColumnsAreReused(t *testing.T) {
	conn := schematest.Open(t).Conn()
	r := rand.New(rand.NewPCG(9, 10))
	c := schema.NewColumns()
	total := 0
	for round, n := range []int{5, 300, 2} {
		c.Reset()
		for range n {
			e := randomEntry(r)
			c.Append(&e, uint64(round))
		}
		if c.Len() != n {
			t.Errorf("length: got %d, want %d", c.Len(), n)
		}
		if err := c.Send(t.Context(), conn, strconv.Itoa(round)); err != nil {
			t.Fatal(err)
		}
		total += n
	}
	var rows, parts uint64
	if err := conn.QueryRow(t.Context(), "SELECT count(), uniqExact(chunk) FROM journal").Scan(&rows, &parts); err != nil || rows != uint64(total) || parts != 3 {
		t.Errorf("got %d rows of %d chunks, want %d of 3, %v", rows, parts, total, err)
	}
}

func BenchmarkColumns(b *testing.B) {
	const rows = 50_000
	conn := schematest.Open(b).Conn()
	entries := make([]schema.Entry, rows)
	for i := range entries {
		e := &entries[i]
		e.Tenant, e.Sign, e.Version, e.Kind, e.Usage = fmt.Sprintf("t-%d", i%20), 1, 1, schema.KindModel, schema.UsageKnown
		e.Trace, e.Span, e.Parent = schema.TraceID{byte(i >> 12), byte(i >> 4), 15: 1}, schema.SpanID{byte(i >> 8), byte(i), 7: 1}, schema.SpanID{1}
		e.Start, e.Duration, e.RecordedAt = time.Date(2026, 3, 10, 0, 0, i/50, i, time.UTC).UnixNano(), 812_000_000, 1_773_200_000_000_000
		e.Name, e.Operation, e.Provider, e.Model, e.RequestedModel, e.ResponseID, e.TokenBasis = "chat m-5", "chat", "openai", "m-5", "m-5", fmt.Sprintf("chatcmpl-%d", i), "declared_inclusive"
		p := &e.Posting
		p.Kind, p.Tokens, p.Status, p.Cost, p.Exposure, p.Amount, p.Currency, p.PriceID, p.Attempt, p.ModelCalls = e.Kind, schema.Tokens{Input: 1760, CacheRead: 10240, Output: 900, Reasoning: 640}, schema.CostPriced, 5_500_000_000, 5_500_000_000, 5_500_000_000, "USD", "openai/m-5", 1, 1
		p.Identity[schema.Run], p.Identity[schema.User], p.Identity[schema.Feature] = e.Trace.String(), fmt.Sprintf("user-%d", i%5000), fmt.Sprintf("feature-%d", i%10)
	}
	c := schema.NewColumns()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		c.Reset()
		for i := range entries {
			c.Append(&entries[i], uint64(n))
		}
		n++
		if err := c.Send(context.Background(), conn, strconv.Itoa(n)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n*rows)/b.Elapsed().Seconds(), "rows/s")
}
