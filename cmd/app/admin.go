package app

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
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
	r.POST("/api/v1/adjust", a.adjust) // by a key for that tenant
	g.POST("/reload", func(c *gin.Context) {
		if err := a.Reload(); err != nil {
			c.JSON(http.StatusBadRequest, gin.H{"detail": err.Error()})
			return
		}
		c.JSON(http.StatusOK, gin.H{"status": "reloaded"})
	})
}

// authorizeAdmin guards operator questions and changes.
func (a *App) authorizeAdmin(r *http.Request) error {
	key, err := a.keys.Load().Require(r)
	if err == nil && !key.AllowsAll() {
		err = fmt.Errorf("key %s is not for every tenant; this needs one with tenants: \"*\"", key.Name)
	}
	return err
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
