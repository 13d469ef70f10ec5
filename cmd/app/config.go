package app

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/flyball/flyball/enforce/page"
	"github.com/flyball/flyball/ingest/dialect"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/engine"
)

// Config is the whole configuration: one strict YAML file, every key also as
// FLYBALL_A__B. Nothing is required.
type Config struct {
	Listen     Listen                  `yaml:"listen"`
	Data       string                  `yaml:"data"`
	ClickHouse ClickHouse              `yaml:"clickhouse"`
	Prices     Prices                  `yaml:"prices"`
	FX         FX                      `yaml:"fx"`
	Attributes map[string][]string     `yaml:"attributes"`
	Emitters   []dialect.Emitter       `yaml:"emitters"`
	Tools      map[string]string       `yaml:"tools"`
	Limits     Limits                  `yaml:"limits"`
	Tenants    map[string]TenantConfig `yaml:"tenants"`
	Retention  Retention               `yaml:"retention"`
	Keys       []schema.Key            `yaml:"keys"`
	Policy     string                  `yaml:"policy"` // file; "" is the default policy, which only warns
	Pages      Pages                   `yaml:"pages"`
	TLS        TLS                     `yaml:"tls"`
	Log        Log                     `yaml:"log"`
	Tracing    Tracing                 `yaml:"tracing"`
}

// Listen are the addresses; "" turns one off.
type Listen struct {
	HTTP       string `yaml:"http"`
	OTLPGRPC   string `yaml:"otlp_grpc"`
	OTLPHTTP   string `yaml:"otlp_http"`
	ClickHouse string `yaml:"clickhouse"`
	Envoy      string `yaml:"envoy"` // gRPC for gateways of the Envoy family, off by default
	Pprof      string `yaml:"pprof"` // profiles of the service; loopback only, off by default
}

// ClickHouse says where rows are stored.
type ClickHouse struct {
	DSN      string `yaml:"dsn"`
	Cluster  string `yaml:"cluster"`
	Memory   Size   `yaml:"memory"`
	Threads  int    `yaml:"threads"`
	Database string `yaml:"database"`
	Fsync    bool   `yaml:"fsync"`
}

// Prices are the sources of prices.
type Prices struct {
	Embedded bool     `yaml:"embedded"`
	Files    []string `yaml:"files"`
	Refresh  Duration `yaml:"refresh"`
}

// FX are the rates of other currencies, for reports and adjustments.
type FX struct {
	Files []string `yaml:"files"`
}

// Limits bound what is taken in and remembered.
type Limits struct {
	RequestBytes         Size     `yaml:"request_bytes"`
	InflightBytes        Size     `yaml:"inflight_bytes"`
	TenantSpansPerSecond int      `yaml:"tenant_spans_per_second"`
	AssumedTokens        Assumed  `yaml:"assumed_tokens"`
	WALBytes             Size     `yaml:"wal_bytes"`
	OpenRuns             int      `yaml:"open_runs"`
	OpenRunBytes         Size     `yaml:"open_run_bytes"`
	Lateness             Duration `yaml:"lateness"`
	Settle               Duration `yaml:"settle"`
}

// Assumed tokens stand for a call of unknown usage.
type Assumed struct {
	Input  uint64 `yaml:"input"`
	Output uint64 `yaml:"output"`
}

// TenantConfig is what the operator says about a tenant.
type TenantConfig struct {
	Timezone string `yaml:"timezone"`
}

// Retention is how long rows are kept.
type Retention struct {
	Journal Months `yaml:"journal"`
	Rollups Months `yaml:"rollups"`
}

// Pages says who is paged and how.
type Pages struct {
	URL       string          `yaml:"url"` // of the console, for links
	Receivers []page.Receiver `yaml:"receivers"`
}

// TLS is the certificate of every listener.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Log is the service's own log.
type Log struct {
	Level string `yaml:"level"`
	JSON  bool   `yaml:"json"`
}

// Tracing exports the service's own spans, never into its own receivers.
type Tracing struct {
	Endpoint string `yaml:"endpoint"`
}

// Size is a number of bytes, written as 64MiB, 1GiB or plain.
type Size int64

// UnmarshalYAML reads a size.
func (s *Size) UnmarshalYAML(b []byte) error {
	text := strings.Trim(strings.TrimSpace(string(b)), `"'`)
	unit := int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if t, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = strings.TrimSpace(t), u
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return fmt.Errorf("size %q: want a number of bytes such as 64MiB", string(b))
	}
	*s = Size(n * unit)
	return nil
}

// MarshalYAML writes a size.
func (s Size) MarshalYAML() ([]byte, error) {
	for _, u := range []struct {
		name string
		n    Size
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s >= u.n && s%u.n == 0 {
			return fmt.Appendf(nil, "%d%s", s/u.n, u.name), nil
		}
	}
	return fmt.Appendf(nil, "%d", s), nil
}

// Duration is a duration, written as 24h or 5s.
type Duration time.Duration

// UnmarshalYAML reads a duration.
func (d *Duration) UnmarshalYAML(b []byte) error {
	text := strings.Trim(strings.TrimSpace(string(b)), `"'`)
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return fmt.Errorf("duration %q: want one such as 24h or 5s", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML writes a duration.
func (d Duration) MarshalYAML() ([]byte, error) {
	s := time.Duration(d).String()
	s = strings.TrimSuffix(strings.TrimSuffix(s, "0s"), "0m")
	if s == "" {
		s = "0s"
	}
	return []byte(s), nil
}

// Months is a number of months, written as 13mo.
type Months int

// UnmarshalYAML reads months.
func (m *Months) UnmarshalYAML(b []byte) error {
	text, ok := strings.CutSuffix(strings.Trim(strings.TrimSpace(string(b)), `"'`), "mo")
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 2 || n > 1200 {
		return fmt.Errorf("retention %q: want at least 2mo, e.g. 13mo", string(b))
	}
	*m = Months(n)
	return nil
}

// MarshalYAML writes months.
func (m Months) MarshalYAML() ([]byte, error) { return fmt.Appendf(nil, "%dmo", m), nil }

// Default is the configuration of a machine without a file.
func Default() Config {
	return Config{
		Listen:     Listen{HTTP: "127.0.0.1:8080", OTLPGRPC: "127.0.0.1:4317", OTLPHTTP: "127.0.0.1:4318", ClickHouse: "127.0.0.1:8123"},
		Data:       "./flyball-data",
		ClickHouse: ClickHouse{DSN: "embedded://", Memory: 1536 << 20, Database: "flyball", Fsync: true},
		Prices:     Prices{Embedded: true, Refresh: Duration(24 * time.Hour)},
		Attributes: map[string][]string{"tenant": {"tenant.id"}, "user": {"user.id", "enduser.id"}, "feature": {"app.feature"}, "run": {"app.run.id"}, "criticality": {"app.criticality"}},
		Limits: Limits{RequestBytes: 64 << 20, InflightBytes: 192 << 20, AssumedTokens: Assumed{8000, 1000}, WALBytes: 10 << 30, OpenRuns: 100_000, OpenRunBytes: 256 << 20,
			Lateness: Duration(24 * time.Hour), Settle: Duration(5 * time.Second)},
		Retention: Retention{Journal: 13, Rollups: 37},
		Log:       Log{Level: "info"},
	}
}

// LoadConfig reads a file ("" is none) and the environment over the defaults.
// Unknown keys are errors, with their line where they stand in the file.
func LoadConfig(path string, env []string) (Config, error) {
	c := Default()
	tree := map[string]any{}
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return c, fmt.Errorf("read configuration: %w", err)
		}
		if bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) {
			return c, fmt.Errorf("read configuration %s: the file is no text; want YAML", path)
		}
		if len(bytes.TrimSpace(data)) > 0 {
			probe := Default()
			if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&probe); err != nil {
				return c, fmt.Errorf("read configuration %s: %s", path, plain(yaml.FormatError(err, false, true)))
			}
			if err := yaml.Unmarshal(data, &tree); err != nil {
				return c, fmt.Errorf("read configuration %s: %w", path, err)
			}
		}
	}
	sort.Strings(env)
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		path, ok := strings.CutPrefix(name, "FLYBALL_")
		if !ok || noKey.MatchString(path) {
			continue
		}
		if names := variables(reflect.TypeFor[Config](), ""); !strings.Contains(path, "__") && !slices.Contains(names, path) {
			near := slices.MinFunc(names, func(a, b string) int { return cmp.Compare(schema.EditDistance(path, a), schema.EditDistance(path, b)) })
			return c, fmt.Errorf("read environment variable %s: there is no such key, did you mean FLYBALL_%s? (deploy/config.reference.yaml has all)", name, near)
		}
		var v any
		if err := yaml.Unmarshal([]byte(value), &v); err != nil || v == nil {
			v = value
		}
		at := tree
		keys := strings.Split(strings.ToLower(path), "__")
		for _, k := range keys[:len(keys)-1] {
			next, ok := at[k].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[k] = next
			}
			at = next
		}
		at[keys[len(keys)-1]] = v
		text, err := yaml.Marshal(tree)
		if err != nil {
			return c, fmt.Errorf("read %s: %w", name, err)
		}
		probe := Default()
		if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&probe); err != nil {
			first, _, _ := strings.Cut(plain(yaml.FormatError(err, false, false)), "\n")
			return c, fmt.Errorf("read environment variable %s: %s", name, first)
		}
	}
	if len(tree) > 0 {
		text, err := yaml.Marshal(tree)
		if err != nil {
			return c, fmt.Errorf("read configuration: %w", err)
		}
		if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&c); err != nil {
			return c, fmt.Errorf("read configuration: %w", err)
		}
	}
	// A mapping that is not given keeps its default; [] turns one off.
	for what, names := range Default().Attributes {
		if _, given := c.Attributes[what]; !given {
			if c.Attributes == nil {
				c.Attributes = map[string][]string{}
			}
			c.Attributes[what] = names
		}
	}
	return c, c.validate()
}

// goType is how the decoder says that a value is of another type.
var goType = regexp.MustCompile(`cannot unmarshal .* into Go \S+(?: field)?(?: \S+)? of type (\S+)`)

// plain is an error of the decoder without the types of the program.
func plain(text string) string {
	return goType.ReplaceAllStringFunc(strings.TrimSpace(text), func(s string) string {
		switch typ := goType.FindStringSubmatch(s)[1]; {
		case typ == "string":
			return "want a text"
		case typ == "bool":
			return "want true or false"
		case strings.Contains(typ, "int"):
			return "want a whole number"
		case strings.HasPrefix(typ, "[]"):
			return "want a list"
		}
		return "want keys with values"
	})
}

// noKey is what follows FLYBALL_ in names that are no keys of the configuration: those that
// the program, its scripts and its documentation read, those of tests, and what Kubernetes
// sets for a service that is called flyball.
var noKey = regexp.MustCompile(`^(LIBCHDB(_INTEGRITY)?|CACHE|KEY(_FILE)?|FAULT|BIN|CHECK|COLLECTOR|ENVOY(_RATE)?|OTLP|PASSWORD|GRAFANA_KEY|PYTHON|FOCUS_VALIDATOR|VERSION|SHA256|ENGINE_.+|.+_TEST_.+)$|(^|_)(SERVICE_(HOST|PORT)|PORT)(_|$)`)

// variables are the names of the environment variables of t's keys, without FLYBALL_.
func variables(t reflect.Type, within string) (out []string) {
	for i := range t.NumField() {
		name := within + strings.ToUpper(t.Field(i).Tag.Get("yaml"))
		out = append(out, name)
		if ft := t.Field(i).Type; ft.Kind() == reflect.Struct {
			out = append(out, variables(ft, name+"__")...)
		}
	}
	return out
}

func (c *Config) validate() error {
	var errs []error
	listeners := map[string]string{"listen.http": c.Listen.HTTP, "listen.otlp_grpc": c.Listen.OTLPGRPC, "listen.otlp_http": c.Listen.OTLPHTTP, "listen.clickhouse": c.Listen.ClickHouse, "listen.envoy": c.Listen.Envoy}
	names := make([]string, 0, len(listeners))
	for n := range listeners {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, name := range names {
		addr := listeners[name]
		if addr == "" {
			continue
		}
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q: want host:port", name, addr))
			continue
		}
		if !schema.Loopback(host) && len(c.Keys) == 0 {
			errs = append(errs, fmt.Errorf("%s: %s is reachable from other machines, and no keys are configured; make one with `flyball key new` or listen on 127.0.0.1", name, addr))
		}
	}
	if host, _, err := net.SplitHostPort(c.Listen.Pprof); c.Listen.Pprof != "" && (err != nil || !schema.Loopback(host)) {
		errs = append(errs, fmt.Errorf("listen.pprof: %q: profiles are served on loopback only", c.Listen.Pprof))
	}
	for t, tc := range c.Tenants {
		if _, err := time.LoadLocation(tc.Timezone); err != nil {
			errs = append(errs, fmt.Errorf("tenants.%s.timezone: %q is no IANA time zone", t, tc.Timezone))
		}
	}
	for i := range c.Pages.Receivers {
		if err := c.Pages.Receivers[i].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("pages: %w", err))
		}
	}
	if err := engine.CheckDSN(c.ClickHouse.DSN); err != nil {
		errs = append(errs, fmt.Errorf("clickhouse.dsn: %w", err))
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		errs = append(errs, errors.New("tls: give both cert and key"))
	}
	if c.Limits.RequestBytes <= 0 || c.Limits.InflightBytes < c.Limits.RequestBytes {
		errs = append(errs, errors.New("limits: inflight_bytes must be at least request_bytes, and that more than 0"))
	}
	if _, err := schema.NewKeyring(c.Keys); err != nil {
		errs = append(errs, fmt.Errorf("keys: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// Reference is the default configuration as YAML.
func Reference() ([]byte, error) { return yaml.Marshal(Default()) }
