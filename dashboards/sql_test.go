package dashboards

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/engine"
	"github.com/flyball/flyball/schema/schematest"
)

// whole is the three days of the generated store, nothing left out.
func whole() View {
	v := View{From: firstDay, To: firstDay.AddDate(0, 0, 3), Interval: 15 * time.Minute, Vars: map[string][]string{"top": {"10"}, "grace": {"1"}, "as_of": {""}}}
	for _, name := range []string{"tenant", "feature", "model", "environment", "provider"} {
		v.Vars[name] = []string{All}
	}
	return v
}

// narrow is a part of it, with values that need quoting and that are empty.
func narrow() View {
	v := whole()
	v.From, v.To, v.Interval = firstDay.Add(5*time.Hour+7*time.Minute), firstDay.Add(60*time.Hour), time.Hour
	v.Vars["tenant"], v.Vars["feature"], v.Vars["model"], v.Vars["environment"] = []string{"t-1", "t-2"}, []string{"quote", "(none)"}, []string{"c'x", "m-5"}, []string{"prod"}
	v.Vars["as_of"] = []string{"2026-03-12"}
	return v
}

// answer is what a query gave.
type answer struct {
	names, types []string
	rows         []map[string]any
}

// ask runs SQL as Grafana's data source does, on the read-only connection.
func ask(t *testing.T, e *engine.Engine, sql string) (answer, error) {
	t.Helper()
	var a answer
	shape, err := e.Reader().Query(t.Context(), "DESCRIBE TABLE ("+sql+")") // an answer without rows has no columns on the embedded engine
	if err != nil {
		return a, err
	}
	for shape.Next() {
		var name, typ string
		into := []any{&name, &typ}
		for range len(shape.Columns()) - 2 {
			into = append(into, new(string))
		}
		if err := shape.Scan(into...); err != nil {
			return a, err
		}
		a.names, a.types = append(a.names, name), append(a.types, typ)
	}
	if err := shape.Err(); err != nil {
		return a, err
	}
	rows, err := e.Reader().Query(t.Context(), sql)
	if err != nil {
		return a, err
	}
	defer rows.Close()
	for rows.Next() {
		into := make([]any, len(rows.ColumnTypes()))
		for i, c := range rows.ColumnTypes() {
			into[i] = reflect.New(c.ScanType()).Interface()
		}
		if err := rows.Scan(into...); err != nil {
			return a, err
		}
		row := map[string]any{}
		for i, name := range rows.Columns() {
			v := reflect.ValueOf(into[i]).Elem()
			for v.Kind() == reflect.Pointer && !v.IsNil() {
				v = v.Elem()
			}
			row[name] = v.Interface()
		}
		a.rows = append(a.rows, row)
	}
	return a, rows.Err()
}

// answered is what a query of a board gives for a view.
func answered(t *testing.T, e *engine.Engine, q target, v View) answer {
	t.Helper()
	sql, err := Expand(q.SQL, v)
	if err != nil {
		t.Fatal(err)
	}
	a, err := ask(t, e, sql)
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	return a
}

func numeric(typ string) bool {
	return slices.Contains([]string{"Float64", "Nullable(Float64)", "Int64", "UInt64"}, typ)
}

// shown checks that an answer has what its panel shows.
func shown(t *testing.T, where string, p *panel, q target, a answer) {
	t.Helper()
	column := map[string]string{}
	for i, n := range a.names {
		column[n] = a.types[i]
		// Wider integers and decimals reach Grafana in ways of their own.
		if typ := a.types[i]; !numeric(typ) && typ != "String" && typ != "Date" && !strings.HasPrefix(typ, "DateTime") {
			t.Errorf("%s: column %s has the type %s", where, n, typ)
		}
	}
	named := map[string]bool{}
	for _, o := range p.Fields.Overrides {
		named[o.Matcher.Options] = true
		if column[o.Matcher.Options] == "" {
			t.Errorf("%s: shows a column %s, which the query does not have", where, o.Matcher.Options)
		}
	}
	labels := []string{}
	switch p.Type {
	case "timeseries":
		if q.Format != 0 || a.names[0] != "time" || !strings.HasPrefix(a.types[0], "DateTime") {
			t.Errorf("%s: a graph's first column must be the time, got %s %s (format %d)", where, a.names[0], a.types[0], q.Format)
		}
		values := 0
		for i, n := range a.names[1:] {
			switch typ := a.types[i+1]; {
			case typ == "String":
				labels = append(labels, n)
			case numeric(typ):
				values++
			default:
				t.Errorf("%s: column %s of type %s is no value", where, n, typ)
			}
		}
		if values == 0 || len(labels) > 0 && (values > 1 || p.Fields.Defaults.DisplayName != "${__field.labels."+labels[0]+"}") {
			t.Errorf("%s: %d values, labels %v, series called %q", where, values, labels, p.Fields.Defaults.DisplayName)
		}
		var last time.Time
		for _, r := range a.rows {
			at := r["time"].(time.Time)
			if at.Before(last) {
				t.Errorf("%s: rows are not in the order of their time", where)
				break
			}
			last = at
		}
	case "stat":
		for i, n := range a.names {
			if q.Format != 1 || !numeric(a.types[i]) {
				t.Errorf("%s: column %s of type %s is no number", where, n, a.types[i])
			}
		}
		if len(a.rows) != 1 {
			t.Errorf("%s: %d rows, want 1", where, len(a.rows))
		}
	case "table":
		for _, n := range a.names {
			if q.Format != 1 || !named[n] || p.property(n, "unit") == "" || p.property(n, "displayName") == "" {
				t.Errorf("%s: column %s has no title or unit", where, n)
			}
		}
	default:
		t.Errorf("%s: this test does not know what a %s shows", where, p.Type)
	}
	for _, l := range p.links(t) {
		for _, m := range regexp.MustCompile(`\$\{__data\.fields\.(\w+)`).FindAllStringSubmatch(l.URL, -1) {
			if column[m[1]] == "" {
				t.Errorf("%s: link %s takes a column %s, which the query does not have", where, l.Title, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`\$\{__field\.labels\.(\w+)`).FindAllStringSubmatch(l.URL, -1) {
			if !slices.Contains(labels, m[1]) {
				t.Errorf("%s: link %s takes a label %s, which the series do not have", where, l.Title, m[1])
			}
		}
	}
}

// statements calls f for every SQL of every board.
func statements(t *testing.T, f func(where string, p *panel, q target)) {
	t.Helper()
	n := 0
	for _, b := range boards(t) {
		for i := range b.Panels {
			for _, q := range b.Panels[i].Targets {
				if q.SQL != "" {
					n++
					f(b.file+", "+b.Panels[i].Title, &b.Panels[i], q)
				}
			}
		}
	}
	if n < 40 {
		t.Fatalf("only %d statements found", n)
	}
}

func TestPanelsOfAnEmptyStore(t *testing.T) {
	e := schematest.Open(t)
	statements(t, func(where string, p *panel, q target) {
		sql, err := Expand(q.SQL, whole())
		if err != nil {
			t.Errorf("%s: %v", where, err)
			return
		}
		a, err := ask(t, e, sql)
		if err != nil {
			t.Errorf("%s: %v\n%s", where, err, sql)
			return
		}
		shown(t, where, p, q, a)
	})
}

func TestPanelsOfAFilledStore(t *testing.T) {
	s := fill(t)
	for name, v := range map[string]View{"whole": whole(), "narrow": narrow()} {
		statements(t, func(where string, p *panel, q target) {
			where += " (" + name + ")"
			sql, err := Expand(q.SQL, v)
			if err != nil {
				t.Errorf("%s: %v", where, err)
				return
			}
			a, err := ask(t, s.Engine, sql)
			if err != nil {
				t.Errorf("%s: %v\n%s", where, err, sql)
				return
			}
			shown(t, where, p, q, a)
			if name != "whole" {
				return
			}
			if len(a.rows) == 0 {
				t.Errorf("%s: no rows\n%s", where, sql)
			}
			for n, x := range firstOf(a.rows) {
				if x == nil || reflect.ValueOf(x).Kind() == reflect.Pointer {
					t.Errorf("%s: %s has no value", where, n)
				}
			}
		})
	}
	t.Run("annotations", func(t *testing.T) { annotations(t, s.Engine) })
	t.Run("variables", func(t *testing.T) { variables(t, s.Engine) })
	t.Run("figures", func(t *testing.T) { figures(t, s) })
	t.Run("states", func(t *testing.T) { states(t, s) })
}

// states makes the states of runs, of a day after the other and of parts of days: what boards say
// of runs stays as it is without them.
func states(t *testing.T, s made) {
	all := func() map[string]string {
		out := map[string]string{}
		for name, v := range map[string]View{"whole": whole(), "narrow": narrow()} {
			statements(t, func(where string, p *panel, q target) {
				if !strings.Contains(q.SQL, "run_states") {
					return
				}
				a := answered(t, s.Engine, q, v)
				text, err := json.Marshal(a.rows)
				if err != nil {
					t.Fatal(err)
				}
				out[where+" ("+name+", "+p.Type+")"] = string(text)
			})
		}
		return out
	}
	want := all()
	if len(want) < 20 {
		t.Fatalf("%d questions about runs", len(want))
	}
	for _, days := range []float64{0, 0.7, 1, 1.4, 9} {
		through := firstDay.Add(time.Duration(days * float64(24*time.Hour)))
		for folded := true; folded; {
			var err error
			if _, folded, err = schema.FoldRuns(t.Context(), s.Conn(), through); err != nil {
				t.Fatal(err)
			}
		}
		open, err := schema.FoldOpenRuns(t.Context(), s.Conn(), through, 1)
		if err != nil || open != (days < 9) {
			t.Fatalf("states of the day of %s: %t, %v", through, open, err)
		}
		for where, got := range all() {
			if got != want[where] {
				t.Errorf("%s with states through %s:\ngot  %s\nwant %s", where, through, got, want[where])
			}
		}
	}
}

func firstOf(rows []map[string]any) map[string]any {
	if len(rows) == 0 {
		return nil
	}
	return rows[0]
}

// annotations are what guards and the kill switch did, once each, without what only warned.
func annotations(t *testing.T, e *engine.Engine) {
	found := 0
	for _, b := range boards(t) {
		for _, x := range b.Annotations.List {
			if x.Target.SQL == "" {
				continue
			}
			found++
			sql, err := Expand(x.Target.SQL, whole())
			if err != nil {
				t.Fatalf("%s, %s: %v", b.file, x.Name, err)
			}
			a, err := ask(t, e, sql)
			if err != nil || !slices.Equal(a.names, []string{"time", "title", "text", "tags"}) || !strings.HasPrefix(a.types[0], "DateTime") || len(a.rows) != 24 {
				t.Errorf("%s, %s: %v, columns %v, %d rows, want 24\n%s", b.file, x.Name, err, a.names, len(a.rows), sql)
				continue
			}
			equal := a.rows[0]["title"] == "user-day directive soft_block: user u'3" && a.rows[0]["text"] == "it's over" && a.rows[1]["tags"] == "kill,kill"
			if !equal {
				t.Errorf("%s, %s: %v %v", b.file, x.Name, a.rows[0], a.rows[1])
			}
		}
	}
	if found != 3 {
		t.Errorf("%d boards have annotations from ClickHouse, want 3", found)
	}
}

// variables runs the queries that offer values.
func variables(t *testing.T, e *engine.Engine) {
	for _, b := range boards(t) {
		for _, x := range b.Templating.List {
			var q struct {
				SQL string `json:"rawSql"`
			}
			if x.Type != "query" || json.Unmarshal(x.Query, &q) != nil || q.SQL == "" {
				continue
			}
			sql, err := Expand(q.SQL, whole())
			if err != nil {
				t.Errorf("%s, variable %s: %v", b.file, x.Name, err)
				continue
			}
			a, err := ask(t, e, sql)
			if err != nil || len(a.names) != 1 || len(a.rows) < 2 {
				t.Errorf("%s, variable %s: %v, columns %v, %d values\n%s", b.file, x.Name, err, a.names, len(a.rows), sql)
			}
		}
	}
}

// figures compares what boards say with sums over the entries.
func figures(t *testing.T, s made) {
	one := func(file, title string, v View) map[string]any {
		t.Helper()
		var out map[string]any
		statements(t, func(where string, p *panel, q target) {
			if where != file+", "+title || p.Type != "stat" {
				return
			}
			a := answered(t, s.Engine, q, v)
			out = a.rows[0]
		})
		if out == nil {
			t.Fatalf("%s has no number %s", file, title)
		}
		return out
	}
	near := func(what string, got any, want float64) {
		t.Helper()
		g, ok := got.(float64)
		if !ok {
			g = float64(reflect.ValueOf(got).Convert(reflect.TypeFor[int64]()).Int())
		}
		if math.Abs(g-want) > 1e-9*max(1, math.Abs(want)) {
			t.Errorf("%s: the board says %v, the entries %v", what, got, want)
		}
	}
	usd := func(pico int64) float64 { return float64(pico) / schema.PicoPerUSD }

	type sums struct{ cost, wasted, unpriced, unknown, again, inTime, later, asOf int64 }
	sum := func(keep func(*schema.Entry) bool) (x sums) {
		for i := range s.entries {
			e := &s.entries[i]
			if !keep(e) {
				continue
			}
			p, n := &e.Posting, int64(e.Sign)
			x.wasted += n * int64(p.Wasted)
			x.again += n * int64(p.Retries+p.Hidden)
			switch p.Status {
			case schema.CostUnpriced:
				x.unpriced += n
			case schema.CostUnknown:
				x.unknown += n
			default:
				x.cost += n * int64(p.Cost)
				day := time.Unix(0, e.Start).UTC().Truncate(24 * time.Hour)
				booked := time.UnixMicro(e.RecordedAt).UTC().Truncate(24 * time.Hour)
				if booked.After(day.AddDate(0, 0, 1)) {
					x.later += n * int64(p.Cost)
				} else {
					x.inTime += n * int64(p.Cost)
				}
				if !booked.After(time.Date(2026, 3, 12, 0, 0, 0, 0, time.UTC)) {
					x.asOf += n * int64(p.Cost)
				}
			}
		}
		return x
	}
	everything := sum(func(*schema.Entry) bool { return true })
	if everything.later == 0 || everything.asOf == everything.cost {
		t.Fatal("BUG: the store has no late correction")
	}
	near("spend", one("spend.json", "Spend", whole())["spend"], usd(everything.cost))
	near("without a price", one("spend.json", "Calls without a price", whole())["no_price"], float64(everything.unpriced))
	near("of unknown usage", one("spend.json", "Calls of unknown usage", whole())["no_usage"], float64(everything.unknown))
	near("wasted", one("spend.json", "Wasted on retries", whole())["waste"], usd(everything.wasted))
	near("retries", one("amplification.json", "Retries", whole())["again"], float64(everything.again))
	near("booked in time", one("close.json", "Booked in time", whole())["spend"], usd(everything.inTime))
	near("booked later", one("close.json", "Booked later", whole())["spend"], usd(everything.later))
	asOf := whole()
	asOf.Vars["as_of"] = []string{"2026-03-12"}
	near("as of", one("close.json", "Spend", asOf)["spend"], usd(everything.asOf))
	near("changed since", one("close.json", "Changed since As of", asOf)["spend"], usd(everything.cost-everything.asOf))

	v := narrow()
	part := sum(func(e *schema.Entry) bool {
		id := &e.Posting.Identity
		return slices.Contains([]string{"t-1", "t-2"}, e.Tenant) && slices.Contains([]string{"quote", ""}, id[schema.Feature]) && slices.Contains([]string{"c'x", "m-5"}, e.Model) && id[schema.Environment] == "prod" &&
			e.Start >= v.From.Truncate(15*time.Minute).UnixNano() && e.Start < v.To.UnixNano()
	})
	if part.cost == 0 {
		t.Fatal("BUG: the narrow view is empty")
	}
	near("spend of some", one("spend.json", "Spend", v)["spend"], usd(part.cost))

	// Work over requests, of runs with a model call.
	type run struct{ work, models, logical, cost, wasted int64 }
	runs := map[string]*run{}
	for i := range s.entries {
		e := &s.entries[i]
		key := e.Tenant + "/" + e.Posting.Identity[schema.Run]
		if runs[key] == nil {
			runs[key] = &run{}
		}
		p, n, r := &e.Posting, int64(e.Sign), runs[key]
		r.models += n * int64(p.ModelCalls)
		r.logical += n * int64(p.ModelCalls+p.ToolCalls)
		r.work += n * int64(p.ModelCalls+p.ToolCalls+p.Retries+p.Hidden+p.Fallbacks+p.Hedges)
		r.wasted += n * int64(p.Wasted)
		if p.Billed() {
			r.cost += n * int64(p.Cost)
		}
	}
	var work, logical, requests, cost, wasted float64
	for _, r := range runs {
		if r.models > 0 {
			work, logical, requests, cost, wasted = work+float64(r.work), logical+float64(r.logical), requests+1, cost+usd(r.cost), wasted+usd(r.wasted)
		}
	}
	near("requests", one("amplification.json", "Requests", whole())["requests"], requests)
	near("amplification", one("amplification.json", "Amplification", whole())["ratio"], work/requests)
	near("retry multiplier", one("amplification.json", "Retry multiplier", whole())["multiplier"], work/logical)
	near("cost amplification", one("amplification.json", "Cost amplification", whole())["amplified"], cost/(cost-wasted))
	near("spend per request", one("spend.json", "Spend per request", whole())["each"], cost/requests)

	near("attempts that were rate limited", one("limiters.json", "Rate limited", whole())["part"], s.seen.limited/s.seen.attempts)
	near("retries for each request", one("limiters.json", "Retries for each request", whole())["each"], s.seen.retries/(s.seen.attempts-s.seen.retries))
	near("time in queue", one("limiters.json", "Time in queue", whole())["mean"], s.seen.waited/s.seen.waits)
	statements(t, func(where string, p *panel, q target) {
		if where != "limiters.json, Time in queue" || p.Type != "timeseries" {
			return
		}
		a := answered(t, s.Engine, q, whole())
		for _, r := range a.rows {
			near("median wait", r["p50"], 0.1)
			near("longest wait", r["p99"], 1)
		}
	})
	near("emptiest bucket", one("limiters.json", "Emptiest bucket", whole())["part"], 0.25)
	near("open breakers", one("limiters.json", "Open breakers", whole())["open"], 1)
	near("limiters that report", one("limiters.json", "Limiters that report", whole())["limiters"], 2)

	t.Run("exact", func(t *testing.T) {
		statements(t, func(where string, p *panel, q target) {
			if where != "close.json, By tenant, provider and model" {
				return
			}
			a := answered(t, s.Engine, q, whole())
			total := new(big.Rat)
			for _, r := range a.rows {
				x, ok := new(big.Rat).SetString(r["exact"].(string))
				if !ok {
					t.Fatalf("%v is no decimal number", r["exact"])
				}
				total.Add(total, x)
			}
			if want := big.NewRat(everything.cost, schema.PicoPerUSD); total.Cmp(want) != 0 {
				t.Errorf("exact spend is %s, the entries say %s", total.FloatString(12), want.FloatString(12))
			}
		})
	})
	t.Run("trace", func(t *testing.T) {
		statements(t, func(where string, p *panel, q target) {
			if where != "amplification.json, Worst runs" {
				return
			}
			a := answered(t, s.Engine, q, whole())
			for _, r := range a.rows {
				var n int
				if _, err := fmt.Sscanf(r["run_id"].(string), "run/%d", &n); err != nil {
					t.Fatal(err)
				}
				if want := (schema.TraceID{0: 1, 14: byte(n >> 8), 15: byte(n)}).String(); r["trace_id"] != want {
					t.Errorf("%s began in the trace %s, the board says %v", r["run_id"], want, r["trace_id"])
				}
			}
		})
	})
}
