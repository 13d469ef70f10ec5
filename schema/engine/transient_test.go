package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
)

func TestTransient(t *testing.T) {
	f := func(err error, transient, bad bool) {
		t.Helper()
		err = fmt.Errorf("batch: %w", err)
		if Transient(err) != transient || BadData(err) != bad {
			t.Errorf("%v: transient %v, bad data %v", err, Transient(err), BadData(err))
		}
	}
	for c := range transientCodes {
		f(&clickhouse.Exception{Code: c}, true, false)
	}
	for c := range dataCodes {
		f(&clickhouse.HTTPError{StatusCode: 400, Err: &clickhouse.Exception{Code: c}}, false, true)
	}
	for _, c := range []int32{16, 60, 62, 81, 115, 497} {
		f(&clickhouse.Exception{Code: c}, false, false)
	}
	f(&clickhouse.HTTPError{StatusCode: http.StatusBadGateway, Err: errors.New("x")}, true, false)
	f(&clickhouse.HTTPError{StatusCode: http.StatusBadRequest, Err: errors.New("x")}, false, false)
	f(clickhouse.ErrBatchInvalid, false, true)
	f(clickhouse.ErrAcquireConnTimeout, true, false)
	for _, err := range []error{
		io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded, net.ErrClosed,
		&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		os.NewSyscallError("read", syscall.ECONNRESET), os.NewSyscallError("write", syscall.EPIPE),
		errors.New("http: server closed idle connection"),
	} {
		f(err, true, false)
	}
	f(errors.New("anything else"), false, false)
	if Transient(nil) || BadData(nil) {
		t.Error("nil")
	}
}

// TestCodeNames compares the tables with the engine's own.
func TestCodeNames(t *testing.T) {
	e := sharedEngine(t)
	for _, m := range []map[int32]string{transientCodes, dataCodes} {
		for c, want := range m {
			if got := one[string](t, e.Reader(), fmt.Sprintf("SELECT toString(errorCodeToName(%d))", c)); got != want {
				t.Errorf("%d is %s, not %s", c, got, want)
			}
		}
	}
}
