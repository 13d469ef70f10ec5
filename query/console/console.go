// Package console is the web app at /: spend, runs, guards, the kill switch, coverage
// and limiters in a browser, over the HTTP API that scripts use too.
//
// It guarantees that the server keeps nothing for it and that its pages load and
// connect to nothing but this server: a strict Content-Security-Policy goes with every
// file. The files hold no data, so they are served without a key; the app asks for one
// where the API does, and keeps it in the tab. It is built by npm (`make console`) into
// dist, which is embedded; a binary that was built without it has no console and says so.
package console

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/gin-gonic/gin"
)

// dist always holds one committed file, so that the package compiles before a build.
//
//go:embed all:dist
var dist embed.FS

// Files are the console's, as this binary was built; nil without a built console.
func Files() fs.FS {
	if _, err := dist.Open("dist/index.html"); err != nil {
		return nil
	}
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic("BUG: dist is no directory: " + err.Error())
	}
	return files
}

// policy lets the pages load and ask only what this server has, run no inline script,
// apply no inline style, and make no script or markup out of text.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// file is one file of the console as it is sent.
type file struct {
	kind         string // content type
	cache        string
	plain, small []byte // small is gzipped, nil where that saves nothing
}

// Mount serves the console's files: index.html at /, everything else under its name.
// Files below assets carry a hash of their content in their name and are kept by
// browsers for good.
func Mount(r gin.IRouter, files fs.FS) error {
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		body, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		f := file{kind: mime.TypeByExtension(path.Ext(name)), cache: "no-cache", plain: body}
		if f.kind == "" {
			f.kind = "text/plain; charset=utf-8"
		}
		if strings.HasPrefix(name, "assets/") {
			f.cache = "public, max-age=31536000, immutable"
		}
		if f.small, err = compress(body); err != nil {
			return fmt.Errorf("compress %s: %w", name, err)
		}
		at := "/" + name
		if name == "index.html" {
			at = "/"
		}
		r.GET(at, f.serve)
		r.HEAD(at, f.serve)
		return nil
	})
}

func compress(body []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if b.Len() >= len(body) {
		return nil, nil
	}
	return b.Bytes(), nil
}

func (f *file) serve(c *gin.Context) {
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", f.cache)
	body := f.plain
	if f.small != nil {
		h.Set("Vary", "Accept-Encoding")
		if strings.Contains(c.GetHeader("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			body = f.small
		}
	}
	c.Data(http.StatusOK, f.kind, body)
}
