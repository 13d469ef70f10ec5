package otlp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// Limits of zstd frames. A frame names the window that its decoder has to hold; RFC 8878 recommends to support 8 MiB,
// and common encoders go to 32 MiB at their highest levels.
const (
	zstdWindow    = 8 << 20
	zstdMaxWindow = 32 << 20
)

// acceptEncoding lists what readBody understands, for the 415 answer.
const acceptEncoding = "gzip, zstd, deflate, identity"

// wireSlack is by how much a compressed body may be longer on the wire than the limit of its content. It ends streams
// that compress nothing for ever, such as a row of empty gzip members.
const wireSlack = 64 << 10

// body holds the decompressed bytes of one request and their share of the budget.
type body struct {
	bytes []byte
	held  int64
	r     *Receiver
}

// buffers are reused, since pdata copies what it keeps. Large ones are left to the garbage collector.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxPooledBuffer = 4 << 20

// release gives the budget and the buffer back. It is safe to call twice.
func (b *body) release() {
	b.r.budget.release(b.held)
	b.held = 0
	if b.bytes != nil && cap(b.bytes) <= maxPooledBuffer {
		buf := b.bytes[:0]
		buffers.Put(&buf)
	}
	b.bytes = nil
}

// readBody reads and decompresses a body within the limits. It takes its share of the budget as the content grows, not
// as headers claim. The caller releases the body, whose bytes are valid until then.
func (r *Receiver) readBody(ctx context.Context, src io.Reader, coding string) (*body, *fault) {
	b := &body{r: r}
	limit := r.opts.RequestBytes
	wire := &wireReader{src: src, left: limit + wireSlack}
	var err error
	switch strings.ToLower(strings.TrimSpace(coding)) {
	case "", "identity":
		err = b.fill(ctx, src)
	case "gzip", "x-gzip":
		err = b.gzip(ctx, wire)
	case "zstd":
		err = b.zstd(ctx, wire)
	case "deflate":
		var z io.ReadCloser
		if z, err = zlib.NewReader(wire); err == nil {
			err = b.fill(ctx, z)
		}
	default:
		return nil, unsupported("unknown Content-Encoding " + truncate(coding, 40) + ": use one of " + acceptEncoding)
	}
	if err == nil && !wire.over {
		return b, nil
	}
	b.release()
	var f *fault
	var o Overload
	switch {
	case errors.As(err, &f):
		return nil, f
	case errors.As(err, &o), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil, overloaded(err)
	case wire.over, errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, tooLarge(limit)
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, badRequest("read zstd body: the window is larger than " + byteCount(zstdMaxWindow))
	}
	return nil, badRequest("read body: " + err.Error())
}

// wireReader ends a compressed stream that is longer than any honest one.
type wireReader struct {
	src  io.Reader
	left int64
	over bool
}

func (w *wireReader) Read(p []byte) (int, error) {
	n, err := w.src.Read(p)
	if w.left -= int64(n); w.left < 0 {
		w.over = true
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// fill reads src to its end.
func (b *body) fill(ctx context.Context, src io.Reader) error {
	const firstShare = 64 << 10
	limit := b.r.opts.RequestBytes
	pooled, _ := buffers.Get().(*[]byte)
	b.bytes = *pooled
	if cap(b.bytes) == 0 {
		b.bytes = make([]byte, 0, 16<<10)
	}
	for {
		if len(b.bytes) == cap(b.bytes) {
			bigger := make([]byte, len(b.bytes), min(int64(2*cap(b.bytes)), limit+1))
			copy(bigger, b.bytes)
			b.bytes = bigger
		}
		room := min(int64(cap(b.bytes)-len(b.bytes)), limit+1-int64(len(b.bytes)))
		if need := int64(len(b.bytes)) + 1; need > b.held && b.held < limit {
			share := min(max(firstShare, b.held), limit-b.held)
			if err := b.r.budget.acquire(ctx, share, inflightWait); err != nil {
				return err
			}
			b.held += share
		}
		if b.held < limit {
			room = min(room, b.held-int64(len(b.bytes)))
		}
		n, err := src.Read(b.bytes[len(b.bytes) : int64(len(b.bytes))+room])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if int64(len(b.bytes)) > limit {
			return tooLarge(limit)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}

func (b *body) gzip(ctx context.Context, src io.Reader) error {
	z := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(z)
	if err := z.Reset(src); err != nil {
		return err
	}
	return b.fill(ctx, z)
}

var zstdReaders sync.Pool // of *zstd.Decoder with zstdWindow

func newZstdReader(src io.Reader, window uint64) (*zstd.Decoder, error) {
	return zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
}

// zstd decompresses a stream; while it does, the window counts against the budget too.
func (b *body) zstd(ctx context.Context, src io.Reader) error {
	head := make([]byte, zstd.HeaderMaxSize)
	n, err := io.ReadFull(src, head)
	if n == 0 {
		return io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = head[:n]
	var hdr zstd.Header
	if err := hdr.Decode(head); err != nil {
		return err
	}
	window := int64(zstdWindow)
	if !hdr.SingleSegment && hdr.WindowSize > zstdWindow {
		if hdr.WindowSize > zstdMaxWindow {
			return zstd.ErrWindowSizeExceeded
		}
		window = int64(hdr.WindowSize)
	}
	share := min(window, b.r.budget.limit-b.r.opts.RequestBytes)
	if err := b.r.budget.acquire(ctx, share, inflightWait); err != nil {
		return err
	}
	defer b.r.budget.release(share)

	full := io.MultiReader(bytes.NewReader(head), src)
	if window > zstdWindow {
		z, err := newZstdReader(full, uint64(window))
		if err != nil {
			return err
		}
		defer z.Close()
		return b.fill(ctx, z)
	}
	z, _ := zstdReaders.Get().(*zstd.Decoder)
	if z == nil {
		if z, err = newZstdReader(nil, zstdWindow); err != nil {
			return err
		}
	}
	defer func() {
		_ = z.Reset(nil) // lets go of the source
		zstdReaders.Put(z)
	}()
	if err := z.Reset(full); err != nil {
		return err
	}
	return b.fill(ctx, z)
}
