package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/schema"
)

func upper(s string) string { return strings.ToUpper(s) }

// mountAdmin adds what changes state, and what needs the pricer.
func (a *App) mountAdmin(r gin.IRouter) {
	g := r.Group("/api/v1", func(c *gin.Context) {
		if err := a.authorizeAdmin(c.Request); err != nil {
			c.Header("Content-Type", "application/problem+json")
			c.AbortWithStatusJSON(http.StatusForbidden, gin.H{"status": http.StatusForbidden, "detail": err.Error()})
		}
	})
	g.GET("/prices", func(c *gin.Context) {
		cat := a.pricer.Catalogue()
		c.JSON(http.StatusOK, gin.H{"origins": cat.Origins, "rejected": *a.rejected.Load(), "prices": cat.List(c.Query("provider"))})
	})
	g.GET("/prices/check", a.pricesCheck)
	g.POST("/reprice", a.reprice)
	g.POST("/reload", func(c *gin.Context) {
		if err := a.Reload(); err != nil {
			c.JSON(http.StatusBadRequest, gin.H{"detail": err.Error()})
			return
		}
		c.JSON(http.StatusOK, gin.H{"status": "reloaded"})
	})
}

// authorizeAdmin guards operator questions and changes. Without keys the caller
// must be this machine, and a change must not come from a foreign web page.
func (a *App) authorizeAdmin(r *http.Request) error {
	ring := a.keys.Load()
	if ring.Len() > 0 {
		secret, _ := schema.BearerToken(r.Header.Get("Authorization"))
		key, ok := ring.Lookup(secret, time.Now())
		if !ok || key.Role != schema.KeyAdmin || !key.AllowsAll() {
			return fmt.Errorf("send a key with role admin and tenants: \"*\"")
		}
		return nil
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !loopback(host) {
		return fmt.Errorf("no keys are configured, so only this machine is served")
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if h, _, err := net.SplitHostPort(r.Host); err != nil && !loopback(r.Host) || err == nil && !loopback(h) {
		return fmt.Errorf("the Host header %q is not this machine", r.Host)
	}
	if o := r.Header.Get("Origin"); o != "" {
		if u, err := url.Parse(o); err != nil || u.Host != r.Host {
			return fmt.Errorf("changes are not taken from the origin %s", o)
		}
	}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return fmt.Errorf("send Content-Type: application/json")
	}
	return nil
}

// pricesCheck lists models that were seen and have no price, with names that look
// like them, and says for how many of their calls a price exists now.
func (a *App) pricesCheck(c *gin.Context) {
	conn := a.conn()
	if conn == nil {
		c.JSON(http.StatusServiceUnavailable, gin.H{"detail": "ClickHouse is not up yet; see /readyz"})
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), 30*time.Second)
	defer cancel()
	rows, err := conn.Query(ctx, "SELECT tenant, provider, model, sum(unpriced) AS n FROM spend_15m WHERE cost_status = 'unpriced' GROUP BY tenant, provider, model HAVING n > 0 ORDER BY n DESC LIMIT 1000")
	if err != nil {
		c.JSON(http.StatusInternalServerError, gin.H{"detail": err.Error()})
		return
	}
	defer rows.Close()
	cat := a.pricer.Catalogue()
	out := []gin.H{}
	for rows.Next() {
		var tenant, provider, model string
		var n int64
		if err := rows.Scan(&tenant, &provider, &model, &n); err != nil {
			c.JSON(http.StatusInternalServerError, gin.H{"detail": err.Error()})
			return
		}
		out = append(out, gin.H{"tenant": tenant, "provider": provider, "model": model, "calls": n, "nearest": cat.Nearest(provider, model, 3), "price_exists_now": cat.Known(tenant, provider, model)})
	}
	c.JSON(http.StatusOK, gin.H{"unpriced": out})
}
