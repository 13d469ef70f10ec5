package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/flyball/flyball/cmd/app"
)

// global are the flags of every verb.
type global struct {
	server, config, key string
	json                bool
}

// base is the URL of the running server.
func (g *global) base() (string, error) {
	if g.server != "" {
		if !strings.Contains(g.server, "://") {
			return "http://" + g.server, nil
		}
		return strings.TrimRight(g.server, "/"), nil
	}
	cfg, err := app.LoadConfig(g.config, os.Environ())
	if err != nil {
		return "", err
	}
	if cfg.Listen.HTTP == "" {
		return "", errors.New("listen.http is off; name the server with --server URL")
	}
	scheme := "http"
	if cfg.TLS.Cert != "" {
		scheme = "https"
	}
	return scheme + "://" + cfg.Listen.HTTP, nil
}

// upload is a body that is sent as it is.
type upload struct {
	typ  string
	data io.Reader
}

// call sends one request and returns the body of a success.
func (g *global) call(ctx context.Context, method, path string, query url.Values, body any) ([]byte, error) {
	resp, err := g.send(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", path, err)
	}
	return data, nil
}

// send sends one request and returns a success, whose body the caller closes.
func (g *global) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	base, err := g.base()
	if err != nil {
		return nil, err
	}
	var rd io.Reader
	typ := "application/json"
	switch b := body.(type) {
	case nil:
	case upload:
		rd, typ = b.data, b.typ
	default:
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		rd = bytes.NewReader(text)
	}
	u := base + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, rd)
	if err != nil {
		return nil, usageError{err}
	}
	if body != nil {
		req.Header.Set("Content-Type", typ)
	}
	if g.key != "" {
		req.Header.Set("Authorization", "Bearer "+g.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no server answers at %s (%w); start one with `flyball serve` or name it with --server", base, errors.Unwrap(err))
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("read answer of %s: %w", base, err)
		}
		var p struct {
			Detail string `json:"detail"`
		}
		if json.Unmarshal(data, &p) != nil || p.Detail == "" {
			p.Detail = strings.TrimSpace(string(data))
		}
		return nil, fmt.Errorf("%s: %s", resp.Status, p.Detail)
	}
	return resp, nil
}

// filters are the flags of every question.
type filters struct {
	given                                       func(flag string) bool
	from, to, groupBy, interval, asOf, currency string
	tenants, where                              []string
	limit                                       int
	csv                                         bool
}

func (f *filters) flags(c *cobra.Command, group string) {
	fl := c.Flags()
	f.given = fl.Changed
	fl.StringVar(&f.from, "from", "", "start: RFC 3339, a date, month or last-month (default: 24 hours ago)")
	fl.StringVar(&f.to, "to", "", "end, exclusive")
	fl.StringArrayVar(&f.tenants, "tenant", nil, "`tenant` (repeatable)")
	fl.StringArrayVar(&f.where, "where", nil, "`dimension=value` (repeatable, for each dimension once)")
	fl.IntVar(&f.limit, "limit", 0, "rows at the most")
	fl.BoolVar(&f.csv, "csv", false, "print CSV: every row, unless --limit says less")
	if group != "" {
		fl.StringVar(&f.groupBy, "by", group, "dimensions, comma-separated")
	}
}

// known adds the flag of questions about what was known at a time.
func (f *filters) known(c *cobra.Command) {
	c.Flags().StringVar(&f.asOf, "as-of", "", "what was known at the end of a UTC day, or before an instant")
}

// converted adds the flag of questions that other currencies have.
func (f *filters) converted(c *cobra.Command) {
	c.Flags().StringVar(&f.currency, "currency", "", "also in this currency, at the rates of fx.files")
}

// query passes on every flag that was given. What is wrong with a value, the server says:
// one that was left out here would be answered for all.
func (f *filters) query() (url.Values, error) {
	q := url.Values{}
	for _, p := range []struct{ name, flag, value string }{{"from", "from", f.from}, {"to", "to", f.to}, {"group_by", "by", f.groupBy}, {"interval", "interval", f.interval},
		{"as_of", "as-of", f.asOf}, {"currency", "currency", f.currency}, {"limit", "limit", strconv.Itoa(f.limit)}} {
		if f.given(p.flag) || p.name == "group_by" && p.value != "" {
			q.Set(p.name, p.value)
		}
	}
	q["tenant"] = f.tenants
	if f.csv {
		q.Set("format", "csv")
	}
	for _, w := range f.where {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			return nil, usageError{fmt.Errorf("--where %q: want dimension=value", w)}
		}
		q.Add(k, v)
	}
	return q, nil
}

// ask gets a question's answer and prints it as JSON or by f.
func (g *global) ask(cmd *cobra.Command, path string, q url.Values, f func(w io.Writer, data map[string]any) error) error {
	if q.Get("format") == "csv" {
		return g.file(cmd, path, q)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
	defer cancel()
	data, err := g.call(ctx, http.MethodGet, path, q, nil)
	if err != nil {
		return err
	}
	return g.show(cmd, data, f)
}

// show prints an answer as JSON or by f, numbers as they stand.
func (g *global) show(cmd *cobra.Command, data []byte, f func(w io.Writer, data map[string]any) error) error {
	if g.json {
		_, err := cmd.OutOrStdout().Write(append(bytes.TrimSpace(data), '\n'))
		return err
	}
	var m map[string]any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&m); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if err := f(cmd.OutOrStdout(), m); err != nil {
		return err
	}
	if cmd.Flags().Lookup("limit") != nil && (m["truncated"] == true || cell(m["next"]) != "-") {
		more := "--limit N prints up to N of them"
		if cmd.Flags().Lookup("csv") != nil {
			more += ", --csv all"
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "there are more rows: "+more)
	}
	return nil
}

func rowsOf(data map[string]any, name string) []map[string]any {
	list, _ := data[name].([]any)
	out := make([]map[string]any, 0, len(list))
	for _, r := range list {
		if m, ok := r.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// table prints rows under the given columns, "title=field".
func table(w io.Writer, rows []map[string]any, columns ...string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, c := range columns {
		title, _, _ := strings.Cut(c, "=")
		if i > 0 {
			fmt.Fprint(tw, "\t")
		}
		fmt.Fprint(tw, strings.ToUpper(title))
	}
	fmt.Fprintln(tw)
	for _, r := range rows {
		for i, c := range columns {
			title, field, ok := strings.Cut(c, "=")
			if !ok {
				field = title
			}
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, cell(r[field]))
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if v == "" {
			return "-"
		}
		// Names come from outside, and a terminal obeys what is in them.
		if strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) }) {
			v = strconv.QuoteToGraphic(v)
		}
		return v
	case json.Number:
		s := v.String()
		if i := strings.IndexByte(s, '.'); i >= 0 && len(s) > i+3 {
			return s[:i+3]
		}
		return s
	}
	return fmt.Sprint(v)
}
