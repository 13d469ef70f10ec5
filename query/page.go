package query

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/query/console"
)

//go:embed page.html
var pageText string

// pathEscape is for run ids, which may hold what ends a path.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"pathEscape": url.PathEscape}).Parse(pageText))

// Setup is what the pages need beside the API.
type Setup struct {
	GRPC, HTTP string // where agents send, for somebody whose agents send nothing yet
	Console    fs.FS  // the built console, nil where this binary has none
}

// MountPage adds the console at /, and the plain page at /plain, which needs no script:
// the latest runs and spend, or what to set in an agent. In a binary without a console
// the plain page is at / as well, and says how to build one.
func (a *API) MountPage(r gin.IRouter, s Setup) error {
	r.GET("/plain", func(c *gin.Context) { a.page(c, s, false) })
	if s.Console == nil {
		r.GET("/", func(c *gin.Context) { a.page(c, s, true) })
		return nil
	}
	if err := console.Mount(r, s.Console); err != nil {
		return fmt.Errorf("mount console: %w", err)
	}
	return nil
}

func (a *API) page(c *gin.Context, s Setup, instead bool) {
	data := gin.H{"Setup": s, "Instead": instead}
	q, err := a.open(c, limits{usual: 50, most: 50}, nil)
	switch {
	case err == nil:
		ctx, cancel := context.WithTimeout(c.Request.Context(), queryLimit)
		defer cancel()
		if data["Runs"], err = a.runs(ctx, q); err == nil {
			data["Spend"], err = a.spend(ctx, q)
		}
	case explain(err).status == http.StatusServiceUnavailable:
		data["Waiting"], err = true, nil
	}
	var page bytes.Buffer
	if err == nil {
		err = pageTemplate.Execute(&page, data)
	}
	if err != nil {
		a.fail(c, err)
		return
	}
	c.Header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	c.Header("X-Content-Type-Options", "nosniff")
	c.Header("Cache-Control", "no-store")
	c.Data(http.StatusOK, "text/html; charset=utf-8", page.Bytes())
}
