// Package engine opens ClickHouse: a server named by a DSN, or the embedded
// engine, libchdb, in a supervised child process of this same binary. Either
// way the product speaks clickhouse-go and nothing else.
//
// It guarantees that a write it acknowledged survives the death of the child,
// that the child dies with its parent, that a crash of the engine costs a
// restart and errors which Transient recognises, and that the read side
// cannot write, leave the machine or read its files. It refuses to decide
// anything about content: schema, tokens and retries belong to the callers.
// The ingest writer and migrations use Conn, queries use Reader, `flyball sql`
// and other tools use the read-only HTTP interface.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/prometheus/client_golang/prometheus"
)

// Options say what to open. The zero value with Dir set is a working embedded
// engine.
type Options struct {
	// DSN is "embedded://" (the default), or a server as clickhouse-go spells
	// it: clickhouse://host:9000/database, http(s)://host:8123/database.
	DSN string

	// Dir is the directory of the embedded store, made if it is missing. One
	// process at a time can have it open.
	Dir string

	// Listen is the TCP address of the read-only HTTP interface of the
	// embedded engine, "" for none. Off loopback it needs Authorize.
	Listen string

	// MemoryBytes caps what the embedded engine allocates; default 1.5 GiB.
	MemoryBytes int64

	// Threads is how many threads one statement uses, and one less than how
	// many reads run at once; default the number of CPUs.
	Threads int

	// Library is the path of libchdb.so; see FindLibrary for the default.
	Library string

	// Database is the default database, made if it is not there; default
	// "flyball". A database in the DSN of a server wins.
	Database string

	// Authorize is asked for each request at Listen; an error is answered 401.
	Authorize func(*http.Request) error

	// Fsync makes the embedded engine fsync each part before an INSERT is
	// acknowledged. Without it a power cut, not a crash, can lose the last
	// seconds.
	Fsync bool

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

const (
	embeddedDSN     = "embedded://"
	defaultMemory   = 3 << 29 // 1.5 GiB
	defaultDatabase = "flyball"
)

func (o Options) withDefaults() (Options, error) {
	if o.DSN == "" {
		o.DSN = embeddedDSN
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = defaultMemory
	}
	if o.MemoryBytes < 256<<20 {
		return o, fmt.Errorf("open engine: memory of %d bytes is less than the 256 MiB it needs", o.MemoryBytes)
	}
	if o.Threads <= 0 {
		o.Threads = runtime.NumCPU()
	}
	if o.Database == "" {
		o.Database = defaultDatabase
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Engine is an open ClickHouse. Its methods are safe for concurrent use.
type Engine struct {
	o       Options
	conn    driver.Conn
	reader  driver.Conn
	version string
	metrics *metrics

	super *supervisor // nil for a server
	gate  *gate       // nil without Listen

	closing sync.Once
	closed  error
}

// Embedded tells whether a DSN means the embedded engine.
func Embedded(dsn string) bool { return dsn == "" || dsn == embeddedDSN }

// CheckDSN says what is wrong with a DSN, without asking anybody. The error does not have
// the DSN, in which there may be a password.
func CheckDSN(dsn string) error {
	if Embedded(dsn) {
		return nil
	}
	if _, err := clickhouse.ParseDSN(dsn); err != nil {
		return fmt.Errorf("%w; want %s, clickhouse://host:9000/database or http://host:8123/database", err, embeddedDSN)
	}
	return nil
}

// Open connects to the server of the DSN, or starts the embedded engine and
// waits until it serves. ctx bounds the opening only.
func Open(ctx context.Context, o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, metrics: newMetrics()}
	if o.DSN == embeddedDSN {
		err = e.openEmbedded(ctx)
	} else {
		err = e.openServer(ctx)
	}
	if err == nil {
		err = e.hello(ctx)
	}
	if err == nil && o.Listen != "" && e.Embedded() {
		e.gate, err = e.listen()
	}
	if err == nil && o.Registerer != nil {
		err = e.metrics.register(o.Registerer, e)
	}
	if err != nil {
		_ = e.Close()
		return nil, err
	}
	return e, nil
}

// openEmbedded starts the child and makes the two clients of its socket.
func (e *Engine) openEmbedded(ctx context.Context) error {
	if e.o.Dir == "" {
		return errors.New("open engine: no directory for the embedded store")
	}
	dir, err := filepath.Abs(e.o.Dir)
	if err != nil {
		return fmt.Errorf("open engine: %w", err)
	}
	e.o.Dir = dir
	if e.o.Listen != "" {
		if err := checkListen(e.o.Listen, e.o.Authorize != nil); err != nil {
			return err
		}
	}
	if e.o.Library, err = FindLibrary(e.o.Library); err != nil {
		return err
	}
	if e.super, err = startSupervisor(ctx, e.o, e.metrics); err != nil {
		return err
	}
	if e.conn, err = clickhouse.Open(e.embeddedOptions(pathFull, 4)); err != nil {
		return fmt.Errorf("open engine: %w", err)
	}
	if e.reader, err = clickhouse.Open(e.embeddedOptions(pathRead, e.o.Threads+1)); err != nil {
		return fmt.Errorf("open engine: %w", err)
	}
	return nil
}

// embeddedOptions reach the child over its socket: HTTP, uncompressed, because
// both ends are on one machine.
func (e *Engine) embeddedOptions(path string, conns int) *clickhouse.Options {
	return &clickhouse.Options{
		Protocol:    clickhouse.HTTP,
		Addr:        []string{"engine"}, // a name for messages: the socket is dialled whatever it says
		HttpUrlPath: path,
		Auth:        clickhouse.Auth{Database: e.o.Database},
		TransportFunc: func(t *http.Transport) (http.RoundTripper, error) {
			t.Proxy = nil
			t.DialContext = e.super.dial
			return t, nil
		},
		// The child has its own limits, which end in an error with a code;
		// these are for a child that hangs.
		ReadTimeout:  adminLimit + time.Minute,
		DialTimeout:  10 * time.Second,
		MaxOpenConns: conns,
		MaxIdleConns: conns,
	}
}

// openServer makes the two clients of a server, and the database if it is not there.
func (e *Engine) openServer(ctx context.Context) error {
	co, err := clickhouse.ParseDSN(e.o.DSN)
	if err != nil {
		return fmt.Errorf("parse clickhouse.dsn: %w", err)
	}
	if co.Auth.Database == "" {
		co.Auth.Database = e.o.Database
	}
	if err := createDatabase(ctx, *co); err != nil {
		return err
	}
	open := func(read bool) (driver.Conn, error) {
		co := *co
		co.Settings = maps.Clone(co.Settings)
		pin(&co, "async_insert", 0)
		if read {
			pin(&co, "readonly", 2)
			pin(&co, "max_execution_time", int(readLimit/time.Second))
			co.MaxOpenConns = max(co.MaxOpenConns, e.o.Threads+1)
		} else {
			co.MaxOpenConns = max(co.MaxOpenConns, 4)
		}
		co.MaxIdleConns = co.MaxOpenConns
		c, err := clickhouse.Open(&co)
		if err != nil {
			return nil, fmt.Errorf("open engine: %w", err)
		}
		return c, nil
	}
	if e.conn, err = open(false); err != nil {
		return err
	}
	e.reader, err = open(true)
	return err
}

// unknownDatabase is ClickHouse's code for a database that is not there.
const unknownDatabase = 81

// createDatabase makes the database of a server that has none of that name. Of a
// cluster it makes it on the server that it reaches only.
func createDatabase(ctx context.Context, co clickhouse.Options) error {
	name := co.Auth.Database
	try := func(sql string) error {
		c, err := clickhouse.Open(&co)
		if err != nil {
			return fmt.Errorf("open engine: %w", err)
		}
		return errors.Join(c.Exec(ctx, sql), c.Close())
	}
	err := try("SELECT 1")
	if x := (*clickhouse.Exception)(nil); !errors.As(err, &x) || x.Code != unknownDatabase {
		return nil // what else is wrong, hello says
	}
	co.Auth.Database = "default" // every server has it
	if err := try("CREATE DATABASE IF NOT EXISTS `" + strings.NewReplacer("\\", "\\\\", "`", "\\`").Replace(name) + "`"); err != nil {
		return fmt.Errorf("create database %s of clickhouse.dsn: %w", name, err)
	}
	return nil
}

// pin sets a setting that the DSN does not.
func pin(o *clickhouse.Options, name string, value any) {
	if o.Settings == nil {
		o.Settings = clickhouse.Settings{}
	}
	if _, ok := o.Settings[name]; !ok {
		o.Settings[name] = value
	}
}

// hello proves that both clients work and learns the version.
func (e *Engine) hello(ctx context.Context) error {
	if err := e.reader.QueryRow(ctx, "SELECT version()").Scan(&e.version); err != nil {
		return fmt.Errorf("connect to clickhouse: %w", err)
	}
	if err := e.conn.Ping(ctx); err != nil {
		return fmt.Errorf("connect to clickhouse: %w", err)
	}
	return nil
}

// Conn is for writes and DDL. On the embedded engine two INSERTs and two other
// statements run at once; more wait. Statements are not limited in memory but
// by the cap of the engine.
func (e *Engine) Conn() driver.Conn { return e.conn }

// Reader is for reads: one statement that reads, within two minutes and half
// the engine's memory. Everything else is refused with an *Exception.
func (e *Engine) Reader() driver.Conn { return e.reader }

// Ping asks the engine for an answer.
func (e *Engine) Ping(ctx context.Context) error {
	if err := e.conn.Ping(ctx); err != nil {
		return fmt.Errorf("ping clickhouse: %w", err)
	}
	return nil
}

// Version is what the engine said of itself when it was opened.
func (e *Engine) Version() string { return e.version }

// Embedded tells the embedded engine from a server.
func (e *Engine) Embedded() bool { return e.o.DSN == embeddedDSN }

// Restarts counts how often the child process had to be started again.
func (e *Engine) Restarts() int64 {
	if e.super == nil {
		return 0
	}
	return e.super.restarts.Load()
}

// Addr is the address of the read-only interface, nil if it is off.
func (e *Engine) Addr() net.Addr {
	if e.gate == nil {
		return nil
	}
	return e.gate.addr
}

// Close stops the read-only interface, lets statements of the embedded engine
// end for up to three seconds, and ends the child. Safe to call twice.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		var errs []error
		if e.gate != nil {
			errs = append(errs, e.gate.close())
		}
		for _, c := range []driver.Conn{e.conn, e.reader} {
			if c != nil {
				errs = append(errs, c.Close())
			}
		}
		if e.super != nil {
			e.super.close()
		}
		e.metrics.unregister()
		e.closed = errors.Join(errs...)
	})
	return e.closed
}
