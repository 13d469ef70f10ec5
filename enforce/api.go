package enforce

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/feed"
	"github.com/flyball/flyball/schema"
)

// api serves the loop over HTTP.
type api struct {
	l       *Loop
	keys    func() *schema.Keyring
	journal func(tenant string) (Journal, func() uint64)

	backtesting sync.Mutex // held by the one that runs
}

// What requests carry.
type (
	releasing struct {
		ID     string `json:"id"`
		Reason string `json:"reason"`
	}
	backtesting struct {
		Text   string    `json:"text"`
		Since  time.Time `json:"since"`
		Until  time.Time `json:"until"`
		Tenant string    `json:"tenant"`
	}
	verifying struct {
		Since time.Time `json:"since"`
	}
	policySetting struct {
		Text   string `json:"text"`
		Reason string `json:"reason"`
		DryRun bool   `json:"dry_run"`
	}
	headrooms struct {
		Headroom []Headroom `json:"headroom"`
	}
	refusing struct {
		Refusals []struct {
			Call  directive.Call `json:"call"`
			Guard string         `json:"guard"`
			At    time.Time      `json:"at"`
		} `json:"refusals"`
		More int `json:"more"`
	}
	drilling struct {
		WaitMS int64 `json:"wait_ms"`
	}
	reserving struct {
		directive.Call
		Plan []directive.Call `json:"plan"`
	}
	paging struct {
		Receiver string `json:"receiver"`
	}
)

// Reserved is the answer for one call with its lease.
type Reserved struct {
	Answer
	Lease     string    `json:"lease"`
	ExpiresAt time.Time `json:"expires_at"`
	USD       string    `json:"reserved_usd"`
}

// as serves a request of a key that has one of the roles, with these parameters.
func (a *api) as(f func(*gin.Context, schema.Key) error, names []string, roles ...schema.KeyRole) gin.HandlerFunc {
	return func(c *gin.Context) {
		key, err := a.keys().Require(c.Request, roles...)
		if err == nil {
			err = known(c, names)
		}
		if err == nil {
			c.Header("Cache-Control", "no-store")
			err = f(c, key)
		}
		if err != nil {
			fail(c, err)
		}
	}
}

// fail answers an error as problem+json.
func fail(c *gin.Context, err error) {
	status, detail := http.StatusInternalServerError, "the request failed; see the server's log"
	var in InputError
	var access schema.AccessError
	switch {
	case errors.As(err, &in):
		status, detail = in.Status, in.Detail
		if in.RetryAfter > 0 {
			c.Header("Retry-After", strconv.Itoa(int((in.RetryAfter+time.Second-1)/time.Second)))
		}
	case errors.As(err, &access):
		status, detail = access.Status, access.Detail
	case errors.Is(err, ErrDrill):
		status, detail = http.StatusConflict, err.Error()
	}
	if status == http.StatusUnauthorized {
		c.Header("WWW-Authenticate", "Bearer")
	}
	if c.Writer.Written() {
		return
	}
	c.Header("Content-Type", "application/problem+json")
	c.AbortWithStatusJSON(status, gin.H{"status": status, "title": http.StatusText(status), "detail": detail})
}

func body(c *gin.Context, v any) error {
	if err := schema.ReadBody(c.Writer, c.Request, v); err != nil {
		return badInput("%v", err)
	}
	return nil
}

func orgWide(key schema.Key) error {
	if !key.AllowsAll() {
		return forbidden("key %s is not for every tenant; this needs one with tenants: \"*\"", key.Name)
	}
	return nil
}

func most(c *gin.Context, usual, limit int) (int, error) {
	v := c.Query("limit")
	if v == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > limit {
		return 0, badInput("limit %q: want a number from 1 to %d", v, limit)
	}
	return n, nil
}

// known refuses parameters that would be ignored.
func known(c *gin.Context, names []string) error {
	if err := schema.CheckParams(c.Request.URL.Query(), names); err != nil {
		return badInput("%v", err)
	}
	return nil
}

// tenants is what the key and tenant= allow together.
func tenants(c *gin.Context, key schema.Key) (func(string) bool, error) {
	t := c.Query("tenant")
	if t == "" {
		return key.Allows, nil
	}
	if !key.Allows(t) {
		return nil, forbidden("key %s may not see tenant %s", key.Name, t)
	}
	return func(o string) bool { return o == t }, nil
}

func (a *api) guards(c *gin.Context, key schema.Key) error {
	allow, err := tenants(c, key)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, gin.H{"guards": a.l.Guards(allow), "lights": a.l.Lights()})
	return nil
}

func (a *api) live(c *gin.Context, key schema.Key) error {
	n, err := most(c, 100, 10_000)
	if err != nil {
		return err
	}
	allow, err := tenants(c, key)
	if err != nil {
		return err
	}
	guard := c.Query("guard")
	if guard != "light" { // a light acts and is no guard of the policy
		if err := a.guardNamed(guard); err != nil {
			return err
		}
	}
	list := a.l.Live(allow, guard, n)
	if !key.AllowsAll() {
		for i := range list {
			if list[i].org {
				list[i].Reason, list[i].Spent, list[i].Limit, list[i].Leaked = feed.OrgReason, "", "", leakage{}
			}
		}
	}
	c.JSON(http.StatusOK, gin.H{"live": list})
	return nil
}

func (a *api) releaseGuard(c *gin.Context, key schema.Key) error {
	var in releasing
	if err := body(c, &in); err != nil {
		return err
	}
	if err := a.l.Release(in.ID, key.Name, in.Reason, key.Allows); err != nil {
		return err
	}
	c.JSON(http.StatusOK, gin.H{"released": in.ID})
	return nil
}

// earliest is the first year that the journal is asked for.
const earliest = 2015

// backtestWithin bounds a backtest.
const backtestWithin = 30 * time.Minute

func (a *api) backtest(c *gin.Context, key schema.Key) error {
	var in backtesting
	if err := body(c, &in); err != nil {
		return err
	}
	switch {
	case in.Tenant == "" && !key.AllowsAll() && key.Tenant == "":
		return badInput("say the tenant: this key is for several")
	case in.Tenant == "" && !key.AllowsAll():
		in.Tenant = key.Tenant
	case in.Tenant != "" && !key.Allows(in.Tenant):
		return forbidden("key %s may not see tenant %s", key.Name, in.Tenant)
	}
	p, _, err := ParsePolicy([]byte(in.Text), PolicyOptions{})
	if err != nil {
		return badInput("%v", err)
	}
	if in.Until.IsZero() {
		in.Until = time.Now().Add(15 * time.Minute)
	}
	if !in.Since.Before(in.Until) || in.Since.Year() < earliest {
		return badInput("since has to be before until, and after %d", earliest)
	}
	journal, _ := a.journal(in.Tenant)
	if journal == nil {
		return unavailable(time.Second, "ClickHouse is not up yet; see /readyz")
	}
	if !a.backtesting.TryLock() { // it holds the counters of its own in memory
		return unavailable(10*time.Second, "a backtest is running already; ask again when it is done")
	}
	defer a.backtesting.Unlock()
	ctx, cancel := context.WithTimeout(c.Request.Context(), backtestWithin)
	defer cancel()
	r, err := Backtest(ctx, p, Options{Pricer: a.l.o.Pricer, Zone: a.l.o.Zone}, journal, in.Since, in.Until)
	if errors.Is(err, errTooManyAccounts) {
		return badInput("%v", err)
	}
	if err != nil {
		a.l.o.Logger.Error("backtest", "err", err)
		return unavailable(time.Second, "the journal could not be read; ask for a shorter time or see the server's log")
	}
	c.JSON(http.StatusOK, r)
	return nil
}

func (a *api) verify(c *gin.Context, key schema.Key) error {
	var in verifying
	if err := orgWide(key); err != nil {
		return err
	}
	if err := body(c, &in); err != nil {
		return err
	}
	if in.Since.Year() < earliest || !in.Since.Before(time.Now()) {
		return badInput("since has to be before now, and after %d", earliest)
	}
	journal, confirmed := a.journal("")
	if journal == nil {
		return unavailable(time.Second, "ClickHouse is not up yet; see /readyz")
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), 5*time.Minute)
	defer cancel()
	v, err := a.l.Verify(ctx, journal, confirmed, in.Since)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, v)
	return nil
}

// budgets are the numbers that decisions use. With a scope in the query, those that
// apply to such a call.
func (a *api) budgets(c *gin.Context, key schema.Key) error {
	n, err := most(c, 100, 10_000)
	if err != nil {
		return err
	}
	allow, err := tenants(c, key)
	if err != nil {
		return err
	}
	guard := c.Query("guard")
	if err := a.guardNamed(guard); err != nil {
		return err
	}
	call := directive.Call{Tenant: c.Query("tenant"), User: c.Query("user"), Feature: c.Query("feature"), Workflow: c.Query("workflow"), Agent: c.Query("agent"), Model: c.Query("model"), RunID: c.Query("run_id"), Mode: c.Query("mode")}
	if call != (directive.Call{Tenant: call.Tenant}) {
		if call.Tenant == "" {
			return badInput("say the tenant as well: tenant=")
		}
		list, err := a.l.BudgetsFor(&call, key.AllowsAll())
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(b Budget) bool {
			scope, _ := a.l.guardScope(b.Guard) // each run has a budget of its own: without a run none is meant
			return guard != "" && b.Guard != guard || call.RunID == "" && slices.Contains(scope, "run")
		})
		c.JSON(http.StatusOK, gin.H{"budgets": list})
		return nil
	}
	c.JSON(http.StatusOK, gin.H{"budgets": a.l.Budgets(allow, guard, n)})
	return nil
}

// guardNamed refuses the name of no guard, of which there would be nothing to see.
func (a *api) guardNamed(name string) error {
	if _, ok := a.l.guardScope(name); !ok && name != "" {
		return badInput("no guard is named %q; GET /api/v1/guards (`flyball guard list`) lists them", name)
	}
	return nil
}

func (a *api) policy(c *gin.Context, key schema.Key) error {
	if err := orgWide(key); err != nil {
		return err
	}
	p, err := a.l.Policy()
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, p)
	return nil
}

func (a *api) versions(c *gin.Context, key schema.Key) error {
	if err := orgWide(key); err != nil {
		return err
	}
	list, err := a.l.Versions()
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, gin.H{"versions": list})
	return nil
}

func (a *api) setPolicy(c *gin.Context, key schema.Key) error {
	var in policySetting
	if err := orgWide(key); err != nil {
		return err
	}
	if err := body(c, &in); err != nil {
		return err
	}
	if in.DryRun {
		_, doubts, err := ParsePolicy([]byte(in.Text), a.l.check())
		if err != nil {
			return badInput("%v", err)
		}
		c.JSON(http.StatusOK, gin.H{"valid": true, "doubts": texts(doubts)})
		return nil
	}
	v, doubts, err := a.l.SetPolicy([]byte(in.Text), key.Name, in.Reason)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, gin.H{"version": v, "doubts": texts(doubts)})
	return nil
}

func texts(doubts []PolicyError) []string {
	out := []string{}
	for _, d := range doubts {
		out = append(out, d.Error())
	}
	return out
}

// viewer is what a key may follow: keys with equal tenants share a view.
func viewer(key schema.Key) feed.Viewer {
	if key.AllowsAll() {
		return feed.Viewer{Key: schema.AllTenants, Allow: key.Allows, Org: true}
	}
	list := append(slices.Clone(key.Tenants), key.Tenant)
	slices.Sort(list)
	return feed.Viewer{Key: strings.Join(slices.Compact(list), "\x00"), Allow: key.Allows}
}

func (a *api) stream(c *gin.Context, key schema.Key) error {
	if err := a.l.presented(c.Request); err != nil {
		return err
	}
	who := viewer(key)
	who.Still = func() bool { return a.still(c.Request, key) }
	a.l.feed.ServeSSE(c.Writer, c.Request, who)
	return nil
}

// still reports whether a request would be let in as the same key with the same rights.
func (a *api) still(r *http.Request, key schema.Key) bool {
	now, err := a.keys().Authenticate(r)
	return err == nil && now.Name == key.Name && now.Role == key.Role && viewer(now).Key == viewer(key).Key
}

func (a *api) directives(c *gin.Context, key schema.Key) error {
	if err := a.l.presented(c.Request); err != nil {
		return err
	}
	var wait time.Duration
	for part := range strings.SplitSeq(c.GetHeader("Prefer"), ",") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(part), "wait="); ok {
			n, err := strconv.Atoi(v)
			if err != nil || n < 0 || n > 300 {
				return badInput("Prefer: wait=%s: want seconds from 0 to 300", v)
			}
			wait = time.Duration(n) * time.Second
			c.Header("Preference-Applied", "wait="+v)
		}
	}
	have, _ := directive.ParseVersion(strings.Trim(c.GetHeader("If-None-Match"), `"`))
	set, at, changed := a.l.feed.Poll(c.Request, viewer(key), have, wait)
	c.Header("ETag", strconv.Quote(at.String()))
	if !changed {
		c.Status(http.StatusNotModified)
		c.Writer.WriteHeaderNow()
		return nil
	}
	c.Data(http.StatusOK, "application/json; charset=utf-8", set)
	return nil
}

// presented compares the version that a limiter saw last with what this server has.
// A limiter that is ahead, with this server's own signature, says that the store was
// restored from an old copy: everything from here on is published above it, and no
// lease is given out until those of before have run out.
func (l *Loop) presented(r *http.Request) error {
	v, ok := directive.ParseVersion(r.Header.Get("Flyball-Version"))
	if !ok || !l.signed("version "+v.String(), r.Header.Get("Flyball-Token")) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.current.Less(v) {
		return nil
	}
	now := time.Now()
	l.event(Event{At: now.UTC(), Kind: "limiter", Action: "epoch", Reason: "a limiter has version " + v.String() + " and this server " + l.current.String() + ": the local store is older than what was published"})
	l.current, l.ceiling = directive.Version{Epoch: v.Epoch + 1}, 0
	l.book.noNewUntil = now.Add(leaseTTL)
	if err := l.reserveRevisions(); err != nil { // makes the pause durable with the epoch
		return err
	}
	return l.resetSet()
}

func (a *api) limiters(c *gin.Context, key schema.Key) error {
	if err := orgWide(key); err != nil {
		return err
	}
	a.l.mu.Lock()
	list := a.l.limiterStatus(time.Now())
	v := a.l.current
	a.l.mu.Unlock()
	c.JSON(http.StatusOK, gin.H{"version": v.String(), "limiters": list, "connections": a.l.feed.Connections()})
	return nil
}

func (a *api) ack(c *gin.Context, key schema.Key) error {
	var in Ack
	if err := body(c, &in); err != nil {
		return err
	}
	id, err := limiterID(c)
	if err != nil {
		return err
	}
	if err := a.l.Acknowledge(id, key, in); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
	return nil
}

// maxMore bounds how many refusals a limiter may count without telling them.
const maxMore = 1_000_000_000

// limiterID is the limiter that the path names.
func limiterID(c *gin.Context) (string, error) {
	id := c.Param("id")
	if id == "" || len(id) > 200 {
		return "", badInput("the limiter's id is empty or longer than 200 bytes")
	}
	return id, nil
}

// headroom takes what providers said. The light it turns is everybody's, so it has to
// come from who may act for every tenant; of others it is taken and turns nothing.
func (a *api) headroom(c *gin.Context, key schema.Key) error {
	var in headrooms
	if err := body(c, &in); err != nil {
		return err
	}
	id, err := limiterID(c)
	if err != nil {
		return err
	}
	if err := a.l.Report(id, in.Headroom, key.AllowsAll()); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
	return nil
}

// refusals makes calls that a limiter did not let through calls of the journal.
func (a *api) refusals(c *gin.Context, key schema.Key) error {
	var in refusing
	if err := body(c, &in); err != nil {
		return err
	}
	if _, err := limiterID(c); err != nil {
		return err
	}
	if len(in.Refusals) > 1000 || in.More < 0 || in.More > maxMore {
		return badInput("at most 1,000 refusals are taken at once, and more has to be from 0 to %d", maxMore)
	}
	now := time.Now()
	var list []Refusal
	for i := range in.Refusals {
		r := &in.Refusals[i]
		if ownCall(&r.Call, key) != nil {
			in.More++ // counted, though nobody can be told for whom
			continue
		}
		if r.At.After(now) || now.Sub(r.At) > time.Hour {
			r.At = now
		}
		list = append(list, Refusal{Call: r.Call, Guard: r.Guard, At: r.At})
	}
	a.l.metrics.refused.Add(float64(len(list) + in.More))
	if a.l.o.Refused != nil {
		if err := a.l.o.Refused(list); err != nil {
			return unavailable(time.Second, "refusals cannot be booked now")
		}
	}
	c.Status(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
	return nil
}

func (a *api) lights(c *gin.Context, _ schema.Key) error {
	c.JSON(http.StatusOK, gin.H{"lights": a.l.Lights()})
	return nil
}

func (a *api) killStatus(c *gin.Context, key schema.Key) error {
	s := a.l.KillStatus()
	if !key.AllowsAll() { // what the org spends is nobody's who sees one tenant
		c.JSON(http.StatusOK, feed.KillForTenants(s.Kill))
		return nil
	}
	c.JSON(http.StatusOK, s)
	return nil
}

func (a *api) kill(c *gin.Context, key schema.Key) error {
	var in Kill
	if err := orgWide(key); err != nil {
		return err
	}
	if err := body(c, &in); err != nil {
		return err
	}
	s, err := a.l.SetKill(in, key.Name)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, s)
	return nil
}

func (a *api) drill(c *gin.Context, key schema.Key) error {
	var in drilling
	if err := orgWide(key); err != nil {
		return err
	}
	if err := body(c, &in); err != nil {
		return err
	}
	if in.WaitMS == 0 {
		in.WaitMS = 5000
	}
	if in.WaitMS < 0 || in.WaitMS > 60_000 {
		return badInput("wait_ms %d: want up to 60000", in.WaitMS)
	}
	r, err := a.l.Drill(key.Name, time.Duration(in.WaitMS)*time.Millisecond, c.Request.Context().Done())
	if errors.Is(err, ErrDrill) {
		c.Header("Content-Type", "application/problem+json")
		c.JSON(http.StatusConflict, gin.H{"status": http.StatusConflict, "title": "drill failed", "detail": err.Error(), "drill": r})
		return nil
	}
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, r)
	return nil
}

// ownCall checks that a call is of a tenant of the key, and fills in the key's name and
// its tenant where the call says none.
func ownCall(c *directive.Call, key schema.Key) error {
	if c.Tenant == "" {
		c.Tenant = key.Tenant
		if c.Tenant == "" && key.AllowsAll() {
			c.Tenant = "default"
		}
	}
	if !key.Allows(c.Tenant) {
		return forbidden("key %s may not act for tenant %s", key.Name, c.Tenant)
	}
	for _, v := range []string{c.Tenant, c.User, c.Feature, c.Workflow, c.Agent, c.Model, c.RunID, c.TraceID, c.SpanID, c.Provider, c.Tool} {
		if len(v) > maxValue {
			return badInput("a value of the call is longer than 1,024 bytes")
		}
	}
	if c.InputTokens > maxTokens || c.MaxOutputTokens > maxTokens {
		return badInput("a call of more than %d tokens is none", uint64(maxTokens))
	}
	c.TraceID = strings.ToLower(c.TraceID)
	c.Key = key.Name
	c.Bind(key.Bind)
	return nil
}

func (a *api) check(c *gin.Context, key schema.Key) error {
	var in directive.Call
	if err := body(c, &in); err != nil {
		return err
	}
	if err := ownCall(&in, key); err != nil {
		return err
	}
	answer, err := a.l.Check(&in)
	if err != nil {
		return err
	}
	if !key.AllowsAll() {
		answer = answer.ForTenants()
	}
	c.JSON(http.StatusOK, answer)
	return nil
}

func (a *api) reserve(c *gin.Context, key schema.Key) error {
	var in reserving
	if err := body(c, &in); err != nil {
		return err
	}
	calls := in.Plan
	if len(calls) == 0 {
		calls = []directive.Call{in.Call}
	} else if in.Call != (directive.Call{}) {
		return badInput("a plan stands alone: put every call into plan")
	}
	for i := range calls {
		if err := ownCall(&calls[i], key); err != nil {
			return err
		}
	}
	leases, answers, err := a.l.Reserve(c.Request.Context(), calls, key.Name)
	if !key.AllowsAll() {
		for i := range answers {
			answers[i] = answers[i].ForTenants()
		}
	}
	switch {
	case err != nil:
		return err
	case leases == nil:
		c.JSON(http.StatusOK, answers[0])
	case len(in.Plan) == 0:
		c.JSON(http.StatusOK, Reserved{answers[0], leases[0].Lease, leases[0].ExpiresAt, leases[0].USD})
	default:
		c.JSON(http.StatusOK, gin.H{"decision": directive.Allow, "leases": leases, "answers": answers})
	}
	return nil
}

func (a *api) heartbeat(c *gin.Context, key schema.Key) error {
	lease, err := a.l.Heartbeat(c.Param("lease"), key.Name)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, lease)
	return nil
}

func (a *api) settle(c *gin.Context, key schema.Key) error {
	var in Settlement
	if err := body(c, &in); err != nil {
		return err
	}
	if err := a.l.Settle(c.Request.Context(), c.Param("lease"), key.Name, in); err != nil {
		return err
	}
	c.JSON(http.StatusOK, gin.H{"settled": true})
	return nil
}

func (a *api) release(c *gin.Context, key schema.Key) error {
	if err := a.l.ReleaseLease(c.Request.Context(), c.Param("lease"), key.Name); err != nil {
		return err
	}
	c.JSON(http.StatusOK, gin.H{"released": true})
	return nil
}

func (a *api) testPage(c *gin.Context, key schema.Key) error {
	var in paging
	if err := orgWide(key); err != nil {
		return err
	}
	if err := body(c, &in); err != nil {
		return err
	}
	c.JSON(http.StatusOK, gin.H{"results": a.l.pager.Test(c.Request.Context(), in.Receiver)})
	return nil
}

func (a *api) pages(c *gin.Context, key schema.Key) error {
	if err := orgWide(key); err != nil {
		return err
	}
	c.JSON(http.StatusOK, gin.H{"pending": a.l.pager.Pending()})
	return nil
}
