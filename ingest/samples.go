package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/flyball/flyball/ingest/otlp"
	"github.com/flyball/flyball/ingest/wal"
	"github.com/flyball/flyball/schema"
)

// sliceSamples bounds a record of the log.
const sliceSamples = 10_000

// Metrics takes signals of limiters in and counts other metrics, which no full log
// refuses. It returns after the fsync that covers the signals.
func (p *Pipeline) Metrics(ctx context.Context, from otlp.Sender, md pmetric.Metrics) (otlp.Result, error) {
	samples, ignored, rejected := p.reader.Load().AppendSamples(nil, md, origin(from), time.Now().UnixNano())
	if len(samples) > 0 {
		if err := p.keepSamples(ctx, samples); err != nil {
			return otlp.Result{}, err
		}
		p.metrics.samples.WithLabelValues("taken").Add(float64(len(samples)))
	}
	p.metrics.ignored.WithLabelValues("metrics").Add(float64(ignored))
	return refusal(rejected, "points"), nil
}

// keepSamples makes samples durable. Nothing is claimed for them: one that comes again
// is the same row.
func (p *Pipeline) keepSamples(ctx context.Context, samples []schema.Sample) error {
	if err := p.admit(len(samples) * 600); err != nil {
		return err
	}
	if err := throttle(p, samples, func(s *schema.Sample) string { return s.Tenant }); err != nil {
		return err
	}
	var end uint64
	for slice := range slices.Chunk(samples, sliceSamples) {
		record, err := json.Marshal(slice)
		if err != nil {
			return fmt.Errorf("encode samples: %w", err)
		}
		if end, err = p.record(recordSamples, record, len(slice), &p.samples); err != nil {
			return err
		}
	}
	p.asm.Pass(end)
	return p.log.Sync(ctx, wal.Position(end))
}

// sendSamples gets the samples of a chunk into the sink. Their values were checked
// when they came, so a block that is refused all the same is put aside as a whole.
func (w *writer) sendSamples(ctx context.Context, c *chunk) error {
	if len(c.samples) == 0 {
		return nil
	}
	token := fmt.Sprintf("%s-%d-samples-%08x", w.node, c.number, c.sampled)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := w.p.o.Sink.InsertSamples(ctx, token, c.samples)
		if err == nil {
			w.p.metrics.samples.WithLabelValues("stored").Add(float64(len(c.samples)))
			break
		}
		if !w.p.o.Sink.Transient(err) {
			if err := w.quarantineSamples(c, err); err != nil {
				return err
			}
			break
		}
		if err := w.wait(ctx, c, pause, err); err != nil {
			return err
		}
	}
	w.p.samples.Add(-int64(len(c.samples)))
	return nil
}

// quarantineSamples keeps a block that no insert accepts in a file. A crash before the
// chunk is confirmed writes it again.
func (w *writer) quarantineSamples(c *chunk, cause error) error {
	line, err := json.Marshal(map[string]any{"chunk": c.number, "error": cause.Error(), "samples": c.samples})
	if err != nil {
		return fmt.Errorf("quarantine samples: %w", err)
	}
	if err := appendLine(filepath.Join(w.p.o.Dir, "quarantine", "samples.jsonl"), line); err != nil {
		return fmt.Errorf("quarantine samples: %w", err)
	}
	w.p.metrics.samples.WithLabelValues("quarantined").Add(float64(len(c.samples)))
	w.p.o.Logger.Error("samples quarantined", "chunk", c.number, "samples", len(c.samples), "err", cause)
	return nil
}

// appendLine adds a line to a file of the quarantine, durably.
func appendLine(file string, line []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	return f.Sync()
}
