package page

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flyball/flyball/schema/state"
)

// TestMain is also the service that the crash tests kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv("PAGE_TEST_CHILD"); dir != "" {
		fmt.Println(child(dir, os.Getenv("PAGE_TEST_URL"), os.Getenv("PAGE_TEST_RUN") != ""))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// child decides a page, sends it if it is told to run, and waits to be killed.
func child(dir, url string, run bool) error {
	st, err := state.Open(state.Options{Dir: dir, Registerer: prometheus.NewRegistry()})
	if err != nil {
		return err
	}
	p, err := New(quick(Options{Store: st, Receivers: []Receiver{webhook("hook", url)}}))
	if err != nil {
		return err
	}
	b := st.NewBatch()
	if _, err := p.Put(b, sample("decided")); err != nil {
		return err
	}
	if err := b.Commit(true); err != nil {
		return err
	}
	fmt.Println("committed")
	if run {
		return p.Run(context.Background())
	}
	time.Sleep(time.Minute)
	return nil
}

// kill runs the child until ready returns and kills it without notice.
func kill(t *testing.T, dir, url, run string, ready func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PAGE_TEST_CHILD="+dir, "PAGE_TEST_URL="+url, "PAGE_TEST_RUN="+run)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) != "committed" {
		t.Fatalf("child said %q, %v", line, err)
	}
	ready()
}

// A page is not lost and keeps its id, wherever between the decision and the
// receiver's answer the service dies.
func TestKilledBetweenDecisionAndDelivery(t *testing.T) {
	var up atomic.Bool
	s := newSink(t, func(_ http.ResponseWriter, r *http.Request, _ int) {
		if !up.Load() { // has the message, and its answer never arrives
			<-r.Context().Done()
		}
	})
	again := func(dir string) {
		t.Helper()
		st, shut := openStore(t, dir)
		p, stop := start(t, Options{Store: st, Receivers: []Receiver{webhook("hook", s.URL)}})
		put(t, p, sample("decided")) // the replay of the log decides it again
		idle(t, p)
		stop()
		shut()
	}
	before, during := t.TempDir(), t.TempDir()
	kill(t, before, s.URL, "", func() {})
	if n := len(s.requests()); n != 0 {
		t.Fatalf("%d requests before the restart", n)
	}
	up.Store(true)
	again(before)
	if n := len(s.requests()); n != 1 {
		t.Fatalf("%d requests after the restart, want 1", n)
	}
	up.Store(false)
	kill(t, during, s.URL, "1", func() { s.wait(t, 2) })
	up.Store(true)
	again(during)
	again(during) // what was delivered is not sent again
	got := s.requests()
	if len(got) != 3 {
		t.Errorf("%d requests, want the interrupted one and its repeat", len(got))
	}
	for _, r := range got {
		if r.header.Get("webhook-id") != "decided" {
			t.Errorf("id %q", r.header.Get("webhook-id"))
		}
	}
}

// What was grouped stays grouped under one id, also if the service dies before
// the group is delivered.
func TestGroupSurvivesRestart(t *testing.T) {
	s := newSink(t, status(500, 500, 200))
	st := newStore(t)
	o := Options{Store: st, RetryMin: 2 * time.Second, RetryMax: 2 * time.Second, Receivers: []Receiver{webhook("hook", s.URL)}}
	p, stop := start(t, o)
	put(t, p, many(3)...)
	eventually(t, func() bool { return len(p.Pending()) == 1 && p.Pending()[0].Attempts == 1 }, "a failed group")
	stop()
	o.Registerer = nil
	p, _ = start(t, o)
	if st := p.Pending(); len(st) != 1 || st[0].Pages != 3 || st[0].Attempts != 1 {
		t.Errorf("pending after a restart: %+v", st)
	}
	got := s.wait(t, 2)
	if got[0].header.Get("webhook-id") != got[1].header.Get("webhook-id") || got[0].body != got[1].body {
		t.Error("the group was made anew")
	}
}
