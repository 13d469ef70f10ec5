package envoy

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
)

// charging is one call of Options.Charge.
type charging struct {
	call  directive.Call
	usage Usage
	key   string
}

// fixture is a server on loopback that decides by a real set of directives.
type fixture struct {
	server   *Server
	registry *prometheus.Registry
	addr     string
	conn     *grpc.ClientConn
	auth     authv3.AuthorizationClient
	rls      rlsv3.RateLimitServiceClient
	secrets  map[string]string

	mu      sync.Mutex // guards what is below
	ds      *directive.Set
	state   directive.State
	left    *Budget
	failure error
	calls   []directive.Call // that were asked about
	charges []charging
	keys    []schema.Key
	ring    *schema.Keyring
}

// newFixture starts a server with a limiter's key of the name for the tenants; a
// single one is the key's own. Without a name there are no keys.
func newFixture(t testing.TB, key string, tenants ...string) *fixture {
	t.Helper()
	f := &fixture{ds: directive.NewSet(), registry: prometheus.NewRegistry(), secrets: map[string]string{}}
	f.publish(t)
	if key != "" {
		k := schema.Key{Name: key, Role: schema.KeyLimiter, Tenants: tenants}
		if len(tenants) == 1 && tenants[0] != schema.AllTenants {
			k.Tenant, k.Tenants = tenants[0], nil
		}
		f.addKey(t, k)
	}
	f.start(t, Options{})
	return f
}

func (f *fixture) start(t testing.TB, o Options) {
	t.Helper()
	o.Registerer = f.registry
	o.Decide = func(c *directive.Call) (directive.Decision, *Budget, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.calls) < 64 {
			f.calls = append(f.calls, *c)
		}
		return f.ds.Decide(c, time.Now()), f.left, f.failure
	}
	o.Charge = func(c directive.Call, u Usage, key string) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.charges = append(f.charges, charging{c, u, key})
		return f.failure
	}
	o.Keys = func() *schema.Keyring {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.ring
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.GRPC().Serve(l) }()
	f.server, f.addr = s, l.Addr().String()
	f.conn, err = grpc.NewClient(f.addr, insecureCreds(), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(f.conn)
	f.auth, f.rls = c.auth, c.rls
	t.Cleanup(func() {
		f.conn.Close()
		s.GRPC().Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

func insecureCreds() grpc.DialOption {
	return grpc.WithTransportCredentials(insecure.NewCredentials())
}

// clientOf is a fixture that only asks.
func clientOf(conn *grpc.ClientConn) *fixture {
	return &fixture{conn: conn, auth: authv3.NewAuthorizationClient(conn), rls: rlsv3.NewRateLimitServiceClient(conn)}
}

func (f *fixture) addKey(t testing.TB, k schema.Key) {
	t.Helper()
	secret, hash := schema.NewSecret()
	k.SHA256 = hash
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secrets[k.Name] = secret
	f.keys = append(f.keys, k)
	ring, err := schema.NewKeyring(f.keys)
	if err != nil {
		t.Fatal(err)
	}
	f.ring = ring
}

func (f *fixture) secret(name string) string { return f.secrets[name] }

// as is a context of a gateway with the key; "" is none.
func (f *fixture) as(t testing.TB, key string) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	if key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+f.secrets[key])
}

// set publishes the directives as the whole set.
func (f *fixture) set(t testing.TB, list ...directive.Directive) {
	t.Helper()
	f.mu.Lock()
	f.state.Directives = list
	f.mu.Unlock()
	f.publish(t)
}

func (f *fixture) kill(t testing.TB, on bool) {
	t.Helper()
	f.mu.Lock()
	f.state.Kill = directive.Kill{On: on, Exempt: []string{directive.Critical}, Reason: "3 x the expected spend", Outcome: "pause"}
	f.mu.Unlock()
	f.publish(t)
}

func (f *fixture) publish(t testing.TB) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Version = directive.Version{Epoch: 1, Revision: f.state.Version.Revision + 1}
	f.state.ValidUntil = time.Now().Add(time.Hour)
	f.state.Critical.Features = []string{"checkout"}
	if err := f.ds.Replace(&f.state); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) budget(b *Budget) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = b
}

func (f *fixture) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = err
}

// asked is the first call that was asked about since forget.
func (f *fixture) asked() directive.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.calls) == 0 {
		return directive.Call{}
	}
	return f.calls[0]
}

func (f *fixture) charged() []charging {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]charging(nil), f.charges...)
}

func (f *fixture) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.charges, f.calls = nil, nil
}

// counter is the value of a counter with the labels, by their values in the order
// of their names.
func (f *fixture) counter(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, fam := range families {
		if fam.GetName() != name {
			continue
		}
	next:
		for _, m := range fam.GetMetric() {
			for i, l := range m.GetLabel() {
				if l.GetValue() != labels[i] {
					continue next
				}
			}
			return m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s %v", name, labels)
	return 0
}

func scope(pairs ...string) directive.Scope {
	s := directive.Scope{Values: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] == "run" {
			s.Runs = append(s.Runs, pairs[i+1])
			continue
		}
		s.Values[pairs[i]] = pairs[i+1]
	}
	return s
}

func until(t testing.TB, d time.Duration, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for: %s", d, what)
		}
	}
}
