package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/flyball/flyball/ingest/trace"
	"github.com/flyball/flyball/ingest/wal"
	"github.com/flyball/flyball/schema"
)

// ForgetJob is a user who is being forgotten. It is in the local store until that is
// done, and goes on after a crash from its beginning: each step may be done twice.
type ForgetJob struct {
	Tenant    string    `json:"tenant"`
	User      string    `json:"user,omitempty"` // "" once nothing else has it
	Pseudonym string    `json:"pseudonym"`
	Reason    string    `json:"reason"`
	Actor     string    `json:"actor"`
	At        time.Time `json:"at"`
}

// Renaming is what the job has everything renamed by; nil once nothing is left to be.
func (j *ForgetJob) Renaming() *schema.Forgetting {
	if j == nil || j.User == "" {
		return nil
	}
	return schema.NewForgetting(j.Tenant, j.User, j.Pseudonym)
}

// ErrForgetting says that a user is being forgotten already.
var ErrForgetting = errors.New("a user is being forgotten already; wait for the end of that")

const keyForget = "forget"

// Forgetting is the job that is not done; nil is none.
func (p *Pipeline) Forgetting() *ForgetJob { return p.forget.Load() }

// resumeForget reads the job of before a restart, before anything is read that has to be
// renamed.
func (p *Pipeline) resumeForget() error {
	v, err := p.store.Get(keyForget)
	if err != nil || v == nil {
		return err
	}
	j := new(ForgetJob)
	if err := json.Unmarshal(v, j); err != nil {
		return fmt.Errorf("read whom to forget: %w", err)
	}
	p.forget.Store(j)
	return p.asm.Forget(j.Renaming())
}

func (p *Pipeline) keepForget(j *ForgetJob) error {
	v, err := json.Marshal(j)
	if err != nil {
		return err
	}
	b := p.store.NewBatch()
	return errors.Join(b.Put(keyForget, v), b.Commit(true))
}

// BeginForget makes the job durable. When it returns, nothing that is appended to the
// log any more has the user's id. Forget does the rest.
func (p *Pipeline) BeginForget(j ForgetJob) error {
	if !p.forget.CompareAndSwap(nil, &j) {
		return ErrForgetting
	}
	if err := p.keepForget(&j); err != nil {
		p.forget.Store(nil)
		return err
	}
	p.taught.forget(j.Renaming())
	if err := p.asm.Forget(j.Renaming()); err != nil {
		p.failed(err) // some traces are renamed: the log is behind them
		return err
	}
	return nil
}

// ForgetSteps are the parts of forgetting a user that are not ingest's own.
type ForgetSteps struct {
	// Rows renames what ClickHouse has. alone runs a function while nothing is inserted.
	Rows func(ctx context.Context, f *schema.Forgetting, alone func(func() error) error) error
	// Rest renames what else is in the local store.
	Rest func(f *schema.Forgetting) error
	// Renamed is called when nothing has the id any more but old files of the local store.
	Renamed func()
	// Done is called before the job is gone.
	Done func(ForgetJob) error
	// Step says what is being done or waited for.
	Step func(string)
}

// Forget does what BeginForget began. It returns when no file of the data directory has
// the id. After an error it may be called again.
func (p *Pipeline) Forget(ctx context.Context, s ForgetSteps) error {
	j := p.forget.Load()
	if j == nil {
		return nil
	}
	if f := j.Renaming(); f != nil {
		if err := p.rename(ctx, f, s); err != nil {
			return err
		}
		if err := p.renamed(*j, s); err != nil {
			return err
		}
	}
	s.Step("cleaning the files of the local store")
	if err := p.store.Scrub(ctx); err != nil {
		return err
	}
	if err := s.Done(*p.forget.Load()); err != nil {
		return err
	}
	b := p.store.NewBatch()
	if err := errors.Join(b.Delete(keyForget), b.Commit(true)); err != nil {
		return err
	}
	p.forget.Store(nil)
	return nil
}

// rename takes the id out of everything, the job itself excepted.
func (p *Pipeline) rename(ctx context.Context, f *schema.Forgetting, s ForgetSteps) error {
	p.folding.Lock() // what is read before it is renamed must not be written after it
	defer p.folding.Unlock()
	s.Step("waiting until ClickHouse has what the log holds")
	mark, err := p.nudge(ctx)
	if err != nil {
		return err
	}
	sealed, err := p.log.Seal(ctx)
	if err != nil {
		return err
	}
	if err := p.await(ctx, func() bool { return p.writer.safe() >= mark }); err != nil {
		return err
	}
	s.Step("renaming rows in ClickHouse")
	alone := func(rewrite func() error) error { return p.alone(ctx, rewrite) }
	if err := s.Rows(ctx, f, alone); err != nil {
		return err
	}
	s.Step("renaming in the local store")
	if err := errors.Join(p.forgetTraces(ctx, f), alone(func() error { return p.writer.forget(f) }), s.Rest(f)); err != nil {
		return err
	}
	s.Step("waiting until the log of before is not needed")
	return p.await(ctx, func() bool { return p.log.Oldest() >= sealed })
}

// renamed ends the renaming: what comes from now on is new data.
func (p *Pipeline) renamed(j ForgetJob, s ForgetSteps) error {
	p.repricing.Lock() // who read the journal before it was renamed has posted by then
	defer p.repricing.Unlock()
	f := j.Renaming()
	j.User = ""
	if err := p.keepForget(&j); err != nil {
		return err
	}
	p.forget.Store(&j)
	p.taught.forget(f)
	s.Renamed()
	return p.asm.Forget(nil)
}

// nudge ends the chunk, empty or not, so that what is behind it is needed by nobody
// soon. It returns the position after it, and that it is durable.
func (p *Pipeline) nudge(ctx context.Context) (wal.Position, error) {
	p.chunk.mu.Lock()
	end, err := p.boundary()
	p.chunk.mu.Unlock()
	if err != nil {
		return 0, err
	}
	p.asm.Pass(uint64(end))
	return end, p.log.Sync(ctx, end)
}

// await waits for the log to move on, also while nothing comes.
func (p *Pipeline) await(ctx context.Context, reached func() bool) error {
	for n := 1; !reached(); n++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if n%20 == 0 {
			if _, err := p.nudge(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// alone runs f while no chunk is on its way to ClickHouse. The confirmation of every
// chunk before is durable then: a partition that was replaced does not know the tokens
// of its rows, so that they must not be sent again.
func (p *Pipeline) alone(ctx context.Context, f func() error) error {
	select {
	case p.writer.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.writer.turn }()
	if err := p.store.Sync(); err != nil {
		return err
	}
	return f()
}

// forgetAtOnce is how much of the stored traces is rewritten while none is saved.
const forgetAtOnce = 32 << 20

// forgetTraces renames the user in stored traces.
func (p *Pipeline) forgetTraces(ctx context.Context, f *schema.Forgetting) error {
	var next []byte
	for {
		p.saving.Lock()
		key, err := p.store.RewriteTraces(next, forgetAtOnce, func(page []byte) ([]byte, error) { return trace.ForgetPage(page, f) })
		p.saving.Unlock()
		if next = key; err != nil || next == nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// forget renames the user in the quarantine. Nothing may be added to it meanwhile.
func (w *writer) forget(f *schema.Forgetting) error {
	held, err := os.ReadFile(w.quarantineFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var out []byte
	for line := range bytes.Lines(held) {
		fresh, lerr := forgetLine(line, f)
		if lerr != nil {
			return fmt.Errorf("forget user in quarantine: %w", lerr)
		}
		out = append(out, fresh...)
	}
	if err != nil || bytes.Equal(out, held) {
		return err
	}
	temp := w.quarantineFile() + ".new"
	file, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("forget user in quarantine: %w", err)
	}
	_, err = file.Write(out)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(temp, w.quarantineFile())
	}
	if err == nil {
		var dir *os.File
		if dir, err = os.Open(filepath.Dir(temp)); err == nil {
			err = errors.Join(dir.Sync(), dir.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("forget user in quarantine: %w", err)
	}
	return nil
}

// forgetLine is a line of the quarantine without the user.
func forgetLine(line []byte, f *schema.Forgetting) ([]byte, error) {
	var v map[string]json.RawMessage
	if json.Unmarshal(line, &v) != nil {
		return nil, nil // a crash cut it off, and nobody can read it
	}
	var call, posting []byte
	var cause string
	if err := errors.Join(json.Unmarshal(v["call"], &call), json.Unmarshal(v["posting"], &posting), json.Unmarshal(v["error"], &cause)); err != nil {
		return nil, err
	}
	newCall, newPosting, err := f.Forms(call, posting)
	if err != nil || newCall == nil {
		return line, err
	}
	for name, value := range map[string]any{"call": newCall, "posting": newPosting, "error": f.Text(cause)} {
		if v[name], err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	out, err := json.Marshal(v)
	return append(out, '\n'), err
}
