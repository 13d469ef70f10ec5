package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/limiter"
)

// agent plays one user request over a real OpenTelemetry SDK. Time inside a run
// is played, not waited for: spans carry the instants they would have had.
type agent struct {
	tracer oteltrace.Tracer
	now    time.Time
}

// attrs are the attributes of a span.
type attrs = []attribute.KeyValue

func text(k, v string) attribute.KeyValue       { return attribute.String(k, v) }
func number(k string, v int) attribute.KeyValue { return attribute.Int(k, v) }

// span plays a span that takes d, with its children inside.
func (a *agent) span(ctx context.Context, name string, kind oteltrace.SpanKind, d time.Duration, at attrs, failure string, inside func(context.Context)) {
	ctx, sp := a.tracer.Start(ctx, name, oteltrace.WithTimestamp(a.now), oteltrace.WithSpanKind(kind), oteltrace.WithAttributes(at...))
	if inside != nil {
		inside(ctx)
	}
	a.now = a.now.Add(d)
	if failure != "" {
		sp.SetStatus(codes.Error, failure)
		sp.SetAttributes(text("error.type", failure))
	}
	sp.End(oteltrace.WithTimestamp(a.now))
}

// usage is what a model call reports.
type usage struct{ in, cached, out, reasoning int }

func (a *agent) chat(ctx context.Context, provider, model string, u usage, failure string, inside func(context.Context)) {
	at := attrs{text("gen_ai.operation.name", "chat"), text("gen_ai.provider.name", provider), text("gen_ai.request.model", model)}
	if failure == "" {
		at = append(at, text("gen_ai.response.model", model), text("gen_ai.response.id", fmt.Sprintf("resp-%016x", rand.Uint64())))
		if u.in > 0 {
			at = append(at, number("gen_ai.usage.input_tokens", u.in), number("gen_ai.usage.output_tokens", u.out))
		}
		if u.cached > 0 {
			at = append(at, number("gen_ai.usage.cache_read.input_tokens", u.cached))
		}
		if u.reasoning > 0 {
			at = append(at, number("gen_ai.usage.reasoning.output_tokens", u.reasoning))
		}
	}
	a.span(ctx, "chat "+model, oteltrace.SpanKindClient, 700*time.Millisecond, at, failure, inside)
}

func (a *agent) tool(ctx context.Context, name, args, failure string, inside func(context.Context)) {
	a.span(ctx, "execute_tool "+name, oteltrace.SpanKindInternal, 80*time.Millisecond, attrs{text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", name), text("gen_ai.tool.call.arguments", args)}, failure, inside)
}

func (a *agent) query(ctx context.Context, table string) {
	a.span(ctx, "SELECT "+table, oteltrace.SpanKindClient, 5*time.Millisecond, attrs{text("db.system.name", "postgresql"), text("db.operation.name", "SELECT"), text("db.collection.name", table)}, "", nil)
}

// http plays one attempt on the wire inside an SDK.
func (a *agent) http(ctx context.Context, status int) {
	failure := ""
	if status >= 400 {
		failure = fmt.Sprint(status)
	}
	a.span(ctx, "POST", oteltrace.SpanKindClient, 120*time.Millisecond, attrs{text("http.request.method", "POST"), text("url.full", "https://api.openai.com/v1/chat/completions"), number("http.response.status_code", status)}, failure, nil)
}

// request is the root of a run.
func (a *agent) request(workflow, user, feature string, inside func(context.Context)) {
	a.span(context.Background(), "invoke_agent "+workflow, oteltrace.SpanKindServer, 50*time.Millisecond, attrs{text("gen_ai.operation.name", "invoke_agent"), text("gen_ai.agent.name", workflow), text("gen_ai.workflow.name", workflow), text("user.id", user), text("app.feature", feature)}, "", inside)
}

// quote is the run by which amplification is defined: 4 model calls, 7 database
// queries, 3 CRM calls, 2 pricing calls, 1 retry by the SDK and 1 by the agent
// for one request: 18.
func (a *agent) quote(user string) {
	a.request("quote", user, "sales", func(ctx context.Context) {
		a.chat(ctx, "openai", "gpt-5", usage{4200, 3072, 310, 128}, "", func(ctx context.Context) { a.http(ctx, 429); a.http(ctx, 200) })
		for _, t := range []string{"customers", "orders", "contracts", "discounts"} {
			a.query(ctx, t)
		}
		a.tool(ctx, "crm.lookup", `{"customer":"c-17"}`, "timeout", nil)
		a.chat(ctx, "openai", "gpt-5", usage{5100, 4096, 220, 64}, "", nil)
		a.tool(ctx, "crm.lookup", `{"customer":"c-17"}`, "", nil)
		a.tool(ctx, "crm.history", `{"customer":"c-17"}`, "", nil)
		a.tool(ctx, "crm.contacts", `{"customer":"c-17"}`, "", nil)
		a.chat(ctx, "openai", "gpt-5", usage{6900, 5120, 280, 64}, "", nil)
		for _, t := range []string{"price_lists", "stock", "taxes"} {
			a.query(ctx, t)
		}
		a.tool(ctx, "pricing.base", `{"sku":"s-1"}`, "", nil)
		a.tool(ctx, "pricing.discount", `{"sku":"s-1"}`, "", nil)
		a.chat(ctx, "openai", "gpt-5", usage{8200, 7168, 540, 0}, "", nil)
	})
}

// support answers from a long cached prompt.
func (a *agent) support(user string) {
	a.request("support", user, "helpdesk", func(ctx context.Context) {
		a.chat(ctx, "openai", "gpt-5-mini", usage{12000, 11264, 160, 0}, "", nil)
		a.tool(ctx, "kb.search", fmt.Sprintf(`{"q":%d}`, rand.Int()), "", nil)
		a.chat(ctx, "openai", "gpt-5-mini", usage{12900, 11264, 420, 0}, "", nil)
	})
}

// storm is a framework that tries again and again while the provider says 429.
func (a *agent) storm(user string) {
	a.request("summarise", user, "reports", func(ctx context.Context) {
		for range 5 {
			a.chat(ctx, "openai", "gpt-4o", usage{}, "429", func(ctx context.Context) { a.http(ctx, 429); a.http(ctx, 429); a.http(ctx, 429) })
			a.now = a.now.Add(time.Second)
		}
		a.chat(ctx, "openai", "gpt-4o", usage{9000, 0, 600, 0}, "", nil)
	})
}

// loop asks the same tool for the same thing until somebody stops it: this agent asks
// the governor before each call, and gets to hear no once its run has cost too much.
func (a *agent) loop(ctx context.Context, user string, l *limiter.Limiter) (calls int, stopped limiter.Decision) {
	ctx, root := a.tracer.Start(ctx, "invoke_agent research", oteltrace.WithSpanKind(oteltrace.SpanKindServer),
		oteltrace.WithAttributes(text("gen_ai.operation.name", "invoke_agent"), text("gen_ai.agent.name", "research"), text("gen_ai.workflow.name", "research"), text("user.id", user), text("app.feature", "research")))
	defer root.End()
	call := limiter.Call{Tenant: "umbrella", User: user, Feature: "research", Workflow: "research", Model: "gemini-2.5-pro", TraceID: root.SpanContext().TraceID().String()}
	for i := range 400 {
		if d, err := l.Admit(ctx, &call); err != nil || d.Verdict == directive.Deny {
			l.Refused(&call, &d)
			return i, d
		}
		a.now = time.Now()
		a.chat(ctx, "google", "gemini-2.5-pro", usage{9000 + 300*i, 8000, 40, 0}, "", nil)
		a.tool(ctx, "web.fetch", `{"url":"https://example.org/pricing"}`, "", nil)
		select {
		case <-ctx.Done():
			return i, limiter.Decision{}
		case <-time.After(100 * time.Millisecond):
		}
	}
	return 400, limiter.Decision{}
}

// unpriced calls a model that no price list knows, and one whose stream brings no usage.
func (a *agent) unpriced(user string) {
	a.request("draft", user, "writer", func(ctx context.Context) {
		a.chat(ctx, "nucleus", "nucleus-9-preview", usage{3000, 0, 700, 0}, "", nil)
		a.chat(ctx, "openai", "gpt-4o", usage{}, "", nil)
	})
}

// playTraffic lets the agents work for the given time, exporting over OTLP gRPC.
// Each tenant is a process of its own, which says so in its resource: the tenant
// is decided per span, so a root alone cannot say it for its children.
func playTraffic(ctx context.Context, endpoint string, length time.Duration, l *limiter.Limiter) (err error) {
	tracers := map[string]oteltrace.Tracer{}
	for _, tenant := range []string{"acme", "globex", "initech", "umbrella", "hooli"} {
		exp, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure())
		if err != nil {
			return fmt.Errorf("start exporter: %w", err)
		}
		tp := sdk.NewTracerProvider(sdk.WithBatcher(exp, sdk.WithBatchTimeout(200*time.Millisecond), sdk.WithMaxQueueSize(16384)),
			sdk.WithResource(resource.NewSchemaless(text("service.name", "demo-agents"), text("tenant.id", tenant), text("deployment.environment.name", "demo"))))
		defer func() { err = errors.Join(err, tp.Shutdown(context.WithoutCancel(ctx))) }()
		tracers[tenant] = tp.Tracer("flyball.demo")
	}
	end := time.Now().Add(length)
	var looping sync.WaitGroup
	defer looping.Wait()
	for round := 0; time.Now().Before(end); round++ {
		user := fmt.Sprintf("user-%d", 1+round%7)
		play := func(tenant string, f func(a *agent, user string)) {
			f(&agent{tracer: tracers[tenant], now: time.Now().Add(-time.Minute)}, user)
		}
		play("globex", (*agent).support)
		if round%2 == 0 {
			play("acme", (*agent).quote)
		}
		if round%4 == 1 {
			play("initech", (*agent).storm)
		}
		if round%5 == 2 {
			play("hooli", (*agent).unpriced)
		}
		if round == 3 {
			looping.Go(func() {
				a := &agent{tracer: tracers["umbrella"]}
				calls, d := a.loop(ctx, user, l)
				fmt.Fprintf(os.Stderr, "the looping agent of umbrella was stopped after %d calls: %s\n", calls, d.Reason)
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}
