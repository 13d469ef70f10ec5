package query

import (
	"bytes"
	"context"
	_ "embed"
	"html/template"
	"net/http"
	"net/url"

	"github.com/gin-gonic/gin"
)

//go:embed page.html
var pageText string

// pathEscape is for run ids, which may hold what ends a path.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"pathEscape": url.PathEscape}).Parse(pageText))

// Setup is what the page at / tells somebody whose agents send nothing yet.
type Setup struct{ GRPC, HTTP string }

// MountPage adds the plain page at /: the latest runs and spend, or what to set
// in an agent.
func (a *API) MountPage(r gin.IRouter, s Setup) {
	r.GET("/", func(c *gin.Context) {
		data := gin.H{"Setup": s}
		q, err := a.open(c, limits{50, 50}, nil)
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
		c.Header("Cache-Control", "no-store")
		c.Data(http.StatusOK, "text/html; charset=utf-8", page.Bytes())
	})
}
