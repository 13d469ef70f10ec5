// Command load plays the traffic of AI agents over real OTLP, gRPC or HTTP, as
// fast as it is told, and reports what became of it.
//
// It guarantees that every span is new: ids are unique within a load, and two
// loads do not meet. It costs little itself: requests are encoded once, and only
// ids, times, users and tenants are overwritten between two sends, so that what
// is measured is the receiver. With --verify it also knows how many model and
// tool calls the service has to count, and fails where it counts others.
//
// load fill makes a past of months instead, without a service: see fill.
//
// It sends to loopback addresses only: a benchmark that was pointed at someone
// else's collector by mistake is an attack.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/flyball/flyball/schema/engine"
)

// Exit codes, as those of the service's own command line.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	engine.Main() // this process, where it is the engine of load fill
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "fill" {
		os.Exit(fill(ctx, os.Args[2:], os.Stderr))
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	endpoint, http string
	rate           float64
	duration       time.Duration
	drain          time.Duration
	workers, batch int
	scenario       scenario
	tenants, users int
	key, readKey   string
	json           bool
	verify         string
	pids           []process
}

func parseFlags(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	name := "attributed"
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.endpoint, "endpoint", "127.0.0.1:4317", "OTLP gRPC `address`, on loopback")
	f.StringVar(&o.http, "http", "", "send OTLP HTTP to this `URL` instead, e.g. http://127.0.0.1:4318")
	f.Float64Var(&o.rate, "rate", 0, "`spans` a second, 0 = as fast as possible")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "for how long new runs begin; root-last then needs 30s to end them")
	f.DurationVar(&o.drain, "drain", 0, "how long to go on measuring --pid after the last answer")
	f.IntVar(&o.workers, "workers", 4, "requests in flight, each on a connection of its own")
	f.IntVar(&o.batch, "batch", 1000, "`spans` a request, rounded up to whole runs")
	f.StringVar(&name, "scenario", name, "attributed, root-last or mixed")
	f.IntVar(&o.tenants, "tenants", 50, "number of tenants")
	f.IntVar(&o.users, "users", 5000, "number of users, each of one tenant")
	f.StringVar(&o.key, "key", "", "bearer key to send with")
	f.StringVar(&o.readKey, "read-key", "", "bearer key to read with in --verify (default: --key)")
	f.BoolVar(&o.json, "json", false, "report in JSON")
	f.StringVar(&o.verify, "verify", "", "`URL` of the service's HTTP API: compare its count of calls, exit 1 if it differs")
	f.Func("pid", "`name=pid` of a process to measure, repeatable", func(s string) error {
		p, err := parseProcess(s)
		o.pids = append(o.pids, p)
		return err
	})
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	switch o.scenario, err = findScenario(name); {
	case err != nil:
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.workers < 1 || o.batch < 1 || o.tenants < 1 || o.users < 1 || o.rate < 0 || o.duration <= 0:
		err = errors.New("--workers, --batch, --tenants, --users and --duration are at least 1, --rate at least 0")
	case o.scenario.phases > 1 && o.rate == 0:
		err = errors.New("root-last needs a --rate: its runs last 30 s, so answers cannot set the pace")
	case o.batch > 100_000:
		err = errors.New("--batch is at most 100000")
	default:
		err = o.checkLoopback()
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return o, err
}

// checkLoopback refuses every target that is not on this machine.
func (o *options) checkLoopback() error {
	hosts := []string{}
	if o.http == "" {
		host, _, err := net.SplitHostPort(o.endpoint)
		if err != nil {
			return fmt.Errorf("parse --endpoint: %w", err)
		}
		hosts = append(hosts, host)
	}
	for _, text := range []string{o.http, o.verify} {
		if text == "" {
			continue
		}
		u, err := url.Parse(text)
		if err != nil {
			return fmt.Errorf("parse URL: %w", err)
		}
		hosts = append(hosts, u.Hostname())
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); h != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("host %q is not a loopback address", h)
		}
	}
	return nil
}

// run is main without the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		return exitUsage
	}
	r, err := o.measure(ctx)
	if r != nil {
		write := r.text
		if o.json {
			write = r.json
		}
		if werr := write(stdout); werr != nil && err == nil {
			err = werr
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	if r.Failed > 0 || r.Verify != nil && !r.Verify.Match {
		return exitFailed
	}
	return exitOK
}

// measure runs the load and whatever surrounds it. The report may come with an
// error: of the verification.
func (o *options) measure(ctx context.Context) (*report, error) {
	var mu sync.Mutex // guards last
	var last string
	l := &load{
		group:    newGroup(o.scenario, o.batch, o.users, o.tenants),
		source:   newSource(rand.Uint64(), o.users, o.tenants),
		rate:     o.rate,
		duration: o.duration,
		workers:  o.workers,
		dial: func() (sender, error) {
			if o.http != "" {
				return newHTTPSender(o.http, o.key)
			}
			return newGRPCSender(o.endpoint, o.key)
		},
		failure: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			last = err.Error()
		},
	}
	var v *verifier
	if o.verify != "" {
		key := o.readKey
		if key == "" {
			key = o.key
		}
		var err error
		if v, err = newVerifier(ctx, o.verify, key, time.Now()); err != nil {
			return nil, err
		}
	}
	w, err := watch(o.pids)
	if err != nil {
		return nil, err
	}
	cpu := ownCPU()
	t, took, err := l.run(ctx)
	cpu = ownCPU() - cpu
	if err != nil {
		w.stop(0)
		return nil, err
	}
	r := newReport(o.scenario.name, o.rate, t, l.window(), took, cpu)
	r.LastError = last
	// An interrupt ends the load, not the report on it.
	after := context.WithoutCancel(ctx)
	if v != nil {
		r.Verify, err = v.check(after, t)
	}
	select {
	case <-time.After(o.drain):
	case <-ctx.Done():
	}
	r.watched(w.stop(t.Acked))
	return r, err
}
