// Package app wires the parts into one service: it opens the data directory and
// ClickHouse, serves OTLP, the API, the metrics and the console at /, reloads
// configuration, and stops everything in the reverse order of its start.
//
// It guarantees that OTLP is accepted before ClickHouse is up, since the log
// holds what comes, and that Stop is bounded. It refuses to listen beyond this
// machine without keys.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"

	"github.com/flyball/flyball/enforce"
	"github.com/flyball/flyball/ingest"
	"github.com/flyball/flyball/ingest/dialect"
	"github.com/flyball/flyball/ingest/otlp"
	"github.com/flyball/flyball/ingest/price"
	"github.com/flyball/flyball/query"
	"github.com/flyball/flyball/query/console"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/engine"
)

// App is a running service.
type App struct {
	cfg      Config
	path     string
	env      []string
	log      *slog.Logger
	reg      *prometheus.Registry
	keys     atomic.Pointer[schema.Keyring]
	tenants  atomic.Pointer[map[string]*time.Location]
	rates    atomic.Pointer[schema.Rates]
	pricer   *ingest.Pricer
	pipeline *ingest.Pipeline
	loop     *enforce.Loop
	sink     *ingest.ClickHouse
	engine   atomic.Pointer[engine.Engine]
	opening  atomic.Pointer[string] // what ClickHouse waits for
	rejected atomic.Pointer[[]price.Rejection]
	live     atomic.Pointer[Config] // after the last reload
	rooms    rooms
	forget   forgetter
	addrs    map[string]string
	fail     chan error
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	closers  []closer // run last in, first out
}

type closer struct {
	name string
	f    func(context.Context) error
}

// New starts a service. path is the file that SIGHUP reads again, "" is none.
func New(cfg Config, path string, env []string, log *slog.Logger) (_ *App, err error) {
	a := &App{cfg: cfg, path: path, env: env, log: log, reg: prometheus.NewRegistry(), addrs: map[string]string{}, fail: make(chan error, 1)}
	a.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.forget.wake = make(chan struct{}, 1)
	a.ctx, a.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			_ = a.Stop()
		}
	}()
	cat, err := a.loadPrices(cfg)
	if err != nil {
		return nil, err
	}
	a.pricer = ingest.NewPricer(cat)
	use, err := a.prepare(cfg)
	if err != nil {
		return nil, err
	}
	use()
	stopTracing, err := startTracing(a.ctx, cfg.Tracing, &cfg.Listen)
	if err != nil {
		return nil, err
	}
	a.onStop("tracing", stopTracing)
	a.sink = &ingest.ClickHouse{}
	a.pipeline, err = ingest.Open(ingest.Options{
		Dir: cfg.Data, Dialect: a.dialectOptions(cfg), Price: a.pricer, Sink: a.sink,
		Settle: time.Duration(cfg.Limits.Settle), Lateness: time.Duration(cfg.Limits.Lateness), MaxOpen: cfg.Limits.OpenRuns, MaxBytes: int64(cfg.Limits.OpenRunBytes),
		Followed: true, WALBytes: int64(cfg.Limits.WALBytes), TenantSpansPerSecond: cfg.Limits.TenantSpansPerSecond, Logger: log, Registerer: a.reg,
	})
	if err != nil {
		return nil, err
	}
	a.onStop("pipeline", func(context.Context) error { return a.pipeline.Close() })
	if err := a.startEnforcement(cfg); err != nil {
		return nil, err
	}
	if err := portFree(cfg); err != nil {
		return nil, err
	}
	a.wg.Go(a.watchLedger)
	a.wg.Go(a.reportRooms)
	a.wg.Go(a.forgetUsers)
	a.wg.Go(a.openEngine)
	a.wg.Go(a.checkConservation)
	a.wg.Go(a.foldRuns)
	a.wg.Go(a.refreshPrices)
	a.onStop("engine", func(context.Context) error {
		a.cancel()
		a.wg.Wait()
		if e := a.engine.Load(); e != nil {
			return e.Close()
		}
		return nil
	})
	if err := a.listen(); err != nil {
		return nil, err
	}
	// First of all when it stops: a listener waits for its connections, and those that
	// follow directives do not end by themselves.
	a.onStop("feed", func(context.Context) error { a.loop.CloseFeed(); return nil })
	return a, nil
}

func (a *App) onStop(name string, f func(context.Context) error) {
	a.closers = append(a.closers, closer{name, f})
}

// Failed delivers what ends the service.
func (a *App) Failed() <-chan error { return a.fail }

// Addr is the address a listener got, by its name in the configuration.
func (a *App) Addr(name string) string { return a.addrs[name] }

func (a *App) dialectOptions(cfg Config) dialect.Options {
	return dialect.Options{Attributes: cfg.Attributes, Emitters: cfg.Emitters, Tools: cfg.Tools, Limits: a.rooms.read}
}

// prepare reads keys, time zones and rates; what it returns puts them in force.
func (a *App) prepare(cfg Config) (use func(), err error) {
	ring, err := schema.NewKeyring(cfg.Keys)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	zones := map[string]*time.Location{}
	for t, tc := range cfg.Tenants {
		if zones[t], err = time.LoadLocation(tc.Timezone); err != nil {
			return nil, fmt.Errorf("tenant %s: %w", t, err)
		}
	}
	rates, err := schema.LoadRates(cfg.FX.Files)
	if err != nil {
		return nil, err
	}
	return func() {
		a.keys.Store(ring)
		a.rates.Store(rates)
		a.tenants.Store(&zones)
		a.live.Store(&cfg)
	}, nil
}

func (a *App) loadPrices(cfg Config) (*price.Catalogue, error) {
	cat, rejected, err := LoadPrices(cfg)
	if err != nil {
		return nil, err
	}
	for _, r := range rejected {
		a.log.Warn("price row not taken", "source", r.Source, "row", r.Row, "reason", r.Reason)
	}
	a.rejected.Store(&rejected)
	return cat, nil
}

// Reload reads configuration, keys and prices again. On an error everything stays
// as it was.
func (a *App) Reload() error {
	cfg, err := LoadConfig(a.path, a.env)
	if err != nil {
		return err
	}
	cat, err := a.loadPrices(cfg)
	if err != nil {
		return err
	}
	if _, err := dialect.New(a.dialectOptions(cfg)); err != nil {
		return err
	}
	policy, err := policyText(cfg)
	if err != nil {
		return err
	}
	use, err := a.prepare(cfg)
	if err != nil {
		return err
	}
	if err := a.loop.Reload(cfg.Pages.Receivers, policy, cfg.Policy); err != nil {
		return err
	}
	if err := a.pipeline.UseDialect(a.dialectOptions(cfg)); err != nil {
		return err
	}
	use()
	a.pricer.Use(cat)
	a.log.Info("configuration reloaded")
	return nil
}

// openEngine opens and migrates ClickHouse, again and again until it works.
func (a *App) openEngine() {
	pause := 200 * time.Millisecond
	for a.ctx.Err() == nil {
		e, err := a.tryEngine()
		if err == nil {
			a.engine.Store(e)
			a.sink.Use(e)
			a.log.Info("clickhouse is ready", "version", e.Version(), "embedded", e.Embedded())
			return
		}
		msg := err.Error()
		a.opening.Store(&msg)
		if a.ctx.Err() == nil {
			a.log.Error("clickhouse is not ready", "err", err, "again_in", pause)
		}
		select {
		case <-a.ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, 10*time.Second)
	}
}

func (a *App) tryEngine() (*engine.Engine, error) {
	ctx, cancel := context.WithTimeout(a.ctx, time.Minute)
	defer cancel()
	e, err := engine.Open(ctx, engine.Options{
		DSN: a.cfg.ClickHouse.DSN, Dir: filepath.Join(a.cfg.Data, "clickhouse"), Listen: a.cfg.Listen.ClickHouse,
		MemoryBytes: int64(a.cfg.ClickHouse.Memory), Threads: a.cfg.ClickHouse.Threads, Database: a.cfg.ClickHouse.Database, Fsync: a.cfg.ClickHouse.Fsync,
		Authorize: a.authorizeOperator, Logger: a.log, Registerer: a.reg,
	})
	if err != nil {
		return nil, err
	}
	// A migration may rewrite a table, however large.
	if err := schema.Migrate(a.ctx, e.Conn(), a.cfg.ClickHouse.Cluster, a.pipeline.Confirmed()); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if err := schema.Retain(ctx, e.Conn(), a.cfg.ClickHouse.Cluster, int(a.cfg.Retention.Journal), int(a.cfg.Retention.Rollups)); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// checkConservation looks every ten minutes at what was stored since the last look.
func (a *App) checkConservation() {
	lines := promauto.With(a.reg).NewGauge(prometheus.GaugeOpts{Name: "flyball_conservation_lines", Help: "Lines of the journal whose entries sum to neither 0 nor 1, after what the last check corrected."})
	rollups := promauto.With(a.reg).NewGauge(prometheus.GaugeOpts{Name: "flyball_conservation_rollups", Help: "Tenants whose rollups differ from the journal, at the last check."})
	t := time.NewTicker(10 * time.Minute)
	defer t.Stop()
	checker := ingest.NewChecker(a.pipeline)
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-t.C:
		}
		conn := a.conn()
		if conn == nil {
			continue
		}
		d, err := checker.Check(a.ctx, conn)
		if err != nil {
			a.log.Warn("conservation was not checked", "err", err)
			continue
		}
		lines.Set(float64(d.Lines))
		rollups.Set(float64(d.Rollup))
		if d != (ingest.Drift{}) {
			a.log.Error("conservation is broken", "lines", d.Lines, "rollups", d.Rollup)
		}
	}
}

// foldRuns looks every minute for days whose states of runs are to be made.
func (a *App) foldRuns() {
	failures := promauto.With(a.reg).NewCounter(prometheus.CounterOpts{Name: "flyball_run_states_failures_total", Help: "Attempts to make the states of runs of a day that failed; questions about runs are slower meanwhile, and right."})
	t := time.NewTicker(time.Minute)
	defer t.Stop()
	for {
		if a.conn() != nil {
			through, err := a.pipeline.FoldRuns(a.ctx, a.writer())
			switch {
			case a.ctx.Err() != nil:
				return
			case err != nil:
				failures.Inc()
				a.log.Error("the states of runs are not made", "err", err)
			case !through.IsZero():
				a.log.Info("the states of runs are made", "through", through.Format(time.DateOnly))
			}
		}
		select {
		case <-a.ctx.Done():
			return
		case <-t.C:
		}
	}
}

// refreshPrices reads the files of prices and rates again as often as the configuration says.
func (a *App) refreshPrices() {
	every := time.Duration(a.cfg.Prices.Refresh)
	if every <= 0 {
		return
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-t.C:
		}
		cat, err := a.loadPrices(*a.live.Load())
		if err != nil {
			a.log.Error("prices stay as they were", "err", err)
			continue
		}
		a.pricer.Use(cat)
		rates, err := schema.LoadRates(a.live.Load().FX.Files)
		if err != nil {
			a.log.Error("rates stay as they were", "err", err)
			continue
		}
		a.rates.Store(rates)
	}
}

// authorizeOperator guards the surfaces that see every tenant.
func (a *App) authorizeOperator(r *http.Request) error {
	ring := a.keys.Load()
	if ring.Len() == 0 {
		return nil // loopback only, which the configuration made sure of
	}
	secret, ok := schema.BearerToken(r.Header.Get("Authorization"))
	if !ok {
		if _, pass, basic := r.BasicAuth(); basic { // what Grafana's data source sends
			secret = pass
		} else {
			secret = r.Header.Get("X-ClickHouse-Key")
		}
	}
	key, ok := ring.Lookup(secret, time.Now())
	if !ok || !key.AllowsAll() || key.Role != schema.KeyRead && key.Role != schema.KeyAdmin {
		return errors.New("send a key with role read or admin and tenants: \"*\"")
	}
	return nil
}

func (a *App) conn() driver.Conn {
	if e := a.engine.Load(); e != nil {
		return e.Reader()
	}
	return nil
}

func (a *App) writer() driver.Conn { return a.engine.Load().Conn() }

// stored is the instant before which every entry that was recorded is in the journal.
func (a *App) stored() time.Time {
	for range 20 {
		now := time.Now()
		st := a.pipeline.Status()
		switch {
		case st.Queued == 0:
			return now
		case st.LagSeconds > 0:
			return now.Add(-time.Duration(st.LagSeconds*float64(time.Second)) - time.Second)
		}
		time.Sleep(20 * time.Millisecond) // the writer has not looked at the next entries yet
	}
	return time.Time{}
}

// listenOn opens a listener of the configuration.
func listenOn(name, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen.%s: %w (is another Flyball or collector running? FLYBALL_LISTEN__%s moves it)", name, err, upper(name))
	}
	return l, nil
}

// portFree refuses a start where the port of the embedded ClickHouse is taken: it is opened
// with the engine, much later, and nobody would see why it is tried again and again.
func portFree(cfg Config) error {
	if cfg.Listen.ClickHouse == "" || !engine.Embedded(cfg.ClickHouse.DSN) {
		return nil
	}
	l, err := listenOn("clickhouse", cfg.Listen.ClickHouse)
	if err != nil {
		return err
	}
	return l.Close()
}

// certificate reads the certificate of the listeners; nil is none.
func certificate(t TLS) (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("read tls certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// Check reads the files that a configuration names, as New does, and says why it would
// not start.
func Check(cfg Config) error {
	cat, _, err := LoadPrices(cfg)
	errs := []error{err}
	text, err := policyText(cfg)
	if err == nil && text != nil && cat != nil {
		if _, _, err = enforce.ParsePolicy(text, PolicyOptions(cfg, ingest.NewPricer(cat))); err != nil {
			err = fmt.Errorf("policy %s: %w", cfg.Policy, err)
		}
	}
	errs = append(errs, err)
	_, err = schema.LoadRates(cfg.FX.Files)
	errs = append(errs, err)
	_, err = dialect.New(dialect.Options{Attributes: cfg.Attributes, Emitters: cfg.Emitters, Tools: cfg.Tools})
	errs = append(errs, err)
	_, err = certificate(cfg.TLS)
	return errors.Join(append(errs, err)...)
}

// listen opens every listener before any is served, so that a port in use is an
// error of the start.
func (a *App) listen() error {
	tlsConfig, err := certificate(a.cfg.TLS)
	if err != nil {
		return err
	}
	recv, err := otlp.NewReceiver(otlp.Options{Consumer: a.pipeline, Keys: a.keys.Load, RequestBytes: int64(a.cfg.Limits.RequestBytes), InflightBytes: int64(a.cfg.Limits.InflightBytes), TLS: tlsConfig, Logger: a.log, Registerer: a.reg})
	if err != nil {
		return err
	}
	open := func(name, addr string) (net.Listener, error) {
		l, err := listenOn(name, addr)
		if err != nil {
			return nil, err
		}
		a.addrs[name] = l.Addr().String()
		return l, nil
	}
	var grpcL, otlpL, httpL net.Listener
	for _, l := range []struct {
		name, addr string
		dst        *net.Listener
	}{{"otlp_grpc", a.cfg.Listen.OTLPGRPC, &grpcL}, {"otlp_http", a.cfg.Listen.OTLPHTTP, &otlpL}, {"http", a.cfg.Listen.HTTP, &httpL}} {
		if l.addr == "" {
			continue
		}
		if *l.dst, err = open(l.name, l.addr); err != nil {
			for _, o := range []net.Listener{grpcL, otlpL, httpL} {
				if o != nil {
					_ = o.Close()
				}
			}
			return err
		}
	}
	if a.cfg.Listen.Pprof != "" {
		l, err := open("pprof", a.cfg.Listen.Pprof)
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
		a.serve("pprof", l, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second})
	}
	if grpcL != nil {
		a.serveGRPC("otlp_grpc", grpcL, recv.NewGRPCServer())
	}
	if a.cfg.Listen.Envoy != "" {
		s, err := a.envoyServer(tlsConfig)
		if err != nil {
			return err
		}
		l, err := open("envoy", a.cfg.Listen.Envoy)
		if err != nil {
			return err
		}
		a.serveGRPC("envoy", l, s.GRPC())
	}
	if otlpL != nil {
		a.serve("otlp_http", otlpL, recv.NewHTTPServer())
	}
	if httpL != nil {
		routes, err := a.router()
		if err != nil {
			return errors.Join(err, httpL.Close())
		}
		a.serve("http", httpL, &http.Server{Handler: routes, TLSConfig: tlsConfig, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10})
	}
	return nil
}

func (a *App) serveGRPC(name string, l net.Listener, s *grpc.Server) {
	go func() { a.failed(s.Serve(l)) }()
	a.onStop(name, func(ctx context.Context) error {
		done := make(chan struct{})
		go func() { s.GracefulStop(); close(done) }()
		select {
		case <-done:
		case <-ctx.Done():
			s.Stop()
		}
		return nil
	})
}

func (a *App) serve(name string, l net.Listener, s *http.Server) {
	go func() {
		var err error
		if s.TLSConfig != nil {
			err = s.ServeTLS(l, "", "")
		} else {
			err = s.Serve(l)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			a.failed(err)
		}
	}()
	a.onStop(name, func(ctx context.Context) error {
		if err := s.Shutdown(ctx); err != nil {
			return s.Close()
		}
		return nil
	})
}

func (a *App) failed(err error) {
	if err == nil || a.ctx.Err() != nil {
		return
	}
	select {
	case a.fail <- err:
	default:
	}
}

// router serves the API, the metrics, health and the console at /.
func (a *App) router() (http.Handler, error) {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.CustomRecovery(func(c *gin.Context, err any) {
		a.log.Error("request panicked", "path", c.Request.URL.Path, "err", err)
		problem(c, http.StatusInternalServerError, "the request failed; see the server's log")
	}))
	if a.cfg.Tracing.Endpoint != "" {
		r.Use(traced())
	}
	r.HandleMethodNotAllowed = true
	r.NoRoute(func(c *gin.Context) {
		problem(c, http.StatusNotFound, "nothing is at %s; "+described+" lists what is", c.Request.URL.Path)
	})
	r.NoMethod(func(c *gin.Context) {
		problem(c, http.StatusMethodNotAllowed, "%s does not take %s; it takes %s", c.Request.URL.Path, c.Request.Method, c.Writer.Header().Get("Allow"))
	})
	api := query.New(query.Options{Conn: a.conn, Write: a.writer, Stored: a.stored, Enforcement: a.loop.Unstored, Record: a.loop.Record, Prices: unitPrices{a.pricer}, ModelName: a.modelName, Rates: a.rates.Load, Registerer: a.reg, Keys: a.keys.Load, Zone: a.zone, SQL: http.HandlerFunc(a.sql), Quarantined: func() uint64 { return uint64(a.pipeline.Status().Quarantined) }, Logger: a.log})
	api.Mount(r)
	if err := api.MountPage(r, query.Setup{GRPC: a.addrs["otlp_grpc"], HTTP: a.addrs["otlp_http"], Console: console.Files()}); err != nil {
		return nil, err
	}
	a.loop.Mount(r, a.keys.Load, a.journal)
	a.mount(r, slices.Concat(api.Routes(), a.loop.Routes()))
	return r, nil
}

func (a *App) sql(w http.ResponseWriter, r *http.Request) {
	e := a.engine.Load()
	if e == nil {
		http.Error(w, "ClickHouse is not up yet; see /readyz", http.StatusServiceUnavailable)
		return
	}
	e.ReadHandler().ServeHTTP(w, r)
}

func (a *App) zone(tenant string) *time.Location {
	if z := (*a.tenants.Load())[tenant]; z != nil {
		return z
	}
	return time.UTC
}

// readyz is 200 while OTLP is accepted; the body says what each part waits for.
func (a *App) readyz(c *gin.Context) {
	ch := gin.H{"ready": false}
	if e := a.engine.Load(); e != nil {
		ctx, cancel := context.WithTimeout(c.Request.Context(), time.Second)
		defer cancel()
		if err := e.Ping(ctx); err != nil {
			ch["waits_for"] = err.Error()
		} else {
			ch["ready"] = true
		}
		ch["version"], ch["embedded"], ch["restarts"] = e.Version(), e.Embedded(), e.Restarts()
	} else if why := a.opening.Load(); why != nil {
		ch["waits_for"] = *why
	} else {
		ch["waits_for"] = "start"
	}
	code, status, in := http.StatusOK, "ready", a.pipeline.Status()
	if in.Refusing != "" {
		code, status = http.StatusServiceUnavailable, "full"
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(code, gin.H{"status": status, "ingest": in, "clickhouse": ch, "prices": a.pricer.Catalogue().Origins, "listen": a.addrs})
}

// Wait returns when something ends the service.
func (a *App) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.fail:
		return err
	case err := <-a.pipeline.Failed():
		return err
	case err := <-a.loop.Failed():
		return err
	}
}

// Stop ends the service within about 20 seconds. What ClickHouse lacks stays in
// the log.
func (a *App) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var errs []error
	for i := len(a.closers) - 1; i >= 0; i-- {
		if err := a.closers[i].f(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", a.closers[i].name, err))
		}
	}
	a.cancel()
	a.wg.Wait()
	a.closers = nil
	return errors.Join(errs...)
}
