package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/flyball/flyball/enforce/limiter"
	"github.com/flyball/flyball/enforce/limiter/otelmetrics"
)

// breakers are what the limiter says of breakers, one a line.
func breakers(l *limiter.Limiter) []string {
	var out []string
	l.Signals(func(metric string, value float64, attributes ...string) {
		if name, ok := strings.CutPrefix(metric, "flyball.limiter.breaker."); ok {
			out = append(out, fmt.Sprint(name, " ", value, " ", strings.Join(attributes, " ")))
		}
	})
	slices.Sort(out)
	return out
}

// Any breaker that has a hook is on the board. This is that of github.com/sony/gobreaker.
func ExampleLimiter_BreakerChanged() {
	l, err := limiter.New(limiter.Options{URL: "http://127.0.0.1:8080"})
	if err != nil {
		panic(err)
	}
	crm := gobreaker.NewCircuitBreaker[string](gobreaker.Settings{
		Name:          "crm",
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 2 },
		OnStateChange: func(tool string, _, to gobreaker.State) { l.BreakerChanged(limiter.Breaker{Tool: tool}, to.String()) },
	})
	for range 3 {
		_, err = crm.Execute(func() (string, error) { return "", errors.New("the CRM is down") })
	}
	fmt.Println(err)
	for _, line := range breakers(l) {
		fmt.Println(line)
	}
	// Output:
	// circuit breaker is open
	// open 1 gen_ai.tool.name crm
	// transitions 1 gen_ai.tool.name crm flyball.limiter.breaker.state open
}

// TestBreakerChanged: a breaker opens, tries, and closes; each state is counted when it is
// entered, and the level says where it is, in what OpenTelemetry exports too.
func TestBreakerChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := limiter.New(limiter.Options{URL: "http://127.0.0.1:8080", ID: "gw-1"})
		if err != nil {
			t.Fatal(err)
		}
		openai := limiter.Breaker{Provider: "openai", Model: "gpt-5"}
		cb := gobreaker.NewCircuitBreaker[bool](gobreaker.Settings{
			Timeout:       time.Minute,
			ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 1 },
			OnStateChange: func(_ string, _, to gobreaker.State) { l.BreakerChanged(openai, to.String()) },
		})
		f := func(what error, want ...string) {
			t.Helper()
			_, _ = cb.Execute(func() (bool, error) { return what == nil, what })
			if got := breakers(l); !slices.Equal(got, want) {
				t.Errorf("\n got %q\nwant %q", got, want)
			}
		}
		const of = "gen_ai.provider.name openai gen_ai.request.model gpt-5"
		const entered = "transitions %d " + of + " flyball.limiter.breaker.state %s"
		down := errors.New("down")
		f(nil)
		f(down, "open 1 "+of, fmt.Sprintf(entered, 1, "open"))
		time.Sleep(2 * time.Minute) // it tries again, and that fails
		f(down, "open 1 "+of, fmt.Sprintf(entered, 1, "half_open"), fmt.Sprintf(entered, 2, "open"))
		time.Sleep(2 * time.Minute)
		f(nil, "open 0 "+of, fmt.Sprintf(entered, 1, "closed"), fmt.Sprintf(entered, 2, "half_open"), fmt.Sprintf(entered, 2, "open"))
		l.BreakerChanged(limiter.Breaker{Tool: "crm"}, "HALF-OPEN")
		l.BreakerChanged(limiter.Breaker{Tool: "crm"}, "ajar")
		l.BreakerChanged(limiter.Breaker{Model: "gpt-5"}, "open")

		reader := sdkmetric.NewManualReader()
		if err := otelmetrics.Register(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"), l); err != nil {
			t.Fatal(err)
		}
		var out metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &out); err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, m := range out.ScopeMetrics[0].Metrics {
			var points []metricdata.DataPoint[float64]
			switch d := m.Data.(type) {
			case metricdata.Sum[float64]:
				if !d.IsMonotonic || m.Unit != "{transition}" {
					t.Errorf("%s in %s is no counter", m.Name, m.Unit)
				}
				points = d.DataPoints
			case metricdata.Gauge[float64]:
				points = d.DataPoints
			}
			for _, p := range points {
				text := strings.TrimPrefix(m.Name, "flyball.limiter.breaker.")
				for _, kv := range p.Attributes.ToSlice() {
					text += " " + string(kv.Key) + "=" + kv.Value.Emit()
				}
				got[text] = p.Value
			}
		}
		want := map[string]float64{
			"open flyball.limiter.id=gw-1 gen_ai.tool.name=crm":                                                                                  0.5,
			"transitions flyball.limiter.breaker.state=half_open flyball.limiter.id=gw-1 gen_ai.tool.name=crm":                                   1,
			"open flyball.limiter.id=gw-1 gen_ai.provider.name=openai gen_ai.request.model=gpt-5":                                                0,
			"transitions flyball.limiter.breaker.state=closed flyball.limiter.id=gw-1 gen_ai.provider.name=openai gen_ai.request.model=gpt-5":    1,
			"transitions flyball.limiter.breaker.state=half_open flyball.limiter.id=gw-1 gen_ai.provider.name=openai gen_ai.request.model=gpt-5": 2,
			"transitions flyball.limiter.breaker.state=open flyball.limiter.id=gw-1 gen_ai.provider.name=openai gen_ai.request.model=gpt-5":      2,
		}
		if !maps.Equal(got, want) {
			t.Errorf("exported\n got %v\nwant %v", got, want)
		}
	})
}

// TestBreakersAreBounded: tools that a caller makes up do not fill the memory.
func TestBreakersAreBounded(t *testing.T) {
	l, err := limiter.New(limiter.Options{URL: "http://127.0.0.1:8080"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1050 {
		l.BreakerChanged(limiter.Breaker{Tool: fmt.Sprint("tool-", i)}, "open")
	}
	got := breakers(l)
	if len(got) != 2*1000+1 || !slices.Contains(got, "transitions 50 gen_ai.tool.name _OTHER flyball.limiter.breaker.state open") {
		t.Errorf("%d signals", len(got))
	}
}
