package app

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"
)

// long asks for the form of the fault tests that takes minutes.
var long = os.Getenv("FLYBALL_FAULT") == "long"

func rounds(short, many int) int {
	if long {
		return many
	}
	return short
}

// TestKilledService: the service is killed under load at varying instants, alone
// and together with its engine. What was acknowledged is in the journal once,
// and the rollups agree with it.
//
// The log is so small that it is pruned all the time, and memory so short that
// most redelivered spans are looked up in the local store.
func TestKilledService(t *testing.T) {
	s := newService(t, "", "FLYBALL_LIMITS__WAL_BYTES=4194304", "FLYBALL_LIMITS__OPEN_RUNS=300")
	s.start()
	l := newLoad(s, 3, true)
	for i := range rounds(5, 60) {
		was := l.count()
		eventually(t, "spans are acknowledged", func() bool { return l.count() > was })
		// Often enough after a chunk was cut and while it is inserted.
		time.Sleep(time.Duration(200+rand.IntN(1500)) * time.Millisecond)
		var also []int
		if i%2 == 1 {
			also = s.engines()
		}
		s.kill(also...)
		s.start()
		if i%3 == 2 { // while it recovers, or its engine opens
			time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
			s.kill()
			s.start()
		}
	}
	l.wait()
	l.check(t)
	// Once more, with nothing but the log to start from.
	s.kill(s.engines()...)
	s.start()
	l.check(t)
}

// TestKilledEngine: only the engine is killed, while the service goes on.
func TestKilledEngine(t *testing.T) {
	s := newService(t, "")
	s.start()
	eventually(t, "the engine is up", func() bool { r, err := s.readyz(); return err == nil && r.ClickHouse.Ready })
	l := newLoad(s, 2, false)
	kills := rounds(3, 10) // the supervisor waits longer after each
	for i := range kills {
		time.Sleep(time.Duration(300+rand.IntN(1200)) * time.Millisecond)
		for _, pid := range s.engines() {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		eventually(t, "the engine is back", func() bool {
			r, err := s.readyz()
			return err == nil && r.ClickHouse.Ready && r.ClickHouse.Restarts > i
		})
	}
	l.wait()
	l.check(t)
	if l.unknown > 0 || l.refused > 0 {
		t.Errorf("%d requests had no answer and %d were refused for want of an engine", l.unknown, l.refused)
	}
}
