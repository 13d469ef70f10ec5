package app

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/flyball/flyball/schema/engine"
)

// absentEngine makes a service whose engine is not installed, and what installs it.
func absentEngine(t *testing.T, env ...string) (s *service, install func()) {
	t.Helper()
	real, err := engine.FindLibrary("")
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "libchdb.so")
	s = newService(t, "", append(env, "FLYBALL_LIBCHDB="+link)...)
	return s, func() {
		t.Helper()
		if err := os.Symlink(real, link); err != nil {
			t.Fatal(err)
		}
	}
}

// runs makes a request of whole runs [from, to).
func runs(from, to uint64) *batch {
	b := newBatch()
	for trace := from; trace < to; trace++ {
		b.root(trace)
		b.run(trace)
	}
	return b
}

const spansOfRun = 6

// TestEngineMissing: without ClickHouse spans are taken and /readyz says what
// waits. Once it is there everything is stored while traffic goes on.
func TestEngineMissing(t *testing.T) {
	t.Parallel()
	s, install := absentEngine(t)
	s.start()
	acknowledged := map[string]bool{}
	for i := range uint64(5) {
		b := runs(i*20, i*20+20)
		s.mustSend(b.td)
		for _, id := range b.ids {
			acknowledged[id] = true
		}
	}
	eventually(t, "/readyz says what waits", func() bool {
		r, err := s.readyz()
		return err == nil && r.code == http.StatusOK && !r.ClickHouse.Ready && strings.Contains(r.ClickHouse.WaitsFor, "libchdb.so") && r.Ingest.Waiting != "" && r.Ingest.Queued >= 5*20*spansOfRun && r.Ingest.Lag > 0
	})
	// The same after a restart.
	s.kill()
	s.start()
	if r, err := s.readyz(); err != nil || r.Ingest.Queued < 5*20*spansOfRun {
		t.Errorf("queued after a restart: %+v %v", r, err)
	}
	l := newLoad(s, 1, false)
	l.acknowledged = acknowledged
	install()
	eventually(t, "clickhouse is ready", func() bool { r, err := s.readyz(); return err == nil && r.ClickHouse.Ready })
	l.wait()
	s.drain()
	s.checkBooks()
	s.checkSpans(l.acknowledged, nil)
	if r, err := s.readyz(); err != nil || r.Ingest.Waiting != "" {
		t.Errorf("%+v %v", r, err)
	}
	if got := s.one("SELECT countIf(back) FROM (SELECT chunk < lagInFrame(chunk, 1, 0) OVER (ORDER BY recorded_at, chunk ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS back FROM journal)"); got != "0" {
		t.Errorf("%s entries are in an older chunk than one before them", got)
	}
}

// TestLogFullAnswers: when the log is full both transports get the code that makes
// a sender keep its data, nothing of the request is claimed, and after
// ClickHouse has caught up it is taken.
func TestLogFullAnswers(t *testing.T) {
	t.Parallel()
	s, install := absentEngine(t, "FLYBALL_LIMITS__WAL_BYTES=262144")
	s.start()
	conn, err := grpc.NewClient(s.addrs["otlp_grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	acknowledged := map[string]bool{}
	var refused *batch
	for from := uint64(0); refused == nil; from += 20 {
		if from > 100_000 {
			t.Fatal("the log takes everything")
		}
		b := runs(from, from+20)
		res, answer, err := s.send(encode(t, b.td))
		switch {
		case err != nil:
			t.Fatal(err)
		case res.StatusCode == http.StatusOK:
			for _, id := range b.ids {
				acknowledged[id] = true
			}
		case res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "":
			refused = b
		default:
			t.Fatalf("status %s, answer %q", res.Status, answer)
		}
	}
	_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(refused.td))
	st, hint := status.Convert(err), false
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.RetryInfo)
		hint = hint || ok && info.RetryDelay.AsDuration() > 0
	}
	if st.Code() != codes.Unavailable || !hint {
		t.Errorf("gRPC answer %v, details %v", st, st.Details())
	}
	s.checkLedger()
	if got := s.counters()[`flyball_spans_total{result="new"}`]; got != float64(len(acknowledged)) {
		t.Errorf("%.0f spans claimed, %d acknowledged", got, len(acknowledged))
	}
	// Smaller requests until nothing fits.
	for from, full := uint64(1<<20), false; !full; from++ {
		b := runs(from, from+1)
		res, _, err := s.send(encode(t, b.td))
		if err != nil {
			t.Fatal(err)
		}
		if full = res.StatusCode != http.StatusOK; !full {
			for _, id := range b.ids {
				acknowledged[id] = true
			}
		}
	}
	if r, err := s.readyz(); err != nil || r.code != http.StatusServiceUnavailable || r.Ingest.Refusing == "" || r.Ingest.Queued < int64(len(acknowledged)) {
		t.Errorf("readyz while nothing is taken: %+v %v", r, err)
	}
	install()
	eventually(t, "spans are taken again", func() bool {
		res, _, err := s.send(encode(t, refused.td))
		return err == nil && res.StatusCode == http.StatusOK
	})
	for _, id := range refused.ids {
		acknowledged[id] = true
	}
	s.drain()
	s.checkBooks()
	s.checkSpans(acknowledged, nil)
	if r, err := s.readyz(); err != nil || r.code != http.StatusOK || r.Status != "ready" {
		t.Errorf("%+v %v", r, err)
	}
}

// TestTerminated: what was acknowledged and not yet stored when SIGTERM came is
// stored after the next start, with traffic and without.
func TestTerminated(t *testing.T) {
	t.Parallel()
	s, install := absentEngine(t)
	s.start()
	b := runs(0, 50)
	s.mustSend(b.td)
	s.stop()
	install()
	s.start()
	l := newLoad(s, 2, false)
	for _, id := range b.ids {
		l.acknowledged[id] = true
	}
	for range rounds(2, 10) {
		was := l.count()
		eventually(t, "spans are acknowledged", func() bool { return l.count() > was+500 })
		s.stop()
		s.start()
	}
	l.wait()
	s.drain()
	s.checkBooks()
	s.checkSpans(l.acknowledged, nil)
}

// TestStartToReady measures how long a service takes to start over a store.
func TestStartToReady(t *testing.T) {
	s := newService(t, "")
	s.start()
	l := newLoad(s, 2, false)
	time.Sleep(time.Duration(rounds(2, 30)) * time.Second)
	l.wait()
	s.drain()
	f := func(how string, end func()) {
		t.Helper()
		end()
		began := time.Now()
		s.start()
		listens := time.Since(began)
		var answers time.Duration
		eventually(t, "clickhouse answers", func() bool {
			r, err := s.readyz()
			if answers == 0 && err == nil {
				answers = time.Since(began)
			}
			return err == nil && r.ClickHouse.Ready
		})
		t.Logf("%s, %d spans: takes spans after %v, queries after %v", how, l.count(), listens.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		if answers > 5*time.Second {
			t.Errorf("%s: ready after %v", how, answers)
		}
	}
	f("stopped", s.stop)
	f("killed", func() { s.kill() })
	f("killed with its engine", func() { s.kill(s.engines()...) })
	s.drain()
	s.checkBooks()
	s.checkSpans(l.acknowledged, nil)
}

// TestLargeSpan: a span of 20 MB of content is taken, and none of that is kept.
func TestLargeSpan(t *testing.T) {
	t.Parallel()
	s := newService(t, "")
	s.start()
	big := strings.Repeat("x", 10<<20)
	b := newBatch()
	sp := b.chat(1, 2, 0, 100)
	sp.SetName(big)
	sp.Attributes().PutStr("gen_ai.input.messages", big)
	sp.Attributes().PutStr("user.id", big)
	b.chat(1, 3, 0, 100)
	s.mustSend(b.td)
	s.mustSend(b.td)
	s.drain()
	s.checkBooks()
	ids := map[string]bool{}
	for _, id := range b.ids {
		ids[id] = true
	}
	s.checkSpans(ids, nil)
	if got := s.one("SELECT max(length(name) + length(user)) < 1000 FROM journal"); got != "1" {
		t.Error("content is in the journal")
	}
	var size int64
	err := filepath.WalkDir(s.dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil
	})
	if err != nil || size > 20<<20 {
		t.Errorf("%d bytes on disk, %v", size, err)
	}
}

// TestRefusedSpans: spans without ids are reported as rejected, and counted so.
func TestRefusedSpans(t *testing.T) {
	t.Parallel()
	s := newService(t, "")
	s.start()
	b := runs(0, 20)
	for i := range b.spans.Len() {
		if i%2 == 0 {
			b.spans.At(i).SetTraceID(pcommon.TraceID{})
		}
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			res, answer, err := s.send(encode(t, b.td))
			if err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("%v %v", res, err)
				return
			}
			out := ptraceotlp.NewExportResponse()
			if err := out.UnmarshalProto(answer); err != nil || out.PartialSuccess().RejectedSpans() != int64(b.spans.Len()/2) || out.PartialSuccess().ErrorMessage() == "" {
				t.Errorf("%q %v", answer, err)
			}
		})
	}
	wg.Wait()
	s.checkLedger()
	c := s.counters()
	if n := float64(b.spans.Len()); c["flyball_spans_received_total"] != 4*n || c[`flyball_spans_total{result="new"}`] != n/2 || c[`flyball_spans_total{result="duplicate"}`] != 3*n/2 {
		t.Errorf("received %v, new %v, duplicate %v of %v spans sent four times", c["flyball_spans_received_total"], c[`flyball_spans_total{result="new"}`], c[`flyball_spans_total{result="duplicate"}`], n)
	}
	s.drain()
	s.checkBooks()
	if got := s.one("SELECT toString(uniqExact(trace, span)) FROM journal"); got != fmt.Sprint(b.spans.Len()/2) {
		t.Errorf("%s lines", got)
	}
}
