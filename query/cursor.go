package query

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A cursor of rows that are sums says how many of them stood on earlier pages, of
// which time, and of which question: that of another is refused. Pages are asked
// one after another, so that a correction posted in between can move a row over
// an edge; a window that is over, or as_of, does not move.

// page reads the cursor of a question about sums. That of calls and runs is theirs.
func (r *request) page(params []string) error {
	v := r.Query("cursor")
	if v == "" || !slices.Contains(params, "group_by") && !slices.Contains([]string{"/api/v1/coverage", "/api/v1/close", "/api/v1/reconcile"}, r.FullPath()) {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(v)
	p := strings.Split(string(text), ".")
	refused := badRequest("cursor %q is not one of ours; use the next of the last answer as it is", v)
	if err != nil || len(p) != 4 {
		return refused
	}
	var n [3]int64
	for i := range n {
		if n[i], err = strconv.ParseInt(p[i], 10, 64); err != nil || n[i] < 0 {
			return refused
		}
	}
	if n[0] > 1<<31-1 {
		return refused
	}
	if p[3] != r.identity() {
		return badRequest("cursor %q belongs to another question; ask the same one again, with only cursor added", v)
	}
	r.offset, r.from, r.to = int(n[0]), time.Unix(0, n[1]), time.Unix(0, n[2])
	return nil
}

// next is the cursor after n more rows, "" where these were the last.
func (r *request) next(n int, more bool) string {
	if !more {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d.%d.%s", r.offset+n, r.from.UnixNano(), r.to.UnixNano(), r.identity()))
}

// identity tells questions apart by everything that chooses and orders their rows.
func (r *request) identity() string {
	q := r.Request.URL.Query()
	for _, name := range []string{"cursor", "limit", "format", "tenant"} {
		q.Del(name)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %v %q %s", r.Request.URL.Path, q.Encode(), r.all, r.tenants, r.zone)
	return strconv.FormatUint(h.Sum64(), 36)
}

// paging binds how many rows of a question are skipped and how many are wanted.
func (q *question) paging(r *request, limit int) {
	q.bind("limit", "UInt32", strconv.Itoa(limit))
	q.bind("offset", "UInt32", strconv.Itoa(r.offset))
}

// runCursor is the last run of a page; their order is that of runs.sql.
type runCursor struct {
	at          time.Time
	tenant, run string
}

func (c runCursor) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d.%s%s", c.at.UnixNano(), len(c.tenant), c.tenant, c.run))
}

func parseRunCursor(v string) (runCursor, error) {
	refused := badRequest("cursor %q is not one of ours; use the next of the last answer as it is", v)
	text, err := base64.RawURLEncoding.DecodeString(v)
	p := strings.SplitN(string(text), ".", 3)
	if err != nil || len(p) != 3 {
		return runCursor{}, refused
	}
	at, aerr := strconv.ParseInt(p[0], 10, 64)
	n, nerr := strconv.Atoi(p[1])
	if aerr != nil || nerr != nil || at < 0 || n < 0 || n > len(p[2]) {
		return runCursor{}, refused
	}
	return runCursor{time.Unix(0, at), p[2][:n], p[2][n:]}, nil
}
