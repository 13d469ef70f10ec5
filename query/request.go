package query

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/schema"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var queries = template.Must(template.Must(template.New("").Option("missingkey=error").Parse(schema.ChangedRunsSQL)).ParseFS(sqlFiles, "sql/*.sql"))

// dimensions are the columns that spend may be grouped and filtered by. The
// tenant stands first in each list: it is no filter, the credential binds it.
var dimensions = []string{"tenant", "user", "feature", "workflow", "workflow_version", "agent", "model", "provider", "environment", "mode", "criticality", "kind", "retry_layer", "failure"}

// runDimensions are those that a run has, callDimensions those that only its calls have.
var (
	runDimensions  = []string{"tenant", "user", "feature", "workflow", "workflow_version", "agent", "environment", "mode", "criticality"}
	callDimensions = []string{"model", "provider", "kind", "retry_layer", "failure"}
)

// retryDimensions: here the failure is the one that caused the retry.
var retryDimensions = []string{"tenant", "layer", "failure", "user", "feature", "workflow", "workflow_version", "agent", "model", "provider", "environment", "mode", "criticality", "kind"}

// request is what every question has: who asks, and for which time.
type request struct {
	*gin.Context
	conn     driver.Conn
	all      bool     // every tenant
	tenants  []string // else these
	from, to time.Time
	limit    int
	offset   int        // rows of earlier pages
	after    *runCursor // the last run of the earlier pages
	asOf     asOf       // what is asked for is what was known then
	zone     *time.Location
	csv      bool     // the answer is a CSV file
	tagged   bool     // the answer has an ETag
	columns  []string // of the CSV file; a name with a dot lies in an object
}

// takes refuses parameters that would be ignored.
func (r *request) takes(names []string) error {
	for name, why := range noParam[strings.TrimPrefix(r.FullPath(), "/api/v1/")] {
		if !slices.Contains(names, name) && r.Request.URL.Query().Has(name) {
			return badRequest("%s: %s", name, why)
		}
	}
	if r.Request.URL.Query().Has("currency") && !slices.Contains(names, "currency") {
		return badRequest("currency: this answer is in USD; spend, movers, retries, cache, batch, close and export/focus have other currencies")
	}
	if err := schema.CheckParams(r.Request.URL.Query(), names, "tenant"); err != nil {
		return badRequest("%v", err)
	}
	return nil
}

// noParam says by path why there is no parameter that others have.
var noParam = map[string]map[string]string{
	"reconcile":           {"as_of": "a comparison stays as it was made; POST compares a bill with what was known then"},
	"enforcement":         {"as_of": "what happened is stamped with its time and never corrected; to= is what was known then"},
	"enforcement/leakage": {"as_of": "what leaked is stamped with the time at which it was noticed and never corrected; to= is what was known then"},
	"enforcement/times":   {"as_of": "what was measured is stamped with its time and never corrected; to= is what was known then"},
}

// rows reads limit.
func (r *request) rows(l limits) error {
	r.limit = l.usual
	if v := r.Query("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > l.most {
			return badRequest("limit %q: want a number from 1 to %d", v, l.most)
		}
		r.limit = n
	}
	return nil
}

// times reads from and to. Without them the time is the last day, and as much of
// the future as a call's clock may be ahead; with one of them, it counts from there.
func (r *request) times(now time.Time) error {
	from, err := r.instant("from")
	if err != nil {
		return err
	}
	to, err := r.instant("to")
	if err != nil {
		return err
	}
	r.from, r.to = now.Add(-24*time.Hour), now.Add(15*time.Minute)
	if to != nil {
		r.from, r.to = to.Add(-24*time.Hour), *to
	}
	if from != nil {
		r.from = *from
	}
	if !r.from.Before(r.to) {
		return badRequest("from %s is not before to %s", r.from.Format(time.RFC3339), r.to.Format(time.RFC3339))
	}
	return nil
}

func (r *request) instant(name string) (*time.Time, error) {
	v := r.Query(name)
	if v == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		now := time.Now().In(r.zone)
		day, derr := time.Parse(time.DateOnly, v)
		switch {
		case derr == nil:
		case v == "month":
			day = time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
		case v == "last-month":
			day = time.Date(now.Year(), now.Month()-1, 1, 0, 0, 0, 0, time.UTC)
		default:
			return nil, badRequest("%s %q: want RFC 3339 or a date, e.g. 2026-11-29T10:00:00Z or 2026-11-29, or month or last-month, where those begin", name, v)
		}
		t = schema.StartOfDay(day, r.zone)
	}
	// What ClickHouse's DateTime can hold, with a margin for rounding.
	if t.Year() < 1971 || t.Year() > 2105 {
		return nil, badRequest("%s %q: want a year from 1971 to 2105", name, v)
	}
	return &t, nil
}

// quarters widens the time to whole quarters of an hour, which the rollups are made of.
func (r *request) quarters() {
	const q = 15 * time.Minute
	r.from = r.from.UTC().Truncate(q)
	r.to = r.to.UTC().Add(q - time.Nanosecond).Truncate(q)
}

// groups reads group_by.
func (r *request) groups(allowed []string, byDefault string) ([]string, error) {
	text, ok := r.GetQuery("group_by")
	if !ok {
		text = byDefault
	}
	out := []string{}
	for _, g := range strings.Split(text, ",") {
		if g = strings.TrimSpace(g); g == "" {
			continue
		}
		if !slices.Contains(allowed, g) {
			return nil, badRequest("group_by %q: want any of %s", g, strings.Join(allowed, ", "))
		}
		if !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out, nil
}

// needs are the dimensions that a statement has to carry: those of groups, and those that are filtered by.
func (r *request) needs(groups, dimensions []string) []string {
	out := []string{}
	for _, d := range dimensions {
		if _, filtered := r.GetQuery(d); filtered && d != "tenant" || slices.Contains(groups, d) {
			out = append(out, d)
		}
	}
	return out
}

// question is one statement: what its template is rendered with, and what it binds.
type question struct {
	vars map[string]any
	args []any
}

// question starts one. Tenants is the clause every table is read with. Allowed
// is the same once more and stands outside of it, in a throwIf over the rows that
// are about to be answered: it costs a comparison for each row that was read
// anyway, and turns a template that forgot a Tenants, or a filter that got around
// it, into an error instead of another tenant's figures. It is outside because
// ClickHouse may evaluate conditions of one WHERE in any order.
func (r *request) question() *question {
	q := &question{vars: map[string]any{"Filter": "1", "RunFilter": "1", "Folded": "", "Open": "", "Until": "", "Part": "", "Within": "", "Window": "1", "After": false, "Known": false, "KnownDay": false, "KnownRuns": false, "FX": false, "Base": false, "FXCost": "s.cost", "Lines": "1", "At": "toDateTime(0, 'UTC')", "Info": runDimensions[1:]}}
	clause := "1"
	if !r.all {
		names := make([]string, len(r.tenants))
		for i, t := range r.tenants {
			names[i] = q.bind(fmt.Sprintf("tenant_%d", i), "String", t)
		}
		clause = "0"
		if len(names) > 0 {
			clause = "tenant IN (" + strings.Join(names, ", ") + ")"
		}
	}
	q.vars["Tenants"], q.vars["Allowed"] = clause, clause
	return q
}

// bind binds a value and returns the SQL that stands for it.
func (q *question) bind(name, typ string, value string) string {
	q.args = append(q.args, clickhouse.Named(name, value))
	return "{" + name + ":" + typ + "}"
}

const (
	clickhouseSeconds = "2006-01-02 15:04:05"
	clickhouseMicros  = "2006-01-02 15:04:05.000000"
	clickhouseNanos   = "2006-01-02 15:04:05.000000000"
)

// filter turns dimension parameters into conditions on columns of that name.
// Names come from the list, values are bound.
func (q *question) filter(r *request, names []string) string {
	cond := "1"
	for _, d := range names {
		if v, ok := r.GetQuery(d); ok && d != "tenant" {
			cond += " AND toString(" + d + ") = " + q.bind("f_"+d, "String", v)
		}
	}
	return cond
}

// ask renders the named template and runs it.
func (a *API) ask(ctx context.Context, r *request, name string, q *question, each func(get func(string) any)) error {
	var sql bytes.Buffer
	if q.vars["Known"] == true {
		if err := queries.ExecuteTemplate(&sql, "known", q.vars); err != nil {
			return fmt.Errorf("render %s: %w", name, err)
		}
	}
	if err := queries.ExecuteTemplate(&sql, name, q.vars); err != nil {
		return fmt.Errorf("render %s: %w", name, err)
	}
	rows, err := r.conn.Query(ctx, sql.String(), q.args...)
	if err != nil {
		return fmt.Errorf("query %s: %w", name, err)
	}
	if err := scan(rows, each); err != nil {
		return fmt.Errorf("query %s: %w", name, err)
	}
	return nil
}

// row is one row of an answer, in JSON's own words.
type row = map[string]any

// sums answers a page of a statement whose rows are sums by groups and, if one is
// asked for, interval; each makes the columns of a row.
func (a *API) sums(ctx context.Context, r *request, name string, q *question, groups, columns []string, each func(get func(string) any) row) (row, error) {
	q.vars["Groups"] = groups
	q.paging(r, r.limit+1)
	_, timed := r.GetQuery("interval")
	r.columns = slices.Clone(groups)
	if timed {
		r.columns = append(r.columns, "at")
	}
	r.columns = append(r.columns, columns...)
	out := []row{}
	err := a.ask(ctx, r, name, q, func(get func(string) any) {
		m := each(get)
		for _, g := range groups {
			m[g] = get(g)
		}
		if timed {
			m["at"] = get("at").(time.Time).In(r.zone).Format(time.RFC3339)
		}
		out = append(out, m)
	})
	if err != nil {
		return nil, err
	}
	more := len(out) > r.limit
	return r.answer(row{"rows": out[:min(len(out), r.limit)], "truncated": more, "next": r.next(r.limit, more)}), nil
}

// share is a quotient of counts, nil where there is nothing to be a part of.
func share(part, whole int64) any {
	if whole == 0 {
		return nil
	}
	return float64(part) / float64(whole)
}

// scan reads rows of any shape; get is for the time of the call.
func scan(rows driver.Rows, each func(get func(string) any)) error {
	defer rows.Close()
	types := rows.ColumnTypes()
	values := make([]any, len(types))
	index := make(map[string]int, len(types))
	for i, t := range types {
		index[t.Name()] = i
	}
	get := func(name string) any {
		i, ok := index[name]
		if !ok {
			panic("BUG: no column " + name)
		}
		return deref(values[i])
	}
	for rows.Next() {
		for i, t := range types {
			values[i] = newValue(t.ScanType().String())
		}
		if err := rows.Scan(values...); err != nil {
			return fmt.Errorf("read row: %w", err)
		}
		each(get)
	}
	return rows.Err()
}

func newValue(t string) any {
	switch t {
	case "string":
		return new(string)
	case "uint8":
		return new(uint8)
	case "uint16":
		return new(uint16)
	case "uint32":
		return new(uint32)
	case "uint64":
		return new(uint64)
	case "int8":
		return new(int8)
	case "int64":
		return new(int64)
	case "*int64":
		return new(*int64)
	case "big.Int", "*big.Int":
		return new(big.Int)
	case "time.Time":
		return new(time.Time)
	case "[]float64":
		return new([]float64)
	case "[]int64":
		return new([]int64)
	}
	panic("BUG: query does not know the type " + t)
}

func deref(v any) any {
	switch v := v.(type) {
	case *string:
		return *v
	case *uint8:
		return *v
	case *uint16:
		return *v
	case *uint32:
		return *v
	case *uint64:
		return *v
	case *int8:
		return *v
	case *int64:
		return *v
	case **int64:
		return *v
	case *time.Time:
		return *v
	case *[]float64:
		return *v
	case *[]int64:
		return *v
	}
	return v
}

func usd(v any) string {
	s, err := schema.SumFromBig(v.(*big.Int))
	if err != nil {
		panic("BUG: a sum of Int128 is beyond 127 bits")
	}
	return s.String()
}

func stamp(v any) string { return v.(time.Time).UTC().Format(time.RFC3339Nano) }

func tokens(get func(string) any) row {
	m := row{}
	for _, n := range schema.TokenNames {
		m[n] = get("tok_" + n)
	}
	return m
}
