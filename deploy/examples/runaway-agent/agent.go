package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// tenant is whose agents these are.
const tenant = "acme"

// exportDelay is how long a finished span waits for others at the most. It is the
// largest part of the time until a guard knows what was spent.
const exportDelay = 100 * time.Millisecond

// host is a process that runs agents: it has one limiter, which every call to the
// provider passes, and one exporter of spans. The example has several in one program.
type host struct {
	name    string
	limiter *limiter.Limiter
	client  *http.Client
	chat    string // URL of the provider
	tracer  oteltrace.Tracer
	spans   *sdk.TracerProvider
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// newHost follows the service's directives. close ends it.
func newHost(ctx context.Context, name, service, otlp, chat string) (*host, error) {
	l, err := limiter.New(limiter.Options{URL: service, ID: name})
	if err != nil {
		return nil, err
	}
	exp, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(otlp), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, fmt.Errorf("start exporter: %w", err)
	}
	h := &host{name: name, limiter: l, chat: chat}
	h.spans = sdk.NewTracerProvider(sdk.WithBatcher(exp, sdk.WithBatchTimeout(exportDelay), sdk.WithMaxQueueSize(16384)),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", name), attribute.String("tenant.id", tenant))))
	h.tracer = h.spans.Tracer("flyball.example")
	// This is all that a guarded agent needs: its HTTP client goes through the limiter.
	h.client = &http.Client{Transport: l.Transport(limiter.TransportOptions{}), Timeout: 10 * time.Second}
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.done.Go(func() { _ = l.Follow(ctx) })
	return h, nil
}

func (h *host) close(ctx context.Context) error {
	err := h.spans.Shutdown(ctx)
	h.stop()
	h.done.Wait()
	return err
}

// job is one user request and whose it is.
type job struct {
	h                  *host
	run, user, feature string
}

// refusal is a call that a guard did not let through.
type refusal struct {
	Status  int    `json:"status"`
	Guard   string `json:"guard"`
	Detail  string `json:"detail"`
	Outcome string `json:"outcome"`
	kind    string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d from %s: %s", r.Status, r.Guard, r.Detail) }

// refused is the refusal that an error is, nil if it is none.
func refused(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}

// span starts a span that says whose work it is. The root of a run ends last, so
// that every span says it: a guard then need not wait for the root.
func (j *job) span(ctx context.Context, name string, kind oteltrace.SpanKind, at ...attribute.KeyValue) (context.Context, oteltrace.Span) {
	at = append(at, attribute.String("app.run.id", j.run), attribute.String("user.id", j.user), attribute.String("app.feature", j.feature))
	return j.h.tracer.Start(ctx, name, oteltrace.WithSpanKind(kind), oteltrace.WithAttributes(at...))
}

// identity is whose call it is, for the limiter.
func (j *job) identity(span oteltrace.Span) limiter.Call {
	id := span.SpanContext()
	return limiter.Call{Tenant: tenant, User: j.user, Feature: j.feature, RunID: j.run, TraceID: id.TraceID().String(), SpanID: id.SpanID().String()}
}

// do runs the agent's work below the root span of its run.
func (j *job) do(ctx context.Context, work func(context.Context) error) error {
	ctx, root := j.span(ctx, "invoke_agent "+j.feature, oteltrace.SpanKindServer, attribute.String("gen_ai.operation.name", "invoke_agent"), attribute.String("gen_ai.agent.name", j.feature))
	defer root.End()
	err := work(ctx)
	if err != nil {
		fail(root, err)
	}
	return err
}

func fail(s oteltrace.Span, err error) {
	s.SetStatus(codes.Error, err.Error())
	kind := fmt.Sprintf("%T", err)
	if r := refused(err); r != nil {
		kind = r.kind
		s.SetAttributes(attribute.Int("http.response.status_code", r.Status))
	}
	s.SetAttributes(attribute.String("error.type", kind))
}

// ask asks the model, as an instrumented SDK does: the span has the model that was
// asked for, the one that answered, and what the provider says it used.
func (j *job) ask(ctx context.Context, model, question string) (err error) {
	ctx, span := j.span(ctx, "chat "+model, oteltrace.SpanKindClient, attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.provider.name", "openai"), attribute.String("gen_ai.request.model", model))
	defer func() {
		if err != nil {
			fail(span, err)
		}
		span.End()
	}()
	body, err := json.Marshal(map[string]any{
		"model": model, "max_completion_tokens": tokensOut, "metadata": map[string]string{"run": j.run, "feature": j.feature},
		"messages": []any{map[string]string{"role": "user", "content": question}},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(limiter.WithCall(ctx, j.identity(span)), http.MethodPost, j.h.chat, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := j.h.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", model, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		var problem struct {
			refusal
			Error struct{ Type string }
		}
		if err := json.Unmarshal(text, &problem); err != nil || problem.Guard == "" {
			return fmt.Errorf("ask %s: %s: %s", model, resp.Status, text)
		}
		problem.kind = problem.Error.Type
		return &problem.refusal
	}
	var answer struct {
		ID, Model string
		Usage     struct {
			In  int `json:"prompt_tokens"`
			Out int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	span.SetAttributes(attribute.String("gen_ai.response.id", answer.ID), attribute.String("gen_ai.response.model", answer.Model), attribute.Int("gen_ai.usage.input_tokens", answer.Usage.In), attribute.Int("gen_ai.usage.output_tokens", answer.Usage.Out))
	return nil
}

// search is a tool that never finds anything. Tools do not pass the HTTP client, so
// the agent asks the limiter itself: a run that is stopped calls no tool either.
func (j *job) search(ctx context.Context, args string) error {
	ctx, span := j.span(ctx, "execute_tool search", oteltrace.SpanKindInternal, attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", "search"), attribute.String("gen_ai.tool.call.arguments", args))
	defer span.End()
	c := j.identity(span)
	c.Tool = "search"
	d, err := j.h.limiter.Admit(ctx, &c)
	if err != nil {
		return err
	}
	if d.Verdict == directive.Deny {
		r := &refusal{Status: d.Status(), Guard: d.Guard, Detail: d.Reason, Outcome: d.Outcome, kind: "flyball_budget_exceeded"}
		fail(span, r)
		return r
	}
	time.Sleep(10 * time.Millisecond)
	return nil
}
