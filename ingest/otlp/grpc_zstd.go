package otlp

import (
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/encoding"
)

// gRPC knows compressions by a registry that is process-wide and may be written during initialisation only; hence the
// one init of this package. What is registered is an ordinary zstd compressor, for clients in the same process too.
func init() {
	encoding.RegisterCompressor(&grpcZstd{slots: make(chan struct{}, 2*runtime.GOMAXPROCS(0))})
}

// grpcZstd is an encoding.Compressor. gRPC stops reading at the server's limit of one message; the slots bound how many
// messages are inflated at once before their bytes are counted against a receiver's budget.
type grpcZstd struct {
	slots    chan struct{}
	encoders sync.Pool // of *zstdWriter
}

func (z *grpcZstd) Name() string { return "zstd" }

func (z *grpcZstd) Compress(w io.Writer) (io.WriteCloser, error) {
	if e, ok := z.encoders.Get().(*zstdWriter); ok {
		e.Reset(w)
		return e, nil
	}
	e, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	return &zstdWriter{Encoder: e, pool: &z.encoders}, nil
}

type zstdWriter struct {
	*zstd.Encoder
	pool *sync.Pool
}

func (w *zstdWriter) Close() error {
	err := w.Encoder.Close()
	w.pool.Put(w)
	return err
}

// Decompress waits for a slot with the first Read; gRPC has the whole message in memory by then and closes the reader
// when it is done, so that no slow sender holds a slot.
func (z *grpcZstd) Decompress(r io.Reader) (io.Reader, error) { return &zstdMessage{z: z, src: r}, nil }

type zstdMessage struct {
	z   *grpcZstd
	src io.Reader
	dec *zstd.Decoder
	err error
}

func (m *zstdMessage) Read(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	if m.dec == nil {
		m.z.slots <- struct{}{}
		if m.dec, _ = zstdReaders.Get().(*zstd.Decoder); m.dec == nil {
			if m.dec, m.err = newZstdReader(nil, zstdWindow); m.err != nil {
				<-m.z.slots
				return 0, m.err
			}
		}
		if m.err = m.dec.Reset(m.src); m.err != nil {
			return 0, m.err
		}
	}
	return m.dec.Read(p)
}

// Close gives the slot and the decoder back.
func (m *zstdMessage) Close() error {
	if m.dec != nil {
		_ = m.dec.Reset(nil)
		zstdReaders.Put(m.dec)
		m.dec = nil
		<-m.z.slots
	}
	m.err = io.ErrClosedPipe
	return nil
}
