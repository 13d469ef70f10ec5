package query

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flyball/flyball/schema"
)

// form reads how the answer is wanted: format, else the Accept header.
func (r *request) form() error {
	switch v, ok := r.GetQuery("format"); {
	case v == "csv":
		r.csv = true
	case v == "json":
	case ok:
		return badRequest("format %q: want json or csv", v)
	case r.GetHeader("Accept") != "":
		r.csv = r.NegotiateFormat("application/json", "text/csv") == "text/csv"
	}
	return nil
}

// tokenColumns are the token counts of a row.
func tokenColumns() []string {
	out := make([]string, len(schema.TokenNames))
	for i, n := range schema.TokenNames {
		out[i] = "tokens." + n
	}
	return out
}

// writeCSV answers the rows of an answer as a file with a header. That it is not
// all stands in the headers: X-Flyball-Truncated, and where the next page is in Link.
func (a *API) writeCSV(r *request, answer row) {
	rows, ok := answer["rows"].([]row)
	if !ok {
		rows = answer["calls"].([]row)
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	head := make([]string, len(r.columns))
	for i, c := range r.columns {
		head[i] = strings.ReplaceAll(c, ".", "_")
	}
	_ = w.Write(head) // into memory
	cells := make([]string, len(r.columns))
	for _, m := range rows {
		for i, c := range r.columns {
			object, name, nested := strings.Cut(c, ".")
			v := m[object]
			if nested {
				of, _ := v.(row) // null has no fields
				v = of[name]
			}
			cells[i] = csvCell(v)
		}
		_ = w.Write(cells)
	}
	w.Flush()
	next, _ := answer["next"].(string)
	if next != "" {
		u := url.URL{Path: r.Request.URL.Path}
		q := r.Request.URL.Query()
		q.Set("cursor", next)
		u.RawQuery = q.Encode()
		r.Header("Link", "<"+u.String()+">; rel=\"next\"")
	}
	r.Header("X-Flyball-Truncated", strconv.FormatBool(next != ""))
	r.Header("X-Content-Type-Options", "nosniff")
	name := strings.ReplaceAll(strings.TrimPrefix(r.Request.URL.Path, "/api/v1/"), "/", "-")
	r.Header("Content-Disposition", `attachment; filename="flyball-`+name+`.csv"`)
	r.Data(http.StatusOK, "text/csv; charset=utf-8; header=present", b.Bytes())
}

// number is a text that a spreadsheet reads as a number.
var number = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// csvCell prints a value; null and "" are an empty cell. Names come from outside:
// one that a spreadsheet would run as a formula gets an apostrophe in front.
func csvCell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if first, _ := utf8.DecodeRuneInString(v); v != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", first) && !number.MatchString(v) {
			return "'" + v
		}
		return v
	case []string:
		return csvCell(strings.Join(v, " "))
	case float64:
		b, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		return string(b)
	}
	return fmt.Sprint(v)
}
