package query

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// parquet lets the engine write the rows of a sheet. They pass through a table in
// memory, which is dropped afterwards; one that a crash left is dropped by the next
// export of a later hour.
func (a *API) parquet(ctx context.Context, s *sheet) ([]byte, error) {
	conn := a.o.Write()
	rows, err := conn.Query(ctx, "SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE 'export\\_%' AND engine = 'Memory' AND metadata_modification_time < now() - INTERVAL 1 HOUR")
	if err != nil {
		return nil, fmt.Errorf("list old exports: %w", err)
	}
	var old []string
	if err := scan(rows, func(get func(string) any) { old = append(old, get("name").(string)) }); err != nil {
		return nil, fmt.Errorf("list old exports: %w", err)
	}
	for _, name := range old {
		if err := conn.Exec(ctx, "DROP TABLE IF EXISTS `"+name+"`"); err != nil {
			return nil, fmt.Errorf("drop old export: %w", err)
		}
	}
	name := "export_" + strings.ToLower(rand.Text())
	if err := conn.Exec(ctx, "CREATE TABLE "+name+" (n UInt32, cells Array(Nullable(String))) ENGINE = Memory"); err != nil {
		return nil, fmt.Errorf("create export: %w", err)
	}
	defer func() {
		if err := conn.Exec(context.WithoutCancel(ctx), "DROP TABLE "+name); err != nil {
			a.o.Logger.Warn("drop export", "table", name, "err", err)
		}
	}()
	if len(s.rows) > 0 {
		batch, err := conn.PrepareBatch(ctx, "INSERT INTO "+name)
		if err != nil {
			return nil, fmt.Errorf("prepare export: %w", err)
		}
		defer func() { _ = batch.Close() }()
		for i, r := range s.rows {
			if err := batch.Append(uint32(i), s.cells(r)); err != nil {
				return nil, fmt.Errorf("append export row: %w", err)
			}
		}
		if err := batch.Send(); err != nil {
			return nil, fmt.Errorf("insert %d export rows: %w", len(s.rows), err)
		}
	}
	columns := make([]string, len(focusColumns))
	for i, c := range focusColumns {
		v := fmt.Sprintf("cells[%d]", i+1)
		switch c.typ {
		case focusDecimal:
			v = "toDecimal128OrNull(" + v + ", 18)"
		case focusCount:
			v = "assumeNotNull(toInt64OrNull(" + v + "))"
		case focusTime:
			v = "assumeNotNull(parseDateTimeBestEffortOrNull(" + v + ", 'UTC'))"
		}
		columns[i] = v + " AS " + c.name
	}
	sql := "SELECT " + strings.Join(columns, ", ") + " FROM " + name + " ORDER BY n"
	q := url.Values{"default_format": {"Parquet"}, "max_result_bytes": {"1073741824"}, "output_format_parquet_string_as_string": {"1"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "/?"+q.Encode(), strings.NewReader(sql))
	if err != nil {
		return nil, fmt.Errorf("ask for Parquet: %w", err)
	}
	w := recorder{header: http.Header{}, code: http.StatusOK}
	a.o.SQL.ServeHTTP(&w, req)
	if w.code == http.StatusNotImplemented {
		return nil, problem{w.code, "the embedded engine writes Parquet, and there is none; ask for format=csv"}
	}
	if w.code != http.StatusOK {
		return nil, fmt.Errorf("write Parquet: %d %.500s", w.code, w.body.String())
	}
	return w.body.Bytes(), nil
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
