package ingest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/flyball/flyball/ingest/dialect"
	"github.com/flyball/flyball/ingest/otlp"
	"github.com/flyball/flyball/ingest/trace"
	"github.com/flyball/flyball/ingest/wal"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// Record kinds of the write-ahead log.
const (
	recordEntries  byte = 1 // a schema.Batch
	recordBoundary byte = 2 // uvarint number of the chunk that ends here
	recordReprice  byte = 3 // a schema.Batch for lines that trace assembly has forgotten, or never knew
	recordOwn      byte = 4 // of whoever follows the log; neither assembly nor the journal reads it
	recordSamples  byte = 5 // a JSON list of schema.Sample; only the writer reads it
)

const (
	chunkRows  = 50_000
	chunkAge   = time.Second
	sliceCalls = 10_000 // calls of a request that are assembled at once
	pageBatch  = 512 << 10
)

// Options of Open.
type Options struct {
	Dir      string // data directory; wal, state and quarantine live below it
	Dialect  dialect.Options
	Price    *Pricer
	Sink     Sink // nil stores nothing in ClickHouse, for tests
	Settle   time.Duration
	Lateness time.Duration // how long a trace is remembered, default 24 h
	MaxOpen  int           // traces in memory, default 100,000
	MaxBytes int64         // memory of traces, default 256 MiB
	WALBytes int64         // default 10 GiB
	// Followed keeps the log until a Follower releases it.
	Followed bool
	// TenantSpansPerSecond bounds each tenant; 0 is no bound.
	TenantSpansPerSecond int
	Logger               *slog.Logger
	Registerer           prometheus.Registerer
}

// Pipeline is the way in: decoded requests become durable entries, and those rows
// in ClickHouse. It is an otlp.Consumer.
type Pipeline struct {
	o       Options
	metrics *metrics
	reader  atomic.Pointer[dialect.Reader]
	store   *state.Store
	log     *wal.Log
	asm     *trace.Assembler
	limiter *tenantLimiter
	calls   sync.Pool
	taught  taught
	node    []byte
	hashKey []byte

	chunk    chunkState
	queued   atomic.Int64 // entries
	samples  atomic.Int64 // samples that are not in ClickHouse
	writer   *writer
	needless wal.Position   // nobody needs the log before it; tick's own
	recent   []checkpointed // checkpoints of the last time, the oldest first; guarded by saving
	followed atomic.Uint64  // the follower does not need the log before it

	stop   context.CancelFunc
	done   sync.WaitGroup
	fail   chan error
	broken atomic.Bool // by what fail delivers

	repricing sync.Mutex // held by the one run there may be
	folding   sync.Mutex // held while states of runs are made, or a user is renamed
	opened    openStates // guarded by folding
	forget    atomic.Pointer[ForgetJob]
	saving    sync.Mutex // held while traces are written to the store
	adjusting sync.Mutex // held from looking for an id to posting it
	checked   uint64     // chunks up to it were looked at by a Checker, which alone changes it
}

// openStates says up to when the states of the day that is not over were made, when they are
// made again, and of how many runs at least.
type openStates struct {
	through, again time.Time
	least          uint64
}

// chunkState is the chunk that is being filled.
type chunkState struct {
	mu     sync.Mutex // append and tick
	number uint64
	rows   int // entries and samples
	since  time.Time
}

// Open recovers what the log and the store hold and starts the background work.
// It does not wait for ClickHouse.
func Open(o Options) (*Pipeline, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Lateness == 0 {
		o.Lateness = 24 * time.Hour
	}
	if o.WALBytes == 0 {
		o.WALBytes = 10 << 30
	}
	p := &Pipeline{o: o, metrics: newMetrics(o.Registerer), fail: make(chan error, 1), opened: openStates{least: openRuns}}
	p.calls.New = func() any { s := make([]schema.Call, 0, 512); return &s }
	if o.TenantSpansPerSecond > 0 {
		p.limiter = newTenantLimiter(o.TenantSpansPerSecond)
	}
	if !o.Followed {
		p.followed.Store(math.MaxUint64)
	}
	var err error
	p.store, err = state.Open(state.Options{Dir: filepath.Join(o.Dir, "state"), KeepDays: int((o.Lateness + 24*time.Hour - 1) / (24 * time.Hour)), Logger: o.Logger, Registerer: o.Registerer})
	if err != nil {
		return nil, err
	}
	p.log, err = wal.Open(wal.Options{Dir: filepath.Join(o.Dir, "wal"), MaxBytes: o.WALBytes, Logger: o.Logger, Registerer: o.Registerer})
	if err != nil {
		return nil, errors.Join(err, p.store.Close())
	}
	if err := errors.Join(p.identify(), p.UseDialect(o.Dialect)); err != nil {
		return nil, errors.Join(err, p.log.Close(), p.store.Close())
	}
	p.asm = trace.New(trace.Options{Price: o.Price, Append: p.append, AppendForgotten: p.appendForgotten, Store: p.store, Settle: o.Settle, Lateness: o.Lateness, MaxOpen: o.MaxOpen, MaxBytes: o.MaxBytes, Logger: o.Logger, Registerer: o.Registerer})
	if err := p.resumeForget(); err != nil {
		return nil, errors.Join(err, p.log.Close(), p.store.Close())
	}
	if err := p.recover(); err != nil {
		return nil, errors.Join(err, p.log.Close(), p.store.Close())
	}
	// Before anything is appended: a log without a segment calls its beginning
	// pruned as soon as the first record waits to be written.
	r, err := p.log.NewReader(p.writer.safe())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open log: %w", err), p.log.Close(), p.store.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.metrics.watch(o.Registerer, p)
	p.done.Add(1)
	go func() { defer p.done.Done(); p.tick(ctx) }()
	if o.Sink != nil {
		p.done.Go(func() { p.writer.run(ctx, r) })
	}
	return p, nil
}

// identify reads, or makes with the data, the node's name and the key of its
// argument hashes. The log's lock keeps a second holder of the data out.
func (p *Pipeline) identify() error {
	for _, v := range [...]struct {
		name string
		dst  *[]byte
	}{{keyNode, &p.node}, {keyHash, &p.hashKey}} {
		b, err := p.store.Get(v.name)
		if err != nil {
			return err
		}
		if b == nil {
			if p.log.End() > 0 {
				return errors.New("open local store: it is empty, while the log beside it is not: what is stored already would be stored again. " +
					"Put back the state directory that belongs to the log; if it is lost, move the wal directory away too, and with it what ClickHouse has not got yet")
			}
			b = make([]byte, 16)
			_, _ = rand.Read(b)
			w := p.store.NewBatch()
			if err := w.Put(v.name, b); err != nil {
				return err
			}
			if err := w.Commit(true); err != nil {
				return err
			}
		}
		*v.dst = b
	}
	return nil
}

// UseDialect replaces attribute mapping and pins, for spans received from now on.
func (p *Pipeline) UseDialect(o dialect.Options) error {
	o.HashKey = p.hashKey
	r, err := dialect.New(o)
	if err != nil {
		return err
	}
	p.reader.Store(r)
	return nil
}

// Failed delivers the error after which nothing can be promised any more: the
// process must stop.
func (p *Pipeline) Failed() <-chan error { return p.fail }

func (p *Pipeline) failed(err error) {
	p.broken.Store(true)
	select {
	case p.fail <- err:
	default:
	}
}

// Close stops taking data in, saves the open traces and closes the log and the
// store. What ClickHouse lacks is in the log and follows at the next start.
func (p *Pipeline) Close() error {
	p.stop()
	p.done.Wait()
	err := p.checkpoint(time.Now().UnixNano(), true)
	return errors.Join(err, p.log.Close(), p.store.Close())
}

// Position names in the store.
const (
	keyCheckpoint = "checkpoint" // log position up to which the store knows all traces, the last recorded_at, and how much before it a start remembers
	keyChecked    = "checked"    // last chunk up to which nothing in the journal was broken
	keyConfirmed  = "confirmed"  // last chunk ClickHouse has, the position after it, and the last recorded_at
	keyNode       = "node"
	keyHash       = "hash-key"
)

func position(b []byte, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		v, k := binary.Uvarint(b)
		if k <= 0 {
			break
		}
		out[i], b = v, b[k:]
	}
	return out
}

// recover replays the log behind the last checkpoint.
func (p *Pipeline) recover() error {
	ck, err := p.store.Get(keyCheckpoint)
	if err != nil {
		return err
	}
	cf, err := p.store.Get(keyConfirmed)
	if err != nil {
		return err
	}
	checked, err := p.store.Get(keyChecked)
	if err != nil {
		return err
	}
	p.checked = position(checked, 1)[0]
	saved := position(ck, 3)
	checkpoint := wal.Position(saved[0])
	remember := checkpoint - wal.Position(min(saved[2], saved[0]))
	confirmed := position(cf, 3)
	if checkpoint > p.log.End() || wal.Position(confirmed[1]) > p.log.End() {
		return fmt.Errorf("recover: the local store is ahead of the log (%d, %d > %d); was the wal directory replaced?", checkpoint, confirmed[1], p.log.End())
	}
	p.recent = append(p.recent, checkpointed{time.Now().UnixNano(), uint64(remember)})
	p.chunk.number = confirmed[0] + 1
	if p.writer, err = newWriter(p, confirmed); err != nil {
		return err
	}
	from := max(p.log.Oldest(), min(remember, wal.Position(confirmed[1])))
	p.asm.Resume(uint64(max(from, checkpoint)), int64(saved[1]))
	r, err := p.log.NewReader(from)
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	defer r.Close()
	started, records := time.Now(), 0
	for {
		rec, ok, err := r.TryNext()
		if err != nil {
			return fmt.Errorf("recover: %w", err)
		}
		if !ok {
			break
		}
		records++
		switch rec.Kind {
		case recordEntries, recordReprice:
			n, last := 0, int64(0)
			if err := schema.EachEntry(rec.Data, func(e schema.RawEntry) error { n, last = n+1, e.RecordedAt; return nil }); err != nil {
				return fmt.Errorf("recover record at %d: %w", rec.Start, err)
			}
			if rec.Start >= wal.Position(confirmed[1]) {
				p.queued.Add(int64(n))
				p.chunk.rows += n
			}
			switch {
			case rec.Start < remember || rec.Start < checkpoint && rec.Kind == recordReprice: // the store knows it
			case rec.Start < checkpoint:
				if err := p.asm.Remember(rec.Data); err != nil {
					return fmt.Errorf("remember record at %d: %w", rec.Start, err)
				}
			case rec.Kind == recordReprice:
				p.asm.Resume(uint64(rec.End), last)
			default:
				if err := p.asm.Replay(rec.Data, uint64(rec.End), time.Now().UnixNano()); err != nil {
					return fmt.Errorf("replay record at %d: %w", rec.Start, err)
				}
			}
		case recordSamples:
			if rec.Start >= wal.Position(confirmed[1]) {
				var samples []schema.Sample
				if err := json.Unmarshal(rec.Data, &samples); err != nil {
					return fmt.Errorf("recover record at %d: %w", rec.Start, err)
				}
				p.samples.Add(int64(len(samples)))
				p.chunk.rows += len(samples)
			}
		case recordBoundary:
			if rec.Start >= wal.Position(confirmed[1]) {
				n, _ := binary.Uvarint(rec.Data)
				p.chunk.number, p.chunk.rows = n+1, 0
			}
		}
	}
	p.asm.Resume(uint64(p.log.End()), 0)
	p.chunk.since = time.Now()
	if records > 0 {
		p.o.Logger.Info("recovered from the log", "records", records, "queued_entries", p.queued.Load(), "took", time.Since(started).Round(time.Millisecond))
	}
	return nil
}

// append writes one record of entries; it runs under the assembler's lock.
func (p *Pipeline) append(payload []byte, entries int) (uint64, error) {
	return p.record(recordEntries, payload, entries, &p.queued)
}

func (p *Pipeline) appendForgotten(payload []byte, entries int) (uint64, error) {
	return p.record(recordReprice, payload, entries, &p.queued)
}

// record appends a record of rows for ClickHouse, which queue counts until it has them.
func (p *Pipeline) record(kind byte, payload []byte, rows int, queue *atomic.Int64) (uint64, error) {
	p.chunk.mu.Lock()
	defer p.chunk.mu.Unlock()
	_, end, err := p.log.Append(kind, payload)
	if err != nil {
		p.failed(err)
		return 0, err
	}
	queue.Add(int64(rows))
	if p.chunk.rows == 0 {
		p.chunk.since = time.Now()
	}
	if p.chunk.rows += rows; p.chunk.rows >= chunkRows {
		if end, err = p.boundary(); err != nil {
			return 0, err
		}
	}
	return uint64(end), nil
}

// boundary ends the chunk. chunk.mu is held.
func (p *Pipeline) boundary() (wal.Position, error) {
	_, end, err := p.log.Append(recordBoundary, binary.AppendUvarint(nil, p.chunk.number))
	if err != nil {
		p.failed(err)
		return 0, err
	}
	p.chunk.number++
	p.chunk.rows = 0
	return end, nil
}

// tick does what time asks for: settling, chunk boundaries, checkpoints.
func (p *Pipeline) tick(ctx context.Context) {
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	lastCheckpoint, lastExpire := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.log.Failed():
			p.failed(p.log.Err())
			return
		case <-t.C:
		}
		now := time.Now()
		if _, err := p.asm.Tick(now.UnixNano()); err != nil {
			p.failed(err)
			return
		}
		p.chunk.mu.Lock()
		if p.chunk.rows > 0 && now.Sub(p.chunk.since) >= chunkAge-100*time.Millisecond {
			if end, err := p.boundary(); err == nil {
				p.done.Add(1)
				go func() { defer p.done.Done(); _ = p.log.Sync(ctx, end) }()
			}
		}
		p.chunk.mu.Unlock()
		if now.Sub(lastCheckpoint) >= time.Second {
			lastCheckpoint = now
			if err := p.checkpoint(now.UnixNano(), p.pressed() || p.forget.Load() != nil); err != nil {
				p.failed(err)
				return
			}
			if err := p.log.Prune(min(p.needless, wal.Position(p.followed.Load()))); err != nil {
				p.o.Logger.Error("prune log", "err", err)
			}
		}
		if now.Sub(lastExpire) >= time.Minute {
			lastExpire = now
			if err := p.store.Expire(now.UnixNano()); err != nil {
				p.o.Logger.Error("expire local store", "err", err)
			}
		}
	}
}

// pressed reports whether the log fills up with what ClickHouse has already, so
// that only traces which have not come to rest hold it.
func (p *Pipeline) pressed() bool {
	return p.log.Stats().Bytes > p.o.WALBytes/2 && p.writer.safe() > p.needless
}

// checkpoint saves resting traces, or all, and moves needless to the log position
// before which neither the store nor ClickHouse needs the log. The store is
// written only after the log is durable that far, and is durable itself before
// the log may be pruned.
func (p *Pipeline) checkpoint(now int64, all bool) error {
	if p.broken.Load() {
		return nil // memory may be ahead of the log
	}
	p.saving.Lock()
	defer p.saving.Unlock()
	confirmed := p.writer.safe() // its commit comes before the one below
	// The pages of many traces are several batches, each small enough for its memory to be
	// used again. It does no harm if a crash leaves some of them: replay passes over lines
	// that are as new.
	var pages []*state.Batch
	safe, end, err := p.asm.Save(now, all, func(pg trace.Page) error {
		if n := len(pages); n == 0 || pages[n-1].Len() >= pageBatch {
			pages = append(pages, p.store.NewBatch())
		}
		return pages[len(pages)-1].PutTrace(pg.Day, pg.Key, pg.Page, pg.Value)
	})
	if err != nil {
		return err
	}
	if err := p.log.Sync(context.Background(), wal.Position(end)); err != nil {
		return fmt.Errorf("sync log before checkpoint: %w", err)
	}
	for _, b := range pages {
		if err := b.Commit(false); err != nil {
			return err
		}
	}
	remember := p.rememberFrom(now, safe, end)
	ck := binary.AppendUvarint(nil, safe)
	ck = binary.AppendUvarint(ck, uint64(p.asm.Recorded()))
	ck = binary.AppendUvarint(ck, safe-remember)
	b := p.store.NewBatch()
	if err := b.Put(keyCheckpoint, ck); err != nil {
		return err
	}
	needless := min(wal.Position(remember), confirmed)
	if err := b.Commit(len(pages) > 0 || all || needless != p.needless); err != nil {
		return err
	}
	p.needless = needless
	p.asm.Shrink()
	return nil
}

// A start reads what was logged in the last time though it is saved, and remembers which
// answers were recorded in it, in case another record of one comes in another trace.
const (
	rememberFor   = int64(time.Minute)
	rememberBytes = 8 << 20
)

type checkpointed struct {
	at   int64 // unix ns
	safe uint64
}

// rememberFrom is the position from which a start remembers, where all before safe is saved.
// Nothing is kept for it while the log fills up, or somebody is forgotten.
func (p *Pipeline) rememberFrom(now int64, safe, end uint64) uint64 {
	if p.forget.Load() != nil || p.pressed() {
		p.recent = p.recent[:0]
	}
	p.recent = append(p.recent, checkpointed{now, safe})
	for len(p.recent) > 1 && (now-p.recent[0].at > rememberFor || end-p.recent[0].safe > rememberBytes) {
		p.recent = p.recent[1:]
	}
	return p.recent[0].safe
}

// Traces takes spans in. It returns after the fsync that covers them.
func (p *Pipeline) Traces(ctx context.Context, from otlp.Sender, td ptrace.Traces) (otlp.Result, error) {
	n := td.SpanCount()
	if err := p.admit(n * 600); err != nil {
		return otlp.Result{}, err
	}
	buf := p.calls.Get().(*[]schema.Call)
	start := time.Now()
	calls, rejected := p.reader.Load().AppendSpans((*buf)[:0], td, origin(from), start.UnixNano())
	p.metrics.stage.WithLabelValues("dialect").Observe(time.Since(start).Seconds())
	return p.take(ctx, buf, calls, rejected, "spans")
}

// Spans takes spans in from the protobuf they came in, where that is regular.
func (p *Pipeline) Spans(ctx context.Context, from otlp.Sender, request []byte) (spans int, res otlp.Result, taken bool, err error) {
	if err := p.admit(len(request)); err != nil {
		return 0, res, true, err
	}
	buf := p.calls.Get().(*[]schema.Call)
	start := time.Now()
	calls, n, rejected, ok := p.reader.Load().AppendWire((*buf)[:0], request, origin(from), start.UnixNano())
	if !ok {
		p.calls.Put(buf)
		return 0, res, false, nil
	}
	p.metrics.stage.WithLabelValues("dialect").Observe(time.Since(start).Seconds())
	res, err = p.take(ctx, buf, calls, rejected, "spans")
	return n, res, true, err
}

// Logs takes events of agent command lines in and counts other records, which no full log
// refuses.
func (p *Pipeline) Logs(ctx context.Context, from otlp.Sender, ld plog.Logs) (otlp.Result, error) {
	buf := p.calls.Get().(*[]schema.Call)
	calls, ignored, rejected := p.reader.Load().AppendLogs((*buf)[:0], ld, origin(from), time.Now().UnixNano())
	if len(calls) > 0 { // the rest needs no room
		if err := p.admit(len(calls) * 600); err != nil {
			p.giveBack(buf, calls)
			return otlp.Result{}, err
		}
	}
	res, err := p.take(ctx, buf, calls, rejected, "log records")
	if err == nil { // else it comes again
		p.metrics.ignored.WithLabelValues("logs").Add(float64(ignored))
	}
	return res, err
}

// tracer makes the service's own spans, where it exports any.
var tracer = otel.Tracer("github.com/flyball/flyball/ingest")

// endSpan ends a span of something that err came of.
func endSpan(span oteltrace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// giveBack keeps the memory of calls for the next request, without the request's strings.
func (p *Pipeline) giveBack(buf *[]schema.Call, calls []schema.Call) {
	clear(calls)
	*buf = calls[:0]
	if cap(calls) <= 8192 {
		p.calls.Put(buf)
	}
}

// take makes the calls of a request durable; what says what their records are.
func (p *Pipeline) take(ctx context.Context, buf *[]schema.Call, calls []schema.Call, rejected dialect.Rejected, what string) (out otlp.Result, err error) {
	ctx, span := tracer.Start(ctx, "take "+what)
	defer func() { endSpan(span, err) }()
	defer p.giveBack(buf, calls)
	if err := throttle(p, calls, func(c *schema.Call) string { return c.Tenant }); err != nil {
		return otlp.Result{}, err
	}
	p.taught.fill(calls)
	start := time.Now()
	var usage [3]int
	for i := range calls {
		if c := &calls[i]; c.Kind.ModelLike() {
			usage[c.Usage]++
		}
	}
	for u, n := range usage {
		if n > 0 {
			p.metrics.usage.WithLabelValues(schema.UsageNames[u]).Add(float64(n))
		}
	}
	// In slices, so that a record, and the block that is made of it, stay bounded
	// however many spans a request has. A crash in between leaves the first ones in
	// the log, unacknowledged; they are duplicates when the request comes again.
	var res trace.Result
	for slice := range slices.Chunk(calls, sliceCalls) {
		r, err := p.add(slice, start.UnixNano())
		if err != nil {
			return otlp.Result{}, err
		}
		res.End, res.New, res.Duplicate, res.Merged = r.End, res.New+r.New, res.Duplicate+r.Duplicate, res.Merged+r.Merged
	}
	assembled := time.Now()
	p.metrics.stage.WithLabelValues("trace").Observe(assembled.Sub(start).Seconds())
	if err := p.log.Sync(ctx, wal.Position(res.End)); err != nil {
		return otlp.Result{}, err
	}
	if p.broken.Load() { // a duplicate may be one of what never reached the log
		return otlp.Result{}, errBroken
	}
	p.metrics.stage.WithLabelValues("fsync").Observe(time.Since(assembled).Seconds())
	span.SetAttributes(attribute.Int("flyball.new", res.New), attribute.Int("flyball.duplicate", res.Duplicate), attribute.Int("flyball.merged", res.Merged))
	p.metrics.spans.WithLabelValues("new").Add(float64(res.New))
	p.metrics.spans.WithLabelValues("duplicate").Add(float64(res.Duplicate))
	p.metrics.spans.WithLabelValues("merged").Add(float64(res.Merged))
	for why, n := range rejected {
		p.metrics.rejected.WithLabelValues(why).Add(float64(n))
	}
	return refusal(rejected, what), nil
}

// refusal says which records were not taken, and why.
func refusal(rejected dialect.Rejected, what string) (out otlp.Result) {
	var reasons []string
	for why, n := range rejected {
		out.Rejected += n
		reasons = append(reasons, fmt.Sprintf("%d %s: %s", n, what, why))
	}
	sort.Strings(reasons)
	out.Reasons = strings.Join(reasons, "; ")
	return out
}

var errBroken = errors.New("the service stops after an error; send again")

// add hands calls to the assembler. Whatever goes wrong inside leaves spans that
// are claimed and not in the log, so nothing may be acknowledged after it. A
// server recovers a panic of its handler; this does not let it go on.
func (p *Pipeline) add(calls []schema.Call, now int64) (res trace.Result, err error) {
	done := false
	defer func() {
		if !done {
			p.failed(errors.New("trace assembly panicked"))
		} else if err != nil {
			p.failed(err)
		}
	}()
	res, err = p.asm.Add(calls, now)
	done = true
	return res, err
}

// admit refuses before anything is claimed.
func (p *Pipeline) admit(bytes int) error {
	if err := p.log.Admit(bytes); err != nil {
		p.metrics.refused.WithLabelValues("full").Inc()
		return otlp.Overload{RetryAfter: 10 * time.Second, Reason: err.Error()}
	}
	return nil
}

// throttle bounds each tenant of a request, in which a sample counts like a span.
func throttle[T any](p *Pipeline, records []T, tenant func(*T) string) error {
	if p.limiter == nil {
		return nil
	}
	spans := map[string]int{}
	for i := range records {
		spans[tenant(&records[i])]++
	}
	now := time.Now()
	p.limiter.forget(now)
	if tenant, wait := p.limiter.take(spans, now); wait > 0 {
		p.metrics.refused.WithLabelValues("rate").Inc()
		return otlp.Overload{RetryAfter: wait, Throttled: true, Reason: fmt.Sprintf("tenant %s sends more than %d spans a second", tenant, p.o.TenantSpansPerSecond)}
	}
	return nil
}

// origin is what a credential says about a sender.
func origin(from otlp.Sender) dialect.Origin {
	if from.Local {
		return dialect.Origin{Trusted: true, All: true}
	}
	o := dialect.Origin{Tenant: from.Key.Tenant, Trusted: from.Key.IsTrusted(), All: from.Key.AllowsAll()}
	if len(from.Key.Bind) > 0 {
		o.Bound = from.Key.Bound
	}
	if from.Key.NamesTenants() {
		o.Tenant, o.Default, o.Allowed = "", from.Key.Tenant, from.Key.Allows
	}
	return o
}

// Confirmed says up to which chunk the journal is known to have everything, before the
// writer goes on.
func (p *Pipeline) Confirmed() schema.Confirmed {
	p.writer.mu.Lock()
	defer p.writer.mu.Unlock()
	c := schema.Confirmed{Chunk: p.writer.confirmed}
	if p.writer.pos < p.log.End() {
		// Entries are recorded shortly before they are appended, and never before those in
		// front of them; the day is for a clock that is set forward in between.
		c.Since = p.log.Stats().Oldest.Add(-24 * time.Hour)
	}
	return c
}

// The states of a day that is not over are made again and again, where at least so many runs were
// booked on it, at most a hundredth of the time is spent on that, and the journal is hardly
// behind: it has something better to do else.
const (
	openRuns = 10_000
	openRest = 100
	openLag  = 1 // seconds
)

// FoldRuns brings the states of runs up to the last UTC day on which nothing can be recorded
// any more, and tells how far they are; zero where that is no further than before. Of the day
// behind it they have what is in the journal, if that day has many runs.
func (p *Pipeline) FoldRuns(ctx context.Context, conn driver.Conn) (through time.Time, err error) {
	for {
		p.folding.Lock()
		day, folded, err := schema.FoldRuns(ctx, conn, p.writer.through())
		p.folding.Unlock()
		if err != nil {
			return through, err
		}
		if !folded {
			return through, p.foldOpen(ctx, conn)
		}
		through = day
	}
}

func (p *Pipeline) foldOpen(ctx context.Context, conn driver.Conn) error {
	p.folding.Lock()
	defer p.folding.Unlock()
	start, recorded := time.Now(), p.writer.through()
	if !recorded.After(p.opened.through) || start.Before(p.opened.again) || p.Status().LagSeconds > openLag {
		return nil
	}
	_, err := schema.FoldOpenRuns(ctx, conn, recorded, p.opened.least)
	p.opened.through, p.opened.again = recorded, time.Now().Add(openRest*time.Since(start))
	return err
}

// Status is what the readiness page says about ingest.
type Status struct {
	Queued      int64   `json:"queued"`      // entries not yet in the journal
	Samples     int64   `json:"samples"`     // samples of limiters that ClickHouse has not yet
	LagSeconds  float64 `json:"lag_seconds"` // age of the oldest of them
	WALBytes    int64   `json:"wal_bytes"`
	Waiting     string  `json:"waiting,omitempty"`  // what the writer waits for
	Refusing    string  `json:"refusing,omitempty"` // why no data is taken
	Quarantined int64   `json:"quarantined"`
	LastChunk   uint64  `json:"last_chunk"`
}

// Status reports how far behind the journal is.
func (p *Pipeline) Status() Status {
	st := p.log.Stats()
	s := Status{Queued: p.queued.Load(), Samples: p.samples.Load(), WALBytes: st.Bytes}
	p.writer.status(&s)
	// Room for a request of some size, not for one byte.
	if err := p.log.Admit(int(min(1<<20, p.o.WALBytes/8))); err != nil {
		s.Refusing = err.Error()
	}
	return s
}
