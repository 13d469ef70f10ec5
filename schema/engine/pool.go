package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// session is a pooled connection with the state the engine keeps for it. One
// request owns it at a time.
type session struct {
	*connection
	tag      string            // log_comment of every statement here; KILL QUERY finds it by this
	database string            // what USE was last told
	base     map[string]string // settings it was opened with
	settings map[string]string // what SET was told and not yet reset
	broken   bool              // its state is unknown: close it instead of reusing it
}

// prepare brings the session to the database and exactly the settings that a
// request asks for. A session remembers what it was told, so a request costs
// one statement for whatever differs from its predecessor on the session, and
// none when nothing does: an insert pays for its new token only.
func (s *session) prepare(database string, want map[string]string) error {
	if database != "" && database != s.database {
		if err := s.exec("USE " + quoteName(database)); err != nil {
			return err
		}
		s.database = database
	}
	var set []string
	for k, v := range want {
		if old, ok := s.settings[k]; !ok || old != v {
			set = append(set, k+"="+quoteText(v))
		}
	}
	for k := range s.settings {
		if _, ok := want[k]; ok {
			continue
		}
		// Never DEFAULT for what the session was opened with: that is the
		// engine's own default, unlimited or asynchronous.
		if v, ok := s.base[k]; ok {
			set = append(set, k+"="+quoteText(v))
		} else {
			set = append(set, k+"=DEFAULT")
		}
	}
	if len(set) == 0 {
		return nil
	}
	slices.Sort(set)
	if err := s.exec("SET " + strings.Join(set, ", ")); err != nil {
		s.broken = true // some of them may have been applied
		return err
	}
	s.settings = maps.Clone(want)
	return nil
}

// exec runs a statement and drops its answer.
func (s *session) exec(sql string) error {
	r, err := s.query(sql, "TabSeparated", nil)
	if err != nil {
		return err
	}
	r.destroy()
	return nil
}

// text runs a statement and copies its answer as TSV.
func (s *session) text(sql string, ps []param) (string, error) {
	r, err := s.query(sql, "TabSeparated", ps)
	if err != nil {
		return "", err
	}
	defer r.destroy()
	return string(r.bytes()), nil
}

// pool is a fixed number of sessions of one kind, opened when first needed.
type pool struct {
	open  func() (*session, error)
	slots chan *session // nil = a session that is not open
}

func newPool(size int, open func() (*session, error)) *pool {
	p := &pool{open: open, slots: make(chan *session, size)}
	for range size {
		p.slots <- nil
	}
	return p
}

// get waits for a session until ctx ends.
func (p *pool) get(ctx context.Context) (*session, error) {
	select {
	case s := <-p.slots:
		if s != nil {
			return s, nil
		}
		s, err := p.open()
		if err != nil {
			p.slots <- nil
			return nil, err
		}
		return s, nil
	case <-ctx.Done():
		// Code 202 is TOO_MANY_SIMULTANEOUS_QUERIES: clients know to come back.
		return nil, exception(202, "TOO_MANY_SIMULTANEOUS_QUERIES", "no free connection to the engine: %v", context.Cause(ctx))
	}
}

// put gives a session back; a broken one is closed and its slot reopened later.
func (p *pool) put(s *session) {
	if s.broken {
		s.close()
		s = nil
	}
	p.slots <- s
}

// close waits until deadline for sessions to come back and closes them. It
// reports whether all did.
func (p *pool) close(ctx context.Context) bool {
	for range cap(p.slots) {
		select {
		case s := <-p.slots:
			if s != nil {
				s.close()
			}
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// killEvery is how often KILL QUERY is repeated while a cancelled statement
// still runs: the first one may come before the engine has registered it.
const killEvery = 50 * time.Millisecond

// watch kills what runs on s when ctx ends, until the returned stop is called.
// stop returns after the last KILL QUERY did, so that none can hit whatever
// the session runs next.
func (e *host) watch(ctx context.Context, s *session) (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		for {
			e.kill(s.tag)
			select {
			case <-done:
				return
			case <-time.After(killEvery):
			}
		}
	}()
	return func() { close(done); <-gone }
}

// kill asks the engine to cancel the statements of one session.
func (e *host) kill(tag string) {
	e.killing.Lock()
	defer e.killing.Unlock()
	if err := e.killer.exec("KILL QUERY WHERE Settings['log_comment']=" + quoteText(tag)); err != nil {
		e.logf("kill query of %s: %v", tag, err)
	}
}

// openSession opens a connection of a kind. Its settings are the engine's own
// where every server has to behave the same, whatever its version's defaults.
func (e *host) openSession(kind string, limits map[string]string) (*session, error) {
	tag := fmt.Sprintf("flyball-%s-%d", kind, e.opened.Add(1))
	base := map[string]string{
		"log_comment":     tag,
		"max_threads":     fmt.Sprint(e.cfg.Threads),
		"async_insert":    "0",
		"implicit_select": "0",
		"http_max_tries":  "1",
		// The library turns them on; they show addresses and symbols.
		"allow_introspection_functions": "0",
	}
	maps.Copy(base, limits)
	args := []string{"--config-file=" + e.cfg.ConfigFile, "--path=" + e.cfg.Dir}
	for k, v := range base {
		args = append(args, "--"+k+"="+v)
	}
	c, err := e.lib.openConnection(args)
	if err != nil {
		return nil, err
	}
	return &session{connection: c, tag: tag, base: base}, nil
}

// quoteName quotes an identifier, quoteText a string literal.
func quoteName(s string) string { return "`" + escaper.Replace(s) + "`" }
func quoteText(s string) string { return "'" + escaper.Replace(s) + "'" }

var escaper = strings.NewReplacer(`\`, `\\`, "'", `\'`, "`", "\\`", "\x00", `\0`)
