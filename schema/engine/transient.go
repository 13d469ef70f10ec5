package engine

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// transientCodes are ClickHouse's codes (ErrorCodes.cpp) that say the engine,
// or the way to it, could not serve the statement now, whatever its rows were.
// A test compares the names with errorCodeToName of the engine.
var transientCodes = map[int32]string{
	3:    "UNEXPECTED_END_OF_FILE",
	23:   "CANNOT_READ_FROM_ISTREAM",
	24:   "CANNOT_WRITE_TO_OSTREAM",
	74:   "CANNOT_READ_FROM_FILE_DESCRIPTOR",
	75:   "CANNOT_WRITE_TO_FILE_DESCRIPTOR",
	76:   "CANNOT_OPEN_FILE",
	95:   "CANNOT_READ_FROM_SOCKET",
	96:   "CANNOT_WRITE_TO_SOCKET",
	108:  "NO_DATA_TO_INSERT", // the body was lost on its way, see insert
	159:  "TIMEOUT_EXCEEDED",
	160:  "TOO_SLOW",
	164:  "READONLY", // a server that an operator has switched over
	173:  "CANNOT_ALLOCATE_MEMORY",
	198:  "DNS_ERROR",
	201:  "QUOTA_EXCEEDED",
	202:  "TOO_MANY_SIMULTANEOUS_QUERIES",
	203:  "NO_FREE_CONNECTION",
	204:  "CANNOT_FSYNC",
	209:  "SOCKET_TIMEOUT",
	210:  "NETWORK_ERROR",
	216:  "QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING",
	225:  "NO_ZOOKEEPER",
	236:  "ABORTED",
	241:  "MEMORY_LIMIT_EXCEEDED",
	242:  "TABLE_IS_READ_ONLY",
	243:  "NOT_ENOUGH_SPACE",
	244:  "UNEXPECTED_ZOOKEEPER_ERROR",
	252:  "TOO_MANY_PARTS",
	254:  "NO_ACTIVE_REPLICAS",
	265:  "NO_AVAILABLE_REPLICA",
	279:  "ALL_CONNECTION_TRIES_FAILED",
	285:  "TOO_FEW_LIVE_REPLICAS",
	286:  "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE",
	289:  "REPLICA_IS_NOT_IN_QUORUM",
	297:  "SHARD_HAS_NO_CONNECTIONS",
	319:  "UNKNOWN_STATUS_OF_INSERT",
	341:  "UNFINISHED",
	364:  "RECEIVED_ERROR_TOO_MANY_REQUESTS",
	369:  "ALL_REPLICAS_ARE_STALE",
	373:  "SESSION_IS_LOCKED",
	384:  "PART_IS_TEMPORARILY_LOCKED",
	394:  "QUERY_WAS_CANCELLED", // by a shutdown or a limit, not by its rows
	415:  "ALL_REPLICAS_LOST",
	416:  "REPLICA_STATUS_CHANGED",
	425:  "SYSTEM_ERROR",
	439:  "CANNOT_SCHEDULE_TASK",
	473:  "DEADLOCK_AVOIDED",
	499:  "S3_ERROR",
	516:  "AUTHENTICATION_FAILED", // a password that is being rotated
	519:  "NO_REMOTE_SHARD_AVAILABLE",
	529:  "NOT_A_LEADER",
	574:  "DISTRIBUTED_TOO_MANY_PENDING_BYTES",
	667:  "NOT_INITIALIZED",
	692:  "TOO_MANY_MUTATIONS",
	733:  "TABLE_IS_BEING_RESTARTED",
	745:  "SERVER_OVERLOADED",
	999:  "KEEPER_EXCEPTION",
	1000: "POCO_EXCEPTION",
}

// dataCodes are the codes that blame rows of the batch.
var dataCodes = map[int32]string{
	6:   "CANNOT_PARSE_TEXT",
	26:  "CANNOT_PARSE_QUOTED_STRING",
	27:  "CANNOT_PARSE_INPUT_ASSERTION_FAILED",
	32:  "ATTEMPT_TO_READ_AFTER_EOF",
	33:  "CANNOT_READ_ALL_DATA",
	36:  "BAD_ARGUMENTS",
	38:  "CANNOT_PARSE_DATE",
	41:  "CANNOT_PARSE_DATETIME",
	43:  "ILLEGAL_TYPE_OF_ARGUMENT",
	53:  "TYPE_MISMATCH",
	69:  "ARGUMENT_OUT_OF_BOUND",
	70:  "CANNOT_CONVERT_TYPE",
	72:  "CANNOT_PARSE_NUMBER",
	117: "INCORRECT_DATA",
	128: "TOO_LARGE_ARRAY_SIZE",
	130: "CANNOT_READ_ARRAY_FROM_TEXT",
	131: "TOO_LARGE_STRING_SIZE",
	153: "ILLEGAL_DIVISION",
	190: "SIZES_OF_ARRAYS_DONT_MATCH",
	321: "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE",
	349: "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN",
	376: "CANNOT_PARSE_UUID",
	395: "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO", // a check in a view
	407: "DECIMAL_OVERFLOW",
	441: "CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING",
	467: "CANNOT_PARSE_BOOL",
	469: "VIOLATED_CONSTRAINT",
	675: "CANNOT_PARSE_IPV4",
	676: "CANNOT_PARSE_IPV6",
	691: "UNKNOWN_ELEMENT_OF_ENUM",
}

// Transient reports whether err says only that the engine could not be reached
// or could not serve now, so that the same statement may succeed later and
// splitting it would not help: the engine restarts, a connection broke, a
// limit of memory, time, space or parts was hit, the caller gave up. The
// outcome of a statement that failed so may be unknown: an INSERT is repeated
// with its token.
//
// An error that is neither Transient nor BadData (an unknown table, a missing
// right, a broken statement) is a matter of set-up: neither repeating soon nor
// splitting helps, somebody has to act.
func Transient(err error) bool {
	if err == nil {
		return false
	}
	if x := new(clickhouse.Exception); errors.As(err, &x) {
		_, ok := transientCodes[x.Code]
		return ok
	}
	if h := new(clickhouse.HTTPError); errors.As(err, &h) {
		// No exception in it: a proxy, or an interface that is going down.
		switch h.StatusCode {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	for _, e := range []error{
		context.Canceled, context.DeadlineExceeded,
		io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe,
		net.ErrClosed, driver.ErrBadConn,
		clickhouse.ErrAcquireConnTimeout, clickhouse.ErrConnectionClosed,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
		syscall.ENOENT, // the socket of an engine that has not started again yet
		syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EMFILE, syscall.ENFILE,
		errChildGone,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	if n := net.Error(nil); errors.As(err, &n) {
		return true
	}
	// net/http has no value for these.
	s := err.Error()
	return strings.Contains(s, "server closed idle connection") ||
		strings.Contains(s, "connection broken") ||
		strings.Contains(s, "timeout awaiting response headers")
}

// BadData reports whether err blames rows of an INSERT, so that some part of
// the batch can be stored without them.
func BadData(err error) bool {
	if errors.Is(err, clickhouse.ErrBatchInvalid) {
		return true
	}
	if x := new(clickhouse.Exception); errors.As(err, &x) {
		_, ok := dataCodes[x.Code]
		return ok
	}
	return false
}
