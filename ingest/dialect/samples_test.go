package dialect

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/flyball/flyball/schema"
)

const sampleReceived = int64(1_800_000_000_000_000_000)

// signals reads OTLP JSON that holds the given metrics under one resource.
func signals(t *testing.T, from Origin, metrics string) ([]schema.Sample, int64, Rejected) {
	t.Helper()
	r, err := New(Options{Attributes: map[string][]string{"tenant": {"team"}}})
	if err != nil {
		t.Fatal(err)
	}
	md, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics([]byte(`{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.instance.id","value":{"stringValue":"gw-1"}},{"key":"team","value":{"stringValue":"t-1"}}]},"scopeMetrics":[{"metrics":[` + metrics + `]}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return r.AppendSamples(nil, md, from, sampleReceived)
}

// attr is a list of attributes in OTLP JSON.
func attr(pairs ...string) string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, fmt.Sprintf(`{"key":%q,"value":{"stringValue":%q}}`, pairs[i], pairs[i+1]))
	}
	return `"attributes":[` + strings.Join(out, ",") + `]`
}

var (
	bucketAttr = attr("gen_ai.provider.name", "azure.ai.openai", "gen_ai.request.model", "m-5", "flyball.limiter.dimension", "tokens", "secret", "a prompt")
	modelAttr  = attr("gen_ai.provider.name", "openai", "gen_ai.request.model", "m-5", "http.response.status_code", "429")
	toolAttr   = attr("gen_ai.tool.name", "crm", "flyball.limiter.breaker.state", "HALF-OPEN")
)

const (
	instant = `"startTimeUnixNano":"1799999990000000000","timeUnixNano":"1799999999000000000"`
	at      = int64(1_799_999_999_000_000_000)
	start   = int64(1_799_999_990_000_000_000)
)

func TestSamples(t *testing.T) {
	f := func(metric string, want schema.Sample) {
		t.Helper()
		samples, ignored, rejected := signals(t, Origin{}, metric)
		if len(samples) != 1 || ignored != 0 || rejected != nil {
			t.Fatalf("%s: %+v, %d ignored, %v", metric, samples, ignored, rejected)
		}
		got := samples[0]
		if got.Series == 0 {
			t.Errorf("%s: no series", metric)
		}
		want.Tenant, want.Limiter, want.At, want.RecordedAt, want.Series = "t-1", "gw-1", at, sampleReceived/1000, got.Series
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", metric, got, want)
		}
	}
	f(`{"name":"flyball.limiter.bucket.fill","unit":"1","gauge":{"dataPoints":[{"asDouble":0.25,`+instant+`,`+bucketAttr+`}]}}`,
		schema.Sample{Metric: "flyball.limiter.bucket.fill", Value: 0.25, Provider: "azure", Model: "m-5", Dimension: "tokens"})
	f(`{"name":"flyball.limiter.bucket.fill","unit":"%","gauge":{"dataPoints":[{"asInt":"25",`+instant+`,`+bucketAttr+`}]}}`,
		schema.Sample{Metric: "flyball.limiter.bucket.fill", Value: 0.25, Provider: "azure", Model: "m-5", Dimension: "tokens"})
	f(`{"name":"flyball.limiter.bucket.remaining","unit":"{token}","gauge":{"dataPoints":[{"asInt":"1500",`+instant+`,`+bucketAttr+`}]}}`,
		schema.Sample{Metric: "flyball.limiter.bucket.remaining", Value: 1500, Provider: "azure", Model: "m-5", Dimension: "tokens"})
	f(`{"name":"flyball.limiter.attempts","unit":"{attempt}","sum":{"isMonotonic":true,"aggregationTemporality":1,"dataPoints":[{"asInt":"7",`+instant+`,`+modelAttr+`}]}}`,
		schema.Sample{Metric: "flyball.limiter.attempts", Value: 7, Start: start, Temporality: schema.Delta, Provider: "openai", Model: "m-5", HTTPStatus: 429})
	f(`{"name":"flyball.limiter.retries","sum":{"isMonotonic":true,"aggregationTemporality":2,"dataPoints":[{"asDouble":3,`+instant+`,`+modelAttr+`}]}}`,
		schema.Sample{Metric: "flyball.limiter.retries", Value: 3, Start: start, Temporality: schema.Cumulative, Provider: "openai", Model: "m-5", HTTPStatus: 429})
	f(`{"name":"flyball.limiter.queue.depth","unit":"{request}","sum":{"isMonotonic":false,"aggregationTemporality":2,"dataPoints":[{"asInt":"4",`+instant+`,`+modelAttr+`}]}}`,
		schema.Sample{Metric: "flyball.limiter.queue.depth", Value: 4, Provider: "openai", Model: "m-5", HTTPStatus: 429})
	f(`{"name":"flyball.limiter.queue.wait_time","unit":"ms","histogram":{"aggregationTemporality":2,"dataPoints":[{"count":"3","sum":1500,"explicitBounds":[100,1000],"bucketCounts":["1","1","1"],`+instant+`}]}}`,
		schema.Sample{Metric: "flyball.limiter.queue.wait_time", Value: 1.5, Count: 3, Bounds: []float64{0.1, 1}, Buckets: []uint64{1, 1, 1}, Start: start, Temporality: schema.Cumulative})
	f(`{"name":"flyball.limiter.queue.wait_time","unit":"s","exponentialHistogram":{"aggregationTemporality":1,"dataPoints":[{"count":"3","sum":1.5,"scale":1,"positive":{"bucketCounts":["3"]},`+instant+`}]}}`,
		schema.Sample{Metric: "flyball.limiter.queue.wait_time", Value: 1.5, Count: 3, Start: start, Temporality: schema.Delta})
	f(`{"name":"flyball.limiter.queue.wait_time","unit":"s","summary":{"dataPoints":[{"count":"3","sum":1.5,`+instant+`}]}}`,
		schema.Sample{Metric: "flyball.limiter.queue.wait_time", Value: 1.5, Count: 3, Start: start, Temporality: schema.Cumulative})
	f(`{"name":"flyball.limiter.breaker.transitions","unit":"{transition}","sum":{"isMonotonic":true,"aggregationTemporality":2,"dataPoints":[{"asInt":"2",`+instant+`,`+toolAttr+`}]}}`,
		schema.Sample{Metric: "flyball.limiter.breaker.transitions", Value: 2, Start: start, Temporality: schema.Cumulative, Tool: "crm", State: "half_open"})
	f(`{"name":"flyball.limiter.breaker.open","unit":"1","gauge":{"dataPoints":[{"asDouble":0.5,`+instant+`,`+toolAttr+`}]}}`,
		schema.Sample{Metric: "flyball.limiter.breaker.open", Value: 0.5, Tool: "crm", State: "half_open"})
}

// A metric that is not documented, or a point without a value, is ignored; one that is
// documented and wrong is refused, with what to do.
func TestSamplesRefused(t *testing.T) {
	f := func(metric string, ignored int64, why string) {
		t.Helper()
		samples, n, rejected := signals(t, Origin{}, metric)
		if len(samples) != 0 || n != ignored {
			t.Errorf("%s: %+v, %d ignored, want %d", metric, samples, n, ignored)
		}
		if why == "" && rejected != nil {
			t.Errorf("%s: %v", metric, rejected)
		}
		if why != "" && (len(rejected) != 1 || !strings.Contains(fmt.Sprint(rejected), why)) {
			t.Errorf("%s: rejected %v, want %s", metric, rejected, why)
		}
	}
	gauge := func(name, unit, value, attrs string) string {
		return `{"name":"` + name + `","unit":"` + unit + `","gauge":{"dataPoints":[{` + value + `,` + instant + `,` + attrs + `}]}}`
	}
	f(gauge("http.server.active_requests", "{request}", `"asInt":"1"`, modelAttr), 1, "")
	f(gauge("flyball.limiter.queue.length", "{request}", `"asInt":"1"`, modelAttr), 1, "")
	f(gauge("flyball.limiter.queue.depth", "{request}", `"flags":1`, modelAttr), 1, "")
	f(`{"name":"flyball.limiter.queue.wait_time","histogram":{"aggregationTemporality":2,"dataPoints":[{"count":"3",`+instant+`}]}}`, 1, "")
	f(gauge("flyball.limiter.queue.depth", "By", `"asInt":"1"`, modelAttr), 0, "another unit than a count")
	f(gauge("flyball.limiter.bucket.fill", "{request}", `"asDouble":0.1`, bucketAttr), 0, "another unit than 1")
	f(gauge("flyball.limiter.bucket.fill", "1", `"asDouble":1.1`, bucketAttr), 0, "over 1")
	f(gauge("flyball.limiter.bucket.fill", "1", `"asDouble":"NaN"`, bucketAttr), 0, "no number")
	f(gauge("flyball.limiter.bucket.fill", "1", `"asDouble":0.5`, modelAttr), 0, "flyball.limiter.dimension")
	f(gauge("flyball.limiter.queue.depth", "", `"asInt":"-1"`, modelAttr), 0, "negative")
	f(gauge("flyball.limiter.breaker.open", "1", `"asInt":"1"`, attr("other", "x")), 0, "gen_ai.tool.name")
	f(gauge("flyball.limiter.attempts", "", `"asInt":"1"`, modelAttr), 0, "monotonic sum")
	f(`{"name":"flyball.limiter.attempts","sum":{"isMonotonic":false,"aggregationTemporality":2,"dataPoints":[{"asInt":"7",`+instant+`,`+modelAttr+`}]}}`, 0, "monotonic sum")
	f(`{"name":"flyball.limiter.attempts","sum":{"isMonotonic":true,"dataPoints":[{"asInt":"7",`+instant+`,`+modelAttr+`}]}}`, 0, "delta or cumulative")
	f(`{"name":"flyball.limiter.queue.depth","sum":{"aggregationTemporality":1,"dataPoints":[{"asInt":"7",`+instant+`,`+modelAttr+`}]}}`, 0, "cumulative sum that is not monotonic")
	f(`{"name":"flyball.limiter.queue.wait_time","sum":{"isMonotonic":true,"aggregationTemporality":2,"dataPoints":[{"asInt":"7",`+instant+`,`+modelAttr+`}]}}`, 0, "histogram")
	f(`{"name":"flyball.limiter.breaker.transitions","sum":{"isMonotonic":true,"aggregationTemporality":2,"dataPoints":[{"asInt":"2",`+instant+`,`+attr("gen_ai.tool.name", "crm", "flyball.limiter.breaker.state", "ajar")+`}]}}`, 0, "not open, half_open or closed")
	f(`{"name":"flyball.limiter.queue.depth","unit":"s"}`, 0, "")
}

// The tenant is the credential's, as for spans.
func TestSampleTenant(t *testing.T) {
	metric := `{"name":"flyball.limiter.queue.depth","gauge":{"dataPoints":[{"asInt":"1",` + instant + `}]}}`
	f := func(from Origin, want string) {
		t.Helper()
		samples, _, rejected := signals(t, from, metric)
		got := ""
		if len(samples) == 1 {
			got = samples[0].Tenant
		}
		if got != want || (want == "") != (rejected["tenant not allowed by the key"] == 1) {
			t.Errorf("%+v: tenant %q, want %q, rejected %v", from, got, want, rejected)
		}
	}
	f(Origin{}, "t-1")
	f(Origin{Tenant: "t-9"}, "t-9")
	f(Origin{Default: "t-2", Allowed: func(t string) bool { return t == "t-1" }}, "t-1")
	f(Origin{Default: "t-2", Allowed: func(t string) bool { return t == "t-2" }}, "")
}

// Series are told apart by every attribute, also by those that are not kept; their order
// says nothing. Instants that cannot be are replaced.
func TestSampleSeries(t *testing.T) {
	one := func(point string) schema.Sample {
		t.Helper()
		samples, _, _ := signals(t, Origin{}, `{"name":"flyball.limiter.queue.depth","gauge":{"dataPoints":[{"asInt":"1",`+point+`}]}}`)
		if len(samples) != 1 {
			t.Fatalf("%s: %+v", point, samples)
		}
		return samples[0]
	}
	a, b, c := one(instant+`,`+attr("x", "1", "y", "2")), one(instant+`,`+attr("y", "2", "x", "1")), one(instant+`,`+attr("x", "2", "y", "1"))
	if a.Series != b.Series || a.Series == c.Series {
		t.Errorf("series %x, the same in another order %x, another one %x", a.Series, b.Series, c.Series)
	}
	if got := one(`"timeUnixNano":"5"`); got.At != sampleReceived {
		t.Errorf("an instant of 1970 is kept: %d", got.At)
	}
	if got := one(fmt.Sprintf(`"timeUnixNano":"%d"`, sampleReceived+int64(time.Hour))); got.At != sampleReceived {
		t.Errorf("an instant in the future is kept: %d", got.At)
	}
	if got := one(instant + `,` + attr("flyball.limiter.id", "l-1")); got.Limiter != "l-1" {
		t.Errorf("limiter %q", got.Limiter)
	}
	if got := one(instant + `,` + attr("gen_ai.request.model", strings.Repeat("m", 500))); len(got.Model) != 128 {
		t.Errorf("a model of %d bytes", len(got.Model))
	}
}
