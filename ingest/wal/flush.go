package wal

import (
	"fmt"
	"time"
)

// flush is the one goroutine that writes: it takes what gathered in memory,
// hands it to the kernel, and fsyncs when somebody waits for it. While it
// fsyncs, the next group gathers.
func (l *Log) flush() {
	defer close(l.done)
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for l.err == nil && l.wanted <= l.synced && len(l.buf) < writeAhead && !l.closing && l.sealing == nil {
			l.work.Wait()
		}
		if l.err != nil || (l.closing && l.synced == l.end) {
			return
		}
		batch, end := l.buf, l.end
		l.buf, l.spare = l.spare[:0], nil
		sealing := l.sealing
		sync := (l.wanted > l.synced || l.closing || sealing != nil) && end > l.synced
		l.room.Broadcast()
		l.mu.Unlock()

		err := l.write(batch)
		if err == nil && sync {
			err = l.fsync()
		}

		l.mu.Lock()
		if cap(batch) <= keepBytes {
			l.spare = batch
		}
		if err != nil {
			l.failLocked(err)
			return
		}
		if l.err != nil {
			// Prune failed meanwhile; nothing is confirmed after it.
			return
		}
		if sync {
			l.synced = end
			l.wakeLocked(nil)
		} else if sealing == nil {
			continue
		}

		// A full segment is sealed after the waiters were answered, so that
		// the cost of a new one is rarely in anybody's answer, and so that the
		// one being written, which cannot be pruned, stays small.
		if (l.activeSize >= l.opts.SegmentBytes || sealing != nil && l.activeSize > 0) && !l.closing {
			l.mu.Unlock()
			err := l.roll(end, time.Now().UnixMilli())
			l.mu.Lock()
			if err != nil {
				l.failLocked(err)
				return
			}
		}
		if sealing != nil {
			l.sealing = nil
			close(sealing)
		}
	}
}

// write hands whole records to the kernel, beginning new segments where they
// no longer fit.
func (l *Log) write(batch []byte) error {
	for len(batch) > 0 {
		n, count := fit(batch, l.opts.SegmentBytes-l.activeSize)
		if l.active == nil || (n == 0 && l.activeSize > 0) {
			l.mu.Lock()
			base := l.writtenLocked()
			l.mu.Unlock()
			if err := l.roll(base, recordTime(batch)); err != nil {
				return err
			}
			continue
		}
		if n == 0 {
			n, count = recordSize(batch), 1
		}
		if _, err := l.active.Write(batch[:n]); err != nil {
			return fmt.Errorf("write segment: %w", err)
		}
		l.mu.Lock()
		last := &l.segs[len(l.segs)-1]
		if l.activeSize == 0 {
			last.time = recordTime(batch)
		}
		last.end += Position(n)
		l.bytes += int64(n)
		l.mu.Unlock()
		l.activeSize += int64(n)
		l.seq += count
		batch = batch[n:]
	}
	return nil
}

// writtenLocked returns the end of what the kernel has.
func (l *Log) writtenLocked() Position {
	if len(l.segs) == 0 {
		return 0
	}
	return l.segs[len(l.segs)-1].end
}

// fit returns how many bytes of whole records at the head of batch fit into
// room, and how many records that is.
func fit(batch []byte, room int64) (n int, records uint64) {
	for n < len(batch) {
		size := recordSize(batch[n:])
		if int64(n+size) > room {
			break
		}
		n += size
		records++
	}
	return n, records
}

func (l *Log) fsync() error {
	began := time.Now()
	if err := l.active.Sync(); err != nil {
		return fmt.Errorf("fsync segment: %w", err)
	}
	l.metrics.fsync.Observe(time.Since(began).Seconds())
	return nil
}

// roll seals the active segment and begins the one at base. The order is what
// recovery relies on: the old segment is durable before the new file exists,
// so only the last segment can be torn; the new header and its directory entry
// are durable before the segment is listed, so no acknowledged record and no
// pruned position depends on a file that a power cut takes away.
func (l *Log) roll(base Position, firstMillis int64) error {
	if l.active != nil {
		if err := l.fsync(); err != nil {
			return err
		}
		err := l.active.Close()
		l.active = nil
		if err != nil {
			return fmt.Errorf("close segment: %w", err)
		}
	}
	f, err := l.disk.create(segmentName(base))
	if err != nil {
		return fmt.Errorf("create segment %d: %w", base, err)
	}
	l.active, l.activeSize = f, 0
	seg := segment{base: base, end: base, seq: l.seq, time: firstMillis}
	if _, err := f.Write(seg.appendHeader(nil)); err != nil {
		return fmt.Errorf("write segment header: %w", err)
	}
	if err := l.fsync(); err != nil {
		return err
	}
	if err := l.disk.syncDir(); err != nil {
		return fmt.Errorf("fsync directory: %w", err)
	}
	l.mu.Lock()
	l.segs = append(l.segs, seg)
	l.bytes += segmentHeaderSize
	l.mu.Unlock()
	return nil
}
