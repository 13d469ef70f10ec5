package engine

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// The prototypes below are those of libchdb 26.7.3 (its chdb.h). Sizes are
// size_t, text is pointer and length without a terminator, and every result is
// C memory that lives until it is destroyed. Only the child process calls any
// of this.

// supportedLibrary is the prefix of chdb_version that this binding was written
// for; another minor release may speak another revision of Native.
const supportedLibrary = "26.7."

// library is the loaded libchdb. A process can load it once and never unload
// it: the engine inside keeps threads and global state of its own.
type library struct {
	version string

	connect, closeConn                             uintptr
	query, queryParams, stream, streamParams       uintptr
	fetch, streamCancel                            uintptr
	insert, insertParams, append_, done            uintptr
	insertCancel, insertError, destroyInsert       uintptr
	buffer, length, errorText, written, destroyRes uintptr
	classify                                       uintptr
}

// loadLibrary opens the library at path, binds what it needs, and switches off
// the engine's own signal handlers: with them a nil dereference in Go is no
// longer recoverable and SIGTERM no longer ends the process.
func loadLibrary(path string) (*library, error) {
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	l := &library{}
	var version, signals uintptr
	for name, fn := range map[string]*uintptr{
		"chdb_version":                     &version,
		"chdb_set_signal_handlers_enabled": &signals,
		"chdb_connect":                     &l.connect,
		"chdb_close_conn":                  &l.closeConn,
		"chdb_query_n":                     &l.query,
		"chdb_query_with_params_n":         &l.queryParams,
		"chdb_stream_query_n":              &l.stream,
		"chdb_stream_query_with_params_n":  &l.streamParams,
		"chdb_stream_fetch_result":         &l.fetch,
		"chdb_stream_cancel_query":         &l.streamCancel,
		"chdb_stream_insert_n":             &l.insert,
		"chdb_stream_insert_with_params_n": &l.insertParams,
		"chdb_stream_append":               &l.append_,
		"chdb_stream_done":                 &l.done,
		"chdb_stream_cancel_insert":        &l.insertCancel,
		"chdb_stream_insert_error":         &l.insertError,
		"chdb_destroy_insert_stream":       &l.destroyInsert,
		"chdb_result_buffer":               &l.buffer,
		"chdb_result_length":               &l.length,
		"chdb_result_error":                &l.errorText,
		"chdb_result_rows_written":         &l.written,
		"chdb_destroy_query_result":        &l.destroyRes,
		"chdb_classify_query_n":            &l.classify,
	} {
		if *fn, err = purego.Dlsym(h, name); err != nil {
			return nil, fmt.Errorf("load %s: it has no %s (is it libchdb %sx?): %w", path, name, supportedLibrary, err)
		}
	}
	l.version = cString(call(version))
	if !strings.HasPrefix(l.version, supportedLibrary) {
		return nil, fmt.Errorf("load %s: it is version %q, this build needs %sx", path, l.version, supportedLibrary)
	}
	call(signals, 0)
	return l, nil
}

// call invokes a C function of integer and pointer arguments. Pointers are
// passed as uintptr(unsafe.Pointer(…)) written in the call itself, which keeps
// what they point to alive and in place (SyscallN is marked uintptrescapes);
// call must stay marked the same way.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// cPointer turns an address of C memory into a pointer.
func cPointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// cBytes is a view of C memory; it is valid as long as that memory.
func cBytes(p, n uintptr) []byte {
	if p == 0 || n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(cPointer(p)), n)
}

// cString copies a terminated C string; "" for NULL.
func cString(p uintptr) string {
	if p == 0 {
		return ""
	}
	n := uintptr(0)
	for *(*byte)(unsafe.Add(cPointer(p), n)) != 0 {
		n++
	}
	return string(cBytes(p, n))
}

// text is the address of a string's bytes, never NULL. The caller converts it
// in the call expression.
func text(s string) unsafe.Pointer {
	if s == "" {
		s = "\x00"
	}
	return unsafe.Pointer(unsafe.StringData(s))
}

// Error is an exception of the engine as it prints itself.
type engineError struct {
	code int    // ClickHouse error code, 0 when the text names none
	text string // "Code: N. DB::Exception: … (NAME)"
}

func (e *engineError) Error() string { return e.text }

// newEngineError reads the code out of the engine's text.
func newEngineError(s string) *engineError {
	s = strings.TrimSpace(s)
	e := &engineError{text: s}
	if i := strings.Index(s, "Code: "); i >= 0 {
		digits := s[i+len("Code: "):]
		n := 0
		for n < len(digits) && digits[n] >= '0' && digits[n] <= '9' {
			n++
		}
		e.code, _ = strconv.Atoi(digits[:n])
		e.text = s[i:]
	}
	if e.code == 0 {
		// Code 1002 is UNKNOWN_EXCEPTION; clients insist on a code.
		e.code, e.text = 1002, "Code: 1002. DB::Exception: "+s+" (UNKNOWN_EXCEPTION)"
	}
	return e
}

func exception(code int, name, format string, args ...any) *engineError {
	return &engineError{code: code, text: fmt.Sprintf("Code: %d. DB::Exception: %s. (%s)", code, fmt.Sprintf(format, args...), name)}
}

// param is one {name:Type} parameter, its value escaped as in TSV.
type param struct{ name, value string }

// cParams lays parameters out as the four arrays the library wants.
type cParams struct {
	names, values       []unsafe.Pointer
	nameLens, valueLens []uintptr
	pin                 runtime.Pinner
}

func newCParams(ps []param) *cParams {
	c := &cParams{}
	for _, p := range ps {
		n, v := text(p.name), text(p.value)
		c.pin.Pin(n)
		c.pin.Pin(v)
		c.names, c.nameLens = append(c.names, n), append(c.nameLens, uintptr(len(p.name)))
		c.values, c.valueLens = append(c.values, v), append(c.valueLens, uintptr(len(p.value)))
	}
	return c
}

// connection is one chdb_connection: one statement at a time.
type connection struct {
	lib    *library
	handle uintptr // chdb_connection *
	raw    uintptr // chdb_connection
}

// connect opens a connection; the first one of a process starts the engine.
// The reason of a failure is printed by the library on stderr only.
func (l *library) openConnection(args []string) (*connection, error) {
	args = append([]string{"clickhouse"}, args...)
	argv := make([]unsafe.Pointer, len(args)+1)
	var pin runtime.Pinner
	defer pin.Unpin()
	for i, a := range args {
		b := append([]byte(a), 0)
		pin.Pin(&b[0])
		argv[i] = unsafe.Pointer(&b[0])
	}
	h := call(l.connect, uintptr(len(args)), uintptr(unsafe.Pointer(&argv[0])))
	if h == 0 {
		return nil, errors.New("connect to the engine: refused (the reason is on stderr)")
	}
	raw := *(*uintptr)(cPointer(h))
	if raw == 0 {
		return nil, errors.New("connect to the engine: no connection (the reason is on stderr)")
	}
	return &connection{lib: l, handle: h, raw: raw}, nil
}

// close blocks until a statement that runs on the connection has ended.
func (c *connection) close() {
	if c.handle != 0 {
		call(c.lib.closeConn, c.handle)
		c.handle, c.raw = 0, 0
	}
}

// result is an answer, a chunk of one, or a stream of chunks.
type result struct {
	lib *library
	p   uintptr
}

func (c *connection) result(p uintptr) (result, error) {
	if p == 0 {
		return result{}, newEngineError("the engine gave no result")
	}
	r := result{c.lib, p}
	if e := call(c.lib.errorText, p); e != 0 {
		err := newEngineError(cString(e))
		r.destroy()
		return result{}, err
	}
	return r, nil
}

// bytes is the content in C memory, valid until destroy.
func (r result) bytes() []byte { return cBytes(call(r.lib.buffer, r.p), call(r.lib.length, r.p)) }

// rowsWritten is the number of rows an INSERT wrote.
func (r result) rowsWritten() uint64 { return uint64(call(r.lib.written, r.p)) }

func (r result) destroy() { call(r.lib.destroyRes, r.p) }

// query runs a statement to its end and keeps the whole answer.
func (c *connection) query(sql, format string, ps []param) (result, error) {
	return c.run(c.lib.query, c.lib.queryParams, sql, format, ps)
}

// stream starts a SELECT whose answer is then fetched chunk by chunk. The
// library refuses other kinds of statements here.
func (c *connection) stream(sql, format string, ps []param) (result, error) {
	return c.run(c.lib.stream, c.lib.streamParams, sql, format, ps)
}

func (c *connection) run(plain, withParams uintptr, sql, format string, ps []param) (result, error) {
	if len(ps) == 0 {
		return c.result(call(plain, c.raw,
			uintptr(text(sql)), uintptr(len(sql)), uintptr(text(format)), uintptr(len(format))))
	}
	p := newCParams(ps)
	defer p.pin.Unpin()
	return c.result(call(withParams, c.raw,
		uintptr(text(sql)), uintptr(len(sql)), uintptr(text(format)), uintptr(len(format)),
		uintptr(unsafe.Pointer(&p.names[0])), uintptr(unsafe.Pointer(&p.nameLens[0])),
		uintptr(unsafe.Pointer(&p.values[0])), uintptr(unsafe.Pointer(&p.valueLens[0])), uintptr(len(ps))))
}

// fetch gives the next chunk; an empty one is the end.
func (c *connection) fetch(stream result) (result, error) {
	return c.result(call(c.lib.fetch, c.raw, stream.p))
}

// cancel ends a stream before its end.
func (c *connection) cancel(stream result) { call(c.lib.streamCancel, c.raw, stream.p) }

// insertion is an INSERT that is being fed.
type insertion struct {
	lib *library
	p   uintptr
}

// insert starts an INSERT; sql has no data and no FORMAT.
func (c *connection) insert(sql, format string, ps []param) (insertion, error) {
	var p uintptr
	if len(ps) == 0 {
		p = call(c.lib.insert, c.raw,
			uintptr(text(sql)), uintptr(len(sql)), uintptr(text(format)), uintptr(len(format)))
	} else {
		a := newCParams(ps)
		defer a.pin.Unpin()
		p = call(c.lib.insertParams, c.raw,
			uintptr(text(sql)), uintptr(len(sql)), uintptr(text(format)), uintptr(len(format)),
			uintptr(unsafe.Pointer(&a.names[0])), uintptr(unsafe.Pointer(&a.nameLens[0])),
			uintptr(unsafe.Pointer(&a.values[0])), uintptr(unsafe.Pointer(&a.valueLens[0])), uintptr(len(ps)))
	}
	if p == 0 {
		return insertion{}, newEngineError("the engine did not start the INSERT")
	}
	in := insertion{c.lib, p}
	if e := call(c.lib.insertError, p); e != 0 {
		err := newEngineError(cString(e))
		in.abort()
		return insertion{}, err
	}
	return in, nil
}

// append feeds bytes of the format; after an error the insertion must be aborted.
func (in insertion) append(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if call(in.lib.append_, in.p, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))) == 0 {
		return nil
	}
	if e := call(in.lib.insertError, in.p); e != 0 {
		return newEngineError(cString(e))
	}
	return newEngineError("the engine refused the data")
}

// commit ends the data, waits for the parts to be written, and frees the insertion.
func (in insertion) commit() (rows uint64, err error) {
	defer call(in.lib.destroyInsert, in.p)
	p := call(in.lib.done, in.p)
	if p == 0 {
		if e := call(in.lib.insertError, in.p); e != 0 {
			return 0, newEngineError(cString(e))
		}
		return 0, newEngineError("the engine gave no result for the INSERT")
	}
	r := result{in.lib, p}
	defer r.destroy()
	if e := call(in.lib.errorText, p); e != 0 {
		return 0, newEngineError(cString(e))
	}
	return r.rowsWritten(), nil
}

// abort drops what was not written yet and frees the insertion.
func (in insertion) abort() {
	call(in.lib.insertCancel, in.p)
	call(in.lib.destroyInsert, in.p)
}

// Classes of statements, as chdb_classify_query_n names them.
const (
	classReadOnly = 0
	classControl  = 3
)

// classify parses sql without running it: how many statements, and the class
// of the most powerful one.
func (c *connection) classify(sql, database string) (count, class uint32, err error) {
	out := new([4]uint32)
	out[0] = uint32(unsafe.Sizeof(*out))
	if rc := call(c.lib.classify, c.raw, uintptr(text(sql)), uintptr(len(sql)),
		uintptr(text(database)), uintptr(len(database)), uintptr(unsafe.Pointer(out))); rc != 0 {
		return 0, 0, fmt.Errorf("classify statement: code %d", rc)
	}
	return out[1], out[3], nil
}
