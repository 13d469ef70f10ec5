package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/flyball/flyball/ingest/wal"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// Sink is where chunks go: ClickHouse, or what a test puts in its place.
type Sink interface {
	// Insert stores one block; a repetition under the same token is a no-op.
	Insert(ctx context.Context, token string, rows *schema.Columns, runs []schema.RunInfo) error
	// InsertSamples stores one block of samples; a repetition under the same token is a no-op.
	InsertSamples(ctx context.Context, token string, rows []schema.Sample) error
	// Transient reports whether an error says nothing about the rows.
	Transient(err error) bool
	// Has reports whether the journal holds that entry of a chunk.
	Has(ctx context.Context, chunk uint64, e *schema.Entry) (bool, error)
}

// writer sends the chunks of the log to the sink, oldest first, each exactly once.
// Its only state is the last confirmed chunk.
type writer struct {
	p    *Pipeline
	node string
	turn chan struct{} // has room for whoever is alone in the journal: a chunk on its way, or a rewriting

	mu        sync.Mutex // guards below
	confirmed uint64
	pos       wal.Position
	recorded  int64     // of the last entry that is confirmed, unix microseconds; 0 is not known
	oldest    time.Time // of the chunk being sent
	waiting   string
	bad       map[place]bool // entries in quarantine
}

// place is where an entry stands in the log: its chunk and its number among what
// is left of that after netting.
type place struct {
	Chunk uint64 `json:"chunk"`
	At    int    `json:"at"`
}

// newWriter goes on behind what is confirmed: a chunk, the position after it, and when its
// last entry was recorded.
func newWriter(p *Pipeline, confirmed []uint64) (*writer, error) {
	w := &writer{p: p, node: hex.EncodeToString(p.node), turn: make(chan struct{}, 1), confirmed: confirmed[0], pos: wal.Position(confirmed[1]), recorded: int64(confirmed[2]), bad: map[place]bool{}}
	held, err := os.ReadFile(w.quarantineFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read quarantine: %w", err)
	}
	for line := range bytes.Lines(held) {
		var at place
		if json.Unmarshal(line, &at) == nil { // else a crash cut it off
			w.bad[at] = true
		}
	}
	return w, nil
}

func (w *writer) quarantineFile() string {
	return filepath.Join(w.p.o.Dir, "quarantine", "entries.jsonl")
}

func (w *writer) safe() wal.Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pos
}

func (w *writer) status(s *Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.LastChunk, s.Waiting, s.Quarantined = w.confirmed, w.waiting, int64(len(w.bad))
	if s.Queued > 0 && !w.oldest.IsZero() {
		s.LagSeconds = time.Since(w.oldest).Seconds()
	}
}

// through is a time up to which everything that was or will be recorded is in the journal:
// recorded_at never steps back.
func (w *writer) through() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.UnixMicro(w.recorded)
}

// chunk is one unit of insertion: the entries between two boundaries of the log.
type chunk struct {
	number  uint64
	crc     uint32
	end     wal.Position
	buf     [][]byte // records, kept until the chunk is sent
	entries []schema.RawEntry
	oldest  int64 // recorded_at of the first entry, unix microseconds
	samples []schema.Sample
	sampled uint32 // checksum of their records
}

// run sends what r reads until the end of ctx.
func (w *writer) run(ctx context.Context, r *wal.Reader) {
	defer r.Close()
	if err := w.follow(ctx, r); err != nil && ctx.Err() == nil {
		w.p.o.Logger.Error("writer stopped", "err", err)
		w.p.failed(fmt.Errorf("write journal: %w", err))
	}
}

func (w *writer) follow(ctx context.Context, r *wal.Reader) error {
	cols := schema.NewColumns()
	c := &chunk{}
	for {
		rec, err := r.Next(ctx)
		if err != nil {
			return err
		}
		switch rec.Kind {
		case recordEntries, recordReprice:
			var b []byte
			if n := len(c.buf); n < cap(c.buf) {
				c.buf = c.buf[:n+1]
				b = append(c.buf[n][:0], rec.Data...)
				c.buf[n] = b
			} else {
				b = append([]byte(nil), rec.Data...)
				c.buf = append(c.buf, b)
			}
			c.crc = checksum(c.crc, rec)
			if err := schema.EachEntry(b, func(e schema.RawEntry) error {
				c.entries = append(c.entries, e)
				return nil
			}); err != nil {
				return fmt.Errorf("read record at %d: %w", rec.Start, err)
			}
			if c.oldest == 0 && len(c.entries) > 0 {
				c.oldest = c.entries[0].RecordedAt
				w.mu.Lock()
				w.oldest = time.UnixMicro(c.oldest)
				w.mu.Unlock()
			}
		case recordSamples:
			var samples []schema.Sample
			if err := json.Unmarshal(rec.Data, &samples); err != nil {
				return fmt.Errorf("read record at %d: %w", rec.Start, err)
			}
			c.samples = append(c.samples, samples...)
			c.sampled = checksum(c.sampled, rec)
		case recordBoundary:
			c.number, _ = binary.Uvarint(rec.Data)
			c.end = rec.End
			if err := w.send(ctx, c, cols); err != nil {
				return err
			}
			c.buf, c.entries, c.crc, c.oldest = c.buf[:0], c.entries[:0], 0, 0
			c.samples, c.sampled = nil, 0
		}
	}
}

// checksum goes on from the checksum of the records before.
func checksum(before uint32, rec wal.Record) uint32 {
	var crc [4]byte
	binary.LittleEndian.PutUint32(crc[:], rec.CRC)
	return crc32.Update(before, crc32.MakeTable(crc32.Castagnoli), crc[:])
}

// send gets one chunk into the sink and confirms it.
func (w *writer) send(ctx context.Context, c *chunk, cols *schema.Columns) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.turn }()
	total := len(c.entries)
	recorded := w.recorded // which nobody else changes
	if total > 0 {
		recorded = c.entries[total-1].RecordedAt
	}
	rows := net(c.entries)
	start := time.Now()
	bad := 0
	b := w.p.store.NewBatch()
	if len(rows) > 0 {
		var err error
		if bad, err = w.put(ctx, c, rows, 0, len(rows), cols, b); err != nil {
			return err
		}
	}
	if err := w.sendSamples(ctx, c); err != nil {
		return err
	}
	if err := b.Put(keyConfirmed, binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(nil, c.number), uint64(c.end)), uint64(recorded))); err != nil {
		return err
	}
	if err := b.Commit(false); err != nil {
		return err
	}
	w.mu.Lock()
	w.confirmed, w.pos, w.recorded, w.waiting, w.oldest = c.number, c.end, recorded, "", time.Time{}
	w.mu.Unlock()
	w.p.queued.Add(int64(-total))
	m := w.p.metrics
	m.stored.Add(float64(len(rows) - bad))
	m.netted.Add(float64(total - len(rows)))
	m.stage.WithLabelValues("insert").Observe(time.Since(start).Seconds())
	return nil
}

// What the store knows of a block of a chunk that was refused, or of a part of one.
const (
	blockSplit  = 1 // its halves are sent, it never is again
	blockStored = 2
)

// put gets rows[lo:hi] into the sink as one block, else by halves down to the
// single entries that are refused, which go to quarantine. What became of a block is in
// the store before anything that depends on it: a restart sends the one
// block of unknown outcome again, under its token, and no other. done forgets
// that with the confirmation of the chunk.
func (w *writer) put(ctx context.Context, c *chunk, rows []schema.RawEntry, lo, hi int, cols *schema.Columns, done *state.Batch) (bad int, err error) {
	token := fmt.Sprintf("%s-%d-%08x", w.node, c.number, c.crc)
	name := fmt.Sprintf("split-%d", c.number)
	whole := hi-lo == len(rows)
	if !whole {
		token += fmt.Sprintf("-%d-%d", lo, hi)
		name += fmt.Sprintf("-%d-%d", lo, hi)
	}
	if w.bad[place{c.number, lo}] && hi-lo == 1 { // only this goroutine adds
		return 1, nil
	}
	known, err := w.p.store.Get(name)
	if err != nil {
		return 0, err
	}
	for pause := 50 * time.Millisecond; known == nil; pause = min(2*pause, 5*time.Second) {
		cause := w.insert(ctx, c, rows[lo:hi], token, cols)
		if cause == nil {
			if whole {
				return 0, nil
			}
			known = []byte{blockStored}
			err = w.note(name, known, false)
			break
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		present, err := w.has(ctx, c, &rows[lo])
		if err != nil {
			return 0, err
		}
		if present {
			// The journal took the block and a view of it did not. Only the same block
			// under its token completes the others without doubling it, so somebody
			// has to cure that view.
			if err := w.wait(ctx, c, pause, cause); err != nil {
				return 0, err
			}
			continue
		}
		if hi-lo == 1 {
			return 1, w.quarantine(c, lo, &rows[lo], cause)
		}
		if whole {
			w.p.o.Logger.Error("chunk was refused, looking for the bad entries", "chunk", c.number, "err", cause)
		}
		known = []byte{blockSplit}
		if err := w.note(name, known, true); err != nil {
			return 0, err
		}
	}
	if err == nil {
		err = done.Delete(name)
	}
	if err != nil || known[0] == blockStored {
		return 0, err
	}
	mid := lo + (hi-lo)/2
	a, err := w.put(ctx, c, rows, lo, mid, cols, done)
	if err != nil {
		return 0, err
	}
	b, err := w.put(ctx, c, rows, mid, hi, cols, done)
	return a + b, err
}

// note keeps what became of a block in the store.
func (w *writer) note(name string, what []byte, sync bool) error {
	b := w.p.store.NewBatch()
	if err := b.Put(name, what); err != nil {
		return err
	}
	return b.Commit(sync)
}

// insert sends rows as one block, and again while errors say nothing about them.
func (w *writer) insert(ctx context.Context, c *chunk, rows []schema.RawEntry, token string, cols *schema.Columns) (err error) {
	ctx, span := tracer.Start(ctx, "insert", oteltrace.WithAttributes(attribute.Int64("flyball.chunk", int64(c.number)), attribute.Int("flyball.entries", len(rows))))
	defer func() { endSpan(span, err) }()
	cols.Reset()
	var e schema.Entry
	runs := runInfos{}
	for i := range rows {
		if err := rows[i].DecodeShared(&e); err != nil {
			return fmt.Errorf("decode entry: %w", err)
		}
		cols.Append(&e, c.number)
		runs.add(&e)
	}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := w.p.o.Sink.Insert(ctx, token, cols, runs.rows)
		if err == nil || !w.p.o.Sink.Transient(err) {
			return err
		}
		if err := w.wait(ctx, c, pause, err); err != nil {
			return err
		}
	}
}

// wait pauses before an insert that failed with cause is repeated.
func (w *writer) wait(ctx context.Context, c *chunk, pause time.Duration, cause error) error {
	w.mu.Lock()
	w.waiting = cause.Error()
	w.mu.Unlock()
	w.p.metrics.retries.Inc()
	w.p.o.Logger.Warn("insert will be repeated", "chunk", c.number, "in", pause, "err", cause)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}

// has asks for one row, which stands for the block: that is stored whole or not.
func (w *writer) has(ctx context.Context, c *chunk, row *schema.RawEntry) (bool, error) {
	var e schema.Entry
	if err := row.Decode(&e); err != nil {
		return false, fmt.Errorf("decode entry: %w", err)
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		present, err := w.p.o.Sink.Has(ctx, c.number, &e)
		if err == nil {
			return present, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// quarantine keeps an entry that no insert accepts in a file, readable by people
// and by a later version.
func (w *writer) quarantine(c *chunk, at int, r *schema.RawEntry, cause error) error {
	here := place{c.number, at}
	var e schema.Entry
	_ = r.Decode(&e)
	line, err := json.Marshal(map[string]any{"chunk": here.Chunk, "at": here.At, "error": cause.Error(), "sign": r.Sign, "version": r.Version, "recorded_at": r.RecordedAt, "call": r.Call, "posting": r.Posting, "tenant": e.Tenant, "trace_id": e.Trace.String(), "span_id": e.Span.String()})
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	if err := appendLine(w.quarantineFile(), line); err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	w.p.metrics.quarantined.Inc()
	w.mu.Lock()
	w.bad[here] = true
	w.mu.Unlock()
	w.p.o.Logger.Error("entry quarantined", "chunk", c.number, "tenant", e.Tenant, "trace", e.Trace.String(), "err", cause)
	return nil
}

// net drops +1/-1 pairs of one version inside a chunk. The result depends on the
// entries only, so that a repetition sends the same block.
func net(entries []schema.RawEntry) []schema.RawEntry {
	negative := false
	for i := range entries {
		if entries[i].Sign < 0 {
			negative = true
			break
		}
	}
	if !negative {
		return entries
	}
	type version struct {
		line string // tenant, trace, span and part stand at the front of the call
		n    uint32
	}
	plus := make(map[version]int, len(entries))
	drop := make([]bool, len(entries))
	dropped := 0
	for i := range entries {
		e := &entries[i]
		key := version{schema.LineKey(e.Call), e.Version}
		if e.Sign > 0 {
			plus[key] = i
		} else if j, ok := plus[key]; ok {
			drop[i], drop[j] = true, true
			dropped += 2
			delete(plus, key)
		}
	}
	if dropped == 0 {
		return entries
	}
	out := make([]schema.RawEntry, 0, len(entries)-dropped)
	for i := range entries {
		if !drop[i] {
			out = append(out, entries[i])
		}
	}
	return out
}

// runInfos gathers what a chunk says about runs: the root's word, else any
// line's, which a root's replaces whenever it comes.
type runInfos struct {
	rows  []schema.RunInfo
	index map[[2]string]int
}

func (r *runInfos) add(e *schema.Entry) {
	if e.Sign < 0 || e.Part != 0 || e.Source == schema.SourceAdjustment {
		return
	}
	// A trace that was started from a run, and belongs to it by its link, has a root that is not the run's; nor
	// has a gateway's.
	other := e.Link != (schema.TraceID{}) || e.Posting.Flags&schema.FlagGatewayTrace != 0
	root := e.Role&schema.RoleRoot != 0 && e.Source == schema.SourceSpan && (!other || e.Role&schema.RoleRunFromOperator != 0)
	key := [2]string{e.Tenant, e.Posting.Identity[schema.Run]}
	i, known := r.index[key]
	if known && !root {
		return
	}
	info := schema.RunInfo{Tenant: e.Tenant, RunID: key[1], Version: uint64(e.RecordedAt), Start: e.Start, End: e.Start + e.Duration, Identity: e.Posting.Identity}
	if root {
		info.Version |= schema.RootVersion
		info.Name = e.Name
		info.Status = 1
		switch e.Failure {
		case schema.NoFailure:
		case schema.Budget, schema.Cancelled:
			info.Status = 3
		default:
			info.Status = 2
		}
	}
	if known {
		if r.rows[i].Version <= info.Version {
			r.rows[i] = info
		}
		return
	}
	if r.index == nil {
		r.index = map[[2]string]int{}
	}
	r.index[key] = len(r.rows)
	r.rows = append(r.rows, info)
}
