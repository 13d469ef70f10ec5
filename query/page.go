package query

import (
	_ "embed"
	"html/template"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// Setup is what the page at / tells somebody whose agents send nothing yet.
type Setup struct{ GRPC, HTTP string }

// MountPage adds the plain page at /: the latest runs and spend, or what to set
// in an agent.
func (a *API) MountPage(r gin.IRouter, s Setup) {
	r.GET("/", func(c *gin.Context) {
		req, err := a.authorize(c.Request)
		if err != nil {
			fail(c, err)
			return
		}
		req.Context, req.limit, req.zone = c, 50, time.UTC
		req.from, req.to = time.Now().Add(-24*time.Hour), time.Now().Add(15*time.Minute)
		data := gin.H{"Setup": s}
		if a.o.Conn() == nil {
			data["Waiting"] = true
		} else {
			for name, f := range map[string]func(*request) (any, error){
				"Runs":  func(q *request) (any, error) { return a.runs(c.Request.Context(), q) },
				"Spend": func(q *request) (any, error) { return a.spend(c.Request.Context(), q) },
			} {
				q := req
				answer, err := f(&q)
				if err != nil {
					fail(c, err)
					return
				}
				data[name] = answer
			}
		}
		c.Header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		c.Header("Content-Type", "text/html; charset=utf-8")
		c.Status(http.StatusOK)
		if err := pageTemplate.Execute(c.Writer, data); err != nil {
			a.o.Logger.Error("write page", "err", err)
		}
	})
}
