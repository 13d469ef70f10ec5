// Command query measures what a running service answers and how fast: the questions of
// the HTTP API and the SQL of every Grafana panel, for a day and for ninety, of one
// tenant and of all. query.sh runs it over a past made by load fill.
//
// It asks one after another, and nobody else may ask at the same time: rows read are
// the engine's counter before and after, and so is CPU, which other work on the machine
// disturbs less than time; memory is the highest resident size of the
// engine's process meanwhile. It refuses anything but loopback.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/flyball/flyball/dashboards"
	"github.com/flyball/flyball/schema"
)

func main() {
	m := &measurer{client: http.Client{Timeout: 2 * time.Minute}}
	only := ""
	flag.StringVar(&m.api, "http", "http://127.0.0.1:8080", "`URL` of the service's API")
	flag.StringVar(&m.sql, "clickhouse", "http://127.0.0.1:8123", "`URL` of its read-only SQL")
	flag.IntVar(&m.engine, "engine", 0, "`pid` of the engine, to measure its memory; 0 measures none")
	flag.StringVar(&m.tenant, "tenant", "tenant-000", "the tenant of questions about one")
	until := flag.String("until", "", "`instant` at which the data ends, RFC 3339 (default: that of the last entry)")
	flag.IntVar(&m.times, "times", 20, "how often each question is asked, fewer where that takes longer than --budget")
	flag.DurationVar(&m.budget, "budget", 8*time.Second, "for how long one question is repeated")
	flag.StringVar(&only, "only", "", "a regular `expression`: ask only what it matches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := m.run(ctx, *until, only); err != nil {
		fmt.Fprintln(os.Stderr, "query: "+err.Error())
		os.Exit(1)
	}
}

type measurer struct {
	client      http.Client
	api, sql    string
	engine      int
	tenant      string
	times       int
	budget      time.Duration
	until       time.Time
	only        *regexp.Regexp
	slow, asked int
}

// span is a time that is asked about, and what is wanted of one tenant and of all.
type span struct {
	name     string
	length   time.Duration
	one, all time.Duration
}

var spans = []span{
	{"24 h", 24 * time.Hour, 300 * time.Millisecond, 300 * time.Millisecond},
	{"90 d", 90 * 24 * time.Hour, time.Second, 5 * time.Second},
}

func (m *measurer) run(ctx context.Context, until, only string) error {
	for _, u := range []string{m.api, m.sql} {
		if p, err := url.Parse(u); err != nil || !schema.Loopback(p.Host) {
			return errors.New("only loopback is measured")
		}
	}
	var err error
	if m.only, err = regexp.Compile(only); err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	if until == "" {
		text, err := m.text(ctx, "SELECT formatDateTime(toStartOfInterval(max(recorded_at), INTERVAL 15 MINUTE) + INTERVAL 15 MINUTE, '%Y-%m-%dT%H:%i:%SZ', 'UTC') FROM journal")
		if err != nil {
			return err
		}
		until = text
	}
	if m.until, err = time.Parse(time.RFC3339, until); err != nil {
		return fmt.Errorf("--until %q: want RFC 3339", until)
	}
	if err := m.sizes(ctx); err != nil {
		return err
	}
	fmt.Printf("\n%-62s %-4s %-4s %3s %9s %9s %9s %9s %9s %12s %10s\n", "what", "time", "of", "n", "first ms", "p50 ms", "p95 ms", "max ms", "cpu ms", "rows read", "memory MiB")
	statements, err := dashboards.Statements()
	if err != nil {
		return err
	}
	for _, s := range spans {
		for _, tenant := range []string{m.tenant, ""} {
			want := s.one
			if tenant == "" {
				want = s.all
			}
			if err := m.questions(ctx, s, tenant, want); err != nil {
				return err
			}
			for _, st := range statements {
				sql, err := dashboards.Expand(st.SQL, m.view(s, tenant))
				if err != nil {
					return fmt.Errorf("%s, %s: %w", st.Board, st.Panel, err)
				}
				if err := m.ask(ctx, "panel "+st.Board+": "+st.Panel, s.name, tenant, want, m.sql, sql); err != nil {
					return err
				}
			}
		}
	}
	fmt.Printf("\n%d of %d took longer than wanted at p95 (*)\n", m.slow, m.asked)
	return nil
}

// view is what a board shows when the time and the tenant were chosen, and nothing else.
func (m *measurer) view(s span, tenant string) dashboards.View {
	points := 15 * time.Minute
	if s.length > 7*24*time.Hour {
		points = 6 * time.Hour
	}
	v := dashboards.View{From: m.until.Add(-s.length), To: m.until, Interval: points, Vars: map[string][]string{"top": {"10"}, "grace": {"1"}, "as_of": {""}}}
	for _, name := range []string{"tenant", "feature", "model", "environment", "provider"} {
		v.Vars[name] = []string{dashboards.All}
	}
	if tenant != "" {
		v.Vars["tenant"] = []string{tenant}
	}
	return v
}

// questions asks the API.
func (m *measurer) questions(ctx context.Context, s span, tenant string, want time.Duration) error {
	from, to := m.until.Add(-s.length), m.until
	path := func(name string, parameters ...string) string {
		q := url.Values{"from": {from.Format(time.RFC3339)}, "to": {to.Format(time.RFC3339)}}
		if tenant != "" {
			q.Set("tenant", tenant)
		}
		for i := 0; i < len(parameters); i += 2 {
			q.Set(parameters[i], parameters[i+1])
		}
		return m.api + "/api/v1/" + name + "?" + q.Encode()
	}
	points := "1h"
	if s.length > 7*24*time.Hour {
		points = "1d"
	}
	half := m.until.Add(-s.length / 2)
	list := [][]string{}
	for _, g := range []string{"tenant", "provider,model", "feature", "workflow,workflow_version", "agent", "user", "kind", "environment"} {
		list = append(list, []string{"spend", "group_by", g})
	}
	list = append(list, []string{"spend", "group_by", "tenant", "interval", points}, []string{"spend", "group_by", "model", "interval", points}, []string{"spend", "group_by", "tenant", "model", "gpt-5-2025-08-07"})
	for _, g := range []string{"", "tenant", "workflow", "workflow,workflow_version", "feature", "user", "model", "retry_layer", "failure", "workflow,model"} {
		list = append(list, []string{"amplification", "group_by", g})
	}
	for _, g := range []string{"layer,failure", "provider,model", "workflow"} {
		list = append(list, []string{"retries", "group_by", g})
	}
	list = append(list, []string{"coverage"}, []string{"runs"}, []string{"runs", "workflow", "support-answer"}, []string{"calls"}, []string{"calls", "failure", "timeout"},
		[]string{"movers", "group_by", "workflow", "from", half.Format(time.RFC3339)}, []string{"movers", "group_by", "model", "from", half.Format(time.RFC3339)})
	for _, q := range list {
		if err := m.ask(ctx, strings.TrimSpace("api "+strings.Join(q, " ")), s.name, tenant, want, path(q[0], q[1:]...), ""); err != nil {
			return err
		}
	}
	if s.length > 7*24*time.Hour {
		// A month is asked for by itself: the last whole one.
		end := time.Date(m.until.Year(), m.until.Month(), 1, 0, 0, 0, 0, time.UTC)
		from, to = end.AddDate(0, -1, 0), end
		period := url.Values{"period": {from.Format("2006-01")}}
		if tenant != "" {
			period.Set("tenant", tenant)
		}
		if err := m.ask(ctx, "api close", "1 mo", tenant, want, m.api+"/api/v1/close?"+period.Encode(), ""); err != nil {
			return err
		}
		return m.ask(ctx, "api export/focus", "1 mo", tenant, want, path("export/focus"), "")
	}
	run, err := m.text(ctx, fmt.Sprintf("SELECT tenant || '\t' || run_id FROM runs WHERE booked_on >= '%s' AND model_calls BETWEEN 8 AND 12 AND %s LIMIT 1 FORMAT TSVRaw", from.Format(time.DateOnly), condition(tenant)))
	if err != nil {
		return err
	}
	owner, id, ok := strings.Cut(run, "\t")
	if !ok {
		return fmt.Errorf("find a run: got %q", run)
	}
	return m.ask(ctx, "api runs/{run_id}", "", tenant, want, m.api+"/api/v1/runs/"+url.PathEscape(id)+"?tenant="+url.QueryEscape(owner), "")
}

func condition(tenant string) string {
	if tenant == "" {
		return "1"
	}
	return "tenant = '" + tenant + "'"
}

// ask repeats a question, or a statement where sql is set, and prints a row.
func (m *measurer) ask(ctx context.Context, what, period, tenant string, want time.Duration, address, sql string) error {
	of := "all"
	if tenant != "" {
		of = "one"
	}
	if !m.only.MatchString(what + " " + period + " " + of) {
		return nil
	}
	m.forget()
	rows, cpu, err := m.counters(ctx)
	if err != nil {
		return err
	}
	var took []time.Duration
	refused := ""
	for began := time.Now(); len(took) < m.times && (len(took) == 0 || time.Since(began) < m.budget); {
		start := time.Now()
		body, status, err := m.get(ctx, address, sql)
		if err != nil {
			return err
		}
		took = append(took, time.Since(start))
		if status != http.StatusOK {
			refused = fmt.Sprintf("  %d %s", status, bytes.TrimSpace(body[:min(len(body), 200)]))
			break
		}
	}
	rowsAfter, cpuAfter, err := m.counters(ctx)
	if err != nil {
		return err
	}
	first := took[0]
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[max(0, int(math.Ceil(q*float64(len(took))))-1)] }
	mark := ""
	m.asked++
	if at(0.95) > want || refused != "" {
		mark = " *"
		m.slow++
	}
	ms := func(d time.Duration) string { return strconv.FormatFloat(float64(d)/1e6, 'f', 1, 64) }
	n := int64(len(took))
	fmt.Printf("%-62s %-4s %-4s %3d %9s %9s %9s %9s %9d %12d %10s%s%s\n", what, period, of, n, ms(first), ms(at(0.5)), ms(at(0.95)), ms(took[n-1]), (cpuAfter-cpu)/n/1000, (rowsAfter-rows)/n, m.memory(), mark, refused)
	return nil
}

// get asks the API with GET, the engine with POST, and reads all of the answer.
func (m *measurer) get(ctx context.Context, address, sql string) ([]byte, int, error) {
	method := http.MethodGet
	if sql != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(sql))
	if err != nil {
		return nil, 0, fmt.Errorf("make request: %w", err)
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("ask: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, 0, fmt.Errorf("read answer: %w", err)
	}
	return body, resp.StatusCode, nil
}

// text is the answer to a statement that has one value.
func (m *measurer) text(ctx context.Context, sql string) (string, error) {
	body, status, err := m.get(ctx, m.sql, sql)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("ask the engine: %d %s", status, body)
	}
	return strings.TrimSpace(string(body)), err
}

// counters are how many rows the engine has read since it started, and how many
// microseconds of CPU it has taken for statements.
func (m *measurer) counters(ctx context.Context) (rows, cpu int64, err error) {
	text, err := m.text(ctx, "SELECT sumIf(value, event = 'SelectedRows'), sumIf(value, event = 'UserTimeMicroseconds') FROM system.events")
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscan(text, &rows, &cpu); err != nil {
		return 0, 0, fmt.Errorf("read the engine's counters: %w", err)
	}
	return rows, cpu, nil
}

// forget makes the highest resident size of the engine what it is now.
func (m *measurer) forget() {
	if m.engine > 0 {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.engine), []byte("5"), 0)
	}
}

var highest = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

func (m *measurer) memory() string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.engine))
	found := highest.FindSubmatch(text)
	if err != nil || found == nil {
		return "-"
	}
	kb, _ := strconv.Atoi(string(found[1]))
	return strconv.Itoa(kb >> 10)
}

// sizes prints what the data takes on disk.
func (m *measurer) sizes(ctx context.Context) error {
	text, err := m.text(ctx, `SELECT table, sum(rows) AS rows, sum(bytes_on_disk) AS bytes, count() AS parts FROM system.parts WHERE active AND database = currentDatabase() GROUP BY table ORDER BY bytes DESC FORMAT JSONEachRow SETTINGS output_format_json_quote_64bit_integers = 0`)
	if err != nil {
		return err
	}
	var journal, rest float64
	fmt.Printf("%-20s %12s %14s %6s %20s\n", "table", "rows", "bytes on disk", "parts", "bytes a journal row")
	var rows float64
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var t struct {
			Table       string
			Rows, Bytes float64
			Parts       int
		}
		if err := d.Decode(&t); err != nil {
			return fmt.Errorf("read sizes: %w", err)
		}
		if t.Table == "journal" {
			journal, rows = t.Bytes, t.Rows
		} else {
			rest += t.Bytes
		}
		fmt.Printf("%-20s %12.0f %14.0f %6d %20.1f\n", t.Table, t.Rows, t.Bytes, t.Parts, t.Bytes/max(rows, 1))
	}
	fmt.Printf("everything but the journal is %.1f %% of it; the data ends at %s\n", 100*rest/max(journal, 1), m.until.Format(time.RFC3339))
	return nil
}
