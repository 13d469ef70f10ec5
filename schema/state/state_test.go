package state

import (
	"bytes"
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
