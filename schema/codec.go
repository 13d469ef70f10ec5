package schema

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// The binary forms below are what the write-ahead log, the local store and
// memory share. Each starts with a form byte; a field that has its zero value
// costs one bit. Integers are varints, strings are length and bytes.

const (
	callForm    = 1
	postingForm = 1
)

// ErrForm is returned for bytes that are no known form of a call or a posting.
var ErrForm = errors.New("unknown or damaged binary form")

func (c *Call) texts() [13]*string {
	return [13]*string{&c.Name, &c.Operation, &c.Provider, &c.Model, &c.RequestedModel, &c.ServiceTier, &c.ResponseID, &c.Scope, &c.TokenBasis, &c.Tool, &c.ToolCallID, &c.PayloadType, &c.AltResponseID}
}

// AppendCall appends the binary form of c.
func AppendCall(b []byte, c *Call) []byte {
	b = append(b, callForm)
	b = appendString(b, c.Tenant)
	b = append(b, c.Trace[:]...)
	b = append(b, c.Span[:]...)
	b = append(b, c.Parent[:]...)
	b = binary.AppendUvarint(b, uint64(c.Part))
	b = binary.AppendVarint(b, c.Start)
	b = binary.AppendVarint(b, c.Duration)
	b = append(b, byte(c.Kind), byte(c.Usage), byte(c.Failure), byte(c.Effect)<<4|byte(c.Source))
	b = binary.AppendUvarint(b, uint64(c.Role))
	b = binary.AppendUvarint(b, uint64(c.Flags))

	texts := c.texts()
	var mask uint64
	for i := range c.Identity {
		if c.Identity[i] != "" {
			mask |= 1 << i
		}
	}
	for i, s := range texts {
		if *s != "" {
			mask |= 1 << (int(NumDims) + i)
		}
	}
	if c.Link != (TraceID{}) {
		mask |= 1 << 40
	}
	b = binary.AppendUvarint(b, mask)
	for i := range c.Identity {
		if c.Identity[i] != "" {
			b = appendString(b, c.Identity[i])
		}
	}
	for _, s := range texts {
		if *s != "" {
			b = appendString(b, *s)
		}
	}
	if c.Link != (TraceID{}) {
		b = append(b, c.Link[:]...)
	}

	numbers := [...]uint64{uint64(c.ReportedCost), boolBit(c.HasReported), c.ArgsHash, c.PayloadBytes, uint64(c.HTTPStatus), uint64(c.HiddenFailure), uint64(c.Hidden), uint64(c.Turns), uint64(c.Delivery), c.Units.WebSearches, c.Units.Images, c.Units.Pages, c.Units.Milliseconds}
	mask = 0
	for i, n := range numbers {
		if n != 0 {
			mask |= 1 << i
		}
	}
	tokens := c.Tokens.Fields()
	for i, n := range tokens {
		if *n != 0 {
			mask |= 1 << (len(numbers) + i)
		}
	}
	b = binary.AppendUvarint(b, mask)
	for _, n := range numbers {
		if n != 0 {
			b = binary.AppendUvarint(b, n)
		}
	}
	for _, n := range tokens {
		if *n != 0 {
			b = binary.AppendUvarint(b, *n)
		}
	}
	return b
}

// DecodeCall reads what AppendCall wrote, replacing all of c. Strings are copied
// out of b.
func DecodeCall(b []byte, c *Call) error { return decodeCall(decoder{b: b}, c) }

func decodeCall(d decoder, c *Call) error {
	if d.byte() != callForm {
		return fmt.Errorf("decode call: %w", ErrForm)
	}
	*c = Call{}
	c.Tenant = d.string()
	d.copy(c.Trace[:])
	d.copy(c.Span[:])
	d.copy(c.Parent[:])
	c.Part = uint16(d.uvarint())
	c.Start = d.varint()
	c.Duration = d.varint()
	c.Kind, c.Usage, c.Failure = Kind(d.enum(len(KindNames))), Usage(d.enum(len(UsageNames))), Failure(d.enum(len(FailureNames)))
	es := d.byte()
	c.Effect, c.Source = Effect(es>>4), Source(es&15)
	if int(c.Effect) >= len(EffectNames) || int(c.Source) >= len(SourceNames) {
		d.bad = true
		c.Effect, c.Source = 0, 0
	}
	c.Role = Role(d.uvarint())
	c.Flags = Flags(d.uvarint())
	mask := d.uvarint()
	for i := range c.Identity {
		if mask&(1<<i) != 0 {
			c.Identity[i] = d.string()
		}
	}
	for i, s := range c.texts() {
		if mask&(1<<(int(NumDims)+i)) != 0 {
			*s = d.string()
		}
	}
	if mask&(1<<40) != 0 {
		d.copy(c.Link[:])
	}
	mask = d.uvarint()
	var numbers [13]uint64
	for i := range numbers {
		if mask&(1<<i) != 0 {
			numbers[i] = d.uvarint()
		}
	}
	for i, n := range c.Tokens.Fields() {
		if mask&(1<<(len(numbers)+i)) != 0 {
			*n = d.uvarint()
		}
	}
	c.ReportedCost, c.HasReported = Money(numbers[0]), numbers[1] != 0
	c.ArgsHash, c.PayloadBytes, c.HTTPStatus = numbers[2], numbers[3], uint16(numbers[4])
	if numbers[5] >= uint64(len(FailureNames)) {
		d.bad = true
		numbers[5] = 0
	}
	c.HiddenFailure, c.Hidden, c.Turns, c.Delivery = Failure(numbers[5]), uint32(numbers[6]), uint32(numbers[7]), uint32(numbers[8])
	c.Units = Units{WebSearches: numbers[9], Images: numbers[10], Pages: numbers[11], Milliseconds: numbers[12]}
	if d.bad || len(d.b) != 0 {
		return fmt.Errorf("decode call: %w", ErrForm)
	}
	return nil
}

// AppendPosting appends the binary form of p. What equals the call it belongs
// to is not repeated, so it decodes only beside that call.
func AppendPosting(b []byte, p *Posting, c *Call) []byte {
	b = append(b, postingForm)
	var mask uint64
	for i := range p.Identity {
		if p.Identity[i] != c.Identity[i] {
			mask |= 1 << i
		}
	}
	same := p.Tokens == c.Tokens
	bits := [...]bool{p.Aggregate, p.DuplicateOf != "", p.HasEstimate, p.PriceID != "", p.Currency != "", p.Fallback, p.Hedge, same}
	for i, on := range bits {
		if on {
			mask |= 1 << (int(NumDims) + i)
		}
	}
	numbers := [...]uint64{uint64(p.Cost), uint64(p.Exposure), uint64(p.Estimate), uint64(p.Amount), uint64(p.Attempt), uint64(p.Layer), uint64(p.Cause), uint64(p.Hidden), uint64(p.HiddenCause), uint64(p.ModelCalls), uint64(p.ToolCalls), uint64(p.Retries), uint64(p.Fallbacks), uint64(p.Hedges), uint64(p.Repeats), uint64(p.Wasted), uint64(p.Flags)}
	for i, n := range numbers {
		if n != 0 {
			mask |= 1 << (int(NumDims) + len(bits) + i)
		}
	}
	b = binary.AppendUvarint(b, mask)
	b = append(b, byte(p.Status), byte(p.Kind))
	for i := range p.Identity {
		if p.Identity[i] != c.Identity[i] {
			b = appendString(b, p.Identity[i])
		}
	}
	for _, s := range [...]string{p.DuplicateOf, p.PriceID, p.Currency} {
		if s != "" {
			b = appendString(b, s)
		}
	}
	for _, n := range numbers {
		if n != 0 {
			b = binary.AppendUvarint(b, n)
		}
	}
	if !same {
		for _, n := range p.Tokens.Fields() {
			b = binary.AppendUvarint(b, *n)
		}
	}
	return b
}

// DecodePosting reads what AppendPosting wrote, replacing all of p.
func DecodePosting(b []byte, p *Posting, c *Call) error {
	return decodePosting(decoder{b: b}, p, c)
}

func decodePosting(d decoder, p *Posting, c *Call) error {
	if d.byte() != postingForm {
		return fmt.Errorf("decode posting: %w", ErrForm)
	}
	*p = Posting{}
	mask := d.uvarint()
	p.Status, p.Kind = CostStatus(d.enum(len(CostStatusNames))), Kind(d.enum(len(KindNames)))
	p.Identity = c.Identity
	for i := range p.Identity {
		if mask&(1<<i) != 0 {
			p.Identity[i] = d.string()
		}
	}
	bit := func(i int) bool { return mask&(1<<(int(NumDims)+i)) != 0 }
	p.Aggregate, p.HasEstimate, p.Fallback, p.Hedge = bit(0), bit(2), bit(5), bit(6)
	if bit(1) {
		p.DuplicateOf = d.string()
	}
	if bit(3) {
		p.PriceID = d.string()
	}
	if bit(4) {
		p.Currency = d.string()
	}
	var numbers [17]uint64
	for i := range numbers {
		if bit(8 + i) {
			numbers[i] = d.uvarint()
		}
	}
	p.Cost, p.Exposure, p.Estimate, p.Amount = Money(numbers[0]), Money(numbers[1]), Money(numbers[2]), Money(numbers[3])
	if numbers[5] >= uint64(len(LayerNames)) || numbers[6] >= uint64(len(FailureNames)) || numbers[8] >= uint64(len(FailureNames)) {
		return fmt.Errorf("decode posting: %w", ErrForm)
	}
	p.Attempt, p.Layer, p.Cause = uint32(numbers[4]), Layer(numbers[5]), Failure(numbers[6])
	p.Hidden, p.HiddenCause = uint32(numbers[7]), Failure(numbers[8])
	p.ModelCalls, p.ToolCalls, p.Retries = uint32(numbers[9]), uint32(numbers[10]), uint32(numbers[11])
	p.Fallbacks, p.Hedges, p.Repeats = uint32(numbers[12]), uint32(numbers[13]), uint32(numbers[14])
	p.Wasted, p.Flags = Money(numbers[15]), Flags(numbers[16])
	if bit(7) {
		p.Tokens = c.Tokens
	} else {
		for _, n := range p.Tokens.Fields() {
			*n = d.uvarint()
		}
	}
	if d.bad || len(d.b) != 0 {
		return fmt.Errorf("decode posting: %w", ErrForm)
	}
	return nil
}

// Batch is the payload of one write-ahead log record: the entries that one
// request caused, in order.
type Batch struct {
	b     []byte
	count int
	at    int64
}

// Reset empties the batch for entries recorded at the given unix microsecond.
func (w *Batch) Reset(recordedAt int64) {
	w.b = binary.AppendVarint(w.b[:0], recordedAt)
	w.count, w.at = 0, recordedAt
}

// Add appends an entry whose call and posting are already in binary form.
func (w *Batch) Add(sign int8, version uint32, received int64, call, posting []byte) {
	head := uint64(version) << 1
	if sign < 0 {
		head |= 1
	}
	w.b = binary.AppendUvarint(w.b, head)
	w.b = binary.AppendVarint(w.b, received)
	w.b = binary.AppendUvarint(w.b, uint64(len(call)))
	w.b = append(w.b, call...)
	w.b = binary.AppendUvarint(w.b, uint64(len(posting)))
	w.b = append(w.b, posting...)
	w.count++
}

// Len is the number of entries.
func (w *Batch) Len() int { return w.count }

// Bytes is the payload, valid until the next Reset or Add.
func (w *Batch) Bytes() []byte { return w.b }

// RawEntry is an entry still in binary form.
type RawEntry struct {
	Sign       int8
	Version    uint32
	RecordedAt int64 // unix microseconds
	Received   int64 // unix milliseconds of the span's first receipt
	Call       []byte
	Posting    []byte
}

// Decode fills e.
func (r *RawEntry) Decode(e *Entry) error {
	if err := DecodeCall(r.Call, &e.Call); err != nil {
		return err
	}
	if err := DecodePosting(r.Posting, &e.Posting, &e.Call); err != nil {
		return err
	}
	e.Sign, e.Version, e.RecordedAt = r.Sign, r.Version, r.RecordedAt
	return nil
}

// DecodeShared is Decode with strings that point into the entry's bytes, which
// must not change while e is used.
func (r *RawEntry) DecodeShared(e *Entry) error {
	if err := decodeCall(decoder{b: r.Call, share: true}, &e.Call); err != nil {
		return err
	}
	if err := decodePosting(decoder{b: r.Posting, share: true}, &e.Posting, &e.Call); err != nil {
		return err
	}
	e.Sign, e.Version, e.RecordedAt = r.Sign, r.Version, r.RecordedAt
	return nil
}

// EachEntry calls f for each entry of a batch payload. The slices point into b.
func EachEntry(b []byte, f func(RawEntry) error) error {
	d := decoder{b: b}
	at := d.varint()
	for len(d.b) > 0 && !d.bad {
		head := d.uvarint()
		r := RawEntry{Sign: 1, Version: uint32(head >> 1), RecordedAt: at, Received: d.varint()}
		if head&1 != 0 {
			r.Sign = -1
		}
		r.Call = d.bytes()
		r.Posting = d.bytes()
		if d.bad {
			break
		}
		if err := f(r); err != nil {
			return err
		}
	}
	if d.bad {
		return fmt.Errorf("read batch: %w", ErrForm)
	}
	return nil
}

func boolBit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decoder reads forward; after a short read bad is set and every result is zero.
type decoder struct {
	b     []byte
	bad   bool
	share bool // strings point into b
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) enum(n int) byte {
	v := d.byte()
	if int(v) >= n {
		d.bad = true
		return 0
	}
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) copy(dst []byte) {
	if len(d.b) < len(dst) {
		d.bad, d.b = true, nil
		return
	}
	copy(dst, d.b)
	d.b = d.b[len(dst):]
}

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string {
	b := d.bytes()
	if d.share && len(b) > 0 {
		return unsafe.String(&b[0], len(b))
	}
	return string(b)
}

// LineKey is the part of a call's binary form that names its line: tenant, trace,
// span and part. It shares the call's bytes.
func LineKey(call []byte) string {
	d := decoder{b: call}
	d.byte()
	d.bytes()
	n := len(call) - len(d.b) + len(TraceID{}) + len(SpanID{})
	if d.bad || n+len(SpanID{}) > len(call) {
		return ""
	}
	// The parent stands between span and part; it never changes between two
	// versions that cancel each other.
	rest := decoder{b: call[n+len(SpanID{}):]}
	rest.uvarint()
	end := len(call) - len(rest.b)
	return unsafe.String(&call[1], end-1)
}
