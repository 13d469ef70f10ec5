package engine

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Limits of the child's HTTP interface.
const (
	readLimit   = 2 * time.Minute  // one read, also of the public gate
	writeLimit  = 10 * time.Minute // one INSERT
	adminLimit  = time.Hour        // anything else on the private path: ALTER, BACKUP, OPTIMIZE
	stallLimit  = 30 * time.Second // a reader that takes no bytes loses its session
	sqlLimit    = 64 << 20         // bytes of SQL on the private path (inline VALUES)
	readSQL     = 1 << 20          // bytes of SQL on the read path
	bufferLimit = 64 << 20         // bytes of an answer in a format that cannot be streamed
	insertChunk = 256 << 10        // bytes of one append
)

// Paths of the child's HTTP interface. Nothing else tells full power from
// read-only, so the parent sets the path itself on what it forwards.
const (
	pathFull = "/"
	pathRead = "/read"
)

func (e *host) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ping", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "Ok.\n") })
	mux.HandleFunc(pathRead, func(w http.ResponseWriter, r *http.Request) { e.serve(w, r, true) })
	mux.HandleFunc(pathFull+"{$}", func(w http.ResponseWriter, r *http.Request) { e.serve(w, r, false) })
	return mux
}

// request is one statement with everything the URL said about it.
type request struct {
	sql      string
	data     io.Reader // rows of an INSERT, nil if there are none apart from sql
	database string
	format   string // the FORMAT clause, else default_format
	settings map[string]string
	params   []param
	readOnly bool

	protocol bool            // it named a client_protocol_version
	compress compress.Method // framed blocks in the answer
	gzip     bool            // Content-Encoding of the answer
	buffered bool            // wait_end_of_query
}

func (e *host) serve(w http.ResponseWriter, r *http.Request, readOnly bool) {
	out := &answer{w: w, ctl: http.NewResponseController(w)}
	defer func() {
		if p := recover(); p != nil {
			e.logf("panic: serve statement: %v\n%s", p, debug.Stack())
			out.fail(exception(1001, "STD_EXCEPTION", "internal error: %v", p))
		}
	}()
	h := w.Header()
	h.Set("X-ClickHouse-Server-Display-Name", "flyball")
	h.Set("X-ClickHouse-Timezone", e.timezone)
	if r.Method == http.MethodGet && r.URL.Query().Get("query") == "" {
		_, _ = io.WriteString(w, "Ok.\n")
		return
	}
	q, err := e.parse(r, readOnly)
	if err == nil {
		out.q = q
		err = e.run(r.Context(), out, q)
	}
	if err != nil {
		out.fail(err)
		return
	}
	if err := out.close(); err != nil {
		e.logf("write answer: %v", err)
	}
}

// run chooses the pool, and the way a statement is run.
func (e *host) run(ctx context.Context, out *answer, q *request) error {
	if strings.TrimSpace(q.sql) == helloQuery {
		out.start("Native")
		return out.write(helloBlock(q.protocol, e.version, e.timezone))
	}
	if q.readOnly {
		return e.withSession(ctx, e.read, readLimit, q, func(ctx context.Context, s *session) error {
			count, class, err := s.classify(q.sql, q.database)
			switch {
			case err != nil:
				return exception(62, "SYNTAX_ERROR", "%v", err)
			case count == 0:
				return e.explainSyntax(s, q.sql)
			case count != 1:
				return exception(497, "ACCESS_DENIED", "Read-only interface: one statement a request, got %d", count)
			case class != classReadOnly:
				return exception(164, "READONLY", "Read-only interface: only statements that read are allowed")
			}
			if !e.confined {
				if err := checkWords(s, q); err != nil {
					return err
				}
			}
			return e.answer(ctx, out, s, q)
		})
	}
	if insertRe.MatchString(q.sql) {
		if q.data != nil {
			return e.withSession(ctx, e.write, writeLimit, q, func(ctx context.Context, s *session) error {
				return e.insert(ctx, out, s, q)
			})
		}
		return e.withSession(ctx, e.write, writeLimit, q, func(ctx context.Context, s *session) error {
			return e.answer(ctx, out, s, q)
		})
	}
	return e.withSession(ctx, e.admin, adminLimit, q, func(ctx context.Context, s *session) error {
		_, class, err := s.classify(q.sql, q.database)
		// SET, USE and their like change the session itself.
		s.broken = s.broken || err != nil || class == classControl
		return e.answer(ctx, out, s, q)
	})
}

// explainSyntax is the engine's error for SQL that is no statement.
func (e *host) explainSyntax(s *session, sql string) error {
	_, err := s.text("SELECT formatQuery("+quoteText(sql)+")", nil)
	if err == nil {
		err = exception(62, "SYNTAX_ERROR", "Syntax error: not a statement")
	}
	return err
}

// reaching are the words that reach beyond the store without a right of their
// own: file() reads any file; the others evaluate text as SQL.
var reaching = regexp.MustCompile(`(?i)\b(file|eval|additional_table_filters|additional_result_filter)\b`)

// checkWords is the second-best protection, for kernels without Landlock. It
// looks at the statement as the engine prints it, so that no spelling of a
// name escapes; a string that contains such a word is refused too.
func checkWords(s *session, q *request) error {
	printed, err := s.text("SELECT formatQuerySingleLine("+quoteText(q.sql)+")", nil)
	if err != nil {
		return err
	}
	texts := []string{printed}
	for k, v := range q.settings {
		texts = append(texts, k, v)
	}
	for _, p := range q.params {
		texts = append(texts, p.value)
	}
	for _, t := range texts {
		if w := reaching.FindString(t); w != "" {
			return exception(446, "FUNCTION_NOT_ALLOWED", "Read-only interface: %s is not allowed", w)
		}
	}
	return nil
}

// withSession runs f with a prepared session, which is killed when ctx ends.
func (e *host) withSession(ctx context.Context, p *pool, limit time.Duration, q *request, f func(context.Context, *session) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := p.get(ctx)
	if err != nil {
		return err
	}
	defer p.put(s)
	clean := false
	defer func() {
		if !clean { // a panic: nobody knows what the session is in the middle of
			s.broken = true
		}
	}()
	if err = s.prepare(q.database, q.settings); err == nil {
		stop := e.watch(ctx, s)
		func() {
			defer stop()
			err = f(ctx, s)
		}()
	}
	clean = true
	return err
}

// streamed formats have no prologue, so chunks can be joined.
var streamed = []string{"Native", "TabSeparated", "TSV", "TabSeparatedRaw", "TSVRaw", "JSONEachRow", "JSONLines", "NDJSON", "RowBinary", "CSV", "LineAsString"}

// answer runs a statement that needs no data and writes what it gives.
func (e *host) answer(ctx context.Context, out *answer, s *session, q *request) error {
	format := q.format
	if q.buffered || !selectRe.MatchString(q.sql) || !slices.Contains(streamed, format) {
		r, err := s.query(q.sql, format, q.params)
		if err != nil {
			return err
		}
		defer r.destroy()
		b := r.bytes()
		if len(b) == 0 {
			return e.empty(out, s, q)
		}
		out.start(format)
		return out.write(b)
	}
	stream, err := s.stream(q.sql, format, q.params)
	if err != nil {
		return err
	}
	ended := false
	defer func() {
		if !ended {
			// The connection would keep the statement, and its tables in use,
			// until its next one.
			s.cancel(stream)
			s.broken = true
		}
		stream.destroy()
	}()
	for first := true; ; first = false {
		chunk, err := s.fetch(stream)
		if err != nil {
			ended, s.broken = true, true // for the same reason
			return err
		}
		b := chunk.bytes()
		if len(b) == 0 {
			chunk.destroy()
			if err := ctx.Err(); err != nil { // a killed statement ends without an error
				return exception(394, "QUERY_WAS_CANCELLED", "Query was cancelled: %v", err)
			}
			ended = true
			if first {
				return e.empty(out, s, q)
			}
			return nil
		}
		if first {
			out.start(format)
		}
		err = out.write(b)
		chunk.destroy()
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return exception(394, "QUERY_WAS_CANCELLED", "Query was cancelled: %v", err)
		}
	}
}

// empty answers a statement that gave no bytes. A server sends a Native header
// block for a SELECT without rows, the library does not, and a client then
// sees no columns; so they are asked for.
func (e *host) empty(out *answer, s *session, q *request) error {
	if q.format != "Native" || !selectRe.MatchString(q.sql) {
		out.w.Header().Set("Content-Length", "0")
		return nil
	}
	text, err := s.text("DESCRIBE TABLE ("+strings.TrimRight(q.sql, "; \t\r\n")+"\n)", q.params)
	if err != nil {
		out.w.Header().Set("Content-Length", "0")
		return nil // a FORMAT or INTO clause: no header is what the library gave
	}
	var columns []column
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) < 2 {
			continue
		}
		columns = append(columns, column{unescapeTSV.Replace(f[0]), unescapeTSV.Replace(f[1])})
	}
	out.start("Native")
	return out.write(headerBlock(columns))
}

var unescapeTSV = strings.NewReplacer(`\\`, `\`, `\'`, `'`, `\n`, "\n", `\t`, "\t")

// insert feeds the rows of the request's body to the engine. Anything that
// ends the body early aborts the INSERT: half a batch is never written.
func (e *host) insert(ctx context.Context, out *answer, s *session, q *request) (err error) {
	sql, format := q.sql, q.format
	if m := formatRe.FindStringSubmatchIndex(sql); m != nil {
		sql, format = sql[:m[0]], sql[m[2]:m[3]]
	} else if m := valuesRe.FindStringIndex(sql); m != nil {
		sql, format = sql[:m[0]], "Values"
	}
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)

	// The first bytes before the INSERT: a driver that cannot encode a block
	// sends an empty body, which must not count as success.
	n, err := readChunk(q.data, *buf)
	if n == 0 {
		if err != nil && err != io.EOF {
			return bodyError(err)
		}
		return exception(108, "NO_DATA_TO_INSERT", "No data to insert: the body of the request is empty")
	}
	in, ierr := s.insert(sql, format, q.params)
	if ierr != nil {
		return ierr
	}
	ended := false
	defer func() {
		if !ended {
			in.abort()
		}
		// After a failed INSERT the connection keeps the table in use until it
		// is closed, and DROP TABLE … SYNC would wait for that.
		s.broken = s.broken || err != nil
	}()
	for {
		if n > 0 {
			if err := in.append((*buf)[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return bodyError(err)
		}
		if err := ctx.Err(); err != nil {
			return exception(394, "QUERY_WAS_CANCELLED", "INSERT was cancelled: %v", err)
		}
		n, err = readChunk(q.data, *buf)
	}
	ended = true
	rows, err := in.commit()
	if err != nil {
		return err
	}
	out.w.Header().Set("X-ClickHouse-Summary", fmt.Sprintf(`{"written_rows":"%d"}`, rows))
	out.w.Header().Set("Content-Length", "0")
	return nil
}

func bodyError(err error) error {
	// Code 210 is NETWORK_ERROR: the rows are not to blame.
	return exception(210, "NETWORK_ERROR", "Read body of the INSERT: %v", err)
}

var chunks = sync.Pool{New: func() any { b := make([]byte, insertChunk); return &b }}

// readChunk fills buf as far as it goes; err is io.EOF at the clean end only.
func readChunk(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	// The frame reader wraps its end; only a plain one, or its own between two
	// frames, is clean.
	if err != nil && errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

var (
	insertRe = regexp.MustCompile(`(?is)^(?:\s|--[^\n]*\n|/\*.*?\*/)*INSERT\b`)
	selectRe = regexp.MustCompile(`(?is)^(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(?:SELECT|WITH)\b`)
	formatRe = regexp.MustCompile(`(?is)\bFORMAT\s+([A-Za-z0-9_]+)\s*;?\s*$`)
	valuesRe = regexp.MustCompile(`(?is)\bVALUES\s*;?\s*$`)
	// formatClause also finds a FORMAT in front of SETTINGS, to choose how an
	// answer is sent; the engine itself decides what it is in.
	formatClause = regexp.MustCompile(`(?is)\bFORMAT\s+([A-Za-z0-9_]+)\s*(?:;?\s*$|\bSETTINGS\b)`)
	settingName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
)

// notSettings are URL parameters of the HTTP interface itself.
var notSettings = map[string]bool{
	"query": true, "database": true, "default_format": true, "client_protocol_version": true,
	"query_id": true, "quota_key": true, "session_id": true, "session_check": true, "session_timeout": true,
	"session_timezone_check": true, "user": true, "password": true, "role": true,
	"compress": true, "decompress": true, "network_compression_method": true, "network_zstd_compression_level": true,
	"wait_end_of_query": true, "buffer_size": true, "enable_http_compression": true, "http_zlib_compression_level": true,
	"send_progress_in_http_headers": true, "http_headers_progress_interval_ms": true, "stacktrace": true,
	"http_write_exception_in_output_format": true, "add_http_cors_header": true, "cancel_http_readonly_queries_on_client_close": true,
	"http_native_compression_disable_checksumming_on_decompress": true,
}

// fixedSettings are what keeps the read path limited and its statements
// killable; nobody sets them from outside.
var fixedSettings = map[string]bool{
	"readonly": true, "log_comment": true, "max_memory_usage": true, "max_execution_time": true,
	"max_memory_usage_for_user": true, "allow_ddl": true,
}

// parse reads the URL and, for all but the rows of an INSERT, the body.
func (e *host) parse(r *http.Request, readOnly bool) (*request, error) {
	v := r.URL.Query()
	q := &request{
		database: v.Get("database"),
		format:   v.Get("default_format"),
		readOnly: readOnly,
		compress: compress.None,
		settings: map[string]string{},
	}
	if q.database == "" {
		q.database = r.Header.Get("X-ClickHouse-Database")
	}
	if q.database == "" {
		q.database = e.cfg.Database
	}
	if q.format == "" {
		q.format = r.Header.Get("X-ClickHouse-Format")
	}
	if q.format == "" {
		q.format = "TabSeparated"
	}
	if n, _ := strconv.Atoi(v.Get("client_protocol_version")); n > 0 {
		q.protocol = true
	}
	if v.Get("compress") == "1" {
		q.compress = compress.LZ4
		if strings.EqualFold(v.Get("network_compression_method"), "ZSTD") {
			q.compress = compress.ZSTD
		}
	}
	q.gzip = v.Get("enable_http_compression") == "1" && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	q.buffered = v.Get("wait_end_of_query") == "1"
	if err := q.settle(v, readOnly); err != nil {
		return nil, err
	}

	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		return nil, exception(48, "NOT_IMPLEMENTED", "External tables are not supported by the embedded engine")
	}
	body, err := decode(r, v.Get("decompress") == "1")
	if err != nil {
		return nil, err
	}
	q.sql = v.Get("query")
	if body != nil && insertRe.MatchString(q.sql) && !readOnly {
		q.data = body
		return q, nil
	}
	if body != nil {
		limit := int64(sqlLimit)
		if readOnly {
			limit = readSQL
		}
		b, err := io.ReadAll(io.LimitReader(body, limit+1))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, bodyError(err)
		}
		if int64(len(b)) > limit {
			return nil, exception(62, "SYNTAX_ERROR", "Query is longer than %d bytes", limit)
		}
		if q.sql != "" && len(b) > 0 {
			q.sql += "\n"
		}
		q.sql += string(b)
	}
	if strings.TrimSpace(q.sql) == "" {
		return nil, exception(62, "SYNTAX_ERROR", "Empty query")
	}
	if m := formatClause.FindStringSubmatch(q.sql); m != nil {
		q.format = m[1]
	}
	if !slices.Contains(streamed, q.format) && selectRe.MatchString(q.sql) {
		// Such an answer is held in memory: bounded unless the request says so itself.
		if _, ok := q.settings["max_result_bytes"]; !ok {
			q.settings["max_result_bytes"] = strconv.Itoa(bufferLimit)
		}
	}
	return q, nil
}

// settle sorts the URL parameters into settings and query parameters.
func (q *request) settle(v url.Values, readOnly bool) error {
	for k, vs := range v {
		if name, ok := strings.CutPrefix(k, "param_"); ok {
			q.params = append(q.params, param{name, vs[0]})
			continue
		}
		if notSettings[k] {
			continue
		}
		if !settingName.MatchString(k) {
			return exception(115, "UNKNOWN_SETTING", "Not a setting name: %q", k)
		}
		switch {
		case k == "log_comment":
			continue // it names the session, see kill
		case !readOnly:
		case k == "readonly" && (vs[0] == "1" || vs[0] == "2"):
			continue // it is anyway
		case k == "max_execution_time":
			// Shorter is welcome.
			if s, err := strconv.ParseFloat(vs[0], 64); err != nil || s <= 0 || s >= readLimit.Seconds() {
				continue
			}
		case fixedSettings[k]:
			return exception(452, "SETTING_CONSTRAINT_VIOLATION", "Read-only interface: setting %s cannot be changed", k)
		}
		q.settings[k] = vs[0]
	}
	return nil
}

// decode undoes the encoding of a body; nil when there is none.
func decode(r *http.Request, framed bool) (io.Reader, error) {
	if r.Body == nil || r.Body == http.NoBody || r.Method == http.MethodGet {
		return nil, nil
	}
	var body io.Reader = r.Body
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, bodyError(err)
		}
		body = z
	case "deflate":
		z, err := zlib.NewReader(body)
		if err != nil {
			return nil, bodyError(err)
		}
		body = z
	case "zstd":
		z, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return nil, bodyError(err)
		}
		body = z.IOReadCloser()
	case "lz4":
		body = lz4.NewReader(body)
	default:
		return nil, exception(48, "NOT_IMPLEMENTED", "Content-Encoding %s is not supported by the embedded engine", enc)
	}
	if framed {
		body = compress.NewReader(body)
	}
	return body, nil
}

// answer writes the response. The status is decided with the first byte; an
// error after that is framed the way the server frames it.
type answer struct {
	w       http.ResponseWriter
	ctl     *http.ResponseController
	q       *request
	tag     string // of the exception block
	started bool
	frames  *compress.Writer
	gz      *gzip.Writer
}

var contentTypes = map[string]string{
	"Native": "application/octet-stream", "RowBinary": "application/octet-stream",
	"TabSeparated": "text/tab-separated-values; charset=UTF-8", "TSV": "text/tab-separated-values; charset=UTF-8",
	"TabSeparatedRaw": "text/tab-separated-values; charset=UTF-8", "TSVRaw": "text/tab-separated-values; charset=UTF-8",
	"TabSeparatedWithNames": "text/tab-separated-values; charset=UTF-8", "TSVWithNames": "text/tab-separated-values; charset=UTF-8",
	"CSV": "text/csv; charset=UTF-8; header=absent", "CSVWithNames": "text/csv; charset=UTF-8; header=present",
	"JSON": "application/json; charset=UTF-8", "JSONCompact": "application/json; charset=UTF-8",
	"JSONEachRow": "application/x-ndjson; charset=UTF-8", "JSONLines": "application/x-ndjson; charset=UTF-8", "NDJSON": "application/x-ndjson; charset=UTF-8",
}

func (a *answer) start(format string) {
	var tag [8]byte
	_, _ = rand.Read(tag[:])
	a.tag = hex.EncodeToString(tag[:])
	h := a.w.Header()
	typ := contentTypes[format]
	if typ == "" {
		typ = "text/plain; charset=UTF-8"
	}
	h.Set("Content-Type", typ)
	h.Set("X-ClickHouse-Format", format)
	h.Set("X-ClickHouse-Exception-Tag", a.tag)
	h.Set("X-Content-Type-Options", "nosniff")
	if a.q.compress != compress.None {
		a.frames = compress.NewWriter(compress.LevelZero, a.q.compress)
	}
	if a.q.gzip {
		h.Set("Content-Encoding", "gzip")
		a.gz, _ = gzip.NewWriterLevel(a.w, gzip.BestSpeed)
	}
	a.started = true
}

// frameSize is what one compressed frame holds, as in the server.
const frameSize = 1 << 20

// write sends bytes of the answer and hands them to the network, so that a
// slow query shows its first rows.
func (a *answer) write(b []byte) error {
	// Not every writer has deadlines (a test's recorder); then there is none.
	_ = a.ctl.SetWriteDeadline(time.Now().Add(stallLimit))
	if a.frames == nil {
		if err := a.raw(b); err != nil {
			return err
		}
	} else {
		for part := range slices.Chunk(b, frameSize) {
			if err := a.frames.Compress(part); err != nil {
				return fmt.Errorf("compress answer: %w", err)
			}
			if err := a.raw(a.frames.Data); err != nil {
				return err
			}
		}
	}
	if a.gz != nil {
		if err := a.gz.Flush(); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
	if err := a.ctl.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

func (a *answer) raw(b []byte) (err error) {
	if a.gz != nil {
		_, err = a.gz.Write(b)
	} else {
		_, err = a.w.Write(b)
	}
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

func (a *answer) close() error {
	if a.gz != nil {
		return a.gz.Close()
	}
	return nil
}

// fail reports an error: as a status while nothing has been sent, else as an
// exception block in the body.
func (a *answer) fail(err error) {
	var x *engineError
	if !errors.As(err, &x) {
		x = exception(1001, "STD_EXCEPTION", "%v", err)
	}
	_ = a.ctl.SetWriteDeadline(time.Now().Add(stallLimit))
	if a.started {
		var b bytes.Buffer
		fmt.Fprintf(&b, "\r\n__exception__\r\n%s\r\n%s\n%d %s\r\n__exception__\r\n", a.tag, x.text, len(x.text), a.tag)
		_ = a.raw(b.Bytes())
		_ = a.close()
		return
	}
	h := a.w.Header()
	h.Del("Content-Encoding")
	h.Del("Content-Length")
	h.Set("Content-Type", "text/plain; charset=UTF-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-ClickHouse-Exception-Code", strconv.Itoa(x.code))
	a.w.WriteHeader(httpStatus(x.code))
	_, _ = io.WriteString(a.w, x.text+"\n")
}

// httpStatus is the server's mapping of exception codes, as far as scripts
// care for it.
func httpStatus(code int) int {
	switch code {
	case 516, 192, 193, 194:
		return http.StatusUnauthorized
	case 164, 452, 497:
		return http.StatusForbidden
	case 16, 46, 47, 60, 81, 36, 42, 43, 44, 53, 62, 63, 70, 107, 108, 115, 117, 386, 395:
		if code == 60 || code == 81 {
			return http.StatusNotFound
		}
		return http.StatusBadRequest
	case 48:
		return http.StatusNotImplemented
	case 202:
		return http.StatusServiceUnavailable
	case 159:
		return http.StatusRequestTimeout
	default:
		return http.StatusInternalServerError
	}
}
