package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flyball/flyball/ingest"
	"github.com/flyball/flyball/ingest/price"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/engine"
)

// past is what a fill makes. The same past gives the same rows, so that a fill that
// was stopped goes on where it was.
type past struct {
	Rows    int64     `json:"rows"` // about so many entries
	Seed    uint64    `json:"seed"`
	Days    int       `json:"days"`
	Tenants int       `json:"tenants"`
	Users   int       `json:"users"`
	Block   int       `json:"block"` // rows of an insert
	Until   time.Time `json:"until"` // the end of the last day
	Done    bool      `json:"done"`
}

// fillMemory is what the engine may use while it fills, inFlight how many inserts run
// at once.
const (
	fillMemory = 4 << 30
	inFlight   = 2
)

// fill is load fill: it writes a past of months straight into the tables of a
// service's data directory, by the columns and rows that the service's own writer
// uses, so that sizes and rollups are what they would be. The service must not run.
func fill(ctx context.Context, args []string, stderr io.Writer) int {
	p := past{}
	f := flag.NewFlagSet("load fill", flag.ContinueOnError)
	f.SetOutput(stderr)
	dir := f.String("data", "", "data `directory` of a service that does not run; it is made, or one that an earlier fill began goes on")
	f.Int64Var(&p.Rows, "rows", 1_000_000, "entries of the journal, about")
	f.Uint64Var(&p.Seed, "seed", 1, "the same seed gives the same rows")
	f.IntVar(&p.Days, "days", 90, "days that the rows are spread over")
	f.IntVar(&p.Tenants, "tenants", 200, "number of tenants")
	f.IntVar(&p.Users, "users", 50_000, "number of users, each of one tenant")
	f.IntVar(&p.Block, "block", 50_000, "`rows` of an insert, as many as those of a busy service")
	until := f.String("until", "", "`instant` at which the rows end, RFC 3339 (default: now)")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitOK
	} else if err != nil {
		return exitUsage
	}
	var err error
	p.Until = time.Now().UTC().Truncate(15 * time.Minute)
	switch {
	case *dir == "" || f.NArg() > 0:
		err = errors.New("want load fill --data DIRECTORY and no other argument")
	case p.Rows < 1 || p.Days < 1 || p.Days > 3650 || p.Tenants < 1 || p.Users < p.Tenants || p.Block < 1000 || p.Block > 1_000_000:
		err = errors.New("--rows, --days and --tenants are at least 1, --users at least --tenants, --block is 1000 to 1000000")
	case *until != "":
		if p.Until, err = time.Parse(time.RFC3339, *until); err != nil {
			err = fmt.Errorf("--until %q: want RFC 3339, e.g. 2026-11-30T00:00:00Z", *until)
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	if err := p.into(ctx, *dir, *until != "", stderr); err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	return exitOK
}

// known reads what an earlier fill of the directory was asked for. A fill that goes
// on has the end of the first one unless it names its own.
func (p *past) known(file string, fixed bool) (bool, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	var old past
	if err == nil {
		err = json.Unmarshal(text, &old)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", file, err)
	}
	if !fixed {
		p.Until = old.Until
	}
	p.Done = old.Done
	if !old.Until.Equal(p.Until) {
		return false, fmt.Errorf("%s was filled until %s; ask for the same, or for another directory", file, old.Until.Format(time.RFC3339))
	}
	p.Until = old.Until
	if old != *p {
		return false, fmt.Errorf("%s was filled with other numbers (%s); ask for the same, or for another directory", file, text)
	}
	return true, nil
}

func (p *past) keep(file string) error {
	text, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(file, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// block is one insert.
type block struct {
	number int
	cols   *schema.Columns
	runs   []schema.RunInfo
	last   time.Time // recorded_at of its last row
}

func (p *past) into(ctx context.Context, dir string, fixed bool, stderr io.Writer) error {
	debug.SetGCPercent(400) // what is made is short-lived
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	file := filepath.Join(dir, "fill.json")
	goesOn, err := p.known(file, fixed)
	if err != nil {
		return err
	}
	if p.Done {
		fmt.Fprintf(stderr, "%s is filled\n", dir)
		return nil
	}
	cat, rejected, err := price.Load(price.Options{})
	if err == nil && len(rejected) > 0 {
		err = fmt.Errorf("the embedded prices have a bad row: %s", rejected[0])
	}
	if err != nil {
		return err
	}
	e, err := engine.Open(ctx, engine.Options{Dir: filepath.Join(dir, "clickhouse"), MemoryBytes: fillMemory, Logger: slog.New(slog.NewTextHandler(stderr, nil))})
	if err != nil {
		return err
	}
	defer e.Close()
	if err := schema.Migrate(ctx, e.Conn(), "", schema.Confirmed{}); err != nil {
		return err
	}
	var have uint64
	if err := e.Conn().QueryRow(ctx, "SELECT count() FROM journal").Scan(&have); err != nil {
		return fmt.Errorf("count the journal: %w", err)
	}
	if have > 0 && !goesOn {
		return fmt.Errorf("%s has %d rows that no fill made; name another directory", dir, have)
	}
	if err := p.keep(file); err != nil {
		return err
	}
	// An insert is whole or absent, and a repeated one does nothing: of those in flight
	// the later may be there without the earlier.
	done := max(0, int(have)/p.Block-inFlight+1)
	var sink ingest.ClickHouse
	sink.Use(e)
	send, empty := make(chan *block), make(chan *block, inFlight+1)
	for range cap(empty) {
		empty <- &block{cols: schema.NewColumns()}
	}
	began := time.Now()
	var sent, told atomic.Int64
	sctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var senders sync.WaitGroup
	for range inFlight {
		senders.Go(func() {
			for b := range send {
				if b.number >= done {
					if err := sink.Insert(sctx, fmt.Sprintf("fill-%d", b.number), b.cols, b.runs); err != nil {
						stop(err)
						return
					}
					sent.Add(int64(b.cols.Len()))
				}
				if t, now := told.Load(), time.Now().Unix(); now-t >= 5 && told.CompareAndSwap(t, now) {
					fmt.Fprintf(stderr, "%s: %d rows of about %d, %.0f a second\n", b.last.Format(time.DateOnly), int64(b.number+1)*int64(p.Block), p.Rows, float64(sent.Load())/time.Since(began).Seconds())
				}
				b.cols.Reset()
				b.runs = b.runs[:0]
				empty <- b
			}
		})
	}
	var b *block
	number := 0
	pass := func() error {
		b.number = number
		number++
		select {
		case send <- b:
			b = nil
			return nil
		case <-sctx.Done():
			return context.Cause(sctx)
		}
	}
	begin := p.Until.AddDate(0, 0, -p.Days)
	err = p.make(ingest.NewPricer(cat), func(list []schema.Entry, run *schema.RunInfo) error {
		for i := range list {
			if b == nil {
				select {
				case b = <-empty:
				case <-sctx.Done():
					return context.Cause(sctx)
				}
			}
			if run != nil && i == 0 {
				b.runs = append(b.runs, *run)
			}
			// A service that is not busy cuts a chunk a second.
			b.cols.Append(&list[i], uint64(list[i].RecordedAt-begin.UnixMicro())/1e6+1)
			b.last = time.UnixMicro(list[i].RecordedAt).UTC()
			if b.cols.Len() == p.Block {
				if err := pass(); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	})
	if err == nil && b != nil {
		err = pass()
	}
	close(send)
	senders.Wait()
	if cause := context.Cause(sctx); cause != nil {
		err = cause
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%d rows sent in %s, %.0f a second; waiting until what belongs together is merged\n", sent.Load(), time.Since(began).Round(time.Second), float64(sent.Load())/time.Since(began).Seconds())
	if err := settle(ctx, e); err != nil {
		return err
	}
	p.Done = true
	return p.keep(file)
}

// settle waits until the engine has merged nothing for ten seconds.
func settle(ctx context.Context, e *engine.Engine) error {
	for quiet := 0; quiet < 10; quiet++ {
		var merging uint64
		if err := e.Conn().QueryRow(ctx, "SELECT count() FROM system.merges").Scan(&merging); err != nil {
			return fmt.Errorf("look for merges: %w", err)
		}
		if merging > 0 {
			quiet = -1
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return nil
}
