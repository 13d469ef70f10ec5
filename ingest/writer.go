package ingest

import (
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

	"github.com/flyball/flyball/ingest/wal"
	"github.com/flyball/flyball/schema"
)

// Sink is where chunks go: ClickHouse, or what a test puts in its place.
type Sink interface {
	// Insert stores one block; a repetition under the same token is a no-op.
	Insert(ctx context.Context, token string, rows *schema.Columns, runs []schema.RunInfo) error
	// Transient reports whether an error says nothing about the rows.
	Transient(err error) bool
	// Has reports whether the journal holds any row of a chunk recorded since.
	Has(ctx context.Context, chunk uint64, since time.Time) (bool, error)
}

// writer sends the chunks of the log to the sink, oldest first, each exactly once.
// Its only state is the last confirmed chunk.
type writer struct {
	p    *Pipeline
	node string

	mu        sync.Mutex // guards below
	confirmed uint64
	pos       wal.Position
	oldest    time.Time // of the chunk being sent
	waiting   string
	bad       int64
}

func newWriter(p *Pipeline, confirmed uint64, pos wal.Position) *writer {
	return &writer{p: p, node: hex.EncodeToString(p.node), confirmed: confirmed, pos: pos}
}

func (w *writer) safe() wal.Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pos
}

func (w *writer) status(s *Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.LastChunk, s.Waiting, s.Quarantined = w.confirmed, w.waiting, w.bad
	if s.Queued > 0 && !w.oldest.IsZero() {
		s.LagSeconds = time.Since(w.oldest).Seconds()
	}
}

// chunk is one unit of insertion: the entries between two boundaries of the log.
type chunk struct {
	number  uint64
	crc     uint32
	end     wal.Position
	buf     [][]byte // records, kept until the chunk is sent
	entries []schema.RawEntry
	first   int64 // recorded_at of the first entry, unix microseconds
}

func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.follow(ctx); err != nil && ctx.Err() == nil {
			w.p.o.Logger.Error("writer stopped", "err", err)
			w.p.failed(fmt.Errorf("write journal: %w", err))
			return
		}
	}
}

func (w *writer) follow(ctx context.Context) error {
	r, err := w.p.log.NewReader(w.safe())
	if err != nil {
		return err
	}
	defer r.Close()
	cols := schema.NewColumns()
	c := &chunk{}
	for {
		rec, err := r.Next(ctx)
		if err != nil {
			return err
		}
		switch rec.Kind {
		case recordEntries:
			var b []byte
			if n := len(c.buf); n < cap(c.buf) {
				c.buf = c.buf[:n+1]
				b = append(c.buf[n][:0], rec.Data...)
				c.buf[n] = b
			} else {
				b = append([]byte(nil), rec.Data...)
				c.buf = append(c.buf, b)
			}
			var crc [4]byte
			binary.LittleEndian.PutUint32(crc[:], rec.CRC)
			c.crc = crc32.Update(c.crc, crc32.MakeTable(crc32.Castagnoli), crc[:])
			if err := schema.EachEntry(b, func(e schema.RawEntry) error {
				c.entries = append(c.entries, e)
				return nil
			}); err != nil {
				return fmt.Errorf("read record at %d: %w", rec.Start, err)
			}
			if c.first == 0 && len(c.entries) > 0 {
				c.first = c.entries[0].RecordedAt
				w.mu.Lock()
				w.oldest = time.UnixMicro(c.first)
				w.mu.Unlock()
			}
		case recordBoundary:
			c.number, _ = binary.Uvarint(rec.Data)
			c.end = rec.End
			if err := w.send(ctx, c, cols); err != nil {
				return err
			}
			c.buf, c.entries, c.crc, c.first = c.buf[:0], c.entries[:0], 0, 0
		}
	}
}

// send gets one chunk into the sink and confirms it.
func (w *writer) send(ctx context.Context, c *chunk, cols *schema.Columns) error {
	total := len(c.entries)
	rows := net(c.entries)
	start := time.Now()
	splitKey := fmt.Sprintf("split-%d", c.number)
	split, err := w.p.store.Get(splitKey)
	if err != nil {
		return err
	}
	inserted := len(rows)
	if split == nil && len(rows) > 0 {
		err = w.insert(ctx, c, rows, fmt.Sprintf("%s-%d-%08x", w.node, c.number, c.crc), cols)
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if split != nil || err != nil {
		// An entry that no insert accepts: look for it by halves. The chunk is never
		// sent whole again, and only split where the journal has none of it.
		if split == nil {
			w.p.o.Logger.Error("chunk was refused, looking for the bad entries", "chunk", c.number, "err", err)
			present, herr := w.has(ctx, c)
			if herr != nil {
				return herr
			}
			if !present {
				b := w.p.store.NewBatch()
				if err := b.Put(splitKey, []byte{1}); err != nil {
					return err
				}
				if err := b.Commit(true); err != nil {
					return err
				}
				split = []byte{1}
			}
		}
		if split != nil {
			bad, err := w.halve(ctx, c, rows, 0, len(rows), cols)
			if err != nil {
				return err
			}
			inserted -= bad
		}
	}
	b := w.p.store.NewBatch()
	if err := b.Put(keyConfirmed, binary.AppendUvarint(binary.AppendUvarint(nil, c.number), uint64(c.end))); err != nil {
		return err
	}
	if split != nil {
		if err := b.Delete(splitKey); err != nil {
			return err
		}
	}
	if err := b.Commit(false); err != nil {
		return err
	}
	w.mu.Lock()
	w.confirmed, w.pos, w.waiting, w.oldest = c.number, c.end, "", time.Time{}
	w.mu.Unlock()
	w.p.queued.Add(int64(-total))
	m := w.p.metrics
	m.stored.Add(float64(inserted))
	m.netted.Add(float64(total - len(rows)))
	m.stage.WithLabelValues("insert").Observe(time.Since(start).Seconds())
	return nil
}

// insert sends rows as one block, and again while errors say nothing about them.
func (w *writer) insert(ctx context.Context, c *chunk, rows []schema.RawEntry, token string, cols *schema.Columns) error {
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
		w.mu.Lock()
		w.waiting = err.Error()
		w.mu.Unlock()
		w.p.metrics.retries.Inc()
		w.p.o.Logger.Warn("insert will be repeated", "chunk", c.number, "in", pause, "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (w *writer) has(ctx context.Context, c *chunk) (bool, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		present, err := w.p.o.Sink.Has(ctx, c.number, time.UnixMicro(c.first))
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

// halve inserts rows[lo:hi] in ever smaller parts and quarantines single entries
// that are refused.
func (w *writer) halve(ctx context.Context, c *chunk, rows []schema.RawEntry, lo, hi int, cols *schema.Columns) (bad int, err error) {
	if lo == hi {
		return 0, nil
	}
	if hi-lo < len(rows) {
		err := w.insert(ctx, c, rows[lo:hi], fmt.Sprintf("%s-%d-%08x-%d-%d", w.node, c.number, c.crc, lo, hi), cols)
		if err == nil {
			return 0, nil
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if hi-lo == 1 {
			return 1, w.quarantine(c, &rows[lo], err)
		}
	} else if hi-lo == 1 {
		return 1, w.quarantine(c, &rows[lo], errors.New("refused"))
	}
	mid := lo + (hi-lo)/2
	a, err := w.halve(ctx, c, rows, lo, mid, cols)
	if err != nil {
		return 0, err
	}
	b, err := w.halve(ctx, c, rows, mid, hi, cols)
	return a + b, err
}

// quarantine keeps an entry that no insert accepts in a file, readable by people
// and by a later version.
func (w *writer) quarantine(c *chunk, r *schema.RawEntry, cause error) error {
	dir := filepath.Join(w.p.o.Dir, "quarantine")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	var e schema.Entry
	_ = r.Decode(&e)
	line, err := json.Marshal(map[string]any{"chunk": c.number, "error": cause.Error(), "sign": r.Sign, "version": r.Version, "recorded_at": r.RecordedAt, "call": r.Call, "posting": r.Posting, "tenant": e.Tenant, "trace_id": e.Trace.String(), "span_id": e.Span.String()})
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "entries.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	w.p.metrics.quarantined.Inc()
	w.mu.Lock()
	w.bad++
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
	if e.Sign < 0 || e.Part != 0 {
		return
	}
	root := e.Role&schema.RoleRoot != 0 && e.Source == schema.SourceSpan
	key := [2]string{e.Tenant, e.Posting.Identity[schema.Run]}
	i, known := r.index[key]
	if known && !root {
		return
	}
	info := schema.RunInfo{Tenant: e.Tenant, RunID: key[1], Version: uint64(e.RecordedAt), Start: e.Start, End: e.Start + e.Duration, Identity: e.Posting.Identity}
	if root {
		info.Version |= 1 << 62
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
