// Package otelmetrics exports what a limiter says of itself through OpenTelemetry, for Go
// programs that use its metrics anyway: package limiter itself depends on no such thing.
//
// It guarantees that the metrics are those which the service stores and its boards show,
// and that a collection costs the limiter one look at its counts. It sets no provider up:
// where the metrics go, and how often, is the program's choice.
package otelmetrics

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Limiter is what is exported: a *limiter.Limiter.
type Limiter interface {
	ID() string
	Signals(say func(metric string, value float64, attributes ...string))
	OnWait(f func(provider, model string, wait time.Duration))
}

// Register makes the instruments of a limiter. They live as long as the meter's provider;
// a second call for the same limiter counts everything twice.
func Register(m metric.Meter, l Limiter) error {
	var all []metric.Observable
	byName := map[string]metric.Float64Observable{}
	add := func(name string, o metric.Float64Observable, err error) error {
		byName[name], all = o, append(all, o)
		return err
	}
	gauge := func(name, unit, about string) error {
		o, err := m.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
		return add(name, o, err)
	}
	counter := func(name, unit, about string) error {
		o, err := m.Float64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
		return add(name, o, err)
	}
	waits, err := m.Float64Histogram("flyball.limiter.queue.wait_time", metric.WithUnit("s"), metric.WithDescription("Time that a call waited for a throttle."),
		metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60))
	err = errors.Join(err,
		gauge("flyball.limiter.bucket.fill", "1", "Share that is left of a provider's limit."),
		gauge("flyball.limiter.bucket.limit", "{unit}", "A provider's limit, in what its dimension counts."),
		gauge("flyball.limiter.bucket.remaining", "{unit}", "What is left of a provider's limit."),
		counter("flyball.limiter.attempts", "{attempt}", "Requests that were sent to a model, by outcome."),
		counter("flyball.limiter.retries", "{retry}", "Attempts that repeat a former one."),
		gauge("flyball.limiter.queue.depth", "{request}", "Calls that wait for a throttle."),
		counter("flyball.limiter.breaker.transitions", "{transition}", "Times that a circuit breaker entered a state."),
		gauge("flyball.limiter.breaker.open", "1", "1 while a circuit breaker refuses calls, 0.5 while it tries some, 0 while it is closed."),
	)
	if err != nil {
		return fmt.Errorf("make instruments of a limiter: %w", err)
	}
	id := attribute.String("flyball.limiter.id", l.ID())
	_, err = m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		l.Signals(func(name string, value float64, attributes ...string) {
			if o, ok := byName[name]; ok {
				to.ObserveFloat64(o, value, metric.WithAttributes(append(pairs(attributes), id)...))
			}
		})
		return nil
	}, all...)
	if err != nil {
		return fmt.Errorf("observe a limiter: %w", err)
	}
	l.OnWait(func(provider, model string, wait time.Duration) {
		waits.Record(context.Background(), wait.Seconds(), metric.WithAttributes(append(pairs([]string{"gen_ai.provider.name", provider, "gen_ai.request.model", model}), id)...))
	})
	return nil
}

// pairs are attributes given as names and values in turn. What is empty is not known, and
// left out.
func pairs(names []string) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(names)/2+1)
	for i := 0; i+1 < len(names); i += 2 {
		name, value := names[i], names[i+1]
		if n, err := strconv.Atoi(value); err == nil && name == "http.response.status_code" {
			out = append(out, attribute.Int(name, n))
		} else if value != "" {
			out = append(out, attribute.String(name, value))
		}
	}
	return out
}
