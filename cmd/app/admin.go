package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/flyball/flyball/ingest/price"
	"github.com/flyball/flyball/schema"
)

func upper(s string) string { return strings.ToUpper(s) }

// problem answers a failure as problem+json.
func problem(c *gin.Context, status int, format string, args ...any) {
	if c.Writer.Written() {
		c.Abort()
		return
	}
	switch status {
	case http.StatusUnauthorized:
		c.Header("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		c.Header("Retry-After", "1")
	}
	c.Header("Cache-Control", "no-store")
	c.Header("Content-Type", "application/problem+json")
	c.AbortWithStatusJSON(status, gin.H{"status": status, "title": http.StatusText(status), "detail": fmt.Sprintf(format, args...)})
}

// authorizeAdmin guards operator questions and changes.
func (a *App) authorizeAdmin(c *gin.Context) bool {
	key, err := a.keys.Load().Require(c.Request)
	var denied schema.AccessError
	switch {
	case errors.As(err, &denied):
		problem(c, denied.Status, "%s", denied.Detail)
	case err != nil:
		problem(c, http.StatusForbidden, "%v", err)
	case !key.AllowsAll():
		problem(c, http.StatusForbidden, "key %s is not for every tenant; this needs one with tenants: \"*\"", key.Name)
	default:
		c.Header("Cache-Control", "no-store")
		return true
	}
	return false
}

func (a *App) metrics(c *gin.Context) {
	if err := a.authorizeOperator(c.Request); err != nil {
		problem(c, http.StatusUnauthorized, "%v", err)
		return
	}
	promhttp.HandlerFor(a.reg, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(c.Writer, c.Request)
}

func (a *App) prices(c *gin.Context) {
	cat := a.pricer.Catalogue()
	c.JSON(http.StatusOK, gin.H{"origins": append([]price.Origin{}, cat.Origins...), "rejected": append([]price.Rejection{}, *a.rejected.Load()...), "prices": append([]price.Listing{}, cat.List(c.Query("provider"))...)})
}

func (a *App) reload(c *gin.Context) {
	if err := a.Reload(); err != nil {
		problem(c, http.StatusBadRequest, "%v", err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "reloaded"})
}

// pricesCheck lists models that were seen and have no price, with names that look
// like them, and says for how many of their calls a price exists now.
func (a *App) pricesCheck(c *gin.Context) {
	conn := a.conn()
	if conn == nil {
		problem(c, http.StatusServiceUnavailable, "ClickHouse is not up yet; see /readyz")
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), 30*time.Second)
	defer cancel()
	rows, err := conn.Query(ctx, "SELECT tenant, provider, model, sum(unpriced) AS n FROM spend_15m WHERE cost_status = 'unpriced' GROUP BY tenant, provider, model HAVING n > 0 ORDER BY n DESC LIMIT 1000")
	if err != nil {
		a.log.Error("check prices", "err", err)
		problem(c, http.StatusServiceUnavailable, "ClickHouse cannot answer now; see the server's log")
		return
	}
	defer rows.Close()
	cat := a.pricer.Catalogue()
	out := []unpriced{}
	for rows.Next() {
		var u unpriced
		if err = rows.Scan(&u.Tenant, &u.Provider, &u.Model, &u.Calls); err != nil {
			break
		}
		u.Nearest, u.Known = append([]string{}, cat.Nearest(u.Provider, u.Model, 3)...), cat.Known(u.Tenant, u.Provider, u.Model)
		out = append(out, u)
	}
	if err = errors.Join(err, rows.Err()); err != nil {
		a.log.Error("check prices", "err", err)
		problem(c, http.StatusServiceUnavailable, "ClickHouse cannot answer now; see the server's log")
		return
	}
	c.JSON(http.StatusOK, gin.H{"unpriced": out})
}

// unpriced is a model that was seen and has no price.
type unpriced struct {
	Tenant   string   `json:"tenant"`
	Provider string   `json:"provider"`
	Model    string   `json:"model"`
	Calls    int64    `json:"calls"`
	Nearest  []string `json:"nearest"` // names that have a price and look most like it
	Known    bool     `json:"price_exists_now"`
}
