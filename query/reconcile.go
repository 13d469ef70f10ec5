package query

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flyball/flyball/schema"
)

// reconcileLimit is how long the reading of a bill may take.
const reconcileLimit = 30 * time.Minute

// billBytes is how large a bill may be.
const billBytes = 16 << 30

// billSources are the forms of a bill.
var billSources = []string{"openai", "anthropic", "focus"}

// compared is a UTC day and a model, or an item of the bill that names no known
// model, on both sides. The parts sum to theirs - ours.
type compared struct {
	day                                                  time.Time
	provider, model, item                                string
	ours, theirs                                         *big.Int // 1e-12 USD
	billed                                               *big.Int // theirs, 1e-12 of the bill's currency
	rate                                                 schema.Rate
	priced, onlyOurs, onlyTheirs, rounding, unsplit      *big.Int
	ourTokens                                            int64
	theirTokens                                          *int64 // nil is not known
	billRows, calls, unpriced, unknown, estimated, sampl int64
	seen, bare                                           bool // by us; rows of the bill without tokens
	counted                                              int64
	reported                                             *int64           // tokens of a usage report
	ourKinds, reportedKinds                              map[string]int64 // by kind of token; nil is not known
	theirKinds                                           map[string]*billed
	splitBy                                              string // "" where nothing had to be split
}

// Which tokens told price from volume.
const (
	splitKinds  = "kinds"
	splitTotals = "totals"
)

// byKind splits a difference by the kinds of token: what one side alone saw is taken at
// the bill's price of a token of its kind, since what a kind cost us is not booked. It
// reports false where the bill does not tell both the cost and the tokens of every kind
// that one side has.
func (c *compared) byKind() (onlyOurs, onlyTheirs *big.Int, ok bool) {
	type pair struct {
		cost         *big.Int
		ours, theirs int64
	}
	kinds := map[string]*pair{}
	for kind, k := range c.theirKinds {
		if kind == "" && k.cost.Sign() == 0 {
			continue
		}
		if kind == "" || k.cost.Sign() < 0 {
			return nil, nil, false
		}
		kinds[kind] = &pair{cost: k.cost, theirs: k.tokens}
	}
	// A kind that the bill does not price apart is in the coarser one.
	find := func(kind string) *pair {
		if k := kinds[kind]; k != nil {
			return k
		}
		return kinds[coarser[kind]]
	}
	if c.reported != nil {
		for _, k := range kinds {
			k.theirs = 0
		}
		if c.reportedKinds == nil {
			return nil, nil, false
		}
		for kind, n := range c.reportedKinds {
			if k := find(kind); k != nil {
				k.theirs += n
			} else if n != 0 {
				return nil, nil, false
			}
		}
	}
	for kind, n := range c.ourKinds {
		if k := find(kind); k != nil {
			k.ours += n
		} else if n != 0 {
			return nil, nil, false
		}
	}
	less, more := new(big.Rat), new(big.Rat) // in the bill's currency
	for _, k := range kinds {
		if k.ours < 0 || k.theirs < 0 || k.theirs == 0 && (k.cost.Sign() != 0 || k.ours != 0) {
			return nil, nil, false
		}
		if k.theirs == 0 {
			continue
		}
		price := new(big.Rat).SetFrac(k.cost, big.NewInt(k.theirs))
		to := more
		if k.theirs < k.ours {
			to = less
		}
		to.Add(to, new(big.Rat).Mul(price, new(big.Rat).SetInt64(k.theirs-k.ours)))
	}
	if c.ours.Sign() < 0 || len(kinds) == 0 {
		return nil, nil, false
	}
	if c.billed.Sign() != 0 {
		toUSD := new(big.Rat).SetFrac(c.theirs, c.billed)
		less.Mul(less, toUSD)
		more.Mul(more, toUSD)
	}
	return schema.RoundHalfEven(less), schema.RoundHalfEven(more), true
}

// explain splits the difference. unit is the finest digit of the bill, 1e-12 USD.
func (c *compared) explain(unit *big.Int) {
	zero := func() *big.Int { return new(big.Int) }
	c.priced, c.onlyOurs, c.onlyTheirs, c.rounding, c.unsplit = zero(), zero(), zero(), zero(), zero()
	diff := new(big.Int).Sub(c.theirs, c.ours)
	switch {
	case c.reported != nil:
		c.theirTokens = c.reported
	case c.billRows > 0 && !c.bare && c.counted > 0:
		c.theirTokens = &c.counted
	}
	if !c.seen {
		c.onlyTheirs = diff
		return
	}
	if c.billRows == 0 && c.reported == nil {
		c.onlyOurs = diff
		return
	}
	// Each row of the bill may be off by half a digit, each call by a unit of ours.
	most := new(big.Int).Mul(unit, big.NewInt(c.billRows))
	most.Rsh(most.Add(most, big.NewInt(2*max(c.calls, 0)+1)), 1)
	if new(big.Int).Abs(diff).Cmp(most) <= 0 {
		c.rounding = diff
		return
	}
	if c.theirTokens == nil || *c.theirTokens < 0 || c.ourTokens < 0 {
		c.unsplit = diff
		return
	}
	if ours, theirs, ok := c.byKind(); ok {
		c.splitBy, c.onlyOurs, c.onlyTheirs = splitKinds, ours, theirs
		c.priced.Sub(diff, c.onlyOurs)
		c.priced.Sub(c.priced, c.onlyTheirs)
		return
	}
	c.splitBy = splitTotals
	// What one side saw and the other did not is taken at the price of who saw it.
	share := func(cost *big.Int, part, whole int64) *big.Int {
		r := new(big.Rat).SetFrac(new(big.Int).Mul(cost, big.NewInt(part)), big.NewInt(whole))
		return schema.RoundHalfEven(r)
	}
	switch t := *c.theirTokens; {
	case t > c.ourTokens:
		c.onlyTheirs = share(c.theirs, t-c.ourTokens, t)
	case t < c.ourTokens:
		c.onlyOurs = share(c.ours, t-c.ourTokens, c.ourTokens)
	}
	c.priced.Sub(diff, c.onlyOurs)
	c.priced.Sub(c.priced, c.onlyTheirs)
}

// POST /reconcile compares the bill in the body with what was booked, and stores it.
func (a *API) reconcile(c *gin.Context) {
	out, err := a.reconcileBill(c)
	if err != nil {
		a.fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, out)
}

// everybody refuses keys that do not see every tenant: a bill is about all of them.
func (a *API) everybody(r *http.Request) (schema.Key, error) {
	var ring *schema.Keyring
	if a.o.Keys != nil {
		ring = a.o.Keys()
	}
	var key schema.Key
	var err error
	if r.Method == http.MethodGet {
		key, err = ring.Authenticate(r)
	} else {
		key, err = ring.Require(r)
	}
	var denied schema.AccessError
	if errors.As(err, &denied) {
		return key, problem{denied.Status, denied.Detail}
	}
	if err == nil && !key.AllowsAll() {
		err = problem{http.StatusForbidden, fmt.Sprintf("key %s is not for every tenant, as a provider's bill is; this needs one with tenants: \"*\"", key.Name)}
	}
	return key, err
}

func (a *API) reconcileBill(c *gin.Context) (row, error) {
	key, err := a.everybody(c.Request)
	if err != nil {
		return nil, err
	}
	r, err := a.open(c, limits{}, []string{"source", "from", "to", "again", "as_of"})
	if err != nil {
		return nil, err
	}
	source := r.Query("source")
	if !slices.Contains(billSources, source) {
		return nil, badRequest("source %q: want one of %s", source, strings.Join(billSources, ", "))
	}
	again := r.Query("again")
	if !slices.Contains([]string{"", "true", "false"}, again) {
		return nil, badRequest("again %q: want true or false", again)
	}
	var window [2]time.Time
	for i, name := range []string{"from", "to"} {
		if v := r.Query(name); v != "" {
			if window[i], err = time.Parse(time.DateOnly, v); err != nil {
				return nil, badRequest("%s %q: want a UTC day such as 2026-11-01, since bills are by UTC day", name, v)
			}
		}
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), reconcileLimit)
	defer cancel()
	b := newBill(window[0], window[1])
	sum := sha256.New()
	body := schema.WithoutBOM(bufio.NewReaderSize(io.TeeReader(http.MaxBytesReader(c.Writer, c.Request.Body, billBytes), sum), 1<<20))
	switch source {
	case "openai":
		err = b.openAI(body)
	case "anthropic":
		err = b.anthropic(body)
	default:
		err = b.focusCSV(body)
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, problem{http.StatusRequestEntityTooLarge, fmt.Sprintf("the file has more than %d bytes; split it by days", large.Limit)}
	case err != nil:
		return nil, err
	case b.from.IsZero() && window == [2]time.Time{}:
		return nil, badRequest("the file has no rows, so that it is about no day")
	case b.from.IsZero():
		return nil, badRequest("the file has nothing of the days that were asked for; leave from and to out to take those of the file")
	case b.rows == 0 && len(b.usage) > 0:
		return nil, badRequest("the file has usage and no costs; put the answer of the costs API in front of it")
	}
	r.from, r.to = b.from, b.to
	if err := a.rollup(ctx, r); err != nil {
		return nil, err
	}
	made := made{source: source, asOf: "", sha: hex.EncodeToString(sum.Sum(nil)), by: key.Name, at: time.Now().UTC().Truncate(time.Microsecond)}
	if r.asOf != (asOf{}) {
		made.asOf = r.asOf.String()
	}
	names := r.tenants
	if r.all {
		names = []string{}
	}
	list, err := json.Marshal(names)
	if err != nil {
		return nil, fmt.Errorf("name tenants: %w", err)
	}
	made.tenants = string(list)
	same, runs, err := a.sameBill(ctx, r, made)
	if err != nil {
		return nil, err
	}
	if runs > 0 && again != "true" {
		return a.reconciliation(ctx, r, same, row{"already": true})
	}
	id := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d %d %d %s", source, made.sha, made.tenants, r.from.Unix(), r.to.Unix(), runs, made.asOf))
	made.id = hex.EncodeToString(id[:8])
	rows, err := a.compare(ctx, r, source, b)
	if err != nil {
		return nil, err
	}
	if made.skipped, err = a.skipped(b); err != nil {
		return nil, err
	}
	if err := a.keepReconciliation(ctx, r, made, b, rows); err != nil {
		return nil, err
	}
	a.o.Logger.Info("bill reconciled", "id", made.id, "source", source, "sha256", made.sha, "by", key.Name, "rows", len(rows))
	return a.reconciliation(ctx, r, made.id, row{"already": false})
}

// made is what is known of a comparison beside its rows.
type made struct {
	id, source, sha, tenants, by string
	asOf                         string // "" is when it was made
	at                           time.Time
	skipped                      *big.Int // 1e-12 USD
}

// sameBill finds earlier comparisons of the same file.
func (a *API) sameBill(ctx context.Context, r *request, m made) (id string, runs uint64, err error) {
	q := r.question()
	q.vars["Filter"] = fmt.Sprintf("r.source = %s AND r.sha256 = %s AND r.tenants = %s AND r.starts_on = %s AND r.ends_on = %s AND r.as_of = %s", q.bind("source", "String", m.source), q.bind("sha", "String", m.sha), q.bind("tenants", "String", m.tenants),
		q.bind("starts", "Date", r.from.Format(time.DateOnly)), q.bind("ends", "Date", r.to.Format(time.DateOnly)), q.bind("known", "String", m.asOf))
	q.paging(&request{}, 1)
	err = a.ask(ctx, r, "reconciliations.sql", q, func(get func(string) any) { id, runs = get("id").(string), get("all_rows").(uint64) })
	return id, runs, err
}

// name is the one under which a model of ours and of a bill meet.
func (a *API) name(tenant, provider, model string) (string, bool) {
	if a.o.ModelName != nil {
		return a.o.ModelName(tenant, provider, model)
	}
	return strings.ToLower(model), false
}

// compare lays what was booked beside the bill.
func (a *API) compare(ctx context.Context, r *request, source string, b *bill) ([]*compared, error) {
	type at struct {
		day                   time.Time
		provider, model, item string
	}
	rows := map[at]*compared{}
	of := func(k at) *compared {
		c := rows[k]
		if c == nil {
			c = &compared{day: k.day, provider: k.provider, model: k.model, item: k.item, ours: new(big.Int), theirs: new(big.Int), billed: new(big.Int), ourKinds: map[string]int64{}, theirKinds: map[string]*billed{}}
			rows[k] = c
		}
		return c
	}
	bills := map[string]bool{}
	if source != "focus" {
		bills[source] = true
	}
	for k := range b.lines {
		bills[k.provider] = true
	}
	q := r.then()
	q.rangeArgs(r)
	q.bind("limit", "UInt32", fmt.Sprint(billLines+1))
	known := map[[2]string]bool{} // names that calls of ours have
	n := 0
	err := a.ask(ctx, r, "reconcile_ours.sql", q, func(get func(string) any) {
		n++
		text, number := func(name string) string { return get(name).(string) }, func(name string) int64 { return get(name).(int64) }
		provider := biller(text("provider"))
		if !bills[provider] {
			return
		}
		model, _ := a.name(text("tenant"), text("provider"), text("model"))
		known[[2]string{provider, model}] = model != ""
		item := ""
		if model == "" {
			item = "(no model)"
		}
		c := of(at{get("day").(time.Time).UTC(), provider, model, item})
		c.seen = true
		c.ours.Add(c.ours, get("cost").(*big.Int))
		for _, kind := range tokenKinds {
			c.ourKinds[kind] += number("tok_" + kind)
			c.ourTokens += number("tok_" + kind)
		}
		c.calls += number("calls")
		c.unpriced += number("unpriced")
		c.unknown += number("unknown")
		c.estimated += number("estimated")
		c.sampl += number("sampled")
	})
	if err != nil {
		return nil, err
	}
	if n > billLines {
		return nil, badRequest("those days have more than %d tenants, days and models; name fewer days with from and to", billLines)
	}
	resolve := func(provider string, names []string) string {
		for _, listed := range [...]bool{false, true} { // first what was called, then what the prices list
			for _, name := range names {
				model, ok := a.name("", provider, name)
				if model != "" && (known[[2]string{provider, model}] || listed && ok) {
					return model
				}
			}
		}
		return ""
	}
	for k, l := range b.lines {
		to := at{day: k.day, provider: k.provider, model: resolve(k.provider, l.names)}
		if to.model == "" {
			to.item = k.item
		}
		c := of(to)
		c.billed.Add(c.billed, l.cost)
		for kind, k := range l.kinds {
			of := c.theirKinds[kind]
			if of == nil {
				of = &billed{cost: new(big.Int)}
				c.theirKinds[kind] = of
			}
			of.cost.Add(of.cost, k.cost)
			of.tokens += k.tokens
		}
		c.billRows += l.rows
		c.counted += l.tokens
		c.bare = c.bare || l.bare
	}
	for k, u := range b.usage {
		// Tokens that cost nothing on the bill are not a row of it.
		if c := rows[at{day: k.day, provider: k.provider, model: resolve(k.provider, []string{k.item})}]; c != nil && c.model != "" {
			if c.reported == nil {
				c.reported, c.reportedKinds = new(int64), map[string]int64{}
			}
			*c.reported += u.tokens
			if u.bare {
				c.reportedKinds = nil
			}
			for kind, n := range u.kinds {
				if c.reportedKinds != nil {
					c.reportedKinds[kind] += n
				}
			}
		}
	}
	out := make([]*compared, 0, len(rows))
	for _, c := range rows {
		// A row is converted as a whole, at the rate of its day, and rounded once.
		var err error
		if c.theirs, c.rate, err = a.inUSD(b.currency, c.day, c.billed); err != nil {
			return nil, err
		}
		unit := b.unit
		if c.rate.Text != "" {
			unit = new(big.Int).Add(c.rate.ToUSD(unit), big.NewInt(1))
		}
		c.explain(unit)
		out = append(out, c)
	}
	slices.SortFunc(out, func(x, y *compared) int {
		for _, d := range []int{x.day.Compare(y.day), strings.Compare(x.provider, y.provider), strings.Compare(x.model, y.model), strings.Compare(x.item, y.item)} {
			if d != 0 {
				return d
			}
		}
		return 0
	})
	return out, nil
}

// inUSD converts an amount of a day of a bill; nothing needs no rate.
func (a *API) inUSD(currency string, day time.Time, v *big.Int) (*big.Int, schema.Rate, error) {
	if currency == "" || currency == "USD" || v.Sign() == 0 {
		return v, schema.Rate{}, nil
	}
	var rates *schema.Rates
	if a.o.Rates != nil {
		rates = a.o.Rates()
	}
	rate, ok := rates.On(currency, day)
	if !ok {
		return nil, rate, badRequest("the bill is in %s, and no rate of it is known on %s or before; add one to the files of fx.files (date,currency,rate)", currency, day.Format(time.DateOnly))
	}
	usd := rate.ToUSD(v)
	if usd.BitLen() > billBits {
		return nil, rate, badRequest("the bill of %s comes to more than anybody pays at the rate %s", day.Format(time.DateOnly), rate)
	}
	return usd, rate, nil
}

// skipped is what the rows come to that are about something else.
func (a *API) skipped(b *bill) (*big.Int, error) {
	sum := new(big.Int)
	for day, v := range b.skippedC {
		usd, _, err := a.inUSD(b.currency, day, v)
		if err != nil {
			return nil, err
		}
		sum.Add(sum, usd)
	}
	return sum, nil
}

// keepReconciliation stores a comparison in one insert, which a second one at the same
// time does not repeat.
func (a *API) keepReconciliation(ctx context.Context, r *request, m made, b *bill, rows []*compared) error {
	batch, err := a.o.Write().PrepareBatch(schema.InsertContext(ctx, "reconcile/"+m.id),
		"INSERT INTO reconciliations (id, line, source, sha256, tenants, starts_on, ends_on, made_at, made_by, skipped_rows, skipped, day, provider, model, item, ours, theirs, priced, only_ours, only_theirs, rounding, unsplit, our_tokens, their_tokens, bill_rows, calls, unpriced, unknown, estimated, sampled, as_of, currency, billed, rate, rate_of, rate_source, split_by)")
	if err != nil {
		return fmt.Errorf("prepare reconciliation: %w", err)
	}
	defer func() { _ = batch.Close() }()
	zero := new(big.Int)
	currency := b.currency
	if currency == "" { // nothing was billed
		currency = "USD"
	}
	head := &compared{day: r.from, ours: zero, theirs: zero, billed: zero, priced: zero, onlyOurs: zero, onlyTheirs: zero, rounding: zero, unsplit: zero}
	for i, c := range append([]*compared{head}, rows...) {
		skipped, cost := int64(0), zero
		if i == 0 {
			skipped, cost = b.skipped, m.skipped
		}
		err := batch.Append(m.id, uint32(i), m.source, m.sha, m.tenants, r.from, r.to, m.at, m.by, skipped, cost, c.day, c.provider, c.model, c.item, c.ours, c.theirs, c.priced, c.onlyOurs, c.onlyTheirs, c.rounding, c.unsplit,
			c.ourTokens, c.theirTokens, c.billRows, c.calls, c.unpriced, c.unknown, c.estimated, c.sampl, m.asOf, currency, c.billed, c.rate.Text, c.rate.Day, c.rate.Source, c.splitBy)
		if err != nil {
			return fmt.Errorf("append reconciliation: %w", err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert %d rows of a reconciliation: %w", len(rows)+1, err)
	}
	a.drift.forget()
	return nil
}

// parts are the columns that sum to the difference.
var parts = []string{"priced", "only_ours", "only_theirs", "rounding", "unsplit"}

func differences(get func(string) any) row {
	ours, theirs := get("ours").(*big.Int), get("theirs").(*big.Int)
	m := row{"ours_usd": usd(ours), "theirs_usd": usd(theirs), "difference_usd": usd(new(big.Int).Sub(theirs, ours))}
	for _, p := range parts {
		m[p+"_usd"] = usd(get(p))
	}
	return m
}

// reconciliations lists the comparisons, or with id the rows of one.
func (a *API) reconciliations(ctx context.Context, r *request) (any, error) {
	if _, err := a.everybody(r.Request); err != nil {
		return nil, err
	}
	if r.Query("tenant") != "" {
		return nil, badRequest("a bill is about every tenant; leave tenant out")
	}
	id, ok := r.GetQuery("id")
	if ok {
		return a.reconciliation(ctx, r, id, row{})
	}
	if r.csv {
		return nil, badRequest("id is missing: want that of a comparison, as GET /api/v1/reconcile lists them")
	}
	list, more, err := a.reconciliationRuns(ctx, r, "1", r.question())
	if err != nil {
		return nil, err
	}
	return row{"reconciliations": list, "truncated": more, "next": r.next(len(list), more)}, nil
}

func (a *API) reconciliationRuns(ctx context.Context, r *request, filter string, q *question) (list []row, more bool, err error) {
	q.vars["Filter"] = filter
	q.paging(r, max(r.limit, 1))
	list = []row{}
	all := uint64(0)
	err = a.ask(ctx, r, "reconciliations.sql", q, func(get func(string) any) {
		m := differences(get)
		for _, name := range []string{"id", "source", "sha256", "made_by", "currency"} {
			m[name] = get(name)
		}
		m["tenants"] = json.RawMessage(get("tenants").(string))
		m["made_at"], m["as_of"] = stamp(get("made_at")), stamp(get("made_at"))
		if known := get("as_of").(string); known != "" {
			m["as_of"] = known
		}
		m["theirs"] = usd(get("billed"))
		m["from"], m["to"] = get("starts_on").(time.Time).Format(time.DateOnly), get("ends_on").(time.Time).Format(time.DateOnly)
		m["skipped_rows"], m["skipped_usd"] = get("skipped_rows"), usd(get("skipped"))
		list = append(list, m)
		all = get("all_rows").(uint64)
	})
	return list, all > uint64(r.offset+len(list)), err
}

// reconciliation answers one comparison; what is in extra stands beside it.
func (a *API) reconciliation(ctx context.Context, r *request, id string, extra row) (row, error) {
	q := r.question()
	runs, _, err := a.reconciliationRuns(ctx, &request{Context: r.Context, conn: r.conn, all: true, limit: 1}, "id = "+q.bind("id", "String", id), q)
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 {
		return nil, problem{http.StatusNotFound, fmt.Sprintf("no comparison has the id %q; GET /api/v1/reconcile lists them", id)}
	}
	if r.limit == 0 {
		r.limit = sumLimits.usual
	}
	q = r.question()
	q.vars["Filter"] = "id = " + q.bind("id", "String", id)
	q.paging(r, r.limit)
	rows := []row{}
	all := uint64(0)
	err = a.ask(ctx, r, "reconciliation.sql", q, func(get func(string) any) {
		m := differences(get)
		for _, name := range []string{"provider", "model", "item", "our_tokens", "bill_rows", "calls", "unpriced", "unknown", "estimated", "sampled", "currency", "split_by"} {
			m[name] = get(name)
		}
		m["theirs"], m["rate"] = usd(get("billed")), nil
		if text := get("rate").(string); text != "" {
			of := get("rate_of").(time.Time)
			m["rate"] = row{"usd": text, "of": of.Format(time.DateOnly), "source": get("rate_source"), "carried": !of.Equal(get("day").(time.Time))}
		}
		m["day"] = get("day").(time.Time).Format(time.DateOnly)
		m["their_tokens"] = nil
		if n := get("their_tokens").(*int64); n != nil {
			m["their_tokens"] = *n
		}
		if get("unsplit").(*big.Int).Sign() != 0 { // unknown is not zero
			m["priced_usd"], m["only_ours_usd"], m["only_theirs_usd"] = nil, nil, nil
		}
		m["error_usd"] = uncovered(get("ours").(*big.Int), get("calls").(int64), get("unpriced").(int64)+get("unknown").(int64), get("sampled").(int64))
		rows = append(rows, m)
		all = get("all_rows").(uint64)
	})
	if err != nil {
		return nil, err
	}
	more := all > uint64(r.offset+len(rows))
	out := row{"reconciliation": runs[0], "rows": rows, "truncated": more, "next": r.next(len(rows), more)}
	for k, v := range extra {
		out[k] = v
	}
	r.columns = []string{"day", "provider", "model", "item", "ours_usd", "theirs_usd", "difference_usd", "priced_usd", "only_ours_usd", "only_theirs_usd", "rounding_usd", "unsplit_usd", "error_usd",
		"our_tokens", "their_tokens", "bill_rows", "calls", "unpriced", "unknown", "estimated", "sampled", "split_by", "theirs", "currency", "rate.usd", "rate.of", "rate.source"}
	return out, nil
}

// uncovered is how much our figure may be too low: calls without a cost at the mean of
// those that have one. nil is not known: no call has a cost, or traces were sampled.
func uncovered(cost *big.Int, calls, without, sampled int64) any {
	switch costed := calls - without; {
	case sampled != 0 || without < 0:
		return nil
	case without == 0:
		return "0"
	case costed <= 0 || cost.Sign() <= 0:
		return nil
	default:
		r := new(big.Rat).SetFrac(new(big.Int).Mul(cost, big.NewInt(without)), big.NewInt(costed))
		return usd(schema.RoundHalfEven(r))
	}
}

// drifts are the gauges of the newest comparison of each provider. They are read from
// the database, so that a restart and another replica's comparison do not matter.
type drifts struct {
	api         *API
	ratio, when *prometheus.Desc

	mu    sync.Mutex // guards what follows
	read  time.Time
	known []drift
}

type drift struct {
	provider string
	ratio    float64
	made     float64 // unix seconds
}

// driftAge is how old the gauges may be.
const driftAge = time.Minute

func newDrifts(a *API) *drifts {
	return &drifts{api: a,
		ratio: prometheus.NewDesc("flyball_reconciliation_drift_ratio", "Bill less our figure, over the bill, of the newest comparison with a provider's bill; 1 or -1 where one of them is nothing.", []string{"provider"}, nil),
		when:  prometheus.NewDesc("flyball_reconciliation_timestamp_seconds", "When the newest comparison with a provider's bill was made.", []string{"provider"}, nil)}
}

func (d *drifts) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read = time.Time{}
}

// Describe implements prometheus.Collector.
func (d *drifts) Describe(ch chan<- *prometheus.Desc) { ch <- d.ratio; ch <- d.when }

// Collect implements prometheus.Collector.
func (d *drifts) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if conn := d.api.o.Conn(); conn != nil && time.Since(d.read) > driftAge {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		var known []drift
		r := &request{conn: conn, all: true}
		err := d.api.ask(ctx, r, "reconciliation_drift.sql", r.question(), func(get func(string) any) {
			known = append(known, drift{get("provider").(string), driftRatio(get("ours").(*big.Int), get("theirs").(*big.Int)), float64(get("made").(time.Time).UnixMicro()) / 1e6})
		})
		if err != nil {
			d.api.o.Logger.Warn("read newest reconciliations", "err", err)
		} else {
			d.known = known
		}
		d.read = time.Now()
	}
	for _, k := range d.known {
		if sellers[k.provider] == "" { // a bill may name anybody
			continue
		}
		ch <- prometheus.MustNewConstMetric(d.ratio, prometheus.GaugeValue, k.ratio, k.provider)
		ch <- prometheus.MustNewConstMetric(d.when, prometheus.GaugeValue, k.made, k.provider)
	}
}

func driftRatio(ours, theirs *big.Int) float64 {
	diff := new(big.Int).Sub(theirs, ours)
	switch {
	case diff.Sign() == 0:
		return 0
	case theirs.Sign() == 0 || ours.Sign() == 0:
		return float64(diff.Sign())
	}
	f, _ := new(big.Rat).SetFrac(diff, theirs).Float64()
	return f
}
