package app

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/ingest"
	"github.com/flyball/flyball/schema"
)

// reprice prices calls again with the prices of now and posts corrections, or
// shows what they would change.
func (a *App) reprice(c *gin.Context) {
	var in ingest.Repricing
	const want = `want {"since":"2026-11-29T00:00:00Z","dry_run":true}, optionally tenant and model`
	if err := schema.ReadBody(c.Writer, c.Request, &in); err != nil {
		problem(c, http.StatusBadRequest, "%v; "+want, err)
		return
	}
	// What ClickHouse's times can hold.
	if y := in.Since.Year(); y < 1971 || y > 2105 {
		problem(c, http.StatusBadRequest, "since has to be from 1971 to 2105; "+want)
		return
	}
	conn := a.conn()
	if conn == nil {
		problem(c, http.StatusServiceUnavailable, "ClickHouse is not up yet; see /readyz")
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), time.Hour)
	defer cancel()
	out, err := a.pipeline.Reprice(ctx, conn, in)
	switch {
	case errors.Is(err, ingest.ErrRepricing):
		problem(c, http.StatusConflict, "%v", err)
	case err != nil:
		a.log.Error("reprice stopped", "err", err, "entries", out.Entries)
		problem(c, http.StatusServiceUnavailable, "stopped after %d entries: %v; what was posted holds, and the same request goes on from there", out.Entries, err)
	default:
		c.JSON(http.StatusOK, out)
	}
}
