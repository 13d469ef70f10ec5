package console

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gin-gonic/gin"
)

func TestMount(t *testing.T) {
	page := "<!doctype html>" + strings.Repeat("<p>flyball</p>", 100)
	r := gin.New()
	err := Mount(r, fstest.MapFS{".keep": {}, "index.html": {Data: []byte(page)}, "favicon.svg": {Data: []byte("<svg/>")}, "assets/index-abc.js": {Data: []byte("void 0")}})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path, encoding string) *http.Response {
		t.Helper()
		req := httptest.NewRequest(http.MethodGet, path, nil)
		req.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		return w.Result()
	}
	f := func(path, kind, cache string) {
		t.Helper()
		res := get(path, "")
		h := res.Header
		if res.StatusCode != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), kind) || !strings.Contains(h.Get("Cache-Control"), cache) {
			t.Errorf("%s: %s %v", path, res.Status, h)
		}
		csp := h.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'self'") || strings.Contains(csp, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, h)
		}
	}
	f("/", "text/html", "no-cache")
	f("/favicon.svg", "image/svg+xml", "no-cache")
	f("/assets/index-abc.js", "text/javascript", "immutable")
	for _, path := range []string{"/.keep", "/index.html", "/assets/", "/assets/other.js"} {
		if res := get(path, ""); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	res := get("/", "gzip, br")
	if res.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("not compressed: %v", res.Header)
	}
	z, err := gzip.NewReader(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(z); err != nil || string(b) != page {
		t.Errorf("what was compressed is another page: %v %.40s", err, b)
	}
	if res := get("/favicon.svg", "gzip"); res.Header.Get("Content-Encoding") != "" {
		t.Error("a file that only grows is compressed")
	}
}
