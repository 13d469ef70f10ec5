package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
)

const (
	segmentHeaderSize = 40
	segmentMagic      = "FLYBWAL\x00"
	segmentVersion    = 1
	segmentSuffix     = ".wal"
)

// segment is one file of the log.
type segment struct {
	base Position // of its first record; also its name
	end  Position // of its last record
	seq  uint64   // ordinal of its first record since the log began
	time int64    // of its first record, Unix milliseconds
}

func (s *segment) fileSize() int64 { return segmentHeaderSize + int64(s.end-s.base) }

// segmentName returns the file name of the segment at base: 20 digits, so that
// names sort as positions do.
func segmentName(base Position) string { return fmt.Sprintf("%020d%s", uint64(base), segmentSuffix) }

func parseSegmentName(name string) (Position, bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return Position(n), err == nil
}

// appendHeader appends the segment header; DESIGN.md has the table.
func (s *segment) appendHeader(b []byte) []byte {
	at := len(b)
	b = append(b, segmentMagic...)
	b = binary.LittleEndian.AppendUint32(b, segmentVersion)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.base))
	b = binary.LittleEndian.AppendUint64(b, s.seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.time))
	binary.LittleEndian.PutUint32(b[at+12:], crc32.Checksum(b[at+16:], castagnoli))
	return b
}

// parseHeader fills seq and time from a header and reports why it is not one
// of this segment.
func (s *segment) parseHeader(b []byte) error {
	switch {
	case len(b) < segmentHeaderSize:
		return damage("segment header is cut short")
	case string(b[:8]) != segmentMagic:
		return damage("segment header has another magic")
	case binary.LittleEndian.Uint32(b[12:]) != crc32.Checksum(b[16:segmentHeaderSize], castagnoli):
		return damage("segment header checksum does not match")
	case Position(binary.LittleEndian.Uint64(b[16:])) != s.base:
		return damage("segment header has another position than the name")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != segmentVersion {
		return fmt.Errorf("segment has format version %d, this program reads %d", v, segmentVersion)
	}
	s.seq = binary.LittleEndian.Uint64(b[24:])
	s.time = int64(binary.LittleEndian.Uint64(b[32:]))
	return nil
}

// Open opens the log in opts.Dir and creates it if there is none.
//
// It verifies every record of the last segment, and the header and the length
// of every earlier one; records of earlier segments are verified when they are
// read. A torn tail of the last segment, which is what a crash leaves of
// records that nobody was told are durable, is cut, logged and counted. Any
// other damage is put to opts.OnCorruption, and fails Open with a
// *CorruptionError unless that accepts it.
func Open(opts Options) (*Log, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	d, err := openDisk(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return open(opts, d)
}

// open takes over d and closes it if it fails.
func open(opts Options, d disk) (_ *Log, err error) {
	l := &Log{
		opts:     opts,
		disk:     d,
		log:      opts.Logger,
		encoders: sync.Pool{New: func() any { return new(encoder) }},
		failed:   make(chan struct{}),
		done:     make(chan struct{}),
	}
	l.work.L, l.room.L = &l.mu, &l.mu
	l.metrics = newMetrics(l)
	defer func() {
		if err == nil {
			return
		}
		if l.active != nil {
			_ = l.active.Close()
		}
		_ = d.close()
		l.metrics.unregister()
	}()
	if err := l.recover(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if err := l.metrics.register(opts.Registerer); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	go l.flush()
	return l, nil
}

// recover finds the segments, checks them and opens the last one for writing.
func (l *Log) recover() error {
	entries, err := os.ReadDir(l.opts.Dir)
	if err != nil {
		return fmt.Errorf("list segments: %w", err)
	}
	for _, e := range entries {
		base, ok := parseSegmentName(e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("list segments: %w", err)
		}
		end := base + Position(max(info.Size()-segmentHeaderSize, 0))
		l.segs = append(l.segs, segment{base: base, end: end})
	}
	sort.Slice(l.segs, func(i, j int) bool { return l.segs[i].base < l.segs[j].base })
	if err := l.dropUnborn(); err != nil {
		return err
	}
	for i := range l.segs {
		last := i == len(l.segs)-1
		if err := l.checkHeader(&l.segs[i], i, last); err != nil {
			return err
		}
		if last {
			if err := l.recoverLast(&l.segs[i]); err != nil {
				return err
			}
			break
		}
		if err := l.checkChain(&l.segs[i], l.segs[i+1].base); err != nil {
			return err
		}
	}
	for i := range l.segs {
		l.bytes += l.segs[i].fileSize()
	}
	return nil
}

// dropUnborn removes a last segment whose header never became durable: a crash
// came between its creation and its first fsync, so no record in it was
// confirmed. The one before it is then the last.
func (l *Log) dropUnborn() error {
	n := len(l.segs)
	if n == 0 {
		return nil
	}
	last := l.segs[n-1]
	if last.end > last.base || (n == 1 && last.base > 0) {
		// The header is durable before a record is written, so bytes behind a
		// bad one are no tear. And a lone segment's name is the only memory
		// that the log has of its position.
		return nil
	}
	b, err := l.readHead(last.base)
	if err != nil {
		return err
	}
	var d damage
	if err := last.parseHeader(b); !errors.As(err, &d) {
		return err
	}
	l.tornTail(&last, last.base, string(d))
	if err := l.disk.remove(segmentName(last.base)); err != nil {
		return fmt.Errorf("remove segment %d: %w", last.base, err)
	}
	if err := l.disk.syncDir(); err != nil {
		return fmt.Errorf("fsync directory: %w", err)
	}
	l.segs = l.segs[:n-1]
	return nil
}

func (l *Log) readHead(base Position) ([]byte, error) {
	f, err := os.Open(l.path(base))
	if err != nil {
		return nil, fmt.Errorf("open segment %d: %w", base, err)
	}
	defer f.Close()
	b := make([]byte, segmentHeaderSize)
	n, err := f.ReadAt(b, 0)
	if n < len(b) && !isEOF(err) {
		return nil, fmt.Errorf("read segment %d: %w", base, err)
	}
	return b[:n], nil
}

// checkHeader verifies the segment's header. A damaged one does not hide the
// records: their position is in the name and in their checksums.
func (l *Log) checkHeader(s *segment, i int, last bool) error {
	b, err := l.readHead(s.base)
	if err != nil {
		return err
	}
	err = s.parseHeader(b)
	var d damage
	if !errors.As(err, &d) {
		return err
	}
	if i > 0 {
		s.seq, s.time = l.segs[i-1].seq, l.segs[i-1].time
	}
	if err := l.damaged(s.corruption(s.base, s.base, -segmentHeaderSize, d)); err != nil {
		return err
	}
	if !last || len(b) == segmentHeaderSize {
		return nil
	}
	// Too short for a header, and the only memory of the position: write it anew.
	return os.WriteFile(l.path(s.base), s.appendHeader(nil), 0o640)
}

// checkChain verifies that the segment ends where the next one begins.
func (l *Log) checkChain(s *segment, next Position) error {
	if s.end == next {
		return nil
	}
	reason := damage("records are missing before the next segment")
	at := s.end
	if s.end > next {
		reason, at = "segment reaches into the next one", next
	}
	s.end = at
	return l.damaged(s.corruption(at, next, 0, reason))
}

// damaged asks the owner whether to go on in spite of c.
func (l *Log) damaged(c *CorruptionError) error {
	l.metrics.corruptions.Inc()
	if l.opts.OnCorruption == nil {
		return c
	}
	if err := l.opts.OnCorruption(c); err != nil {
		return fmt.Errorf("%w: %w", err, c)
	}
	l.log.Error("segment is corrupt, going on as told", "segment", c.Segment, "offset", c.Offset,
		"at", uint64(c.At), "next", uint64(c.Next), "reason", c.Reason)
	return nil
}

func (s *segment) corruption(at, next Position, shift int64, d damage) *CorruptionError {
	return &CorruptionError{
		Segment: segmentName(s.base),
		Offset:  segmentHeaderSize + int64(at-s.base) + shift,
		At:      at,
		Next:    next,
		Reason:  string(d),
	}
}

// recoverLast verifies the last segment's records, cuts a torn tail, and makes
// what is left durable: after a kill it may be in the page cache only.
func (l *Log) recoverLast(s *segment) error {
	f, err := os.Open(l.path(s.base))
	if err != nil {
		return fmt.Errorf("open segment %d: %w", s.base, err)
	}
	defer f.Close()
	var c cursor
	c.reset(f, s.base)
	pos, count := s.base, uint64(0)
	for pos < s.end {
		h, _, err := c.record(pos, s.end)
		if err == nil {
			if count == 0 {
				s.time = h.time
			}
			count++
			pos += headerSize + Position(h.length)
			continue
		}
		d, ok := err.(damage)
		if !ok {
			return fmt.Errorf("read segment %d: %w", s.base, err)
		}
		next, found := c.search(pos+1, s.end)
		if !found || c.torn(pos, next, s.end) {
			l.tornTail(s, pos, string(d))
			s.end = pos
			break
		}
		if err := l.damaged(s.corruption(pos, next, 0, d)); err != nil {
			return err
		}
		pos = next
	}

	w, err := l.disk.reopen(segmentName(s.base), s.fileSize())
	if err != nil {
		return fmt.Errorf("reopen segment %d: %w", s.base, err)
	}
	l.active, l.activeSize = w, int64(s.end-s.base)
	if err := w.Sync(); err != nil {
		return fmt.Errorf("fsync segment: %w", err)
	}
	if err := l.disk.syncDir(); err != nil {
		return fmt.Errorf("fsync directory: %w", err)
	}
	l.seq = s.seq + count
	l.records = l.seq
	l.end, l.synced, l.wanted = s.end, s.end, s.end
	return nil
}

// torn reports whether the damage in [pos, next), which good records follow,
// is a write that was never confirmed. It was confirmed for certain if a later
// record says that more than pos was durable when it was appended. Without
// such a witness the damage is in the last group that was written; there a
// power cut leaves sectors of zeros, and anything else is corruption.
func (c *cursor) torn(pos, next, limit Position) bool {
	for p, ok := next, true; ok; {
		h, _, err := c.record(p, limit)
		if err != nil {
			p, ok = c.search(p+1, limit)
			continue
		}
		if h.synced > pos {
			return false
		}
		p += headerSize + Position(h.length)
	}
	return c.hollow(pos, next)
}

func (l *Log) tornTail(s *segment, at Position, reason string) {
	l.metrics.tornTails.Inc()
	l.log.Warn("cut torn tail of the last segment", "segment", segmentName(s.base),
		"at", uint64(at), "bytes", uint64(s.end-at), "reason", reason)
}

func (l *Log) path(base Position) string { return filepath.Join(l.opts.Dir, segmentName(base)) }
