package query
import ("testing";"time";"os";"strings";"fmt")
func TestTmp(t *testing.T) {
	if os.Getenv("TMPBIG") == "" { t.Skip() }
	s := newStore(t)
	c := s.e.Conn()
	var qs []string
	for _, q := range []string{
	`INSERT INTO journal (tenant, trace_id, span_id, part, sign, version, recorded_at, started_at, parent_span_id, run_id, kind, provider, model, user, feature, workflow, cost_status, cost, model_calls, attempt, currency, criticality, mode, tok_input, hidden_attempts, hidden_cause, tool_effect)
	 SELECT concat('t-', toString(number % 5)), toFixedString(unhex(hex(concat('xxxxxxxx', leftPad(toString(intDiv(number, 20)), 8, '0')))), 16), toFixedString(leftPad(toString(number % 20 + 1), 8, '0'), 8), 0, 1, 1,
	   toDateTime64('2026-03-10 00:00:01', 6, 'UTC') + number * 0.04, toDateTime64('2026-03-10 00:00:00', 9, 'UTC') + number * 0.04, if(number % 20 = 0, toFixedString('', 8), toFixedString('00000001', 8)), lower(hex(concat('xxxxxxxx', leftPad(toString(intDiv(number, 20)), 8, '0')))), 'model', 'openai', concat('m-', toString(number % 7)), concat('u-', toString(number % 10000)), 'f', concat('w-', toString(number % 30)), 'priced', 1000000000, 1, 1, 'USD', 'standard', 'interactive', 100, number % 10 = 0, if(number % 10 = 0, 'rate_limited', ''), if(number % 5 = 0, 'write', 'unknown')
	 FROM numbers(OFF, 100000)`,
	`INSERT INTO run_info (tenant, run_id, version, started_at, ended_at, status, workflow) SELECT tenant, run_id, 1, min(started_at), max(started_at), 'succeeded', any(workflow) FROM journal GROUP BY tenant, run_id`,
	} {
		if strings.Contains(q, "OFF") { for i := range 20 { qs = append(qs, strings.ReplaceAll(q, "OFF", fmt.Sprint(i*100000))) } } else { qs = append(qs, q) }
	}
	for _, q := range qs {
		t0 := time.Now()
		if err := c.Exec(t.Context(), q); err != nil { t.Fatal(err) }
		_ = t0
	}
	run := ""
	m := s.get("/api/v1/runs?limit=1&" + during)
	run = list(m["rows"])[0]["run_id"].(string)
	for _, p := range append(questions(run), "/api/v1/calls?trace_id="+run, "/api/v1/calls?tenant=t-1&limit=1000&"+during, "/api/v1/spend?group_by=user,model&"+during,"/api/v1/runs/"+run+"?tenant=t-1") {
		t0 := time.Now()
		st, _, b := s.do(p, "")
		t.Log(p, st, len(b), time.Since(t0))
	}
}
