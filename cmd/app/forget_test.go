package app

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/flyball/flyball/ingest/wal"
	"github.com/flyball/flyball/schema/state"
)

// forgotten is an id that nothing else looks like.
const forgotten = "Qx7Zu-Unique-4711@example.com"

// runsOf are runs of the user in tenant-1, in several spellings, on several days, and of
// somebody whose id is like his.
func runsOf(from, to uint64) *batch {
	b := newBatch()
	for n := from; n < to; n++ {
		trace := n*5 + 1
		b.root(trace)
		user := []string{forgotten, strings.ToUpper(forgotten), " " + forgotten, strings.Replace(forgotten, "4711", "4712", 1)}[n%4]
		b.spans.At(b.spans.Len()-1).Attributes().PutStr("user.id", user)
		b.run(trace)
		day := -time.Duration(n%3) * 24 * time.Hour
		for i := b.spans.Len() - spansOfRun; i < b.spans.Len(); i++ {
			s := b.spans.At(i)
			s.SetStartTimestamp(s.StartTimestamp() + pcommon.Timestamp(day))
			s.SetEndTimestamp(s.EndTimestamp() + pcommon.Timestamp(day))
		}
	}
	return b
}

// userSums are the journal's sums by every dimension, with one name for the user, without the
// runs that come while he is forgotten.
func (s *service) userSums(is string) (out []string) {
	s.t.Helper()
	for i, by := range []string{"tenant", "tenant, if(" + is + ", 'the user', user) AS who", "model", "feature, if(" + is + ", 'the user', user) AS who", "kind, toDate(started_at)"} {
		rows := s.query("SELECT " + by + ", sum(sign * toInt128(ifNull(cost, 0))) AS c, sum(sign * toInt64(tok_input)) AS i, sum(sign * toInt64(retries)), sum(sign) AS n FROM journal WHERE substring(trace, 17) NOT BETWEEN '" + fmt.Sprintf("%016x", 600*5) + "' AND '" + fmt.Sprintf("%016x", 700*5) + "' GROUP BY ALL HAVING n != 0 ORDER BY ALL")
		out = append(out, fmt.Sprint(i, " ", rows))
	}
	return out
}

// TestForget: a user whom a guard refuses, with a lease that is open, is forgotten while
// the service is killed again and again and his spans keep coming. Afterwards no file has
// his id, and every sum is what it was.
func TestForget(t *testing.T) {
	s := newService(t, "", append(withPolicy(t, `
guards:
  - {name: user-day, scope: [tenant, user], measure: cost, window: {calendar: day}, limit: "0.001", ladder: [{at: 50%, do: warn}, {at: 100%, do: soft_block}], outcome: upgrade}
  - {name: pair, scope: [user, feature], measure: calls, window: {rolling: 1h}, limit: "100000", ladder: [{at: 100%, do: warn}], outcome: pause}
`), "FLYBALL_LIMITS__WAL_BYTES=16777216", "FLYBALL_LIMITS__OPEN_RUNS=20")...)
	s.start()
	first, fresh := runsOf(1, 120), runsOf(600, 640)
	ask := map[string]any{"tenant": "tenant-1", "user": forgotten, "feature": "triage", "model": "m-1", "input_tokens": 10, "max_output_tokens": 10}
	deny := func(user, want string) {
		t.Helper()
		ask["user"] = user
		var got any
		eventually(t, fmt.Sprintf("the answer for %s is %s", user, want), func() bool {
			got = s.post("/check", ask, http.StatusOK)["decision"]
			return got == want
		})
	}
	ask["user"] = forgotten
	if s.post("/reserve", ask, http.StatusOK)["lease"] == nil {
		t.Fatal("there is no lease")
	}
	s.mustSend(runs(2000, 2040).td)
	s.mustSend(first.td)
	deny(strings.ToLower(forgotten), "deny")
	s.drain()
	is := "lower(trim(user)) = '" + strings.ToLower(forgotten) + "' AND tenant = 'tenant-1'"
	before := s.userSums(is)
	if s.one("SELECT count() FROM journal WHERE "+is) == "0" {
		t.Fatal("the user has no calls: the test tests nothing")
	}

	body := func(more ...any) map[string]any {
		m := map[string]any{"tenant": "tenant-1", "user": strings.ToLower(forgotten), "reason": "request 17"}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return m
	}
	s.post("/forget", body("tenant", ""), http.StatusBadRequest)
	s.post("/forget", body("user", " "), http.StatusBadRequest)
	s.post("/forget", body("reason", ""), http.StatusBadRequest)
	s.post("/forget", body("reason", "asked by "+forgotten), http.StatusBadRequest)
	s.post("/forget", body("usr", "x"), http.StatusBadRequest)
	if d := s.post("/forget", body(), http.StatusConflict)["detail"].(string); !strings.Contains(d, "user-day") {
		t.Errorf("a user who is blocked: %s", d)
	}
	pseudonym := s.post("/forget", body("release", true), http.StatusAccepted)["pseudonym"].(string)
	s.post("/forget", body("release", true), http.StatusConflict)
	running := func() bool { return len(s.get("/forget")["running"].([]any)) > 0 }
	steps := map[string]bool{}
	for i := 0; i < rounds(6, 40) && running(); i++ {
		s.mustSend(first.td) // the same spans again
		if i == 0 {          // later they might come when he is forgotten
			s.mustSend(fresh.td)
		}
		for end := time.Now().Add(time.Duration(rand.IntN(2500)) * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if list := s.get("/forget")["running"].([]any); len(list) > 0 {
				steps[list[0].(map[string]any)["step"].(string)] = true
			}
		}
		var also []int
		if i%2 == 1 {
			also = s.engines()
		}
		s.kill(also...)
		s.start()
	}
	t.Log("killed in or after ", steps)
	for end := time.Now().Add(3 * time.Minute); running(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the user is not forgotten: ", s.get("/forget"))
		}
	}
	s.drain()

	is = "user = '" + pseudonym + "'"
	if after := s.userSums(is); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("sums are\n%s\nand were\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	s.checkBooks()
	// What came meanwhile is under the pseudonym too, in rollups as in the journal.
	want := int64(0)
	for _, r := range [][2]uint64{{1, 120}, {600, 640}} {
		for n := r[0]; n < r[1]; n++ {
			if n%4 != 3 {
				want += int64(100+(n*5+1)%50) + 10 + 40 + 10
			}
		}
	}
	for _, sql := range []string{"SELECT sum(cost) FROM spend_15m WHERE ", "SELECT sum(sign * cost) FROM journal WHERE "} {
		if got := s.one(sql + is); got != fmt.Sprint(want*1_000_000) {
			t.Errorf("%s%s: %s, want %d", sql, is, got, want*1_000_000)
		}
	}

	// He is somebody new now, and what was done is on record.
	deny(forgotten, "allow")
	var kinds []string
	for _, e := range s.get("/enforcement?limit=1000")["events"].([]any) {
		m := e.(map[string]any)
		kinds = append(kinds, fmt.Sprint(m["kind"], " ", m["action"]))
		if m["kind"] == "forget" && (m["reason"] != "request 17" || m["actor"] != "local" || m["user"] != pseudonym) {
			t.Errorf("audit %v", m)
		}
	}
	for _, k := range []string{"forget started", "forget done", "release soft_block"} {
		if !strings.Contains(strings.Join(kinds, ","), k) {
			t.Errorf("no event %q in %v", k, kinds)
		}
	}
	s.mustSend(first.td) // old spans bring nobody back
	s.mustSend(runs(3000, 3005).td)
	s.drain()
	if v := s.post("/guards/verify", map[string]any{"since": time.Now().Add(-96 * time.Hour).Format(time.RFC3339)}, http.StatusOK); v["drift"] != 0.0 || v["accounts"] == 0.0 {
		t.Errorf("ledger and journal: %v", v)
	}
	s.findNowhere(t, forgotten)
}

// findNowhere looks for an id, in any case, in everything that the service has.
func (s *service) findNowhere(t *testing.T, id string) {
	t.Helper()
	id = strings.ToLower(id)
	for _, c := range s.query("SELECT table, name FROM system.columns WHERE database = currentDatabase() AND default_kind != 'ALIAS' AND table IN (SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree') AND type LIKE '%String%'") {
		if n := s.one(fmt.Sprintf("SELECT count() FROM %s WHERE position(lower(toString(%s)), '%s') > 0", c[0], c[1], id)); n != "0" {
			t.Errorf("%s.%s has it %s times", c[0], c[1], n)
		}
	}
	if n := s.one("SELECT count() FROM system.mutations WHERE position(lower(command), '" + id + "') > 0"); n != "0" {
		t.Errorf("%s updates have it", n)
	}
	s.stop()
	eventually(t, "the engine has ended", func() bool { return len(s.engines()) == 0 || s.pid() == 0 })
	marks := [][]byte{[]byte(id)}
	for shift := range 3 { // inside what JSON has as base64
		e := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("#", shift) + id))
		marks = append(marks, []byte(e[4:len(e)-4]))
	}
	has := func(where string, b []byte) {
		t.Helper()
		for i, m := range marks {
			text := b
			if i == 0 {
				text = bytes.ToLower(b)
			}
			if at := bytes.Index(text, m); at >= 0 {
				t.Errorf("%s has it: %.300q", where, text[max(0, at-100):])
			}
		}
	}
	data := filepath.Join(s.dir, "data")
	_ = filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if b, err := os.ReadFile(path); err == nil {
				has(path, b)
			}
		}
		return nil
	})
	l, err := wal.Open(wal.Options{Dir: filepath.Join(data, "wal")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err := l.NewReader(l.Oldest())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		rec, ok, err := r.TryNext()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		has("the log", rec.Data)
	}
	st, err := state.Open(state.Options{Dir: filepath.Join(data, "state")})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	values, pages := 0, 0
	if err := st.Each("", func(name string, v []byte) error {
		values++
		has("the local store, "+name, append([]byte(name), v...))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.RewriteTraces(nil, 1<<30, func(page []byte) ([]byte, error) {
		pages++
		has("a stored trace", page)
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if values < 20 || pages == 0 { // the log may be empty by now
		t.Errorf("looked through %d values and %d pages only", values, pages)
	}
}
