package engine

import (
	"io"
	"net/http"
	"net/url"
	"strings"
)

type reply struct {
	status int
	body   string
	header http.Header
}

func queryEscape(s string) string { return url.QueryEscape(s) }

// post sends to the private path of the child, as the driver does.
func post(e *Engine, path, body string) (reply, error) {
	c := &http.Client{Transport: &http.Transport{DialContext: e.super.dial, DisableKeepAlives: true}}
	return read(c.Post("http://engine"+path, "application/octet-stream", strings.NewReader(body)))
}

func read(r *http.Response, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return reply{r.StatusCode, string(b), r.Header}, err
}
