package query

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/flyball/flyball/schema"
)

// asOf is what was known at some time: at the end of a UTC day, which the rollup
// tells, or before an instant, which the journal does. The zero value is now.
type asOf struct {
	booked  time.Time // the last day that counts, midnight UTC
	instant time.Time
}

// knownAt reads as_of: a date is the end of that UTC day, an instant is exclusive,
// and one at midnight UTC is the end of the day before.
func (r *request) knownAt(now time.Time) (asOf, error) {
	v, ok := r.GetQuery("as_of")
	if !ok {
		return asOf{}, nil
	}
	const day = 24 * time.Hour
	tooOld := badRequest("as_of %q: want a year from 1971", v)
	if t, err := time.Parse(time.DateOnly, v); err == nil {
		if t.Year() < 1971 {
			return asOf{}, tooOld
		}
		if end := t.Add(day); end.After(now) {
			return asOf{}, badRequest("as_of %s: that day has not ended, UTC; ask for an earlier one, for an instant that has passed, or without as_of for what is known now", v)
		}
		return asOf{booked: t}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		return asOf{}, badRequest("as_of %q: want a date, for the end of that UTC day, or RFC 3339, e.g. 2026-11-30 or 2026-11-30T17:00:00Z", v)
	}
	switch {
	case t.After(now):
		return asOf{}, badRequest("as_of %s lies ahead; leave it out for what is known now", v)
	case t.Year() < 1971:
		return asOf{}, tooOld
	case t.Equal(t.UTC().Truncate(day)):
		return asOf{booked: t.UTC().Add(-day)}, nil
	}
	return asOf{instant: t.UTC()}, nil
}

// until is the first microsecond whose entries do not count. Entries are stamped with microseconds.
func (k asOf) until() string {
	until := k.instant
	if until.IsZero() {
		until = k.booked.Add(24 * time.Hour)
	}
	return until.Add(time.Microsecond - 1).Truncate(time.Microsecond).Format(clickhouseMicros)
}

// then starts a question about what was known at as_of; without as_of that is now. It
// is of calls, and of sums of spend, within the request's time.
func (r *request) then() *question { return r.thenOf(r.from, r.to) }

func (r *request) thenOf(since, till time.Time) *question {
	q := r.question()
	if r.asOf == (asOf{}) {
		return q
	}
	q.vars["Known"], q.vars["KnownDay"] = true, !r.asOf.booked.IsZero()
	q.vars["Bits"] = map[string]int{"estimated": bit(schema.FlagEstimated), "sampled": bit(schema.FlagSampled), "basis_assumed": bit(schema.FlagBasisAssumed)}
	q.bind("as_of", "String", r.asOf.until())
	q.bind("as_of_day", "String", r.asOf.booked.Format(time.DateOnly))
	q.bind("since", "String", since.UTC().Format(clickhouseNanos))
	q.bind("till", "String", till.UTC().Format(clickhouseNanos))
	return q
}

// thenRuns starts a question about runs of the request's time, as they were known at
// as_of. Their past is in the journal alone.
func (a *API) thenRuns(ctx context.Context, r *request) (*question, error) {
	q := r.then()
	if r.asOf == (asOf{}) {
		return q, nil
	}
	if err := a.journalHas(ctx, r, "what runs were known is made of entries; begin later, or ask without as_of"); err != nil {
		return nil, err
	}
	since := r.to
	if err := a.ask(ctx, r, "known_since.sql", r.thenOnly(q), func(get func(string) any) { since = get("since").(time.Time) }); err != nil {
		return nil, err
	}
	q.vars["KnownRuns"] = true
	q.bind("runs_since", "String", since.UTC().Format(clickhouseSeconds))
	return q, nil
}

// thenOnly is a question of what q binds, about the tables themselves.
func (r *request) thenOnly(q *question) *question {
	own := r.question()
	own.args = q.args
	return own
}

// rollup refuses an instant whose entries have expired; a day's end is in the rollup.
func (a *API) rollup(ctx context.Context, r *request) error {
	if r.asOf.instant.IsZero() {
		return nil
	}
	return a.journalHas(ctx, r, "ask for the end of a day, e.g. as_of="+r.asOf.instant.Format(time.DateOnly))
}

// bit is a flag's position.
func bit(f schema.Flags) int {
	n := 0
	for ; f > 1; f >>= 1 {
		n++
	}
	return n
}

// String is how an answer says it.
func (k asOf) String() string {
	if !k.instant.IsZero() {
		return k.instant.Format(time.RFC3339Nano)
	}
	return k.booked.Add(24 * time.Hour).Format(time.RFC3339)
}

// journalHas refuses a question about entries, and says what to ask instead, where some of the time have expired from the journal.
func (a *API) journalHas(ctx context.Context, r *request, instead string) error {
	q := r.question()
	q.rangeArgs(r)
	var lacks bool
	var oldest time.Time
	err := a.ask(ctx, r, "journal_lacks.sql", q, func(get func(string) any) {
		oldest = get("oldest").(time.Time)
		lacks = get("first").(time.Time).Before(oldest)
	})
	if err == nil && lacks {
		err = badRequest("entries of that time were booked before %s, where the journal begins now (retention.journal); %s", oldest.Format(time.DateOnly), instead)
	}
	return err
}

// closed is whether an answer is given a tag: of a window that ended before this UTC day
// began, or one as of a day's end. Its figures move by corrections alone.
func (r *request) closed(now time.Time) bool {
	fixed := r.Query("from") != "" && r.Query("to") != "" || r.Query("cursor") != ""
	return fixed && r.asOf.instant.IsZero() && (!r.asOf.booked.IsZero() || !r.to.After(now.UTC().Truncate(24*time.Hour)))
}

// unchanged gives an answer its tag, and answers 304 where the caller has it already. The
// tag is of what is answered: to look for a change in the rows behind it takes longer than
// to add them up.
func (r *request) unchanged(answer row) (bool, error) {
	told := maps.Clone(answer)
	if r.asOf == (asOf{}) {
		delete(told, "as_of") // this instant
	}
	b, err := json.Marshal(told)
	if err != nil {
		return false, fmt.Errorf("tag answer: %w", err)
	}
	h := fnv.New128a()
	fmt.Fprintf(h, "3 %s %d %d %v %s", r.identity(), r.offset, r.limit, r.csv, b)
	tag := `W/"` + base64.RawURLEncoding.EncodeToString(h.Sum(nil)) + `"`
	r.Header("ETag", tag)
	r.Header("Cache-Control", "private, no-cache")
	for _, t := range strings.Split(r.GetHeader("If-None-Match"), ",") {
		if t = strings.TrimSpace(t); t == tag || t == "*" {
			r.Status(http.StatusNotModified)
			r.Writer.WriteHeaderNow()
			return true, nil
		}
	}
	return false, nil
}
