package query

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/engine"
)

// queryLimit is how long one question may take.
const queryLimit = 30 * time.Second

// Options of New.
type Options struct {
	// Conn is the read connection, nil while ClickHouse is not up.
	Conn func() driver.Conn
	// Keys may be empty: then only loopback is served, and trusted.
	Keys func() *schema.Keyring
	// Zone is a tenant's time zone; nil is UTC for all.
	Zone func(tenant string) *time.Location
	// Quarantined is how many entries were set aside because ClickHouse refuses
	// them, of all tenants; nil where nothing is ingested.
	Quarantined func() uint64
	// Write is the connection that a close is stored with; nil where months cannot
	// be closed. It is up whenever Conn is.
	Write func() driver.Conn
	// Stored is the instant before which every entry that was recorded is in the
	// journal; nil is now.
	Stored func() time.Time
	// Enforcement is what the local store knows of enforcement within a time: rows that
	// ClickHouse may lack, or with every all events that are kept; nil is nothing.
	Enforcement func(from, to time.Time, every bool) ([]schema.Enforcement, error)
	// Record keeps who closed a month and why in the history of enforcement; nil keeps it nowhere.
	Record func(schema.Enforcement) error
	// Prices tells the unit prices that a FOCUS file is split by; without it no cost is.
	Prices UnitPrices
	// Rates are those of other currencies; nil is none.
	Rates func() *schema.Rates
	// ModelName is the name under which a model of the journal and one of a provider's
	// bill meet, and whether prices list it; nil is the model's own.
	ModelName func(tenant, provider, model string) (name string, listed bool)
	// Registerer takes the gauges of comparisons with bills; nil is none.
	Registerer prometheus.Registerer
	// SQL serves read-only SQL for operators; nil where there is none.
	SQL    http.Handler
	Logger *slog.Logger
}

// API is the HTTP API. Mount adds its routes.
type API struct {
	o     Options
	drift *drifts

	behind time.Duration // for how long states of runs may be missing until few runs are wanted of many
}

// New makes an API.
func New(o Options) *API {
	if o.Zone == nil {
		o.Zone = func(string) *time.Location { return time.UTC }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &API{o: o, behind: 4 * 24 * time.Hour}
	a.drift = newDrifts(a)
	if o.Registerer != nil {
		o.Registerer.MustRegister(a.drift)
	}
	return a
}

// limits are the rows of an answer where the request does not say, and at the most.
type limits struct {
	usual, most int
	local       bool // while ClickHouse is not up, the local store answers
}

var (
	listLimits  = limits{usual: 100, most: 1000}
	sumLimits   = limits{usual: 1000, most: 10_000}
	eventLimits = limits{usual: 100, most: 10_000, local: true}
)

// sql hands a statement to the operator's read-only SQL, which sees every tenant.
func (a *API) sql(c *gin.Context) {
	r, err := a.authorize(c.Request)
	switch {
	case err != nil:
	case c.Request.URL.Query().Has("tenant"):
		err = badRequest("sql sees every tenant; leave tenant= out and say it in the statement")
	case !r.all:
		err = problem{http.StatusForbidden, "this key does not see every tenant; sql needs one with tenants: \"*\""}
	}
	if err != nil {
		a.fail(c, err)
		return
	}
	c.Request.URL.Path = "/"
	c.Request.Header.Del("Authorization")
	a.o.SQL.ServeHTTP(c.Writer, c.Request)
}

// problem is an error for the caller.
type problem struct {
	status int
	detail string
}

func (p problem) Error() string { return p.detail }

func badRequest(format string, args ...any) error {
	return problem{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// ClickHouse's codes for a statement that is too large.
const (
	timeExceeded   = 159
	memoryExceeded = 241
)

// explain says what an error means to the caller. Only a problem's own words
// leave the process: others may quote SQL.
func explain(err error) problem {
	var p problem
	var ex *clickhouse.Exception
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, context.DeadlineExceeded):
		return problem{http.StatusGatewayTimeout, "the query took too long; ask for a shorter time or one tenant"}
	case errors.As(err, &ex) && (ex.Code == memoryExceeded || ex.Code == timeExceeded):
		return problem{http.StatusGatewayTimeout, "the query is too large; ask for a shorter time, one tenant or fewer dimensions"}
	case engine.Transient(err):
		return problem{http.StatusServiceUnavailable, "ClickHouse cannot answer now; see /readyz and ask again"}
	case errors.As(err, &ex):
		return problem{http.StatusInternalServerError, "the query failed in ClickHouse: " + ex.Name + "; see the server's log"}
	}
	return problem{http.StatusInternalServerError, "the query failed; see the server's log"}
}

// fail answers an error as problem+json, and logs what is not the caller's.
func (a *API) fail(c *gin.Context, err error) {
	p := explain(err)
	if c.Request.Context().Err() != nil {
		c.Abort() // nobody is there to read it
		return
	}
	switch {
	case p.status == http.StatusUnauthorized:
		c.Header("WWW-Authenticate", "Bearer")
	case p.status == http.StatusServiceUnavailable:
		c.Header("Retry-After", "1")
	case p.status >= http.StatusInternalServerError:
		a.o.Logger.Error("answer query", "path", c.Request.URL.Path, "err", err)
	}
	c.Header("Cache-Control", "no-store")
	c.Header("Content-Type", "application/problem+json")
	c.AbortWithStatusJSON(p.status, gin.H{"status": p.status, "title": http.StatusText(p.status), "detail": p.detail})
}

// authorize works out which tenants a request may see.
func (a *API) authorize(r *http.Request) (request, error) {
	var out request
	asked := slices.Clone(r.URL.Query()["tenant"])
	slices.Sort(asked)
	asked = slices.Compact(asked)
	var ring *schema.Keyring
	if a.o.Keys != nil {
		ring = a.o.Keys()
	}
	key, err := ring.Authenticate(r)
	var access schema.AccessError
	if errors.As(err, &access) {
		return out, problem{access.Status, access.Detail}
	}
	if key.Role != schema.KeyRead && key.Role != schema.KeyAdmin {
		return out, problem{http.StatusForbidden, fmt.Sprintf("key %s has role %s; reading needs role read or admin", key.Name, key.Role)}
	}
	for _, t := range asked {
		if t == "" {
			return out, badRequest("tenant is empty; leave it out to see every tenant of the key")
		}
		if !key.Allows(t) {
			return out, problem{http.StatusForbidden, fmt.Sprintf("key %s may not see tenant %s", key.Name, t)}
		}
	}
	switch {
	case len(asked) > 0:
		out.tenants = asked
	case key.AllowsAll():
		out.all = true
	default:
		out.tenants = slices.Clone(key.Tenants)
		if key.Tenant != "" && !slices.Contains(out.tenants, key.Tenant) {
			out.tenants = append(out.tenants, key.Tenant)
		}
	}
	return out, nil
}

// open checks everything about a request that the question itself does not.
func (a *API) open(c *gin.Context, l limits, params []string) (*request, error) {
	r, err := a.authorize(c.Request)
	if err != nil {
		return nil, err
	}
	r.Context = c
	if err := r.takes(append([]string{"tenant"}, params...)); err != nil {
		return nil, err
	}
	r.zone = a.zone(&r)
	if slices.Contains(params, "limit") && slices.Contains(params, "format") {
		if err := r.form(); err != nil {
			return nil, err
		}
		if r.csv { // a file is read by a program: as much as there may be
			l.usual = l.most
		}
	}
	now := time.Now()
	if err := r.times(now); err != nil {
		return nil, err
	}
	if slices.Contains(params, "as_of") {
		if r.asOf, err = r.knownAt(now); err != nil {
			return nil, err
		}
	}
	if err := r.rows(l); err != nil {
		return nil, err
	}
	if err := r.page(params); err != nil {
		return nil, err
	}
	if r.conn = a.o.Conn(); r.conn == nil && (!l.local || a.o.Enforcement == nil) {
		return nil, problem{http.StatusServiceUnavailable, "ClickHouse is not up yet; see /readyz"}
	}
	return &r, nil
}

// zone is the one that days begin in: that of the tenants, if they agree.
func (a *API) zone(r *request) *time.Location {
	zone := time.UTC
	for i, t := range r.tenants {
		z := a.o.Zone(t)
		if z == nil || z == time.Local { // has no name that ClickHouse knows
			z = time.UTC
		}
		if i > 0 && z.String() != zone.String() {
			return time.UTC
		}
		zone = z
	}
	return zone
}

// handle checks a request and answers it with what f returns, or not at all
// where f has answered itself. The query ends with the client's connection.
func (a *API) handle(l limits, params []string, f func(context.Context, *request) (any, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		r, err := a.open(c, l, params)
		if err != nil {
			a.fail(c, err)
			return
		}
		if slices.Contains(params, "limit") && slices.Contains(params, "format") {
			c.Header("Vary", "Accept, Authorization")
		}
		ctx, cancel := context.WithTimeout(c.Request.Context(), queryLimit)
		defer cancel()
		answer, err := f(ctx, r)
		if err != nil {
			a.fail(c, err)
			return
		}
		if !r.tagged {
			c.Header("Cache-Control", "no-store")
		} else if same, err := r.unchanged(answer.(row)); same || err != nil {
			if err != nil {
				a.fail(c, err)
			}
			return
		}
		if answer == nil {
			return
		}
		if r.csv {
			a.writeCSV(r, answer.(row))
			return
		}
		c.JSON(http.StatusOK, answer)
	}
}
