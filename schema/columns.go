package schema

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/ClickHouse/clickhouse-go/v2"
	chcolumn "github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// fixed is a column of fixed-size values laid end to end.
type fixed struct {
	b    []byte
	rows []string // views of b, made when the block is sent
}

func (f *fixed) views(size int) []string {
	f.rows = f.rows[:0]
	for i := 0; i < len(f.b); i += size {
		f.rows = append(f.rows, unsafe.String(&f.b[i], size))
	}
	return f.rows
}

// Columns is a block of journal rows, column by column. It is reused: Reset
// keeps the memory. Strings are kept until Reset, so they may alias a buffer
// that lives that long.
type Columns struct {
	n                                                 int
	trace, span, parent                               fixed
	part, httpStatus                                  []uint16
	sign                                              []int8
	version, attempt, hidden                          []uint32
	modelCalls, toolCalls, retries, fallbacks, hedges []uint32
	repeats                                           []uint32
	recordedAt, startedAt                             instants
	duration, exposure, amount                        []int64
	wasted                                            []int64
	cost, estimate, reported                          nullable
	chunk, args, payload, flags                       []uint64
	kind, usage, status, effect, layer, cause         []int8
	hiddenCause, failure, source                      []int8
	aggregate, fallback, hedge                        []uint8
	tenant, name, operation, provider, model          []string
	requested, tier, response, scope, basis, currency []string
	price, duplicate, tool, payloadType               []string
	identity                                          [NumDims][]string
	tokens                                            [NumTokens][]uint64
	units                                             [NumUnits][]uint64
	reg                                               []column
}

// instants is a column of unix times, kept as integers until the block is sent.
type instants struct {
	n     []int64
	times []time.Time
}

func (c *instants) views(unit int64) []time.Time {
	c.times = c.times[:0]
	for _, n := range c.n {
		c.times = append(c.times, time.Unix(0, n*unit))
	}
	return c.times
}

func instantColumn(name, typ string, unit time.Duration, p *instants) column {
	return column{name, typ, func() any { return p.views(int64(unit)) }, func() { p.n = p.n[:0] }, func() bool { return allZero(p.n) }, nil}
}

// nullable is a column of optional integers.
type nullable struct {
	values []int64
	ptrs   []*int64
}

func (c *nullable) reset() { c.values, c.ptrs = c.values[:0], c.ptrs[:0] }

func (c *nullable) add(v int64, known bool) {
	c.values = append(c.values, v)
	if known {
		c.ptrs = append(c.ptrs, &c.values[len(c.values)-1])
	} else {
		c.ptrs = append(c.ptrs, nil)
	}
}

type column struct {
	name, typ string
	data      func() any
	reset     func()
	// empty reports whether every row has the type's default, which the table gives by itself.
	empty func() bool
	// sent is the driver's column of the last batch that was stored.
	sent chcolumn.Interface
}

func slice[T comparable](name, typ string, p *[]T) column {
	return column{name, typ, func() any { return *p }, func() { *p = (*p)[:0] }, func() bool { return allZero(*p) }, nil}
}

func fixedColumn(name string, size int, p *fixed) column {
	return column{name, fmt.Sprintf("FixedString(%d)", size), func() any { return p.views(size) }, func() { p.b = p.b[:0] }, func() bool { return allZero(p.b) }, nil}
}

func nullableColumn(name string, p *nullable) column {
	return column{name, "Nullable(Int64)", func() any { return p.ptrs }, p.reset, func() bool { return allZero(p.ptrs) }, nil}
}

func allZero[T comparable](s []T) bool {
	var zero T
	for _, v := range s {
		if v != zero {
			return false
		}
	}
	return true
}

// unitNames are the columns of Units, in the order of Fields.
var unitNames = [NumUnits]string{"web_searches", "images", "pages", "media_ms"}

// NewColumns makes an empty block.
func NewColumns() *Columns {
	c := new(Columns)
	enum8 := func(name string, names []string, p *[]int8) column { return slice(name, "Enum8("+enum(names)+")", p) }
	c.reg = []column{
		slice("tenant", "String", &c.tenant),
		fixedColumn("trace_id", 16, &c.trace), fixedColumn("span_id", 8, &c.span), fixedColumn("parent_span_id", 8, &c.parent),
		slice("part", "UInt16", &c.part), slice("sign", "Int8", &c.sign), slice("version", "UInt32", &c.version),
		instantColumn("recorded_at", "DateTime64(6, 'UTC')", time.Microsecond, &c.recordedAt), slice("chunk", "UInt64", &c.chunk),
		instantColumn("started_at", "DateTime64(9, 'UTC')", time.Nanosecond, &c.startedAt), slice("duration_ns", "Int64", &c.duration),
		enum8("kind", KindNames, &c.kind), slice("name", "String", &c.name), slice("operation", "String", &c.operation),
		slice("provider", "String", &c.provider), slice("model", "String", &c.model), slice("requested_model", "String", &c.requested),
		slice("service_tier", "String", &c.tier), slice("response_id", "String", &c.response), slice("scope", "String", &c.scope),
		slice("token_basis", "String", &c.basis), enum8("usage", UsageNames, &c.usage), enum8("cost_status", CostStatusNames, &c.status),
		nullableColumn("cost", &c.cost), slice("exposure", "Int64", &c.exposure), nullableColumn("estimate", &c.estimate),
		nullableColumn("reported_cost", &c.reported), slice("amount", "Int64", &c.amount), slice("currency", "String", &c.currency),
		slice("price_id", "String", &c.price), slice("aggregate", "UInt8", &c.aggregate), slice("duplicate_of", "String", &c.duplicate),
		slice("tool", "String", &c.tool), enum8("tool_effect", EffectNames, &c.effect), slice("args_hash", "UInt64", &c.args),
		slice("payload_bytes", "UInt64", &c.payload), slice("payload_type", "String", &c.payloadType),
		slice("attempt", "UInt32", &c.attempt), enum8("retry_layer", LayerNames, &c.layer), enum8("retry_cause", FailureNames, &c.cause),
		slice("fallback", "UInt8", &c.fallback), slice("hedge", "UInt8", &c.hedge), slice("hidden_attempts", "UInt32", &c.hidden),
		enum8("hidden_cause", FailureNames, &c.hiddenCause), enum8("failure", FailureNames, &c.failure), slice("http_status", "UInt16", &c.httpStatus),
		enum8("source", SourceNames, &c.source), slice("model_calls", "UInt32", &c.modelCalls), slice("tool_calls", "UInt32", &c.toolCalls),
		slice("retries", "UInt32", &c.retries), slice("fallbacks", "UInt32", &c.fallbacks), slice("hedges", "UInt32", &c.hedges),
		slice("repeats", "UInt32", &c.repeats), slice("wasted", "Int64", &c.wasted), slice("flags", "UInt64", &c.flags),
	}
	for i := range c.identity {
		c.reg = append(c.reg, slice(Dims[i], "String", &c.identity[i]))
	}
	for i := range c.tokens {
		c.reg = append(c.reg, slice("tok_"+TokenNames[i], "UInt64", &c.tokens[i]))
	}
	for i, name := range unitNames {
		c.reg = append(c.reg, slice(name, "UInt64", &c.units[i]))
	}
	return c
}

// Len is the number of rows.
func (c *Columns) Len() int { return c.n }

// Reset empties the block and keeps its memory.
func (c *Columns) Reset() {
	c.n = 0
	for i := range c.reg {
		c.reg[i].reset()
	}
}

// Append adds one entry that belongs to the given chunk.
func (c *Columns) Append(e *Entry, chunk uint64) {
	p := &e.Posting
	c.n++
	c.tenant = append(c.tenant, e.Tenant)
	c.trace.b = append(c.trace.b, e.Trace[:]...)
	c.span.b = append(c.span.b, e.Span[:]...)
	c.parent.b = append(c.parent.b, e.Parent[:]...)
	c.part = append(c.part, e.Part)
	c.sign = append(c.sign, e.Sign)
	c.version = append(c.version, e.Version)
	c.recordedAt.n = append(c.recordedAt.n, e.RecordedAt)
	c.chunk = append(c.chunk, chunk)
	c.startedAt.n = append(c.startedAt.n, e.Start)
	c.duration = append(c.duration, e.Duration)
	c.kind = append(c.kind, int8(p.Kind))
	c.name = append(c.name, e.Name)
	c.operation = append(c.operation, e.Operation)
	c.provider = append(c.provider, e.Provider)
	c.model = append(c.model, e.Model)
	c.requested = append(c.requested, e.RequestedModel)
	c.tier = append(c.tier, e.ServiceTier)
	c.response = append(c.response, e.ResponseID)
	c.scope = append(c.scope, e.Scope)
	c.basis = append(c.basis, e.TokenBasis)
	c.usage = append(c.usage, int8(e.Usage))
	c.status = append(c.status, int8(p.Status))
	c.cost.add(int64(p.Cost), p.Billed() && !p.Aggregate && p.DuplicateOf == "")
	c.exposure = append(c.exposure, int64(p.Exposure))
	c.estimate.add(int64(p.Estimate), p.HasEstimate)
	c.reported.add(int64(e.ReportedCost), e.HasReported)
	c.amount = append(c.amount, int64(p.Amount))
	c.currency = append(c.currency, p.Currency)
	c.price = append(c.price, p.PriceID)
	c.aggregate = append(c.aggregate, uint8(boolBit(p.Aggregate)))
	c.duplicate = append(c.duplicate, p.DuplicateOf)
	c.tool = append(c.tool, e.Tool)
	c.effect = append(c.effect, int8(e.Effect))
	c.args = append(c.args, e.ArgsHash)
	c.payload = append(c.payload, e.PayloadBytes)
	c.payloadType = append(c.payloadType, e.PayloadType)
	c.attempt = append(c.attempt, p.Attempt)
	c.layer = append(c.layer, int8(p.Layer))
	c.cause = append(c.cause, int8(p.Cause))
	c.fallback = append(c.fallback, uint8(boolBit(p.Fallback)))
	c.hedge = append(c.hedge, uint8(boolBit(p.Hedge)))
	c.hidden = append(c.hidden, p.Hidden)
	c.hiddenCause = append(c.hiddenCause, int8(p.HiddenCause))
	c.failure = append(c.failure, int8(e.Failure))
	c.httpStatus = append(c.httpStatus, e.HTTPStatus)
	c.source = append(c.source, int8(e.Source))
	c.modelCalls = append(c.modelCalls, p.ModelCalls)
	c.toolCalls = append(c.toolCalls, p.ToolCalls)
	c.retries = append(c.retries, p.Retries)
	c.fallbacks = append(c.fallbacks, p.Fallbacks)
	c.hedges = append(c.hedges, p.Hedges)
	c.repeats = append(c.repeats, p.Repeats)
	c.wasted = append(c.wasted, int64(p.Wasted))
	c.flags = append(c.flags, uint64(e.AllFlags()))
	for i := range c.identity {
		c.identity[i] = append(c.identity[i], p.Identity[i])
	}
	for i, v := range p.Tokens.Fields() {
		c.tokens[i] = append(c.tokens[i], *v)
	}
	for i, v := range e.Units.Fields() {
		c.units[i] = append(c.units[i], *v)
	}
}

// Send inserts the block as one block with the given deduplication token, which
// makes a repetition a no-op in the journal and in every rollup.
func (c *Columns) Send(ctx context.Context, conn driver.Conn, token string) error {
	// Pointers into a slice that grew point at its old memory: set them now.
	for _, n := range [...]*nullable{&c.cost, &c.estimate, &c.reported} {
		for i := range n.ptrs {
			if n.ptrs[i] != nil {
				n.ptrs[i] = &n.values[i]
			}
		}
	}
	var names []string
	var types []clickhouse.ColumnNameAndType
	var filled []*column
	for i := range c.reg {
		col := &c.reg[i]
		if col.empty() {
			continue
		}
		names = append(names, col.name)
		types = append(types, clickhouse.ColumnNameAndType{Name: col.name, Type: col.typ})
		filled = append(filled, col)
	}
	ctx = InsertContext(ctx, token)
	ctx = clickhouse.Context(ctx, clickhouse.WithColumnNamesAndTypes(types))
	batch, err := conn.PrepareBatch(ctx, "INSERT INTO journal ("+strings.Join(names, ", ")+")")
	if err != nil {
		return fmt.Errorf("prepare journal insert: %w", err)
	}
	defer func() { _ = batch.Close() }()
	columns := batch.Columns()
	for i, col := range filled {
		takeMemory(columns[i], col.sent)
		// Until the batch is stored the driver may still read it.
		col.sent = nil
		if err := batch.Column(i).Append(col.data()); err != nil {
			return fmt.Errorf("append column %s: %w", col.name, err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert %d journal rows: %w", c.n, err)
	}
	for i, col := range filled {
		col.sent = columns[i]
	}
	return nil
}

// takeMemory gives a column of a new batch what one that was sent has allocated. The driver lets
// columns grow row by row, which is most of what a service allocates.
func takeMemory(to, from chcolumn.Interface) {
	if from == nil || reflect.TypeOf(to) != reflect.TypeOf(from) || to.Type() != from.Type() {
		return
	}
	from.Reset()
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem())
}

// InsertContext carries the settings that make an insert exactly-once under its token.
func InsertContext(ctx context.Context, token string) context.Context {
	return clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{
		"async_insert":               0,
		"insert_deduplicate":         1,
		"optimize_on_insert":         0, // the views have added up already
		"insert_deduplication_token": token,
		"deduplicate_blocks_in_dependent_materialized_views": 1,
	}))
}

// RootVersion is added to the version of a row that a run's root gave, so that it
// beats every row that other spans gave.
const RootVersion = 1 << 62

// RunInfo is a versioned row of run_info.
type RunInfo struct {
	Tenant, RunID, Name, MovedTo string
	Version                      uint64 // unix microseconds, plus RootVersion
	Start, End                   int64  // unix nanoseconds
	Status                       uint8  // index into RunStatusNames
	Identity                     Identity
}

// SendRunInfo inserts versioned rows of run_info.
func SendRunInfo(ctx context.Context, conn driver.Conn, token string, rows []RunInfo) error {
	if len(rows) == 0 {
		return nil
	}
	batch, err := conn.PrepareBatch(InsertContext(ctx, token), "INSERT INTO run_info (tenant, run_id, version, booked_on, started_at, ended_at, status, name, user, feature, workflow, workflow_version, agent, session, criticality, mode, environment, moved_to)")
	if err != nil {
		return fmt.Errorf("prepare run_info insert: %w", err)
	}
	defer func() { _ = batch.Close() }()
	for i := range rows {
		r := &rows[i]
		id := &r.Identity
		if err := batch.Append(r.Tenant, r.RunID, r.Version, time.UnixMicro(int64(r.Version&^RootVersion)).UTC(), time.Unix(0, r.Start).UTC(), time.Unix(0, r.End).UTC(), RunStatusNames[r.Status], r.Name, id[User], id[Feature], id[Workflow], id[WorkflowVersion], id[Agent], id[Session], id[Criticality], id[Mode], id[Environment], r.MovedTo); err != nil {
			return fmt.Errorf("append run_info row: %w", err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert %d run_info rows: %w", len(rows), err)
	}
	return nil
}
