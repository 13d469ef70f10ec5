package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/s2"
)

const (
	headerSize = 32
	recordMark = 0xF17B // little endian at offset 10; lets a search skip quickly

	flagS2 = 1 << 0

	minCompress = 128       // shorter payloads are stored as they are
	readAhead   = 512 << 10 // bytes a reader asks the page cache for at once
	sectorBytes = 512       // the unit a disk writes or does not write
	minHollow   = 16        // shortest run of zeros taken for an unwritten sector
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Record is one record as a reader returns it.
type Record struct {
	Kind       byte     // what the appender said
	Start, End Position // End is the Start of the next record
	CRC        uint32   // CRC32C of the stored payload, the header and Start
	Millis     int64    // when it was appended, Unix time in milliseconds
	Data       []byte   // valid until the reader's next call
}

// CorruptionError says that bytes which were once durable do not verify. It is
// never repaired silently: a reader that returned it stays there. The owner who
// decides to go on without the damaged bytes opens a new reader at Next.
type CorruptionError struct {
	Segment string   // file name
	Offset  int64    // byte offset in that file
	At      Position // the same place as a position
	Next    Position // the next good record, else the end of the segment
	Reason  string
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("segment %s is corrupt at offset %d (positions %d to %d): %s", e.Segment, e.Offset, e.At, e.Next, e.Reason)
}

// header is the decoded record header; DESIGN.md has the table.
type header struct {
	kind   byte
	flags  byte
	length uint32   // bytes of stored payload
	time   int64    // Unix milliseconds
	synced Position // what was durable when the record was appended
	crc    uint32
}

// encoder holds the buffers of one Append.
type encoder struct {
	head [headerSize + 8]byte // the header, then the start position, which is summed but not stored
	out  []byte
}

// encode returns what is stored for data: compressed if that saves a sixteenth
// or more, else data itself.
func (e *encoder) encode(data []byte) (stored []byte, flags byte) {
	if len(data) < minCompress {
		return data, 0
	}
	if n := s2.MaxEncodedLen(len(data)); cap(e.out) < n {
		e.out = make([]byte, n)
	}
	out := s2.Encode(e.out[:cap(e.out)], data)
	if len(out) > len(data)-len(data)/16 {
		return data, 0
	}
	return out, flagS2
}

// seal fills head for a record at start whose stored payload sums to sum. The
// sum covers the payload first, so that only these few bytes are summed under
// the log's lock.
func (e *encoder) seal(sum uint32, h header, start Position) {
	b := e.head[:]
	b[8], b[9] = h.kind, h.flags
	binary.LittleEndian.PutUint16(b[10:], recordMark)
	binary.LittleEndian.PutUint32(b[12:], h.length)
	binary.LittleEndian.PutUint64(b[16:], uint64(h.time))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.synced))
	binary.LittleEndian.PutUint64(b[32:], uint64(start))
	binary.LittleEndian.PutUint32(b[0:], crc32.Update(sum, castagnoli, b[8:40]))
	binary.LittleEndian.PutUint32(b[4:], crc32.Update(0, castagnoli, b[8:40]))
}

func (e *encoder) recycle() {
	if cap(e.out) > keepBytes {
		e.out = nil
	}
}

// recordSize returns the size of the encoded record at the head of b, which
// this process wrote.
func recordSize(b []byte) int {
	return headerSize + int(binary.LittleEndian.Uint32(b[12:]))
}

// recordTime returns the time of the encoded record at the head of b.
func recordTime(b []byte) int64 {
	return int64(binary.LittleEndian.Uint64(b[16:]))
}

// damage is why bytes are not a record.
type damage string

func (d damage) Error() string { return string(d) }

const (
	damageHeaderCut   damage = "record header is cut short"
	damageMark        damage = "no record begins here"
	damageHeader      damage = "record header checksum does not match"
	damageLength      damage = "record is longer than allowed"
	damageFlags       damage = "record has unknown flags"
	damagePayloadCut  damage = "record is cut short"
	damagePayload     damage = "record checksum does not match"
	damageShort       damage = "segment is shorter than it was"
	damageCompression damage = "record does not decompress"
)

// cursor reads records of one segment file through a buffer of its own.
type cursor struct {
	f    io.ReaderAt
	base Position // of the segment
	at   Position // of buf[0]
	buf  []byte
	head [headerSize]byte // bytes 8 to 32 of a header, then its position
}

func (c *cursor) reset(f io.ReaderAt, base Position) {
	c.f, c.base, c.at, c.buf = f, base, base, c.buf[:0]
}

// peek returns n bytes at pos, which is at most limit-n.
func (c *cursor) peek(pos Position, n int, limit Position) ([]byte, error) {
	if pos >= c.at && pos+Position(n) <= c.at+Position(len(c.buf)) {
		i := int(pos - c.at)
		return c.buf[i : i+n], nil
	}
	want := n
	if n < readAhead {
		want = int(min(limit-pos, readAhead))
	}
	if cap(c.buf) < want || (cap(c.buf) > keepBytes && want <= readAhead) {
		c.buf = make([]byte, 0, max(want, readAhead))
	}
	got, err := c.f.ReadAt(c.buf[:want], segmentHeaderSize+int64(pos-c.base))
	c.at, c.buf = pos, c.buf[:got]
	if got >= n {
		return c.buf[:n], nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil, damageShort
	}
	return nil, err
}

// header reads and verifies the header at pos.
func (c *cursor) header(pos, limit Position) (header, error) {
	if pos+headerSize > limit {
		return header{}, damageHeaderCut
	}
	b, err := c.peek(pos, headerSize, limit)
	if err != nil {
		return header{}, err
	}
	if binary.LittleEndian.Uint16(b[10:]) != recordMark {
		return header{}, damageMark
	}
	copy(c.head[:], b[8:headerSize])
	binary.LittleEndian.PutUint64(c.head[headerSize-8:], uint64(pos))
	if crc32.Update(0, castagnoli, c.head[:]) != binary.LittleEndian.Uint32(b[4:]) {
		return header{}, damageHeader
	}
	h := header{
		kind:   b[8],
		flags:  b[9],
		length: binary.LittleEndian.Uint32(b[12:]),
		time:   int64(binary.LittleEndian.Uint64(b[16:])),
		synced: Position(binary.LittleEndian.Uint64(b[24:])),
		crc:    binary.LittleEndian.Uint32(b[0:]),
	}
	if h.length > MaxRecord {
		return header{}, damageLength
	}
	if h.flags&^flagS2 != 0 {
		return header{}, damageFlags
	}
	return h, nil
}

// record reads and verifies the record at pos and returns its header and
// stored payload, valid until the cursor's next call. The error is a damage if
// the bytes are there but are no record.
func (c *cursor) record(pos, limit Position) (header, []byte, error) {
	h, err := c.header(pos, limit)
	if err != nil {
		return h, nil, err
	}
	size := headerSize + int(h.length)
	if pos+Position(size) > limit {
		return h, nil, damagePayloadCut
	}
	b, err := c.peek(pos, size, limit)
	if err != nil {
		return h, nil, err
	}
	// header left bytes 8 to 32 and the position in c.head.
	sum := crc32.Update(crc32.Update(0, castagnoli, b[headerSize:]), castagnoli, c.head[:])
	if sum != h.crc {
		return h, nil, damagePayload
	}
	return h, b[headerSize:], nil
}

// search returns the first place at or after from where a whole record
// verifies. Positions are part of the checksums, so it cannot be fooled by
// bytes that were moved or by a record inside a payload.
func (c *cursor) search(from, limit Position) (Position, bool) {
	for p := from; p+headerSize <= limit; p++ {
		b, err := c.peek(p, headerSize, limit)
		if err != nil {
			return limit, false
		}
		if binary.LittleEndian.Uint16(b[10:]) != recordMark {
			continue
		}
		if _, _, err := c.record(p, limit); err == nil {
			return p, true
		}
	}
	return limit, false
}

// hollow reports whether a sector between from and to is all zero there: the
// mark of a write that never reached the disk, as opposed to bytes that went
// bad on it.
func (c *cursor) hollow(from, to Position) bool {
	run := 0
	for p := from; p < to; p++ {
		off := segmentHeaderSize + int64(p-c.base)
		b, err := c.peek(p, 1, to)
		if err != nil {
			return false
		}
		if off%sectorBytes == 0 {
			if run >= minHollow {
				return true
			}
			run = 0
		}
		if run >= 0 {
			if b[0] == 0 {
				run++
			} else {
				run = -1 // not this sector
			}
		}
	}
	return run >= minHollow
}

// decode returns the payload as it was appended, in dst if it fits.
func decode(dst []byte, h header, stored []byte) ([]byte, error) {
	if h.flags&flagS2 == 0 {
		return stored, nil
	}
	n, err := s2.DecodedLen(stored)
	if err != nil || n > MaxRecord {
		return nil, damageCompression
	}
	out, err := s2.Decode(dst, stored)
	if err != nil {
		return nil, damageCompression
	}
	return out, nil
}
