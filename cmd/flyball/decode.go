package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cheggaaa/pb/v3"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flyball/flyball/cmd/app"
	"github.com/flyball/flyball/ingest"
	"github.com/flyball/flyball/ingest/dialect"
	"github.com/flyball/flyball/ingest/otlp"
	"github.com/flyball/flyball/ingest/price"
	"github.com/flyball/flyball/ingest/trace"
	"github.com/flyball/flyball/schema"
)

// explained is one span and everything decided about it.
type explained struct {
	Call     *schema.Call  `json:"-"`
	SpanID   string        `json:"span_id"`
	ParentID string        `json:"parent_span_id"`
	TraceID  string        `json:"trace_id"`
	Tenant   string        `json:"tenant"`
	Name     string        `json:"name"`
	Scope    string        `json:"scope"`
	Kind     string        `json:"kind"`
	Provider string        `json:"provider,omitempty"`
	Model    string        `json:"model,omitempty"`
	Basis    string        `json:"token_basis,omitempty"`
	Usage    string        `json:"usage"`
	Decision string        `json:"decision"`
	Attempt  uint32        `json:"attempt"`
	Layer    string        `json:"retry_layer,omitempty"`
	Hidden   uint32        `json:"hidden_attempts,omitempty"`
	Failure  string        `json:"failure,omitempty"`
	Status   string        `json:"cost_status"`
	CostUSD  *string       `json:"cost_usd"`
	PriceID  string        `json:"price_id,omitempty"`
	Steps    []price.Step  `json:"arithmetic,omitempty"`
	Run      string        `json:"run_id"`
	User     string        `json:"user,omitempty"`
	Feature  string        `json:"feature,omitempty"`
	Workflow string        `json:"workflow,omitempty"`
	Flags    []string      `json:"flags,omitempty"`
	Tokens   schema.Tokens `json:"tokens"`
}

func decodeCommand(g *global) *cobra.Command {
	return &cobra.Command{Use: "decode FILE", Short: "Show how the spans of a file are read, offline", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		cat, cfg, err := g.catalogue()
		if err != nil {
			return err
		}
		r, err := dialect.New(dialect.Options{Attributes: cfg.Attributes, Emitters: cfg.Emitters, Tools: cfg.Tools, HashKey: []byte("decode")})
		if err != nil {
			return err
		}
		f, err := os.Open(args[0])
		if err != nil {
			return fmt.Errorf("open %s: %w", args[0], err)
		}
		defer f.Close()
		last := map[string]schema.Entry{}
		var order []string
		asm := trace.New(trace.Options{Price: ingest.NewPricer(cat), Append: func(p []byte, _ int) (uint64, error) {
			return 0, schema.EachEntry(p, func(raw schema.RawEntry) error {
				var e schema.Entry
				if err := raw.Decode(&e); err != nil || e.Sign < 0 {
					return err
				}
				k := fmt.Sprintf("%s/%s/%s/%d", e.Tenant, e.Trace, e.Span, e.Part)
				if _, ok := last[k]; !ok {
					order = append(order, k)
				}
				last[k] = e
				return nil
			})
		}})
		c := &offline{reader: r, asm: asm}
		if _, err := otlp.ReadFile(cmd.Context(), f, args[0], c, nil); err != nil {
			return err
		}
		if _, err := asm.Tick(time.Now().Add(time.Hour).UnixNano()); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		for _, k := range order {
			e := last[k]
			x := explain(cat, &e)
			if g.json {
				if err := json.NewEncoder(w).Encode(x); err != nil {
					return err
				}
				continue
			}
			printExplained(w, &x)
		}
		if len(order) == 0 {
			return fmt.Errorf("%s holds no spans", args[0])
		}
		return nil
	}}
}

// offline feeds a file into an assembler in memory.
type offline struct {
	reader *dialect.Reader
	asm    *trace.Assembler
}

func (o *offline) Traces(_ context.Context, _ otlp.Sender, td ptrace.Traces) (otlp.Result, error) {
	now := time.Now().UnixNano()
	calls, _ := o.reader.AppendSpans(nil, td, dialect.Origin{Trusted: true}, now)
	_, err := o.asm.Add(calls, now)
	return otlp.Result{}, err
}

func (o *offline) Logs(_ context.Context, _ otlp.Sender, ld plog.Logs) (otlp.Result, error) {
	now := time.Now().UnixNano()
	calls, _, _ := o.reader.AppendLogs(nil, ld, dialect.Origin{Trusted: true}, now)
	_, err := o.asm.Add(calls, now)
	return otlp.Result{}, err
}

func (o *offline) Metrics(context.Context, otlp.Sender, pmetric.Metrics) (otlp.Result, error) {
	return otlp.Result{}, nil
}

func explain(cat *price.Catalogue, e *schema.Entry) explained {
	p := &e.Posting
	x := explained{Call: &e.Call, SpanID: e.Span.String(), ParentID: e.Parent.String(), TraceID: e.Trace.String(), Tenant: e.Tenant, Name: e.Name, Scope: e.Scope, Kind: p.Kind.String(), Provider: e.Provider, Model: e.Model, Basis: e.TokenBasis, Usage: e.Usage.String(),
		Attempt: p.Attempt, Layer: p.Layer.String(), Hidden: p.Hidden, Failure: e.Failure.String(), Status: p.Status.String(), PriceID: p.PriceID, Run: p.Identity[schema.Run], User: p.Identity[schema.User], Feature: p.Identity[schema.Feature], Workflow: p.Identity[schema.Workflow], Flags: e.AllFlags().Names(), Tokens: p.Tokens}
	switch {
	case p.DuplicateOf != "":
		x.Decision = "the same call as " + p.DuplicateOf + ", counts nowhere"
	case p.Aggregate:
		x.Decision = "repeats what is below it, counts nowhere"
	case p.Flags&schema.FlagPromoted != 0:
		x.Decision = fmt.Sprintf("stands for %d model calls that nobody sent", p.ModelCalls)
	case p.Hedges > 0:
		x.Decision = "a hedge"
	case p.Fallbacks > 0:
		x.Decision = "a fallback"
	case p.Retries > 0:
		x.Decision = "a retry"
	case p.ModelCalls > 0:
		x.Decision = "a model call"
	case p.ToolCalls > 0:
		x.Decision = "a tool call"
	default:
		x.Decision = "no call of its own"
	}
	if !p.Billed() {
		return x
	}
	if p.Aggregate || p.DuplicateOf != "" {
		return x
	}
	s := p.Cost.String()
	x.CostUSD = &s
	if p.Status == schema.CostPriced || p.Status == schema.CostFree {
		_, x.Steps = cat.Explain(&price.Query{Tenant: e.Tenant, Provider: e.Provider, Model: e.Model, Requested: e.RequestedModel, Tier: e.ServiceTier, Start: e.Start, Kind: p.Kind, Usage: schema.UsageKnown, Tokens: &p.Tokens, Units: &e.Units})
	}
	return x
}

func printExplained(w io.Writer, x *explained) {
	fmt.Fprintf(w, "%s %s  [%s]  %s\n", x.SpanID, x.Name, x.Scope, x.Kind)
	fmt.Fprintf(w, "  decision   %s\n", x.Decision)
	if x.Model != "" {
		fmt.Fprintf(w, "  model      %s/%s\n", x.Provider, x.Model)
	}
	if x.Basis != "" {
		fmt.Fprintf(w, "  tokens     %s (basis: %s)\n", tokenText(&x.Tokens), x.Basis)
	}
	if x.Layer != "" || x.Hidden > 0 || x.Failure != "" {
		fmt.Fprintf(w, "  attempts   attempt %d %s, %d hidden, failure %s\n", x.Attempt, x.Layer, x.Hidden, cell(x.Failure))
	}
	fmt.Fprintf(w, "  for        tenant %s, run %s, user %s, feature %s, workflow %s\n", x.Tenant, x.Run, cell(x.User), cell(x.Feature), cell(x.Workflow))
	if x.Status != "none" {
		cost := "unknown, which is not zero"
		if x.CostUSD != nil {
			cost = *x.CostUSD + " USD"
		}
		fmt.Fprintf(w, "  cost       %s (%s) %s\n", cost, x.Status, x.PriceID)
		for _, s := range x.Steps {
			fmt.Fprintf(w, "             %s %d × %s/%s = %s\n", s.Component, s.Quantity, s.Rate, s.Per, s.Amount)
		}
	}
	if len(x.Flags) > 0 {
		fmt.Fprintf(w, "  flags      %s\n", strings.Join(x.Flags, ", "))
	}
}

func tokenText(t *schema.Tokens) string {
	var parts []string
	for i, v := range t.Fields() {
		if *v > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", schema.TokenNames[i], *v))
		}
	}
	if len(parts) == 0 {
		return "none billed here"
	}
	return strings.Join(parts, ", ")
}

func explainCommand(g *global) *cobra.Command {
	return &cobra.Command{Use: "explain TRACE", Short: "How each call of a trace was read and priced", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		q := map[string][]string{"trace_id": {args[0]}, "limit": {"1000"}}
		return g.ask(cmd, "/api/v1/calls", q, func(w io.Writer, d map[string]any) error {
			calls := rowsOf(d, "calls")
			if len(calls) == 0 {
				return fmt.Errorf("no call of trace %s is known; spans are listed some seconds after they came, see flyball calls", args[0])
			}
			for _, c := range calls {
				if adj, ok := c["adjustment"].(map[string]any); ok {
					fmt.Fprintf(w, "%s adjustment %s\n  reason     %s\n  posted     by %s on %s\n  cost       %s USD, %s %s\n", cell(c["span_id"]), cell(adj["id"]), cell(adj["reason"]), cell(adj["by"]), cell(c["recorded_at"]), cell(c["cost_usd"]), cell(c["amount"]), cell(c["currency"]))
					continue
				}
				fmt.Fprintf(w, "%s %s  [%s]  %s\n", cell(c["span_id"]), cell(c["name"]), cell(c["scope"]), cell(c["kind"]))
				decision := fmt.Sprintf("%s model calls, %s tool calls, %s retries, %s fallbacks, %s hedges", cell(c["model_calls"]), cell(c["tool_calls"]), cell(c["retries"]), cell(c["fallbacks"]), cell(c["hedges"]))
				if c["aggregate"] == true {
					decision = "repeats what is below it, counts nowhere"
				} else if s := cell(c["duplicate_of"]); s != "-" {
					decision = "the same call as " + s + ", counts nowhere"
				}
				fmt.Fprintf(w, "  decision   %s\n", decision)
				fmt.Fprintf(w, "  model      %s/%s, asked for %s, tier %s\n", cell(c["provider"]), cell(c["model"]), cell(c["requested_model"]), cell(c["service_tier"]))
				fmt.Fprintf(w, "  tokens     %s (basis: %s, usage %s)\n", strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(c["tokens"]), "map["), "]"), cell(c["token_basis"]), cell(c["usage"]))
				fmt.Fprintf(w, "  attempts   attempt %s by %s, %s hidden, failure %s\n", cell(c["attempt"]), cell(c["retry_layer"]), cell(c["hidden_attempts"]), cell(c["failure"]))
				cost := cell(c["cost_usd"])
				if cost == "-" {
					cost = "unknown"
				}
				fmt.Fprintf(w, "  cost       %s USD (%s) by %s; version %s\n", cost, cell(c["cost_status"]), cell(c["price_id"]), cell(c["version"]))
				if fl := strings.Trim(fmt.Sprint(c["flags"]), "[]"); fl != "" {
					fmt.Fprintf(w, "  flags      %s\n", fl)
				}
			}
			return nil
		})
	}}
}

func ingestCommand(g *global) *cobra.Command {
	var endpoint string
	c := &cobra.Command{Use: "ingest FILE...", Short: "Read OTLP files (JSON, JSON lines or protobuf; plain, gzip or zstd) into the server", Args: cobra.MinimumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		cfg, err := app.LoadConfig(g.config, os.Environ())
		if err != nil {
			return err
		}
		endpoint, creds := dialOTLP(endpoint, cfg)
		conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(256<<20)))
		if err != nil {
			return usageError{err}
		}
		defer conn.Close()
		s := newSender(conn, g.key)
		for _, name := range args {
			if err := s.file(cmd.Context(), name); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d spans, log records and metrics sent, %d rejected\n", s.sent, s.rejected)
		if s.rejected > 0 {
			return fmt.Errorf("%d were rejected: %s", s.rejected, s.why)
		}
		return err
	}}
	c.Flags().StringVar(&endpoint, "otlp", "", "OTLP gRPC address of the server, https:// before it for TLS (default: that of the configuration)")
	return c
}

// dialOTLP is where OTLP is sent and how. Without a scheme it is TLS where the configuration
// has a certificate, as it is for every other verb.
func dialOTLP(endpoint string, cfg app.Config) (string, credentials.TransportCredentials) {
	secure := cfg.TLS.Cert != ""
	if endpoint == "" {
		endpoint = cfg.Listen.OTLPGRPC
	}
	if scheme, addr, ok := strings.Cut(endpoint, "://"); ok && (scheme == "https" || scheme == "http") {
		endpoint, secure = strings.TrimRight(addr, "/"), scheme == "https"
	}
	if secure {
		return endpoint, credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	return endpoint, insecure.NewCredentials()
}

// sender forwards what a file holds over OTLP.
type sender struct {
	traces         ptraceotlp.GRPCClient
	logs           plogotlp.GRPCClient
	metrics        pmetricotlp.GRPCClient
	key            string
	sent, rejected int64 // of all files; what the reader of a file refused already counts in both
	why            string
}

func newSender(conn *grpc.ClientConn, key string) *sender {
	return &sender{traces: ptraceotlp.NewGRPCClient(conn), logs: plogotlp.NewGRPCClient(conn), metrics: pmetricotlp.NewGRPCClient(conn), key: key}
}

func (s *sender) file(ctx context.Context, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	var bar *pb.ProgressBar
	progress := func(int64) {}
	if e, err := os.Stderr.Stat(); err == nil && e.Mode()&os.ModeCharDevice != 0 {
		bar = pb.Full.New(int(st.Size())).Set(pb.Bytes, true).SetWriter(os.Stderr).Start()
		defer bar.Finish()
		progress = func(n int64) { bar.SetCurrent(n) }
	}
	res, err := otlp.ReadFile(ctx, f, name, s, progress)
	s.sent += res.Spans + res.LogRecords + res.Metrics
	s.rejected += res.Rejected
	if s.why == "" {
		s.why = res.Reasons
	}
	return err
}

// as adds the key to an outgoing request.
func (s *sender) as(ctx context.Context) context.Context {
	if s.key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.key)
}

// errTooLarge is a request that the server, or gRPC here, takes at no time.
var errTooLarge = errors.New("the server takes no request of this size; see limits.request_bytes")

// sendError keeps an overload what it is, so that the reader asks again.
func sendError(err error) error {
	st := status.Convert(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return otlp.Overload{RetryAfter: info.RetryDelay.AsDuration(), Reason: st.Message()}
		}
	}
	switch st.Code() {
	case codes.ResourceExhausted:
		return errTooLarge
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("the server does not take the key (--key or FLYBALL_KEY): %s", st.Message())
	}
	return fmt.Errorf("send to the server (is `flyball serve` running?): %w", err)
}

// halves sends what is too large for one request in two. What of it was taken before
// an error is known by its ids when it comes again.
func halves(n int, whole error, send func(second bool) (otlp.Result, error)) (otlp.Result, error) {
	if !errors.Is(whole, errTooLarge) || n < 2 {
		return otlp.Result{}, whole
	}
	res, err := send(false)
	if err != nil {
		return otlp.Result{}, err
	}
	rest, err := send(true)
	if err != nil {
		return otlp.Result{}, err
	}
	res.Rejected += rest.Rejected
	if res.Reasons == "" {
		res.Reasons = rest.Reasons
	}
	return res, nil
}

func (s *sender) Traces(ctx context.Context, from otlp.Sender, td ptrace.Traces) (otlp.Result, error) {
	resp, err := s.traces.Export(s.as(ctx), ptraceotlp.NewExportRequestFromTraces(td))
	if err == nil {
		return otlp.Result{Rejected: resp.PartialSuccess().RejectedSpans(), Reasons: resp.PartialSuccess().ErrorMessage()}, nil
	}
	n := td.SpanCount()
	return halves(n, sendError(err), func(second bool) (otlp.Result, error) {
		half, i := ptrace.NewTraces(), 0
		td.CopyTo(half)
		half.ResourceSpans().RemoveIf(func(rs ptrace.ResourceSpans) bool {
			rs.ScopeSpans().RemoveIf(func(ss ptrace.ScopeSpans) bool {
				ss.Spans().RemoveIf(func(ptrace.Span) bool { i++; return (i > n/2) != second })
				return ss.Spans().Len() == 0
			})
			return rs.ScopeSpans().Len() == 0
		})
		return s.Traces(ctx, from, half)
	})
}

func (s *sender) Logs(ctx context.Context, from otlp.Sender, ld plog.Logs) (otlp.Result, error) {
	resp, err := s.logs.Export(s.as(ctx), plogotlp.NewExportRequestFromLogs(ld))
	if err == nil {
		return otlp.Result{Rejected: resp.PartialSuccess().RejectedLogRecords(), Reasons: resp.PartialSuccess().ErrorMessage()}, nil
	}
	n := ld.LogRecordCount()
	return halves(n, sendError(err), func(second bool) (otlp.Result, error) {
		half, i := plog.NewLogs(), 0
		ld.CopyTo(half)
		half.ResourceLogs().RemoveIf(func(rl plog.ResourceLogs) bool {
			rl.ScopeLogs().RemoveIf(func(sl plog.ScopeLogs) bool {
				sl.LogRecords().RemoveIf(func(plog.LogRecord) bool { i++; return (i > n/2) != second })
				return sl.LogRecords().Len() == 0
			})
			return rl.ScopeLogs().Len() == 0
		})
		return s.Logs(ctx, from, half)
	})
}

func (s *sender) Metrics(ctx context.Context, from otlp.Sender, md pmetric.Metrics) (otlp.Result, error) {
	resp, err := s.metrics.Export(s.as(ctx), pmetricotlp.NewExportRequestFromMetrics(md))
	if err == nil {
		return otlp.Result{Rejected: resp.PartialSuccess().RejectedDataPoints(), Reasons: resp.PartialSuccess().ErrorMessage()}, nil
	}
	n := md.MetricCount()
	return halves(n, sendError(err), func(second bool) (otlp.Result, error) {
		half, i := pmetric.NewMetrics(), 0
		md.CopyTo(half)
		half.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
			rm.ScopeMetrics().RemoveIf(func(sm pmetric.ScopeMetrics) bool {
				sm.Metrics().RemoveIf(func(pmetric.Metric) bool { i++; return (i > n/2) != second })
				return sm.Metrics().Len() == 0
			})
			return rm.ScopeMetrics().Len() == 0
		})
		return s.Metrics(ctx, from, half)
	})
}
