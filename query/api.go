package query

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/schema"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var queries = template.Must(template.New("").ParseFS(sqlFiles, "sql/*.sql"))

// Options of New.
type Options struct {
	// Conn is the read connection, nil while ClickHouse is not up.
	Conn func() driver.Conn
	// Keys may be empty: then only loopback is served, and trusted.
	Keys func() *schema.Keyring
	// Zone is a tenant's time zone; nil is UTC for all.
	Zone func(tenant string) *time.Location
	// SQL serves read-only SQL for operators; nil where there is none.
	SQL    http.Handler
	Logger *slog.Logger
}

// API is the HTTP API. Mount adds its routes.
type API struct{ o Options }

// New makes an API.
func New(o Options) *API {
	if o.Zone == nil {
		o.Zone = func(string) *time.Location { return time.UTC }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &API{o}
}

// Mount adds the API's routes to a router.
func (a *API) Mount(r gin.IRouter) {
	g := r.Group("/api/v1")
	g.GET("/calls", a.handle([]string{"trace_id", "run_id", "history", "cursor"}, a.calls))
	g.GET("/runs", a.handle(dimensionParams, a.runs))
	g.GET("/runs/:id", a.handle(nil, a.run))
	g.GET("/spend", a.handle(append([]string{"group_by", "interval"}, dimensionParams...), a.spend))
	g.GET("/amplification", a.handle(append([]string{"group_by"}, dimensionParams...), a.amplification))
	g.GET("/retries", a.handle(append([]string{"group_by"}, dimensionParams...), a.retries))
	g.GET("/coverage", a.handle(dimensionParams, a.coverage))
	if a.o.SQL != nil {
		sql := func(c *gin.Context) {
			r, err := a.authorize(c.Request)
			if err == nil && !r.all {
				err = problem{http.StatusForbidden, "this key does not see every tenant; sql needs one with tenants: \"*\""}
			}
			if err != nil {
				fail(c, err)
				return
			}
			q := c.Request.URL.Query()
			q.Del("tenant")
			c.Request.URL.Path, c.Request.URL.RawQuery = "/", q.Encode()
			c.Request.Header.Del("Authorization")
			a.o.SQL.ServeHTTP(c.Writer, c.Request)
		}
		g.GET("/sql", sql)
		g.POST("/sql", sql)
	}
}

// dimensions are the columns that spend may be grouped and filtered by.
var dimensions = []string{"tenant", "user", "feature", "workflow", "workflow_version", "agent", "model", "provider", "environment", "mode", "criticality", "kind", "retry_layer", "failure"}

// runDimensions are those that a run has.
var runDimensions = []string{"tenant", "user", "feature", "workflow", "workflow_version", "agent", "environment", "mode", "criticality"}

var dimensionParams = dimensions[1:]

// problem is an error for the caller.
type problem struct {
	status int
	detail string
}

func (p problem) Error() string { return p.detail }

func badRequest(format string, args ...any) error {
	return problem{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// request is what every question has: who asks and for which time.
type request struct {
	*gin.Context
	all      bool
	tenants  []string
	from, to time.Time
	limit    int
	zone     *time.Location
	args     []any
}

func fail(c *gin.Context, err error) {
	var p problem
	status, detail := http.StatusInternalServerError, err.Error()
	var ex *clickhouse.Exception
	switch {
	case errors.As(err, &p):
		status = p.status
	case errors.Is(err, context.DeadlineExceeded):
		status, detail = http.StatusGatewayTimeout, "the query took too long; ask for a shorter time or one tenant"
	case errors.As(err, &ex):
		detail = "the query failed in ClickHouse: " + ex.Name
	}
	if status == http.StatusUnauthorized {
		c.Header("WWW-Authenticate", "Bearer")
	}
	c.Header("Content-Type", "application/problem+json")
	c.AbortWithStatusJSON(status, gin.H{"status": status, "title": http.StatusText(status), "detail": detail})
}

// authorize works out which tenants a request may see.
func (a *API) authorize(r *http.Request) (request, error) {
	var out request
	asked := r.URL.Query()["tenant"]
	var ring *schema.Keyring
	if a.o.Keys != nil {
		ring = a.o.Keys()
	}
	if ring == nil || ring.Len() == 0 {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			return out, problem{http.StatusUnauthorized, "no keys are configured, so only this machine is served"}
		}
		out.all, out.tenants = len(asked) == 0, asked
		return out, nil
	}
	secret, ok := schema.BearerToken(r.Header.Get("Authorization"))
	if !ok {
		return out, problem{http.StatusUnauthorized, "send a key as Authorization: Bearer …"}
	}
	key, ok := ring.Lookup(secret, time.Now())
	if !ok {
		return out, problem{http.StatusUnauthorized, "unknown or expired key"}
	}
	if key.Role != schema.KeyRead && key.Role != schema.KeyAdmin {
		return out, problem{http.StatusForbidden, fmt.Sprintf("key %s has role %s; reading needs role read or admin", key.Name, key.Role)}
	}
	for _, t := range asked {
		if !key.Allows(t) {
			return out, problem{http.StatusForbidden, fmt.Sprintf("key %s may not see tenant %s", key.Name, t)}
		}
	}
	switch {
	case len(asked) > 0:
		out.tenants = asked
	case key.AllowsAll():
		out.all = true
	case len(key.Tenants) > 0:
		out.tenants = key.Tenants
	default:
		out.tenants = []string{key.Tenant}
	}
	return out, nil
}

// handle checks credential, parameters and time range before f.
func (a *API) handle(params []string, f func(context.Context, *request) (any, error)) gin.HandlerFunc {
	known := append([]string{"tenant", "from", "to", "limit"}, params...)
	return func(c *gin.Context) {
		r, err := a.authorize(c.Request)
		if err != nil {
			fail(c, err)
			return
		}
		r.Context = c
		for name, values := range c.Request.URL.Query() {
			if !slices.Contains(known, name) {
				sort.Strings(known)
				fail(c, badRequest("unknown parameter %q; known are %s", name, strings.Join(known, ", ")))
				return
			}
			if len(values) > 1 && name != "tenant" {
				fail(c, badRequest("parameter %q stands twice", name))
				return
			}
		}
		r.zone = time.UTC
		if len(r.tenants) == 1 {
			r.zone = a.o.Zone(r.tenants[0])
		}
		if err := r.times(); err != nil {
			fail(c, err)
			return
		}
		r.limit = 1000
		if l := c.Query("limit"); l != "" {
			if r.limit, err = strconv.Atoi(l); err != nil || r.limit < 1 || r.limit > 1000 {
				fail(c, badRequest("limit %q: want a number from 1 to 1000", l))
				return
			}
		}
		ctx, cancel := context.WithTimeout(c.Request.Context(), 30*time.Second)
		defer cancel()
		if a.o.Conn() == nil {
			c.Header("Retry-After", "1")
			fail(c, problem{http.StatusServiceUnavailable, "ClickHouse is not up yet; see /readyz"})
			return
		}
		answer, err := f(ctx, &r)
		if err != nil {
			if ctx.Err() == nil {
				var p problem
				if !errors.As(err, &p) {
					a.o.Logger.Error("query failed", "path", c.Request.URL.Path, "err", err)
				}
			}
			fail(c, err)
			return
		}
		if answer != nil {
			c.JSON(http.StatusOK, answer)
		}
	}
}

func (r *request) times() error {
	now := time.Now()
	r.from, r.to = now.Add(-24*time.Hour), now.Add(15*time.Minute)
	for name, dst := range map[string]*time.Time{"from": &r.from, "to": &r.to} {
		v := r.Query(name)
		if v == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			if t, err = time.ParseInLocation("2006-01-02", v, r.zone); err != nil {
				return badRequest("%s %q: want RFC 3339 or a date, e.g. 2026-11-29T10:00:00Z", name, v)
			}
		}
		*dst = t
	}
	if !r.from.Before(r.to) {
		return badRequest("from %s is not before to %s", r.from.Format(time.RFC3339), r.to.Format(time.RFC3339))
	}
	return nil
}

// arg binds a value and returns nothing: names in SQL are {name:Type}.
func (r *request) arg(name string, v any) { r.args = append(r.args, clickhouse.Named(name, v)) }

// tenantClause binds the credential's tenants.
func (r *request) tenantClause() string {
	if r.all {
		return "1"
	}
	quoted := make([]string, len(r.tenants))
	for i, t := range r.tenants {
		name := fmt.Sprintf("tenant_%d", i)
		r.arg(name, t)
		quoted[i] = "{" + name + ":String}"
	}
	if len(quoted) == 0 {
		return "0"
	}
	return "tenant IN (" + strings.Join(quoted, ", ") + ")"
}

// filter turns dimension parameters into conditions; names come from a closed list.
func (r *request) filter(allowed []string) (string, error) {
	cond := "1"
	for _, d := range allowed {
		if d == "tenant" {
			continue
		}
		if v, ok := r.GetQuery(d); ok {
			r.arg("f_"+d, v)
			cond += " AND toString(" + d + ") = {f_" + d + ":String}"
		}
	}
	return cond, nil
}

func (r *request) groups(allowed []string, byDefault string) ([]string, error) {
	text, ok := r.GetQuery("group_by")
	if !ok {
		text = byDefault
	}
	var out []string
	for _, g := range strings.Split(text, ",") {
		if g = strings.TrimSpace(g); g == "" {
			continue
		}
		if !slices.Contains(allowed, g) {
			return nil, badRequest("group_by %q: want any of %s", g, strings.Join(allowed, ", "))
		}
		if !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out, nil
}

func (a *API) query(ctx context.Context, r *request, name string, vars any) (driver.Rows, error) {
	var sql bytes.Buffer
	if err := queries.ExecuteTemplate(&sql, name, vars); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	rows, err := a.o.Conn().Query(ctx, sql.String(), r.args...)
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", name, err)
	}
	return rows, nil
}

func (r *request) rangeArgs() {
	r.arg("from", r.from.UTC().Truncate(15*time.Minute).Format("2006-01-02 15:04:05"))
	r.arg("to", r.to.UTC().Add(15*time.Minute-time.Nanosecond).Truncate(15*time.Minute).Format("2006-01-02 15:04:05"))
	r.arg("limit", strconv.Itoa(r.limit))
}

func usd(b *big.Int) string {
	s, err := schema.SumFromBig(b)
	if err != nil {
		return b.String() + "e-12"
	}
	return s.String()
}
