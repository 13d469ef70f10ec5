package trace

import (
	"fmt"
	"slices"

	"github.com/flyball/flyball/schema"
)

// Heal posts what brings a line back to one entry whose entries sum to neither 0
// nor 1: a span that came again after its trace was forgotten counts twice. rows
// are all entries of the line as they were recorded; the journal must have all
// that was posted for it. Whatever stands is cancelled, and the first that did is
// posted again: it was decided beside the rest of its trace. Its version is new to
// the line, since readers take a version for gone that any entry cancels. A
// line that is remembered is left alone, and so is one that needs nothing.
func (a *Assembler) Heal(rows []schema.Entry, now int64) (healed bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := a.open(rows[0].Tenant, rows[0].Trace, now, false)
	if err != nil || t != nil && t.find(rows[0].Span, rows[0].Part) >= 0 {
		return false, err
	}
	for i := range rows {
		a.forget.Entry(&rows[i])
	}
	// Entries cancel each other that are equal but for sign and time.
	bare := func(e schema.Entry) schema.Entry {
		e.Sign, e.RecordedAt = 0, 0
		return e
	}
	net := make(map[schema.Entry]int, len(rows))
	sum, version := 0, uint32(0)
	for _, e := range rows {
		sum += int(e.Sign)
		version = max(version, e.Version)
		net[bare(e)] += int(e.Sign)
	}
	if sum == 0 || sum == 1 {
		return false, nil
	}
	at := a.stamp(now)
	a.batch.Reset(at)
	// Cancelling comes first: the writer pairs a -1 with a +1 before it.
	for _, sign := range [...]int8{-1, 1} {
		done := make(map[schema.Entry]bool, len(net))
		for _, e := range rows {
			e = bare(e)
			n := -int(sign) * net[e]
			if n <= 0 || done[e] {
				continue
			}
			done[e] = true
			call, post := forms(&e)
			for range n {
				a.batch.Add(sign, e.Version, 0, call, post)
			}
		}
	}
	// Of equal entries the last ones stand.
	keep := -1
	for i, e := range slices.Backward(rows) {
		if b := bare(e); e.Sign > 0 && net[b] > 0 {
			net[b]--
			keep = i
		}
	}
	if keep >= 0 {
		call, post := forms(&rows[keep])
		a.batch.Add(1, version+1, 0, call, post)
	}
	if err := a.appendForgotten(at); err != nil {
		return false, err
	}
	return true, nil
}

func forms(e *schema.Entry) (call, post []byte) {
	return schema.AppendCall(nil, &e.Call), schema.AppendPosting(nil, &e.Posting, &e.Call)
}

// appendForgotten appends the batch as corrections of lines that are not remembered.
func (a *Assembler) appendForgotten(at int64) error {
	a.recorded = at
	end, err := a.o.AppendForgotten(a.batch.Bytes(), a.batch.Len())
	if err != nil {
		return fmt.Errorf("append corrections: %w", err)
	}
	a.before, a.end = a.end, end
	a.metrics.entries.Add(float64(a.batch.Len()))
	return nil
}
