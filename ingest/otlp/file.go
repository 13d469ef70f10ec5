package otlp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/gzip"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxFileMessage bounds one message of a file in bytes. A file may hold any number of them.
const maxFileMessage = 512 << 20

// FileResult is what ReadFile handed over.
type FileResult struct {
	Spans, LogRecords, Metrics int64 // read, rejected ones included
	Rejected                   int64 // by the decoder and the consumer
	Reasons                    string
}

// ReadFile reads the OTLP messages of a file and hands each to the consumer, as sent by a trusted local sender. The
// content decides how it is read, not the name:
//
//   - OTLP JSON: one document of any layout, or many, as the collector's file exporter writes them (one a line);
//   - protobuf: one export request;
//   - the file exporter's length-prefixed form: 4 bytes of length, big endian, then a message in protobuf or JSON, which
//     may be compressed by itself;
//
// all of them plain, gzip or zstd. A consumer that is overloaded is asked again until ctx ends. Progress, if not nil,
// is told the bytes of the file read so far, before decompression.
//
// The error names the file, the place and the cure. What stands before the place has been taken; reading the file again
// is harmless, since a span is known by its ids.
func ReadFile(ctx context.Context, rd io.Reader, name string, to Consumer, progress func(bytes int64)) (FileResult, error) {
	f := &fileReader{name: name, to: to, line: 1}
	counted := &countingReader{src: rd, progress: progress}
	src := bufio.NewReaderSize(counted, 64<<10)
	plain, closeIt, err := inflate(src)
	if err != nil {
		return f.res, fmt.Errorf("read %s: %w", name, err)
	}
	defer closeIt()
	f.src = bufio.NewReaderSize(plain, 64<<10)
	err = f.run(ctx)
	if progress != nil {
		progress(counted.n)
	}
	return f.res, err
}

type countingReader struct {
	src      io.Reader
	n        int64
	progress func(int64)
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.src.Read(p)
	c.n += int64(n)
	if c.progress != nil {
		c.progress(c.n)
	}
	return n, err
}

// inflate undoes gzip or zstd, once, if the content begins like it.
func inflate(src *bufio.Reader) (plain io.Reader, closeIt func(), err error) {
	head, err := src.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(src)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { _ = z.Close() }, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := newZstdReader(src, zstdMaxWindow)
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return src, func() {}, nil
}

type fileReader struct {
	name   string
	src    *bufio.Reader
	to     Consumer
	res    FileResult
	line   int   // of src, from 1; JSON only
	offset int64 // in src, that is after decompression
}

func (f *fileReader) run(ctx context.Context) error {
	head, err := f.src.Peek(4)
	if err != nil && err != io.EOF {
		return f.fail("read", err, "the file is damaged or cut short")
	}
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
		_, _ = f.src.Discard(3)
		f.offset = 3
		head, _ = f.src.Peek(4)
	}
	if len(head) == 0 {
		return nil
	}
	switch c := head[0]; {
	case f.beginsDocument():
		return f.documents(ctx)
	case c < 0x0a && len(head) == 4:
		return f.prefixed(ctx)
	case c != 0x0a: // the tag of field 1, which every request begins with
		return f.fail("recognise content", fmt.Errorf("it begins with %q", head), "want OTLP as JSON, JSON lines or protobuf, plain or in gzip or zstd")
	}
	body, err := io.ReadAll(io.LimitReader(f.src, maxFileMessage+1))
	if err != nil {
		return f.fail("read", err, "the file is damaged or cut short")
	}
	if len(body) > maxFileMessage {
		return f.fail("read", errors.New("the message is larger than "+byteCount(maxFileMessage)), "write it in smaller batches")
	}
	return f.message(ctx, protobuf, body)
}

// beginsDocument reports whether white space and a bracket come next. A protobuf request begins with a newline's byte
// too, and goes on with a length: one of 123 is a bracket. A bracket further on, behind a length that is white space,
// would be the length of a part that is longer than the whole.
func (f *fileReader) beginsDocument() bool {
	if head, _ := f.src.Peek(2 + '{'); len(head) == 2+'{' && head[0] == '\n' && head[1] == '{' && isResource(head[2:]) {
		return false
	}
	for n := 64; ; n *= 2 {
		head, err := f.src.Peek(n)
		if i := skipSpace(head, 0); i < len(head) {
			return head[i] == '{'
		}
		if err != nil {
			return true // nothing but white space, or too much of it
		}
	}
}

// isResource reports whether b is a ResourceSpans, ResourceLogs or ResourceMetrics, as no text of JSON is.
func isResource(b []byte) bool {
	return eachField(b, func(num protowire.Number, typ protowire.Type, _, value []byte) error {
		if typ != protowire.BytesType || num != 1 && num != fieldScopes && num != 3 && num != fieldDeprecated {
			return errors.New("no field of it")
		}
		if num == 3 { // the schema's URL
			return nil
		}
		return eachField(value, func(protowire.Number, protowire.Type, []byte, []byte) error { return nil })
	}) == nil
}

// fail makes an error that names the place.
func (f *fileReader) fail(verb string, err error, cure string) error {
	return fmt.Errorf("read %s: line %d, offset %d: %s: %w: %s", f.name, f.line, f.offset, verb, err, cure)
}

// prefixed reads length-prefixed messages.
func (f *fileReader) prefixed(ctx context.Context) error {
	for n := 1; ; n++ {
		var head [4]byte
		if _, err := io.ReadFull(f.src, head[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return f.failMessage(n, err, "the file ends inside a length: it is cut short")
		}
		size := int64(binary.BigEndian.Uint32(head[:]))
		if size > maxFileMessage {
			return f.failMessage(n, fmt.Errorf("length %d is over %s", size, byteCount(maxFileMessage)), "is this a file of the collector's file exporter?")
		}
		var buf bytes.Buffer // grows with what is there, not with what the length claims
		if _, err := io.CopyN(&buf, f.src, size); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return f.failMessage(n, err, "the file ends inside a message: it is cut short")
		}
		body, err := inflateMessage(buf.Bytes())
		if err != nil {
			return f.failMessage(n, err, "the message is damaged")
		}
		enc := protobuf
		if i := skipSpace(body, 0); i < len(body) && body[i] == '{' {
			enc = jsonText
		}
		if err := f.message(ctx, enc, body); err != nil {
			return err
		}
		f.offset += 4 + size
	}
}

func (f *fileReader) failMessage(n int, err error, cure string) error {
	return fmt.Errorf("read %s: message %d, offset %d: %w: %s", f.name, n, f.offset, err, cure)
}

// inflateMessage undoes the compression of one message.
func inflateMessage(b []byte) ([]byte, error) {
	plain, closeIt, err := inflate(bufio.NewReader(bytes.NewReader(b)))
	if err != nil {
		return nil, err
	}
	defer closeIt()
	if !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) && !bytes.HasPrefix(b, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		return b, nil
	}
	out, err := io.ReadAll(io.LimitReader(plain, maxFileMessage+1))
	if err == nil && len(out) > maxFileMessage {
		err = errors.New("the message is larger than " + byteCount(maxFileMessage))
	}
	return out, err
}

// documents reads JSON documents that follow each other. Where one ends is found by counting brackets, so that lines,
// pretty-printed documents and mixtures are all read, in memory for one document.
func (f *fileReader) documents(ctx context.Context) error {
	var (
		doc      []byte
		depth    int
		inString bool
		escaped  bool
		lines    int // newlines in doc
	)
	for {
		chunk, readErr := f.src.Peek(1)
		if readErr == nil {
			chunk, _ = f.src.Peek(f.src.Buffered())
		} else if readErr != io.EOF {
			return f.fail("read", readErr, "the file is damaged or cut short")
		}
		used := 0
		for used < len(chunk) {
			c := chunk[used]
			if depth == 0 && len(doc) == 0 && (c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == 0x1e) {
				used++
				f.offset++
				if c == '\n' {
					f.line++
				}
				continue
			}
			if depth == 0 && c != '{' {
				return f.fail("find document", fmt.Errorf("found %q", c), "every document of a file begins with {")
			}
			start := used
			for used < len(chunk) {
				c = chunk[used]
				used++
				if c == '\n' {
					lines++
				}
				switch {
				case escaped:
					escaped = false
				case inString:
					inString = c != '"'
					escaped = c == '\\'
				case c == '"':
					inString = true
				case c == '{' || c == '[':
					depth++
				case c == '}' || c == ']':
					depth--
				}
				if depth == 0 {
					break
				}
			}
			doc = append(doc, chunk[start:used]...)
			if len(doc) > maxFileMessage {
				return f.fail("read", errors.New("the document is larger than "+byteCount(maxFileMessage)), "write it in smaller batches, one a line")
			}
			if depth == 0 {
				if err := f.message(ctx, jsonText, doc); err != nil {
					return err
				}
				f.offset += int64(len(doc))
				f.line += lines
				doc, lines = doc[:0], 0
			}
		}
		if readErr == io.EOF {
			if len(doc) > 0 {
				return f.fail("read document", io.ErrUnexpectedEOF, "the document does not end: the file is cut short or still being written")
			}
			return nil
		}
		_, _ = f.src.Discard(used)
	}
}

// message decodes and hands over one message.
func (f *fileReader) message(ctx context.Context, enc format, b []byte) error {
	sig, found := signalOf(enc, b)
	if !found {
		if enc == jsonText {
			if _, err := checkJSON(b); err != nil {
				return f.fail("decode", err, "correct or remove it and read the file again")
			}
			if len(bytes.TrimSpace(b)) > 2 && f.res == (FileResult{}) {
				return f.fail("decode", errors.New("no resourceSpans, resourceLogs or resourceMetrics in it"), "is this OTLP? Other trace formats are not read")
			}
		}
		if enc == protobuf {
			if err := try(traces, protobuf, b); err != nil {
				return f.fail("decode", err, "it is no OTLP export request in protobuf, or cut short")
			}
		}
		return nil // an empty request
	}
	p, err := decode(sig, enc, b)
	if err != nil {
		return f.fail("decode "+sig.String(), err, "correct or remove it and read the file again")
	}
	var res Result
	for p.items > p.rejects.total() {
		switch sig {
		case traces:
			res, err = f.to.Traces(ctx, Sender{Local: true}, p.traces)
		case logs:
			res, err = f.to.Logs(ctx, Sender{Local: true}, p.logs)
		case metricData:
			res, err = f.to.Metrics(ctx, Sender{Local: true}, p.metrics)
		}
		if err == nil {
			break
		}
		over := overloaded(err)
		var o Overload
		var po *Overload
		if !errors.As(err, &o) && !errors.As(err, &po) {
			return f.fail("store "+sig.String(), err, "nothing of this message was taken: read the file again")
		}
		select {
		case <-time.After(over.retry):
		case <-ctx.Done():
			return f.fail("store "+sig.String(), ctx.Err(), "nothing of this message was taken: read the file again")
		}
	}
	switch sig {
	case traces:
		f.res.Spans += p.items
	case logs:
		f.res.LogRecords += p.items
	case metricData:
		f.res.Metrics += p.items
	}
	own := p.rejects.total()
	f.res.Rejected += own + res.Rejected
	if f.res.Reasons == "" && own > 0 {
		f.res.Reasons = fmt.Sprintf("line %d, offset %d: %s", f.line, f.offset, p.rejects.text(sig))
	} else if f.res.Reasons == "" && res.Rejected > 0 {
		f.res.Reasons = res.Reasons
	}
	return ctx.Err()
}

// signalOf finds out what a message carries. JSON says so by name. In protobuf the three requests look alike down to the
// item, whose first fields tell: a span begins with ids of 16 and 8 bytes, a log record with fixed 64-bit times, a
// metric with a name and a body in field 5 or above.
func signalOf(enc format, b []byte) (sig signal, found bool) {
	if enc == jsonText {
		if _, err := checkJSON(b); err != nil {
			return 0, false
		}
		_ = eachMember(b, skipSpace(b, 0), func(key string, _, _ []byte) error {
			for s := range signalCount {
				if !found && (key == signalNames[s].resource || key == signalNames[s].resourceSnake) {
					sig, found = s, true
				}
			}
			return nil
		})
		return sig, found
	}
	var votes [signalCount]int
	enough := errors.New("enough")
	_ = eachField(b, func(num protowire.Number, _ protowire.Type, _, resource []byte) error {
		if num != fieldResources {
			return nil
		}
		return eachField(resource, func(num protowire.Number, _ protowire.Type, _, scope []byte) error {
			if num != fieldScopes && num != fieldDeprecated {
				return nil
			}
			return eachField(scope, func(num protowire.Number, _ protowire.Type, _, item []byte) error {
				if num != fieldItems {
					return nil
				}
				votes[itemSignal(item)]++
				if votes[traces]+votes[logs]+votes[metricData] >= 16 {
					return enough
				}
				return nil
			})
		})
	})
	for s, n := range votes {
		if n > 0 && (!found || n > votes[sig]) {
			sig, found = signal(s), true
		}
	}
	return sig, found
}

// itemSignal guesses what one item is. A time in field 7 or 8 makes it a span whatever its ids are, so that a span with
// malformed ids is reported as one.
func itemSignal(item []byte) signal {
	var log, span, metric, ids bool
	_ = eachField(item, func(num protowire.Number, typ protowire.Type, _, value []byte) error {
		switch {
		case typ == protowire.Fixed64Type:
			log = log || num == 1 || num == 11
			span = span || num == 7 || num == 8
		case typ == protowire.VarintType:
			log = log || num == 2
		case typ == protowire.BytesType:
			metric = metric || num == 7 || num == 10 || num == 1 && len(value) != 16
			ids = ids || num == 2 && len(value) == 8
		}
		return nil
	})
	switch {
	case log:
		return logs
	case span:
		return traces
	case metric && !ids:
		return metricData
	}
	return traces
}
