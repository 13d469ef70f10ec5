package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/ingest"
)

// reprice prices calls again with the prices of now and posts corrections, or
// shows what they would change.
func (a *App) reprice(c *gin.Context) {
	var in ingest.Repricing
	if err := c.ShouldBindJSON(&in); err != nil || in.Since.IsZero() {
		c.JSON(http.StatusBadRequest, gin.H{"detail": "want {\"since\":\"2026-11-29T00:00:00Z\",\"dry_run\":true}, optionally tenant and model"})
		return
	}
	conn := a.conn()
	if conn == nil {
		c.JSON(http.StatusServiceUnavailable, gin.H{"detail": "ClickHouse is not up yet; see /readyz"})
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), time.Hour)
	defer cancel()
	out, err := a.pipeline.Reprice(ctx, conn, in)
	switch {
	case errors.Is(err, ingest.ErrRepricing):
		c.JSON(http.StatusConflict, gin.H{"detail": err.Error()})
	case err != nil:
		a.log.Error("reprice stopped", "err", err, "entries", out.Entries)
		c.JSON(http.StatusServiceUnavailable, gin.H{"detail": fmt.Sprintf("stopped after %d entries: %v; what was posted holds, and the same request goes on from there", out.Entries, err)})
	default:
		c.JSON(http.StatusOK, out)
	}
}
