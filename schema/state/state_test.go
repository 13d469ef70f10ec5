package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTracesArePagedAndExpireByDay(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC).UnixNano()
	b := s.NewBatch()
	for page, text := range []string{"one ", "two ", "three"} {
		if err := b.PutTrace(Day(now), []byte("key"), page, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Put("checkpoint", []byte{7}); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(true); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: dir}); err == nil {
		t.Fatal("the store was opened twice")
	}
	f := func(at int64, want string) {
		t.Helper()
		got, _, err := s.GetTrace([]byte("key"), at)
		if err != nil || string(got) != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
	f(now, "one two three")
	f(now+int64(30*time.Hour), "one two three")
	if data, _, _ := s.GetTrace([]byte("ke"), now); data != nil {
		t.Fatal("a prefix of a key is another key")
	}
	if err := s.Expire(now + int64(30*time.Hour)); err != nil {
		t.Fatal(err)
	}
	f(now+int64(30*time.Hour), "one two three")
	if err := s.Expire(now + int64(80*time.Hour)); err != nil {
		t.Fatal(err)
	}
	f(now, "")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if v, err := s.Get("checkpoint"); err != nil || !bytes.Equal(v, []byte{7}) {
		t.Fatalf("got %v, %v", v, err)
	}
}

// A trace that is stored is found, whatever the filters know: before the keys of an earlier
// process are read, after it, and when there is no room for more. One that is not is mostly
// not looked for.
func TestSeen(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC).UnixNano()
	today := Day(now)
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%d", i) }
	open := func() *Store {
		t.Helper()
		s, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		s.seen.mu.Lock()
		s.seen.keys = 100
		s.seen.mu.Unlock()
		return s
	}
	s := open()
	put := func(from, to int) {
		t.Helper()
		b := s.NewBatch()
		for i := from; i < to; i++ {
			for page := range 1 + i%2 {
				if err := b.PutTrace(today-uint32(i%3), key(i), page, key(i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := b.Commit(false); err != nil {
			t.Fatal(err)
		}
	}
	found := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			data, day, err := s.GetTrace(key(i), now)
			if want := string(bytes.Repeat(key(i), 1+i%2)); err != nil || string(data) != want || day != today-uint32(i%3) {
				t.Fatalf("got %q of day %d, %v; want %q of %d", data, day, err, want, today-uint32(i%3))
			}
		}
	}
	maybe := func(day uint32) (n int) {
		for i := range 1000 {
			if s.seen.may(day, key(-1-i)) {
				n++
			}
		}
		return n
	}
	put(0, 900)
	put(0, 300) // again
	found(0, 900)
	for day := today - 2; day <= today; day++ {
		if n := maybe(day); n > 100 {
			t.Errorf("%d of 1000 that are not there may be stored under day %d", n, day)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer func() { _ = s.Close() }()
	found(0, 900)
	put(900, 1000)
	<-s.keysRead
	found(0, 1000)
	for day := today - 2; day <= today; day++ {
		if n := maybe(day); n > 100 {
			t.Errorf("%d of 1000 that are not there may be stored under day %d, after a restart", n, day)
		}
	}
	put(1000, 3000)
	found(0, 3000)
	if n := maybe(today); n != 1000 {
		t.Errorf("%d of 1000 may be stored on a day with more traces than there is room for, want all", n)
	}
	if err := s.Expire(now + int64(100*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if n := maybe(today); n != 0 || s.seen.room != seenFilters {
		t.Errorf("%d may be stored on a day that is gone, and there is room for %d filters", n, s.seen.room)
	}
}

// Over its cap the store forgets the days before today, oldest first, and says so once.
func TestCap(t *testing.T) {
	var log bytes.Buffer
	s, err := Open(Options{Dir: t.TempDir(), MaxBytes: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	<-s.keysRead
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC).UnixNano()
	b := s.NewBatch()
	for back := range uint32(2) {
		if err := b.PutTrace(Day(now)-back, fmt.Appendf(nil, "key-%d", back), 0, []byte("page")); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Commit(true), s.Expire(now), s.Expire(now)); err != nil {
		t.Fatal(err)
	}
	for back, want := range []string{"page", ""} {
		if got, _, err := s.GetTrace(fmt.Appendf(nil, "key-%d", back), now); err != nil || string(got) != want {
			t.Errorf("of %d days ago there is %q, %v; want %q", back, got, err, want)
		}
	}
	if n := strings.Count(log.String(), "over its cap"); n != 1 {
		t.Errorf("it was said %d times, want once:\n%s", n, &log)
	}
}

// What was deleted or replaced is in no file after Scrub, wherever the engine had it:
// in values and keys of tables, as a bound in a manifest, in logs.
func TestScrub(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const secret = "Not-To-Be-Found"
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC).UnixNano()
	put := func(name, value string) {
		t.Helper()
		b := s.NewBatch()
		if err := errors.Join(b.Put(name, []byte(value)), b.PutTrace(Day(now), []byte("k/"+value), 0, []byte("page of "+value)), b.Commit(true)); err != nil {
			t.Fatal(err)
		}
	}
	found := func() []string { t.Helper(); return filesWith(t, dir, secret) }
	for i := range 5 {
		put("a/"+secret, secret)
		put("keep", fmt.Sprint("value ", i))
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Compact([]byte{0}, []byte{0xff}, false); err != nil {
		t.Fatal(err)
	}
	put("z/"+secret, secret)
	kinds := map[string]bool{}
	for _, name := range found() {
		kinds[filepath.Ext(name)] = true
	}
	if !kinds[".sst"] || !kinds[".log"] || !kinds[""] {
		t.Fatalf("only %v have it before: the test tests less than it says", found())
	}
	b := s.NewBatch()
	if err := errors.Join(b.Delete("a/"+secret), b.Delete("z/"+secret), b.b.Delete(traceKey(nil, Day(now), []byte("k/"+secret), 0), nil), b.Commit(false)); err != nil {
		t.Fatal(err)
	}
	if err := s.Scrub(context.Background()); err != nil {
		t.Fatal(err)
	}
	if names := found(); len(names) > 0 {
		t.Errorf("%v still have what was deleted", names)
	}
	if v, err := s.Get("keep"); err != nil || string(v) != "value 4" {
		t.Errorf("what was kept is %q, %v", v, err)
	}
}

// filesWith are the files of a directory that have a text.
func filesWith(t *testing.T, dir, text string) (files []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err == nil && bytes.Contains(b, []byte(text)) {
			files = append(files, e.Name())
		}
	}
	return files
}

// A name that was deleted is in no file after Scrub, also where the engine has nothing
// to merge the table with that says so.
func TestScrubOfFewTables(t *testing.T) {
	const secret = "Not-To-Be-Found"
	f := func(name string, before func(s *Store) error) {
		t.Helper()
		dir := t.TempDir()
		s, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		b, c := s.NewBatch(), s.NewBatch()
		for i := range 20 { // the engine looks itself after a table of which a tenth or more was deleted
			if err := b.Put(fmt.Sprint("keep/", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(b.Put("a/"+secret, nil), b.Put("keep", []byte("kept")), b.Commit(true), c.Delete("a/"+secret), c.Commit(true), before(s)); err != nil {
			t.Fatal(err)
		}
		if len(filesWith(t, dir, secret)) == 0 {
			t.Fatalf("%s: no file has it before", name)
		}
		if err := s.Scrub(context.Background()); err != nil {
			t.Fatal(err)
		}
		if names := filesWith(t, dir, secret); len(names) > 0 {
			t.Errorf("%s: %v still have what was deleted", name, names)
		}
		if v, err := s.Get("keep"); err != nil || string(v) != "kept" {
			t.Errorf("%s: what was kept is %q, %v", name, v, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if names := filesWith(t, dir, secret); len(names) > 0 {
			t.Errorf("%s, closed: %v have what was deleted", name, names)
		}
	}
	f("never flushed", func(*Store) error { return nil })
	f("flushed", func(s *Store) error { return s.db.Flush() })
	f("moved to the bottom", func(s *Store) error {
		return errors.Join(s.db.Flush(), s.db.Compact([]byte{0}, []byte{0xff}, false))
	})
}

func TestRewriteTraces(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC).UnixNano()
	b := s.NewBatch()
	for i := range 100 {
		if err := b.PutTrace(Day(now)-uint32(i%2), fmt.Appendf(nil, "key-%03d", i), 0, fmt.Appendf(nil, "page %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(true); err != nil {
		t.Fatal(err)
	}
	var next []byte
	rounds, pages := 0, 0
	for {
		if next, err = s.RewriteTraces(next, 50, func(page []byte) ([]byte, error) {
			pages++
			if !bytes.HasSuffix(page, []byte("7")) {
				return nil, nil
			}
			return append(page, " again"...), nil
		}); err != nil {
			t.Fatal(err)
		}
		if rounds++; next == nil {
			break
		}
	}
	if pages != 100 || rounds < 5 {
		t.Errorf("%d pages in %d rounds", pages, rounds)
	}
	for i, want := range map[int]string{7: "page 7 again", 8: "page 8", 87: "page 87 again"} {
		if got, _, err := s.GetTrace(fmt.Appendf(nil, "key-%03d", i), now); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

func TestLast(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f := func(prefix, want string) {
		t.Helper()
		if got, err := s.Last(prefix); err != nil || got != want {
			t.Errorf("last of %q is %q, %v; want %q", prefix, got, err, want)
		}
	}
	f("a/", "")
	b := s.NewBatch()
	for _, name := range []string{"a/1", "a/2", "b/1"} {
		if err := b.Put(name, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(false); err != nil {
		t.Fatal(err)
	}
	f("a/", "a/2")
	f("b/", "b/1")
	f("c/", "")
}
