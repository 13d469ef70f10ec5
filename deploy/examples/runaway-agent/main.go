// Command runaway-agent shows on one machine what Flyball does about agents that run
// away: a run that goes in circles, a feature that uses up its month, an organisation
// that spends far too much, and the way back.
//
// Flyball, Alertmanager, the OpenTelemetry SDK and the limiter are the real ones; the
// model provider and the people on call are played here. It guarantees that every
// sentence that it marks "ok" was looked at, and exits 1 where one does not hold. It
// listens on loopback only and ends what it started. run.sh starts it.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// critical is the feature that the policy lists as critical.
const critical = "checkout"

func main() {
	work := flag.String("work", "", "an empty directory for data and logs")
	binary := flag.String("flyball", "bin/flyball", "the binary of the service")
	alertmanager := flag.String("alertmanager", "prometheus-alertmanager", "the binary of Alertmanager")
	dir := flag.String("dir", "deploy/examples/runaway-agent", "the directory with the example's files")
	port := flag.Int("port", 19400, "the first of seven consecutive loopback ports")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &story{began: time.Now(), work: *work, dir: *dir, tally: map[string]*count{}}
	for i := range s.addr {
		s.addr[i] = fmt.Sprintf("127.0.0.1:%d", *port+i)
	}
	err := s.tell(ctx, *binary, *alertmanager)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "runaway-agent:", err)
		os.Exit(1)
	}
}

// The ports, in their order.
const (
	portHTTP = iota
	portGRPC
	portOTLP
	portSQL
	portAlerts
	portOncall
	portProvider
	ports
)

// story is the state of the whole.
type story struct {
	began   time.Time
	work    string
	dir     string
	addr    [ports]string
	flyball string // absolute

	provider provider
	oncall   oncall
	hosts    []*host
	wrong    []string // claims of the step under way that do not hold

	mu    sync.Mutex        // guards tally
	tally map[string]*count // how the traffic of the features fares
}

// count is how many calls of a feature passed, and how many were refused by whom.
type count struct {
	passed  int
	refused map[string]int
	failed  string // an error that is no refusal
}

func (s *story) url(port int, path string) string { return "http://" + s.addr[port] + path }

// say prints one line of the story.
func (s *story) say(format string, args ...any) {
	fmt.Printf("%6.2fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// claim prints a sentence that has to hold. The step goes on, so that all of its
// claims are seen; the example ends after it where one does not hold.
func (s *story) claim(holds bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !holds {
		s.wrong = append(s.wrong, text)
		s.say("   WRONG  %s", text)
		return
	}
	s.say("   ok  %s", text)
}

// await waits until a condition holds, for ten seconds at the most.
func (s *story) await(ctx context.Context, cond func() bool) bool {
	deadline := time.Now().Add(10 * time.Second)
	for !cond() {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return false
		}
		time.Sleep(2 * time.Millisecond)
	}
	return true
}

// booked notes how a call fared.
func (s *story) booked(feature string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.tally[feature]
	if c == nil {
		c = &count{refused: map[string]int{}}
		s.tally[feature] = c
	}
	switch r := refused(err); {
	case err == nil:
		c.passed++
	case r != nil:
		c.refused[r.Guard]++
	default:
		c.failed = err.Error()
	}
}

// fared is how a feature's calls fared so far.
func (s *story) fared(feature string) (passed, halted int, failed string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.tally[feature]; c != nil {
		for _, n := range c.refused {
			halted += n
		}
		return c.passed, halted, c.failed
	}
	return 0, 0, ""
}

// call makes one call and books it.
func (s *story) call(ctx context.Context, j *job, model, question string) error {
	err := j.ask(ctx, model, question)
	s.booked(j.feature, err)
	return err
}

// api asks the service.
func (s *story) api(ctx context.Context, path string, answer any) error {
	text, err := fetch(ctx, s.url(portHTTP, path))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// command runs a verb of flyball and prints it with what it answers, indented.
func (s *story) command(ctx context.Context, args ...string) (string, error) {
	quoted := slices.Clone(args)
	for i, a := range quoted {
		if strings.Contains(a, " ") {
			quoted[i] = "'" + a + "'"
		}
	}
	s.say("$ flyball %s", strings.Join(quoted, " "))
	out, err := exec.CommandContext(ctx, s.flyball, append([]string{"--server", s.url(portHTTP, "")}, args...)...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		fmt.Print("             ", line)
	}
	if err != nil {
		return "", fmt.Errorf("flyball %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// tell runs everything and tells the story.
func (s *story) tell(ctx context.Context, binary, alertmanager string) (err error) {
	if s.work == "" {
		return errors.New("-work is missing: use run.sh")
	}
	if s.work, err = filepath.Abs(s.work); err != nil {
		return err
	}
	if s.flyball, err = filepath.Abs(binary); err != nil {
		return err
	}
	title("The service, Alertmanager and the agents start")
	for port, h := range map[int]http.Handler{portOncall: &s.oncall, portProvider: &s.provider} {
		end, err := serve(s.addr[port], h)
		if err != nil {
			return err
		}
		defer end()
	}
	am, err := s.startAlertmanager(alertmanager)
	if err != nil {
		return err
	}
	defer am.end()
	fb, err := startDaemon(s.work, "flyball", s.dir, []string{
		"FLYBALL_DATA=" + filepath.Join(s.work, "data"), "FLYBALL_LISTEN__HTTP=" + s.addr[portHTTP], "FLYBALL_LISTEN__OTLP_GRPC=" + s.addr[portGRPC],
		"FLYBALL_LISTEN__OTLP_HTTP=" + s.addr[portOTLP], "FLYBALL_LISTEN__CLICKHOUSE=" + s.addr[portSQL],
		// Pages go to public addresses only, unless a receiver lists its network.
		fmt.Sprintf(`FLYBALL_PAGES__RECEIVERS=[{name: oncall, alertmanager: {url: %q}, allow: ["127.0.0.0/8"]}]`, s.url(portAlerts, "")),
	}, s.flyball, "serve", "--config", "flyball.yaml")
	if err != nil {
		return err
	}
	defer fb.end()
	if err := am.ready(ctx, s.url(portAlerts, "/-/ready"), func([]byte) bool { return true }); err != nil {
		return err
	}
	if err := fb.ready(ctx, s.url(portHTTP, "/readyz"), func(b []byte) bool {
		var r struct{ ClickHouse struct{ Ready bool } }
		return json.Unmarshal(b, &r) == nil && r.ClickHouse.Ready
	}); err != nil {
		return err
	}
	s.say("flyball serves on %s, Alertmanager on %s", s.url(portHTTP, ""), s.url(portAlerts, ""))
	for i := range 3 {
		h, err := newHost(ctx, fmt.Sprintf("agents-%d", i+1), s.url(portHTTP, ""), s.addr[portGRPC], s.url(portProvider, "/v1/chat/completions"))
		if err != nil {
			return err
		}
		defer func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = h.close(end)
		}()
		s.hosts = append(s.hosts, h)
	}
	s.claim(s.await(ctx, func() bool {
		return !slices.ContainsFunc(s.hosts, func(h *host) bool { _, ok := h.limiter.Version(); return !ok })
	}), "three hosts of agents follow the directives; without a set they would let critical calls pass alone")

	background, stop := context.WithCancel(ctx)
	var traffic sync.WaitGroup
	defer func() { stop(); traffic.Wait() }()
	for feature, every := range map[string]time.Duration{critical: 120 * time.Millisecond, "assistant": 150 * time.Millisecond} {
		traffic.Go(func() { s.keepAsking(background, feature, every) })
	}
	for _, step := range []struct {
		title string
		run   func(context.Context) error
	}{
		{"0. A drill, before anything happens", s.drill},
		{"1. A run goes in circles", s.loop},
		{"2. A feature uses up its month", s.month},
		{"3. The organisation spends far too much", s.storm},
		{"4. The way back, in stages", s.recovery},
		{"5. What it came to", func(ctx context.Context) error { stop(); traffic.Wait(); return s.sums(ctx) }},
	} {
		title(step.title)
		err := step.run(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case len(s.wrong) > 0:
			err = errors.Join(err, fmt.Errorf("this does not hold: %s", strings.Join(s.wrong, "; ")))
		}
		if err != nil {
			return fmt.Errorf("step %s: %w\nflyball's log ends:\n%s", step.title, err, tail(fb.log))
		}
	}
	s.say("all of it held, in %.0f s", time.Since(s.began).Seconds())
	return nil
}

func title(text string) { fmt.Printf("\n== %s\n", text) }

// startAlertmanager runs the real one. It groups nothing and repeats nothing within
// the example, so that a second notification would be a second page.
func (s *story) startAlertmanager(binary string) (*daemon, error) {
	config := fmt.Sprintf("route: {receiver: oncall, group_by: ['...'], group_wait: 100ms, group_interval: 500ms, repeat_interval: 4h}\nreceivers: [{name: oncall, webhook_configs: [{url: %q, send_resolved: true}]}]\n", s.url(portOncall, "/"))
	file := filepath.Join(s.work, "alertmanager.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("configure Alertmanager: %w", err)
	}
	return startDaemon(s.work, "alertmanager", s.work, nil, binary, "--config.file="+file, "--storage.path="+filepath.Join(s.work, "alertmanager"), "--web.listen-address="+s.addr[portAlerts], "--cluster.listen-address=")
}

// keepAsking is the product's usual traffic: short runs, one after another, with the
// small model, whatever becomes of them.
func (s *story) keepAsking(ctx context.Context, feature string, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		j := &job{h: s.hosts[i%len(s.hosts)], run: fmt.Sprintf("%s-%d", feature, i), user: fmt.Sprintf("user-%d", i%5), feature: feature}
		_ = j.do(context.WithoutCancel(ctx), func(ctx context.Context) error { return s.call(ctx, j, small, "What is in my cart?") })
	}
}

// drill walks the way of the kill switch without stopping anybody.
func (s *story) drill(ctx context.Context) error {
	out, err := s.command(ctx, "kill", "drill")
	s.claim(strings.Contains(out, "3 limiters acknowledged"), "the drill reached all three limiters and stopped nobody")
	return err
}

// loop lets one agent ask the same tool and the same question again and again.
func (s *story) loop(ctx context.Context) error {
	const limit = 12
	passed, halted, _ := s.fared("assistant")
	j := &job{h: s.hosts[0], run: "research-1", user: "user-1", feature: "research"}
	s.say("run %s asks the same question and the same tool again and again", j.run)
	steps, refusals := 0, 0
	var over, stopped time.Time
	var last *refusal
	err := j.do(ctx, func(ctx context.Context) error {
		for ctx.Err() == nil && steps < 80 {
			err := s.call(ctx, j, large, "What does the pricing page say?")
			if err == nil {
				if steps++; steps == limit {
					over = time.Now()
				}
				if err = j.search(ctx, `{"url":"https://example.org/pricing"}`); err != nil {
					s.booked(j.feature, err)
				}
			}
			if r := refused(err); r != nil {
				stopped, last = time.Now(), r
				refusals++
				return errors.Join(err, s.checkpoint(j, steps, r))
			}
			if err != nil {
				return err
			}
		}
		return errors.New("nobody stopped the run")
	})
	if last == nil {
		return err
	}
	s.say("the run asked %d times; %s after its call number %d it was stopped:", steps, ms(stopped.Sub(over)), limit)
	s.say("%d %s; outcome: %s", last.Status, last.Detail, last.Outcome)
	s.claim(last.Status == http.StatusForbidden && last.Guard == "run-calls" && last.Outcome == "checkpoint", "the guard run-calls decided, by the spans alone")
	s.claim(refusals == 1, "the agent saw one refusal, saved a checkpoint and ended")
	arrived := len(s.provider.seen(func(a arrival) bool { return a.run == j.run }))
	s.claim(arrived == steps, "the provider saw %d calls of the run, and not the refused one", arrived)
	if text, err := os.ReadFile(s.checkpointFile(j)); err != nil || !strings.Contains(string(text), "run-calls") {
		s.claim(false, "the checkpoint %s says why the run ended: %v", s.checkpointFile(j), err)
	}
	elsewhere := 0
	ok := s.await(ctx, func() bool {
		elsewhere = 0
		for _, h := range s.hosts[1:] {
			again := *j
			again.h = h
			if r := refused(again.ask(ctx, large, "What does the pricing page say?")); r != nil && r.Guard == "run-calls" {
				elsewhere++
			}
		}
		return elsewhere == len(s.hosts)-1
	})
	s.claim(ok, "the same run is refused by the other %d hosts as well", elsewhere)
	next := &job{h: s.hosts[0], run: "research-2", user: "user-1", feature: "research"}
	s.claim(next.do(ctx, func(ctx context.Context) error { return s.call(ctx, next, small, "And in short?") }) == nil, "the next run of the same user and feature passes")
	p, h, _ := s.fared("assistant")
	s.claim(p > passed && h == halted, "the %d calls of other runs meanwhile all passed", p-passed)
	s.claim(s.await(ctx, func() bool { return len(s.oncall.told("run-calls", "firing")) > 0 }), "on-call was told once: %s", s.firstTitle("run-calls"))
	return nil
}

func (s *story) firstTitle(guard string) string {
	if n := s.oncall.told(guard, "firing"); len(n) > 0 {
		return n[0].title
	}
	return "nothing"
}

func (s *story) checkpointFile(j *job) string { return filepath.Join(s.work, j.run+".checkpoint.json") }

// checkpoint is what the guard asks of the product: the work so far is kept, and
// says why it ended, so that a person can let it go on.
func (s *story) checkpoint(j *job, steps int, r *refusal) error {
	text, err := json.Marshal(map[string]any{"run": j.run, "steps": steps, "next": "What does the pricing page say?", "stopped_by": r})
	if err != nil {
		return err
	}
	return os.WriteFile(s.checkpointFile(j), text, 0o600)
}

// month lets a feature spend more than its month has.
func (s *story) month(ctx context.Context) error {
	const feature = "summaries"
	mine := func(a arrival) bool { return a.feature == feature }
	cheap := func(a arrival) bool { return a.feature == feature && a.model == small }
	s.say("%s asks %s, which costs %s a call; the feature has $1.00 a month", feature, large, dollars(cents[large]))
	i, after := 0, 0
	for ; ctx.Err() == nil && i < 80 && after < 20; i++ {
		j := &job{h: s.hosts[i%len(s.hosts)], run: fmt.Sprintf("%s-%d", feature, i), user: "user-2", feature: feature}
		if err := j.do(ctx, func(ctx context.Context) error { return s.call(ctx, j, large, "Summarise this thread.") }); err != nil {
			return fmt.Errorf("a call of %s did not pass: %w", feature, err)
		}
		after = len(s.provider.seen(cheap))
	}
	seen := s.provider.seen(mine)
	first := slices.IndexFunc(seen, cheap)
	if first < 0 {
		s.claim(false, "the feature is downgraded within %d calls", i)
		return nil
	}
	over := seen[min(9, first)].at // the tenth call makes it a dollar
	s.say("%d calls of %s, then %s, %s after the dollar was spent", first, large, small, ms(seen[first].at.Sub(over)))
	late := slices.ContainsFunc(seen[min(first+len(s.hosts), len(seen)):], func(a arrival) bool { return a.model == large })
	s.claim(first >= 10 && !late, "the provider saw %d calls of %s although the agents went on asking for %s", after, small, large)
	s.claim(len(seen) == i, "all %d calls of the feature were answered", i)
	var live struct {
		Live []struct{ Guard, Action, Reason string }
	}
	if err := s.api(ctx, "/api/v1/guards/live", &live); err != nil {
		return err
	}
	reason := ""
	for _, l := range live.Live {
		if l.Guard == "summaries-month" && l.Action == "downgrade" {
			reason = l.Reason
		}
	}
	s.claim(reason != "", "the guard decided: %s", reason)
	s.claim(s.await(ctx, func() bool { return len(s.oncall.told("summaries-month", "firing")) > 0 }), "on-call was told once: %s", s.firstTitle("summaries-month"))
	return nil
}

// storm is a scheduler that starts run after run. No run is long, so that no budget
// of a run sees it.
func (s *story) storm(ctx context.Context) error {
	const workers, stubborn = 12, 40
	const limit = 1000 // cents: 2 x $5 of the policy
	before := bill(s.provider.seen(all))
	s.say("a scheduler with a bug starts run after run; %s were spent, and %s an hour is too much", dollars(before), dollars(limit))
	passed, haltedCritical, _ := s.fared(critical)
	var stopped sync.WaitGroup // the workers that were not refused yet
	var wg sync.WaitGroup
	var refusals atomic.Int64
	var mu sync.Mutex // guards the next two
	var first *refusal
	var other error
	var at time.Time
	stopped.Add(workers)
	end := time.Now().Add(10 * time.Second)
	quiet := make(chan struct{}) // closed when nothing is under way any more
	for w := range workers {
		wg.Go(func() {
			told := false
			n := 0
			for i := 0; ctx.Err() == nil && n < stubborn && (told || time.Now().Before(end)); i++ {
				j := &job{h: s.hosts[w%len(s.hosts)], run: fmt.Sprintf("nightly-%d-%d", w, i), user: "scheduler", feature: "reports"}
				err := j.do(ctx, func(ctx context.Context) error {
					for range 3 {
						if err := s.call(ctx, j, large, "Write the nightly report."); err != nil {
							return err
						}
					}
					return nil
				})
				r := refused(err)
				switch {
				case r != nil && r.Guard == "kill":
					n++
					refusals.Add(1)
				case err != nil:
					mu.Lock()
					other = cmp.Or(other, err)
					mu.Unlock()
				}
				if r != nil && !told {
					told = true
					mu.Lock()
					if first == nil {
						first, at = r, time.Now()
					}
					mu.Unlock()
					stopped.Done()
					<-quiet
				}
			}
			if !told {
				stopped.Done()
			}
		})
	}
	stopped.Wait()
	// Usual traffic that was let in before the halt may be with the provider still.
	time.Sleep(3 * latency)
	arrivedBy := len(s.provider.seen(halted))
	spent := bill(s.provider.seen(all))
	close(quiet)
	wg.Wait()
	if first == nil {
		s.claim(false, "the storm is stopped; it spent %s (%v)", dollars(spent-before), other)
		return nil
	}
	over := s.provider.crossed(limit)
	s.say("%s after the provider's bill was over %s the first agent was refused, at %s; the switch tripped by itself:", ms(at.Sub(over)), dollars(limit), dollars(spent))
	s.say("%d %s; outcome: %s", first.Status, first.Detail, first.Outcome)
	var kill struct {
		On    bool
		Auto  bool
		Actor string
	}
	if err := s.api(ctx, "/api/v1/kill", &kill); err != nil {
		return err
	}
	s.claim(kill.On && kill.Auto && kill.Actor == "automatic", "the kill switch is on, and nobody pressed it: actor %s", kill.Actor)
	why := ""
	if other != nil {
		why = ": " + other.Error()
	}
	s.claim(other == nil, "no other guard and no fault had a part in it%s", why)
	s.claim(refusals.Load() >= workers*stubborn, "the scheduler went on all the same: %d of its runs were refused", refusals.Load())
	s.claim(len(s.provider.seen(halted)) == arrivedBy, "not one of them reached the provider, nor did anybody else's")
	_, haltedAssistant, _ := s.fared("assistant")
	s.claim(s.await(ctx, func() bool { _, h, _ := s.fared("assistant"); return h > haltedAssistant+2 }), "the assistant's calls are refused as well")
	halfway, _, _ := s.fared(critical)
	s.claim(s.await(ctx, func() bool { p, _, _ := s.fared(critical); return p > halfway+2 }), "%s still passes, as the policy lists it as critical", critical)
	p, h, failed := s.fared(critical)
	s.claim(h == haltedCritical && failed == "", "none of its %d calls since the storm began was refused%s", p-passed, failed)
	s.claim(s.await(ctx, func() bool { return len(s.oncall.told("kill", "firing")) > 0 }), "on-call was paged: %s", s.firstTitle("kill"))
	s.claim(len(s.oncall.told("kill", "firing")) == 1, "it was one page for %d refusals", refusals.Load()+int64(haltedAssistant))
	return nil
}

// recovery lets more and more runs back in.
func (s *story) recovery(ctx context.Context) error {
	const runs = 200
	var before []string
	for _, stage := range []int{25, 60} {
		since := time.Now()
		if _, err := s.command(ctx, "kill", "on", "--stage", fmt.Sprint(stage), "--reason", "the scheduler is stopped; letting runs back in"); err != nil {
			return err
		}
		s.claim(s.await(ctx, func() bool {
			return !slices.ContainsFunc(s.hosts, func(h *host) bool { return h.limiter.Set().KillState().Stage != stage })
		}), "every limiter had the stage within %s, with the start of the command", ms(time.Since(since)))
		in := s.admitted(ctx, runs)
		share := 100 * len(in) / runs
		s.claim(share > stage-12 && share < stage+12, "stage %d: %d of %d runs are admitted, which is %d%%", stage, len(in), runs, share)
		left := slices.ContainsFunc(before, func(run string) bool { return !slices.Contains(in, run) })
		s.claim(!left, "whoever was admitted at an earlier stage still is (%d runs)", len(before))
		before = in
	}
	off := time.Now()
	if _, err := s.command(ctx, "kill", "off", "--reason", "spend is as usual again"); err != nil {
		return err
	}
	s.claim(s.await(ctx, func() bool {
		return !slices.ContainsFunc(s.hosts, func(h *host) bool { return h.limiter.Set().KillState().On })
	}), "no limiter halted anybody after %s", ms(time.Since(off)))
	in := s.admitted(ctx, runs)
	s.claim(len(in) == runs, "all %d runs are admitted", len(in))
	resolved := s.await(ctx, func() bool {
		var active []struct{ Labels map[string]string }
		text, err := fetch(ctx, s.url(portAlerts, "/api/v2/alerts?active=true"))
		if err != nil || json.Unmarshal(text, &active) != nil {
			return false
		}
		for _, a := range active {
			if a.Labels["guard"] == "kill" {
				return false
			}
		}
		return len(s.oncall.told("kill", "resolved")) == 1
	})
	s.claim(resolved, "Alertmanager's alert is over, and on-call was told so, %s after the switch was off", ms(time.Since(off)))
	return nil
}

// admitted are the runs that may make a call.
func (s *story) admitted(ctx context.Context, runs int) []string {
	var mu sync.Mutex // guards in
	var in []string
	var wg sync.WaitGroup
	next := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range next {
				j := &job{h: s.hosts[i%len(s.hosts)], run: fmt.Sprintf("nightly-again-%d", i), user: "scheduler", feature: "reports"}
				if j.do(ctx, func(ctx context.Context) error { return s.call(ctx, j, small, "Write the nightly report.") }) == nil {
					mu.Lock()
					in = append(in, j.run)
					mu.Unlock()
				}
			}
		})
	}
	for i := range runs {
		next <- i
	}
	close(next)
	wg.Wait()
	return in
}

// sums compares the bills and prints the figures.
func (s *story) sums(ctx context.Context) error {
	for _, h := range s.hosts {
		if err := h.spans.ForceFlush(ctx); err != nil {
			return fmt.Errorf("export spans: %w", err)
		}
	}
	calls := s.provider.seen(all)
	want := dollars(bill(calls))
	var spend struct {
		Total struct {
			USD     string `json:"cost_usd"`
			Unknown int    `json:"unknown_calls"`
		}
	}
	s.claim(s.await(ctx, func() bool {
		return s.api(ctx, "/api/v1/spend?group_by=feature", &spend) == nil && sameMoney("$"+spend.Total.USD, want)
	}), "the provider's bill for %d calls is %s, and Flyball's is $%s", len(calls), want, spend.Total.USD)
	if _, err := s.command(ctx, "spend", "--by", "feature,model"); err != nil {
		return err
	}

	m, err := readMetrics(ctx, s.url(portHTTP, "/metrics"))
	if err != nil {
		return err
	}
	s.say("time to enforce, from the receipt of the span that crossed a limit to the limiter's acknowledgement:")
	const enforce, applied = "flyball_time_to_enforce_seconds", "flyball_span_end_to_applied_seconds"
	limiters := m.labels(enforce+"_count", "limiter")
	slices.Sort(limiters)
	for _, l := range limiters {
		at := func(name string) float64 { return m[name+`{limiter="`+l+`"}`] }
		n := at(enforce + "_count")
		mean := at(enforce+"_sum") / n
		s.say("   %s: %.0f decisions, %.1f ms on average; %.0f ms from the end of the span, with the exporter's delay", l, n, 1000*mean, 1000*at(applied+"_sum")/at(applied+"_count"))
		s.claim(n >= 3 && mean < 1, "%s acknowledged what the run, the month and the storm led to within a second", l)
	}
	s.claim(len(limiters) == len(s.hosts), "there are figures for all %d limiters", len(limiters))
	leaks := func(kind string) (float64, float64) {
		l := `{kind="` + kind + `"}`
		return m["flyball_leaked_calls_total"+l], m["flyball_leaked_usd_total"+l]
	}
	n, usd := leaks("propagation")
	s.say("leakage, by Flyball's own account: %.0f calls ($%.2f) began while a directive was on its way", n, usd)
	leak, _ := leaks("leak")
	unguarded, _ := leaks("unguarded")
	s.claim(leak == 0 && unguarded == 0, "%.0f calls began after a limiter had acknowledged one, and %.0f passed no limiter", leak, unguarded)

	total := map[string]int{}
	s.mu.Lock()
	for _, c := range s.tally {
		for guard, n := range c.refused {
			total[guard] += n
		}
	}
	s.mu.Unlock()
	s.say("refused by run-calls: %d, by the kill switch: %d; downgraded by summaries-month: %d", total["run-calls"], total["kill"], len(s.provider.seen(func(a arrival) bool { return a.feature == "summaries" && a.model == small })))
	s.claim(len(total) == 2, "nobody else refused anything")
	for _, g := range []string{"run-calls", "summaries-month", "kill"} {
		s.claim(len(s.oncall.told(g, "firing")) == 1, "%s led to one page", g)
	}
	out, err := s.command(ctx, "guard", "events")
	if err != nil {
		return err
	}
	for _, word := range []string{"terminate", "downgrade", "automatic", "60% of runs admitted", "off"} {
		if !strings.Contains(out, word) {
			s.claim(false, "the events have %q", word)
		}
	}
	return nil
}

// sameMoney compares amounts that are written with a different number of zeros.
func sameMoney(a, b string) bool {
	trim := func(s string) string {
		if strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
	return trim(a) == trim(b)
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
