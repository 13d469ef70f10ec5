package app

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// TestOwnTraces: a service with an endpoint for its traces exports a span for what it takes in,
// inserts and answers, and none of them comes back as somebody's.
func TestOwnTraces(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		req := ptraceotlp.NewExportRequest()
		if err = req.UnmarshalProto(body); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.Traces().ResourceSpans().All() {
			name, _ := rs.Resource().Attributes().Get("service.name")
			for _, ss := range rs.ScopeSpans().All() {
				for _, sp := range ss.Spans().All() {
					seen[name.AsString()+": "+sp.Name()] = true
				}
			}
		}
	}))
	defer sink.Close()
	s := newService(t, "", "FLYBALL_TRACING__ENDPOINT="+sink.URL+"/v1/traces", "OTEL_BSP_SCHEDULE_DELAY=100")
	s.start()
	b := runs(0, 20)
	s.mustSend(b.td)
	s.drain()
	s.get("/spend")
	eventually(t, "the spans come", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return seen["flyball: take spans"] && seen["flyball: insert"] && seen["flyball: GET /api/v1/spend"]
	})
	ids := map[string]bool{}
	for _, id := range b.ids {
		ids[id] = true
	}
	s.checkSpans(ids, nil)
}

// TestOwnTracesElsewhere: the service is no place for its own traces, under any name.
func TestOwnTracesElsewhere(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	own := &Listen{OTLPHTTP: "0.0.0.0:4318", OTLPGRPC: "127.0.0.1:4317"}
	hosts := []string{"127.0.0.1", "localhost", "[::1]"}
	if _, err := net.LookupHost(host); err == nil {
		hosts = append(hosts, host)
	}
	for _, host := range hosts {
		u := url.URL{Scheme: "http", Host: host + ":4318", Path: "/v1/traces"}
		if stop, err := startTracing(t.Context(), Tracing{Endpoint: u.String()}, own); err == nil || !strings.Contains(err.Error(), "own receiver") {
			t.Errorf("%s: %v", u.String(), err)
			if stop != nil {
				_ = stop(t.Context())
			}
		}
	}
}
