package enforce

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/feed"
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/enforce/page"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// RecordKind is what a record of the log means to enforcement.
type RecordKind uint8

// The kinds. Others are skipped by the log itself.
const (
	RecordEntries  RecordKind = iota // a schema.Batch
	RecordBoundary                   // the end of a chunk, Chunk is its number
	RecordOwn                        // what Append wrote
)

// Record is one durable record of the write-ahead log.
type Record struct {
	Kind  RecordKind
	Chunk uint64
	Data  []byte // valid until the next call of Next
	Start uint64
	End   uint64
}

// Log is the write-ahead log as enforcement uses it.
type Log interface {
	// Next returns the next durable record; without wait it returns false where there is none.
	Next(ctx context.Context, wait bool) (Record, bool, error)
	// Append adds a record of enforcement's own; Sync waits until it is durable.
	Append(data []byte) (end uint64, err error)
	Sync(ctx context.Context, end uint64) error
	// Release says that nothing before pos is needed any more.
	Release(pos uint64)
}

// Pricer says what a call will cost at the most.
type Pricer interface {
	// Ceiling is the most a call may cost with so many tokens, and whether a price for
	// the model is known. Where it is not, the amount is the catalogue's ceiling.
	Ceiling(tenant, provider, model string, input, output uint64, at time.Time) (most schema.Money, known bool)
	// Cost is the cost of known tokens, and whether a price for the model is known.
	Cost(tenant, provider, model string, tokens *schema.Tokens, at time.Time) (cost schema.Money, known bool)
}

// Refusal is a call that a limiter did not let through.
type Refusal struct {
	Call  directive.Call
	Guard string
	At    time.Time
}

// Options of New.
type Options struct {
	Store  *state.Store
	Pricer Pricer
	// Post books a call that a limiter reported and whose span never came; nil books none.
	Post func(directive.Call, Settlement, time.Time) error
	// Teach is told whose a trace is, by who asks about a call of it; nil is not told.
	Teach func(*directive.Call)
	// Archive stores rows of what enforcement did in ClickHouse; an error means that they
	// are sent again. Rows that were sent before have to stay one. nil stores none.
	Archive func(ctx context.Context, token string, rows []Event) error
	// Refused books calls that limiters did not let through; nil books none.
	Refused func([]Refusal) error
	// Forget is a user who was being forgotten before a restart; nil is nobody.
	Forget *schema.Forgetting
	// Keys are those that may be used now; nil is not asked.
	Keys func() *schema.Keyring
	// Zone is a tenant's time zone; nil is UTC for all.
	Zone func(tenant string) *time.Location
	// Policy is the text of the policy, nil is DefaultPolicy; PolicyFile is where it stands.
	Policy      []byte
	PolicyFile  string
	PolicyCheck PolicyOptions
	Pages       []page.Receiver
	// Console is the address that links in pages point to, "" is none.
	Console     string
	MaxAccounts int
	Feed        feed.Options
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
}

// Loop is the closed loop of one node.
type Loop struct {
	o       Options
	log     Log
	metrics *metrics
	pager   *page.Pager
	feed    *feed.Feed
	set     *directive.Set // what is published, for checks; safe by itself
	secret  []byte

	mu        sync.Mutex // guards everything below
	policy    *Policy
	version   uint64 // of the policy
	byFamily  [][]*Guard
	noPrice   []*Guard // that block what has no price
	ledger    *ledger.Ledger
	live      map[string]*live
	byKey     map[string][]*live // by account
	kill      killState
	current   directive.Version
	ceiling   uint64 // revisions below it may have been published already
	book      book
	limiters  limiters
	light     lights
	effects   effects
	archive   archive
	objective objective
	usedAt    time.Time          // when the figures of budgets were worked out
	passed    int64              // unix nanoseconds that the last pass was at
	usedScan  time.Time          // when the ledger was looked through for them
	usedSaved map[string]string  // what is stored of them
	atEnd     bool               // the last record of entries was followed by the end of its chunk
	partial   bool               // a record is applied in part: the sums stand at no position
	broken    bool               // an error left the sums in between: they are not saved any more
	forget    *schema.Forgetting // whose id is to come in nowhere; nil is nobody
	renamings int                // how often accounts were renamed
	snap      *snapshot          // that a verification waits for
	verifying bool
	applied
	decided uint64 // decisions were made up to here
	stored  uint64 // and are in the local store up to here

	dirty    chan struct{} // a commit waits to be made durable
	released uint64
	done     sync.WaitGroup
	stop     context.CancelFunc
	fail     chan error
}

// applied is how far the log has been applied.
type applied struct {
	pos      uint64 // entries, up to here
	leasePos uint64 // own records, up to here
	chunk    uint64 // of the last boundary
	clock    int64  // unix microseconds of the last entry
}

// Names in the local store.
const (
	keyMeta    = "enforce/meta"    // decided, epoch, revisions set aside, and until when no lease is given out
	keyApplied = "enforce/applied" // what the accounts in the store stand at
	keySecret  = "enforce/secret"
	keyPolicy  = "enforce/policy/"
	keyLive    = "enforce/live/"
	keyKill    = "enforce/kill"
	keyEvents  = "enforce/event/"
	keyBook    = "enforce/book/"
	keyClosed  = "enforce/closed/" // leases that were settled or released
	keyExpired = keyClosed + "expired/"
	keySpend   = "enforce/spend/"
)

// revisionBlock is how many revisions are set aside at once, so that one that was
// published before a crash is never used again for another set.
const revisionBlock = 10_000

// New reads what the local store holds and says from which position of the log
// enforcement has to go on; zero is from the beginning. Start begins to work.
func New(o Options) (*Loop, uint64, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Policy == nil {
		o.Policy = DefaultPolicy
	}
	l := &Loop{o: o, metrics: newMetrics(o.Registerer), set: directive.NewSet(), live: map[string]*live{}, byKey: map[string][]*live{}, dirty: make(chan struct{}, 1), fail: make(chan error, 1)}
	l.ledger = ledger.New(ledger.Options{Store: o.Store, Zone: o.Zone, MaxAccounts: o.MaxAccounts})
	l.book.init()
	l.limiters.init()
	l.light.init()
	var err error
	if l.pager, err = page.New(page.Options{Store: o.Store, Receivers: o.Pages, Logger: o.Logger, Registerer: o.Registerer}); err != nil {
		return nil, 0, err
	}
	if l.secret, err = l.node(keySecret); err != nil {
		return nil, 0, err
	}
	if err := l.openArchive(); err != nil {
		return nil, 0, fmt.Errorf("read history of enforcement: %w", err)
	}
	if err := l.restore(); err != nil {
		return nil, 0, fmt.Errorf("restore enforcement: %w", err)
	}
	l.o.Feed.Sign = l.sign
	l.feed = feed.New(l.o.Feed, l.set.State())
	l.metrics.watch(o.Registerer, l)
	return l, l.pos, nil
}

// node reads a secret of this node, or makes it.
func (l *Loop) node(name string) ([]byte, error) {
	v, err := l.o.Store.Get(name)
	if err != nil || v != nil {
		return v, err
	}
	v = make([]byte, 32)
	_, _ = rand.Read(v)
	b := l.o.Store.NewBatch()
	if err := b.Put(name, v); err != nil {
		return nil, err
	}
	return v, b.Commit(true)
}

// restore reads position, version, policy, directives, kill switch and leases.
func (l *Loop) restore() error {
	meta, err := l.numbers(keyMeta, 4)
	if err != nil {
		return err
	}
	at, err := l.numbers(keyApplied, 4)
	if err != nil {
		return err
	}
	l.applied = applied{pos: at[0], leasePos: at[1], chunk: at[2], clock: int64(at[3])}
	l.decided, l.stored, l.current, l.ceiling = meta[0], meta[0], directive.Version{Epoch: meta[1], Revision: meta[2]}, meta[2]
	if l.current.Epoch == 0 {
		// A store that is new may follow one that is lost: the time of its birth is above
		// every earlier one's.
		l.current.Epoch = uint64(time.Now().Unix())
	}
	if now := time.Now(); meta[3] != 0 {
		// The clock may have been set back since: a pause is never longer than it was.
		l.book.noNewUntil = now.Add(min(leaseTTL, time.Unix(0, int64(meta[3])).Sub(now)))
	}
	if err := l.restorePolicy(); err != nil {
		return err
	}
	if err := l.restoreKill(); err != nil {
		return err
	}
	if err := l.restoreUsed(); err != nil {
		return err
	}
	if err := l.restoreLive(); err != nil {
		return err
	}
	if err := l.restoreBook(); err != nil {
		return err
	}
	if err := l.restoreHistory(); err != nil {
		return err
	}
	if err := l.limiters.restore(l.o.Store); err != nil {
		return err
	}
	l.reissue(time.Now())
	if err := l.reserveRevisions(); err != nil {
		return err
	}
	s := directive.State{Version: l.current, Kill: l.kill.Kill, Critical: l.policy.Critical, WhenUnknown: l.policy.WhenUnknown}
	for _, v := range l.live {
		if v.published() {
			s.Directives = append(s.Directives, v.Directive)
			l.limiters.published[v.ID] = true
		}
	}
	return l.set.Replace(&s)
}

// numbers reads numbers from the store, zeros where there are none.
func (l *Loop) numbers(name string, n int) ([]uint64, error) {
	v, err := l.o.Store.Get(name)
	out := make([]uint64, n)
	for i := range out {
		x, k := binary.Uvarint(v)
		if k <= 0 {
			break
		}
		out[i], v = x, v[k:]
	}
	return out, err
}

// reserveRevisions sets revisions aside before any of them is published.
func (l *Loop) reserveRevisions() error {
	l.current.Revision = l.ceiling + 1
	l.ceiling += revisionBlock
	b := l.o.Store.NewBatch()
	// What is being decided is not in the store yet, and must be decided again after a crash.
	if err := l.putMeta(b, l.stored); err != nil {
		return err
	}
	return b.Commit(true)
}

func (l *Loop) putMeta(b *state.Batch, decided uint64) error {
	var v []byte
	for _, n := range []uint64{decided, l.current.Epoch, l.ceiling} {
		v = binary.AppendUvarint(v, n)
	}
	if until := l.book.noNewUntil; !until.IsZero() {
		v = binary.AppendUvarint(v, uint64(until.UnixNano()))
	}
	return b.Put(keyMeta, v)
}

// Start applies what the log holds, and then follows it. Until it returns nobody may
// ask anything: sums that lack the end of the log would admit what they must not, and
// a lease given out would hide those of before behind its own record.
func (l *Loop) Start(log Log) error {
	l.log = log
	if err := l.Forget(l.o.Forget); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	a, started, n := &applier{l: l}, time.Now(), 0
	for {
		rec, ok, err := log.Next(ctx, false)
		if err == nil && ok {
			n++
			err = a.record(rec)
		}
		if err != nil {
			cancel()
			return fmt.Errorf("apply log: %w", err)
		}
		if !ok {
			break
		}
	}
	if err := l.caughtUp(); err != nil {
		cancel()
		return err
	}
	if n > 0 {
		l.o.Logger.Info("enforcement is up to the log", "records", n, "took", time.Since(started).Round(time.Millisecond))
	}
	l.done.Go(func() { l.follow(ctx, a) })
	l.done.Go(l.scan)
	l.done.Go(func() { l.tick(ctx) })
	l.done.Go(func() { l.persist(ctx) })
	if l.o.Archive != nil {
		l.done.Go(func() { l.ship(ctx) })
	}
	l.done.Go(func() { _ = l.pager.Run(ctx) })
	return nil
}

// Lost is to be called before Start where the log has not kept what comes after the
// position that New returned: the local store is an older copy than the log. Sums count
// anew and guards are warming until the journal has filled them; what holds, holds until then.
func (l *Loop) Lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.book.leases {
		if !p.Posted {
			if err := l.move(p, -1); err != nil {
				return err
			}
		}
	}
	b := l.o.Store.NewBatch()
	rekey, err := l.ledger.Restart(b)
	if err != nil {
		return fmt.Errorf("restart ledger: %w", err)
	}
	clear(l.byKey)
	for _, h := range l.live {
		if h.account == nil {
			continue
		}
		h.Key = []byte(rekey(string(h.Key)))
		if h.account, err = l.ledger.ByKey(string(h.Key), h.Start, h.End); err != nil {
			return err
		}
		h.account.Pinned++
		if h.Index >= 0 {
			l.byKey[string(h.Key)] = append(l.byKey[string(h.Key)], h)
		}
		if err := putLive(b, h); err != nil {
			return err
		}
	}
	for _, p := range l.book.leases {
		for i := range p.Accounts {
			p.Accounts[i].Key = []byte(rekey(string(p.Accounts[i].Key)))
		}
		if !p.Posted {
			if err := l.move(p, 1); err != nil {
				return err
			}
		}
		l.book.changed[p.ID] = true
	}
	l.chunk = 0
	// Nor is it known what was leased meanwhile.
	l.book.noNewUntil = time.Now().Add(leaseTTL)
	if err := errors.Join(l.saveBook(b), l.putMeta(b, l.stored)); err != nil {
		return err
	}
	if err := b.Commit(true); err != nil {
		return err
	}
	l.savedBook()
	const why = "entries are missing between the local store and the log, which was restored from an older copy or lost; guards count anew and are warming until the journal has filled them"
	l.o.Logger.Error("enforcement lost entries", "position", l.pos, "detail", why)
	l.event(Event{At: time.Now().UTC(), Kind: "ledger", Action: "restart", Reason: why})
	return l.flush()
}

// caughtUp looks at what held under an earlier policy by the one in force now. The
// sums have to be whole for that.
func (l *Loop) caughtUp() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usePolicy(l.policy); err != nil {
		return err
	}
	return l.flush()
}

// Failed delivers the error after which nothing can be decided any more: the
// process has to stop.
func (l *Loop) Failed() <-chan error { return l.fail }

func (l *Loop) failed(err error) {
	select {
	case l.fail <- err:
	default:
	}
}

// CloseFeed ends the connections of limiters; they come back to another server.
func (l *Loop) CloseFeed() { l.feed.Close() }

// Close stops, with everything that was decided in the store. The log and the
// store have to be open still.
func (l *Loop) Close() error {
	l.feed.Close()
	if l.stop == nil {
		return nil
	}
	l.stop()
	l.done.Wait()
	_, err := l.checkpoint(true)
	return err
}

// slice is how many entries are applied before others get a turn.
const slice = 256

// follow is the apply loop: every record in the order of the log.
func (l *Loop) follow(ctx context.Context, a *applier) {
	for {
		rec, _, err := l.log.Next(ctx, true)
		if err != nil {
			if ctx.Err() == nil {
				l.failed(fmt.Errorf("follow log: %w", err))
			}
			return
		}
		if err := a.record(rec); err != nil {
			l.failed(fmt.Errorf("apply record at %d: %w", rec.Start, err))
			return
		}
	}
}

// applier is the apply loop's scratch.
type applier struct {
	l        *Loop
	entries  []schema.Entry
	received []int64
}

func (a *applier) record(rec Record) error {
	l := a.l
	switch rec.Kind {
	case RecordOwn:
		l.mu.Lock()
		defer l.mu.Unlock()
		if rec.End > l.leasePos {
			if err := l.replayOwn(rec.Data); err != nil {
				return err
			}
			l.leasePos = rec.End
		}
		l.pos = rec.End
		return nil
	case RecordBoundary:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.chunk, l.pos, l.atEnd = rec.Chunk, rec.End, true
		l.ledger.Boundary(rec.Chunk)
		if l.snap != nil {
			l.snap.take(l, rec.Chunk)
		}
		return nil
	}
	if rec.Start < l.pos {
		return nil
	}
	started := time.Now()
	wall := started.UnixMicro()
	n := 0
	a.entries, a.received = a.entries[:0], a.received[:0]
	first := true
	var trace schema.TraceID
	flush := func(last bool) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if first {
			l.atEnd = false
			l.ledger.Begin()
			first = false
		}
		for i := range a.entries {
			if err := l.apply(&a.entries[i], a.received[i], wall); err != nil {
				l.broken = true
				return err
			}
		}
		if len(a.entries) > 0 {
			trace = a.entries[len(a.entries)-1].Trace
		}
		n += len(a.entries)
		a.entries, a.received = a.entries[:0], a.received[:0]
		if l.partial = !last; !last {
			return nil
		}
		l.pos = rec.End
		defer func() { l.kill.received = 0 }() // what flips the switch later was not led to by this record
		if rec.End <= l.decided {
			return nil // decided before: only the counters move
		}
		l.decided = rec.End
		if err := l.judgeTouched(); err != nil {
			return err
		}
		if err := l.judgeKill(time.UnixMicro(l.clock)); err != nil {
			return err
		}
		return l.flush()
	}
	err := schema.EachEntry(rec.Data, func(raw schema.RawEntry) error {
		if len(a.entries) < cap(a.entries) {
			a.entries = a.entries[:len(a.entries)+1]
		} else {
			a.entries = append(a.entries, schema.Entry{})
		}
		e := &a.entries[len(a.entries)-1]
		*e = schema.Entry{}
		if err := raw.DecodeShared(e); err != nil {
			return err
		}
		a.received = append(a.received, raw.Received)
		if len(a.entries) >= slice && raw.Sign > 0 { // a replacement stays together
			return flush(false)
		}
		return nil
	})
	if err == nil {
		err = flush(true)
	}
	if err != nil {
		l.mu.Lock()
		l.broken = true
		l.mu.Unlock()
		return err
	}
	l.metrics.applied.Add(float64(n))
	if n > 0 {
		observe(l.metrics.apply, time.Since(started).Seconds(), trace.String())
	}
	return nil
}

// apply moves the counters, what is pending, and what only watches. wall is the clock, in
// microseconds: instants of recording never step back, so where the clock was ahead and
// was set right they stay ahead, and no window would be open that they are in.
func (l *Loop) apply(e *schema.Entry, received, wall int64) error {
	e.RecordedAt, l.clock = min(e.RecordedAt, wall), min(l.clock, wall)
	if e.RecordedAt/60e6 > l.clock/60e6 { // a minute is over, also while the log is read again
		l.kill.history.advance(e.RecordedAt * 1000)
	}
	l.clock = max(l.clock, e.RecordedAt)
	l.forget.Entry(e)
	if err := l.ledger.Apply(e, received); err != nil {
		return err
	}
	if err := l.replaceHold(e); err != nil {
		return err
	}
	l.kill.history.add(e)
	l.light.saw(e)
	if l.pos >= l.decided {
		l.metrics.book(e)
	}
	l.kill.received = received
	if e.Sign > 0 {
		l.observe(e)
	}
	return nil
}

// tick does what time asks for.
func (l *Loop) tick(ctx context.Context) {
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	var lastSave, lastExpire time.Time
	lastExpire = time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			l.mu.Lock()
			err := l.pass(now)
			l.mu.Unlock()
			if err == nil && now.Sub(lastExpire) >= 6*time.Hour {
				lastExpire = now
				l.expire(now)
			}
			if err == nil && now.Sub(lastSave) >= time.Second {
				lastSave = now
				_, err = l.checkpoint(false)
			}
			if err != nil {
				l.failed(fmt.Errorf("enforcement: %w", err))
				return
			}
		}
	}
}

// scan learns which accounts the store has, so that it need not be asked for others.
func (l *Loop) scan() {
	k, err := ledger.Scan(l.o.Store)
	if err != nil {
		l.o.Logger.Error("scan ledger; the store is asked for every account", "err", err)
		return
	}
	l.mu.Lock()
	l.ledger.Known(k)
	l.mu.Unlock()
}

// expire forgets what is long over, a little at a time.
func (l *Loop) expire(now time.Time) {
	keys, err := l.ledger.Expired(now)
	for chunk := range slices.Chunk(keys, 1000) {
		if err != nil {
			break
		}
		l.mu.Lock()
		err = l.ledger.Forget(chunk, now)
		l.mu.Unlock()
	}
	if err != nil {
		l.o.Logger.Error("expire ledger", "err", err)
	} else if len(keys) > 0 {
		l.o.Logger.Info("expired accounts of the ledger", "accounts", len(keys))
	}
	l.expireEvents(now)
	if err := l.expireClosed(now); err != nil {
		l.o.Logger.Error("expire leases", "err", err)
	}
	l.mu.Lock()
	crowded := l.ledger.Crowded()
	if crowded {
		l.ledger.Rescan()
	}
	l.mu.Unlock()
	if crowded {
		l.scan()
	}
}

// pass looks at what changes without an entry: windows that ended or moved on,
// leases that ran out, the kill switch. mu is held.
func (l *Loop) pass(now time.Time) error {
	if err := l.expireBook(now); err != nil {
		return err
	}
	if err := l.refreshLive(now); err != nil {
		return err
	}
	// What was let go since the clock was ahead is looked at again when it is set right.
	if back := l.passed - now.UnixNano(); back > int64(time.Second) {
		l.o.Logger.Warn("the clock was set back", "by", time.Duration(back))
		if err := l.judgeAll(now); err != nil {
			return err
		}
	}
	l.passed = now.UnixNano()
	if err := l.passKill(now); err != nil {
		return err
	}
	l.passLight(now)
	l.limiters.pass(now)
	l.passUsed(now)
	l.drainLeaks(now)
	return l.flush()
}

// checkpoint saves what changed in the ledger with the position it stands at. The
// log has to be durable as far as anything in it, which what was read from it is;
// own records may be ahead. Only gathering holds the loop up, not the writing. Nothing is
// saved in the middle of a record.
func (l *Loop) checkpoint(wait bool) (saved bool, err error) {
	l.mu.Lock()
	if l.partial || l.broken {
		l.mu.Unlock()
		return false, nil // the next one, or what the log makes of it after a restart
	}
	// What leaked before this position is looked at for the last time.
	l.drainLeaks(time.Now())
	err = l.flush()
	b := l.o.Store.NewBatch()
	at := l.applied
	err = errors.Join(err, l.ledger.Save(b), l.saveBook(b), l.saveHistory(b), l.saveUsed(b), l.limiters.save(b))
	l.mu.Unlock()
	if err != nil {
		return false, err
	}
	var v []byte
	for _, n := range []uint64{at.pos, at.leasePos, at.chunk, uint64(at.clock)} {
		v = binary.AppendUvarint(v, n)
	}
	if err := b.Put(keyApplied, v); err != nil {
		return false, err
	}
	if at.leasePos > at.pos && l.log != nil {
		if err := l.log.Sync(context.Background(), at.leasePos); err != nil {
			return false, fmt.Errorf("sync log before checkpoint: %w", err)
		}
	}
	if err := b.Commit(wait); err != nil {
		return false, err
	}
	l.mu.Lock()
	l.ledger.Shrink()
	l.savedBook()
	l.released = at.pos
	l.mu.Unlock()
	l.poke()
	return true, nil
}

// poke asks persist to make durable what was committed.
func (l *Loop) poke() {
	select {
	case l.dirty <- struct{}{}:
	default:
	}
}

// persist makes commits durable, many at a time, and then does what had to wait for it.
func (l *Loop) persist(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.dirty:
		}
		l.mu.Lock()
		released := l.released
		l.mu.Unlock()
		if err := l.o.Store.Sync(); err != nil {
			l.failed(err)
			return
		}
		l.log.Release(released)
		l.pager.Wake()
	}
}
