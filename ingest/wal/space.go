package wal

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrFull is what every *FullError is, for errors.Is.
var ErrFull = errors.New("log is full")

// What can be full.
const (
	FullCap  = "cap"  // Options.MaxBytes
	FullDisk = "disk" // the file system, but for Options.ReserveBytes
)

// FullError says that the log takes no new data for now. The sender should try
// again: pruning, or space on the disk, cures it.
type FullError struct {
	What  string // FullCap or FullDisk
	Asked int64  // bytes that were to be admitted
	Left  int64  // bytes there is room for; negative if the limit is passed already
}

func (e *FullError) Error() string {
	return fmt.Sprintf("log is full (%s): %d bytes asked, %d left", e.What, e.Asked, e.Left)
}

// Is makes errors.Is(err, ErrFull) true.
func (e *FullError) Is(target error) bool { return target == ErrFull }

// statInterval is how long one look at the file system is good for.
const statInterval = time.Second

// space remembers the free space of the file system.
type space struct {
	mu   sync.Mutex // guards the fields below
	at   time.Time  // of the last look; zero before the first
	free int64      // bytes then
	end  Position   // of the log then
}

// left returns the free bytes of the file system, at most a second old, less
// what was appended since.
func (s *space) left(end, written Position, look func() (int64, error)) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.at.IsZero() || now.Sub(s.at) >= statInterval {
		free, err := look()
		if err != nil {
			return 0, fmt.Errorf("stat file system: %w", err)
		}
		// Free space counts what is written, not what still waits in memory.
		s.at, s.free, s.end = now, free, written
	}
	return s.free - int64(end-s.end), nil
}

// Admit reports whether n more bytes (before compression, headers included)
// may be appended: nil, a *FullError, or the reason the log has stopped. Ask it
// before anything is claimed for the data. It reserves nothing, so what is
// admitted but not yet appended can pass the limit by that much; the reserve
// must be larger than what is in flight. It looks at the file system once a
// second at most and does not block on I/O otherwise.
func (l *Log) Admit(n int) error {
	l.mu.Lock()
	err := l.stateLocked()
	end, bytes, written := l.end, l.bytes, l.writtenLocked()
	l.mu.Unlock()
	if err != nil {
		return fmt.Errorf("admit data: %w", err)
	}
	ask := int64(max(n, 0))
	if left := l.opts.MaxBytes - bytes - int64(end-written); ask > left {
		return &FullError{What: FullCap, Asked: ask, Left: left}
	}
	free, err := l.space.left(end, written, l.disk.free)
	if err != nil {
		return fmt.Errorf("admit data: %w", err)
	}
	if left := free - l.opts.ReserveBytes; ask > left {
		return &FullError{What: FullDisk, Asked: ask, Left: left}
	}
	return nil
}
