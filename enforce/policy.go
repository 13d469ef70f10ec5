package enforce

import (
	_ "embed"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// DefaultPolicy is the policy of a service that was given none: the guards most
// teams want, all in warn mode.
//
//go:embed policy_default.yaml
var DefaultPolicy []byte

// Outcomes are what a product may show when a guard says no.
var Outcomes = []string{"pause", "request_approval", "schedule", "return_partial", "escalate", "checkpoint", "upgrade"}

// Policy is what the operator wants to hold, as YAML. ParsePolicy makes one.
type Policy struct {
	Critical    directive.CriticalList `yaml:"critical"`
	WhenUnknown directive.WhenUnknown  `yaml:"when_unknown"`
	Tiers       map[string][]string    `yaml:"tiers"` // capability tiers, dearest model first
	Guards      []Guard                `yaml:"guards"`
	Kill        *KillPolicy            `yaml:"kill"`
	Light       *LightPolicy           `yaml:"light"`
	Objectives  *Objectives            `yaml:"objectives"`

	source []byte
	target *target // of amplification, as families() left it; nil is none
}

// Guard is one rule: over a scope and a window, a measure has a limit, and rungs
// of a ladder say what happens on the way to it and beyond.
type Guard struct {
	Name         string     `yaml:"name"`
	Scope        []string   `yaml:"scope"`
	Match        MatchSpec  `yaml:"match"`
	Measure      string     `yaml:"measure"`
	Window       WindowSpec `yaml:"window"`
	Limit        *string    `yaml:"limit"`
	Ladder       []Rung     `yaml:"ladder"`
	Outcome      string     `yaml:"outcome"`
	Exempt       []string   `yaml:"exempt"`
	Mode         string     `yaml:"mode"`
	Downgrade    *DownTo    `yaml:"downgrade"`
	ReleaseBelow Percent    `yaml:"release_below"`
	Unpriced     string     `yaml:"unpriced"`
	MinCalls     int64      `yaml:"min_calls"`
	Page         []string   `yaml:"page"`

	limit   *big.Int   // in the measure's unit; nil is no limit
	most    schema.Sum // the same
	rungs   []rung     // mildest threshold first
	family  ledger.Family
	index   int // of the family
	mix     int // of the family whose tokens choose the model of a tier, -1 where none does
	measure *measure
	used    used
}

// Rung is a step of a ladder: at a percentage of the limit, do something.
type Rung struct {
	At Percent          `yaml:"at"`
	Do directive.Action `yaml:"do"`
}

// rung is a Rung with its threshold in the measure's unit.
type rung struct {
	Rung
	threshold schema.Sum
}

// DownTo says which model takes over: by map, or the cheapest of a tier.
type DownTo struct {
	ToTier string            `yaml:"to_tier"`
	Map    map[string]string `yaml:"map"`
}

// KillPolicy trips the org's kill switch when spend runs away.
type KillPolicy struct {
	Multiple string   `yaml:"multiple"`
	Floor    string   `yaml:"floor"` // USD in an hour below which nothing is expected
	Exempt   []string `yaml:"exempt"`
	Page     []string `yaml:"page"`
	Mode     string   `yaml:"mode"`
	Outcome  string   `yaml:"outcome"`

	multiple *big.Rat
	floor    schema.Money
}

// LightPolicy is the traffic light of provider head-room.
type LightPolicy struct {
	Green Percent `yaml:"green"` // more left than this is green
	Red   Percent `yaml:"red"`   // less left than this is red
	Mode  string  `yaml:"mode"`
}

// Percent is thousandths of a percent; it is written as "80%".
type Percent int64

// notPercent stands for what is no percentage.
const notPercent Percent = -1

// UnmarshalYAML reads a percentage with up to three decimals.
func (p *Percent) UnmarshalYAML(b []byte) error {
	s := unquote(b)
	num, ok := strings.CutSuffix(s, "%")
	v, err := schema.ParseMoney(strings.TrimSpace(num))
	if !ok || err != nil || v < 0 || v%1e9 != 0 || v > 1e6*schema.PicoPerUSD {
		*p = notPercent // the checker says in which line
		return nil
	}
	*p = Percent(v / 1e9)
	return nil
}

// MarshalYAML writes the percentage.
func (p Percent) MarshalYAML() ([]byte, error) { return []byte(strconv.Quote(p.String())), nil }

// String is the percentage as it is written.
func (p Percent) String() string { return schema.Money(int64(p)*1e9).String() + "%" }

func unquote(b []byte) string { return strings.Trim(strings.TrimSpace(string(b)), `"'`) }

// MatchSpec is a condition on calls: each field has the value, or one of a list.
type MatchSpec map[string]schema.TenantList

// WindowSpec is a window as the policy writes it: run, or a map.
type WindowSpec struct {
	Run      bool
	Rolling  string
	Calendar string
	TZ       string
	Anchor   int
	wrong    error // what could not be read; the checker says in which line
}

// UnmarshalYAML reads a window.
func (w *WindowSpec) UnmarshalYAML(unmarshal func(any) error) error {
	w.wrong = w.read(unmarshal)
	return nil
}

func (w *WindowSpec) read(unmarshal func(any) error) error {
	var name string
	if err := unmarshal(&name); err == nil {
		switch name {
		case "run":
			w.Run = true
			return nil
		case "hour", "day", "week", "month":
			w.Calendar = name
			return nil
		}
		return fmt.Errorf("window %q: want run, hour, day, week, month, {rolling: 1h} or {calendar: month, tz: tenant, anchor: 1}", name)
	}
	var m map[string]any
	if err := unmarshal(&m); err != nil {
		return errors.New("window: want run, or a map with rolling or calendar")
	}
	for k, v := range m {
		s := fmt.Sprint(v)
		switch k {
		case "rolling":
			w.Rolling = s
		case "calendar":
			w.Calendar = s
		case "tz":
			w.TZ = s
		case "anchor":
			n, err := strconv.Atoi(s)
			if err != nil {
				return fmt.Errorf("window: anchor %q: want a number", s)
			}
			w.Anchor = n
		default:
			return fmt.Errorf("window: unknown key %q; known are rolling, calendar, tz, anchor", k)
		}
	}
	return nil
}

func (w *WindowSpec) window() (ledger.Window, error) {
	var out ledger.Window
	switch {
	case w.wrong != nil:
		return out, w.wrong
	case w.Run:
		return out, nil
	case w.Rolling != "" && w.Calendar != "":
		return out, errors.New("window: rolling or calendar, not both")
	case w.Rolling != "":
		d, err := time.ParseDuration(w.Rolling)
		if err != nil {
			return out, fmt.Errorf("window: rolling %q: want a duration such as 1h", w.Rolling)
		}
		if w.TZ != "" || w.Anchor != 0 {
			return out, errors.New("window: a rolling window has neither tz nor anchor")
		}
		out = ledger.Window{Unit: ledger.Rolling, Over: d}
	case w.Calendar != "":
		i := slices.Index(ledger.UnitNames[:], w.Calendar)
		if i < int(ledger.Hour) {
			return out, fmt.Errorf("window: calendar %q: want hour, day, week or month", w.Calendar)
		}
		out = ledger.Window{Unit: ledger.Unit(i), Anchor: w.Anchor}
		if w.TZ != "" && w.TZ != "tenant" {
			zone, err := time.LoadLocation(w.TZ)
			if err != nil || w.TZ == "Local" {
				return out, fmt.Errorf("window: tz %q is no IANA time zone", w.TZ)
			}
			out.Zone = zone
		}
	default:
		return out, errors.New("window is missing: want run, hour, day, week, month, or {rolling: 1h}")
	}
	return out, out.Validate()
}

// PolicyError is a mistake in a policy, with the line it stands in.
type PolicyError struct {
	Line int
	Text string
}

func (e PolicyError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %s", e.Line, e.Text)
	}
	return e.Text
}

// PolicyOptions say what a policy may refer to.
type PolicyOptions struct {
	// Receivers are the names that page may use; nil allows any.
	Receivers []string
	// Known reports whether a model has a price; nil knows every model.
	Known func(model string) bool
	// Cheaper reports whether a model is cheaper than another for a usual call; nil does not look.
	Cheaper func(model, than string) (cheaper, known bool)

	// stored is set for a text that was in force: once, one without guards could be.
	stored bool
}

// ParsePolicy reads a policy and checks it. All mistakes are reported at once, each
// with its line. The second result are doubts that are no mistakes.
func ParsePolicy(text []byte, o PolicyOptions) (*Policy, []PolicyError, error) {
	p := &Policy{source: text}
	if err := decode(text, p); err != nil {
		line := 0
		var ye yaml.Error
		if errors.As(err, &ye) && ye.GetToken() != nil && ye.GetToken().Position != nil {
			line = ye.GetToken().Position.Line
		}
		msg, _, _ := strings.Cut(strings.TrimSpace(yaml.FormatError(err, false, false)), "\n")
		if i := strings.Index(msg, "] "); strings.HasPrefix(msg, "[") && i > 0 {
			if line == 0 {
				line, _ = strconv.Atoi(strings.SplitN(msg[1:i], ":", 2)[0])
			}
			msg = msg[i+2:]
		}
		return nil, nil, PolicyError{line, msg}
	}
	c := &checker{o: o}
	c.file, _ = parser.ParseBytes(text, 0) // it was read once, so it parses
	c.policy(p)
	if len(c.errs) > 0 {
		return nil, c.doubts, errors.Join(c.errs...)
	}
	return p, c.doubts, nil
}

// decode reads YAML. The library panics at some documents that are none.
func decode(text []byte, p *Policy) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be read as YAML: %v", r)
		}
	}()
	return yaml.UnmarshalWithOptions(text, p, yaml.Strict())
}

// checker gathers mistakes and doubts.
type checker struct {
	o      PolicyOptions
	file   *ast.File
	errs   []error
	doubts []PolicyError
}

// line finds where a path of the document stands, or the nearest part above it.
func (c *checker) line(path string) int {
	for c.file != nil && path != "" {
		p, err := yaml.PathString(path)
		if err == nil {
			if n, err := p.FilterFile(c.file); err == nil && n != nil && n.GetToken() != nil {
				return n.GetToken().Position.Line
			}
		}
		i := strings.LastIndexAny(path, ".[")
		if i <= 1 {
			break
		}
		path = path[:i]
	}
	return 0
}

func (c *checker) bad(path, format string, args ...any) {
	c.errs = append(c.errs, PolicyError{c.line(path), fmt.Sprintf(format, args...)})
}

func (c *checker) doubt(path, format string, args ...any) {
	c.doubts = append(c.doubts, PolicyError{c.line(path), fmt.Sprintf(format, args...)})
}

var criticalities = []string{directive.Critical, directive.Standard, directive.Background}

func (c *checker) policy(p *Policy) {
	if p.Guards == nil && !c.o.stored { // an empty or half written file would end every guard
		c.errs = append(c.errs, errors.New("guards are missing: want a list of them, or guards: [] for none"))
	}
	names := map[string]int{}
	tiersOf := map[string][]string{}
	for tier, models := range p.Tiers {
		if len(models) == 0 {
			c.bad("$.tiers."+tier, "tier %s has no model", tier)
		}
		for _, m := range models {
			tiersOf[m] = append(tiersOf[m], tier)
			if c.o.Known != nil && !c.o.Known(m) {
				c.doubt("$.tiers."+tier, "tier %s: model %s has no price; nobody can tell whether it is cheaper", tier, m)
			}
		}
	}
	for _, w := range [...]struct{ name, v string }{{"critical", p.WhenUnknown.Critical}, {"standard", p.WhenUnknown.Standard}, {"background", p.WhenUnknown.Background}} {
		if w.v != "" && w.v != "open" && w.v != "closed" {
			c.bad("$.when_unknown."+w.name, "when_unknown.%s %q: want open or closed", w.name, w.v)
		}
	}
	for i := range p.Guards {
		g := &p.Guards[i]
		at := fmt.Sprintf("$.guards[%d]", i)
		if g.Name == "" {
			c.bad(at, "guard %d has no name", i+1)
		} else if j, twice := names[g.Name]; twice {
			c.bad(at+".name", "guard %s: the name is used twice, also by guard %d", g.Name, j+1)
		}
		if g.Name == "kill" || g.Name == "light" || strings.ContainsAny(g.Name, "/\n") || len(g.Name) > 100 {
			c.bad(at+".name", "guard %q: the name is reserved, too long, or contains a slash", g.Name)
		}
		names[g.Name] = i
		c.guard(g, at, p)
	}
	for i := range p.Guards {
		for j := range i {
			a, b := &p.Guards[i], &p.Guards[j]
			if a.measure != nil && b.measure == a.measure && a.family.Name() == b.family.Name() && slices.Equal(a.Exempt, b.Exempt) {
				c.doubt(fmt.Sprintf("$.guards[%d].name", i), "guards %s and %s count the same (%s, %s); both apply, the stricter one acts first", b.Name, a.Name, a.family.Name(), a.Measure)
			}
		}
	}
	if p.Kill != nil {
		c.kill(p.Kill)
	}
	if o := p.Objectives; o != nil && o.Amplification != nil {
		var err error
		if o.most, err = parseRatio(strings.TrimSpace(*o.Amplification)); err == nil && o.most.Sign() <= 0 {
			err = errors.New("want more than 0")
		}
		if err != nil {
			c.bad("$.objectives.amplification", "objectives: amplification %q: %v", *o.Amplification, err)
		}
	}
	if l := p.Light; l != nil {
		if l.Green == 0 {
			l.Green = 40_000
		}
		if l.Red == 0 {
			l.Red = 10_000
		}
		if l.Red < 0 || l.Red >= l.Green || l.Green > 100_000 {
			c.bad("$.light", "light: want red below green, and green at most 100%%")
		}
		c.mode("$.light.mode", "light", &l.Mode)
	}
}

func (c *checker) mode(path, who string, mode *string) {
	switch *mode {
	case "":
		*mode = "enforce"
	case "enforce", "warn":
	default:
		c.bad(path, "%s: mode %q: want enforce or warn", who, *mode)
	}
}

func (c *checker) receivers(path, who string, names []string) {
	for _, n := range names {
		if c.o.Receivers != nil && len(c.o.Receivers) == 0 {
			c.bad(path, "%s: page %q is no receiver: none is configured; list them under pages.receivers in the configuration (--config)", who, n)
		} else if c.o.Receivers != nil && !slices.Contains(c.o.Receivers, n) {
			c.bad(path, "%s: page %q is no receiver; known are %s", who, n, strings.Join(c.o.Receivers, ", "))
		}
	}
}

func (c *checker) guard(g *Guard, at string, p *Policy) {
	who := "guard " + g.Name
	if len(g.Scope) == 0 {
		c.bad(at, "%s: scope is missing: want a list of org, tenant, feature, user, run, workflow, agent, model", who)
	}
	for _, s := range g.Scope {
		if s == "org" {
			g.family.Org = true
			continue
		}
		d := slices.Index(directive.DimNames[:], s)
		if d < 0 {
			c.bad(at+".scope", "%s: unknown scope %q: want org, tenant, feature, user, run, workflow, agent or model", who, s)
			continue
		}
		if slices.Contains(g.family.Scope, directive.Dim(d)) {
			c.bad(at+".scope", "%s: scope %s stands twice", who, s)
			continue
		}
		g.family.Scope = append(g.family.Scope, directive.Dim(d))
	}
	slices.Sort(g.family.Scope)
	perRun := slices.Contains(g.family.Scope, directive.Run)
	if g.family.Org && (slices.Contains(g.family.Scope, directive.Tenant) || perRun || slices.Contains(g.family.Scope, directive.User)) {
		c.bad(at+".scope", "%s: org does not go with tenant, user or run, which belong to one tenant", who)
	}
	for field, values := range g.Match {
		if !slices.Contains(ledger.Fields, field) {
			c.bad(at+".match", "%s: match: unknown field %q: want one of %s", who, field, strings.Join(ledger.Fields, ", "))
		}
		if len(values) == 0 {
			c.bad(at+".match", "%s: match %s has no value", who, field)
		}
		g.family.Match = append(g.family.Match, ledger.Match{Field: field, Values: values})
	}
	slices.SortFunc(g.family.Match, func(a, b ledger.Match) int { return strings.Compare(a.Field, b.Field) })
	var err error
	if g.family.Window, err = g.Window.window(); err != nil {
		c.bad(at+".window", "%s: %v", who, err)
	} else if (g.family.Window.Unit == ledger.Run) != perRun {
		c.bad(at+".window", "%s: the window run and the scope run go together: a run is counted over its whole life", who)
	}
	g.measure = measures[g.Measure]
	if g.measure == nil {
		c.bad(at+".measure", "%s: unknown measure %q: want one of %s", who, g.Measure, strings.Join(measureNames(), ", "))
		return
	}
	if g.measure.runOnly && !perRun {
		c.bad(at+".measure", "%s: %s is measured of runs: want scope [run]", who, g.Measure)
	}
	g.family.PerRun = g.measure.perRun && !perRun
	if g.MinCalls < 0 {
		c.bad(at+".min_calls", "%s: min_calls %d: want 0 or more", who, g.MinCalls)
	}
	if g.MinCalls == 0 && g.measure.ratio && !perRun {
		g.MinCalls = 20
	}
	if g.Limit != nil {
		if g.limit, err = g.measure.parse(strings.TrimSpace(*g.Limit)); err != nil {
			c.bad(at+".limit", "%s: limit %q: %v", who, *g.Limit, err)
		} else if g.most, err = schema.SumFromBig(g.limit); err != nil {
			c.bad(at+".limit", "%s: the limit is too large", who)
		}
	}
	c.mode(at+".mode", who, &g.Mode)
	switch {
	case g.Outcome == "":
		c.bad(at, "%s: outcome is missing: what should the product show? one of %s", who, strings.Join(Outcomes, ", "))
	case !slices.Contains(Outcomes, g.Outcome):
		c.bad(at+".outcome", "%s: unknown outcome %q: want one of %s", who, g.Outcome, strings.Join(Outcomes, ", "))
	}
	for _, e := range g.Exempt {
		if !slices.Contains(criticalities, e) {
			c.bad(at+".exempt", "%s: exempt %q: want critical, standard or background", who, e)
		}
	}
	switch g.Unpriced {
	case "":
		g.Unpriced = "ceiling"
	case "ceiling", "ignore", "block":
		if g.Measure != "cost" {
			c.bad(at+".unpriced", "%s: unpriced is for the measure cost", who)
		}
	default:
		c.bad(at+".unpriced", "%s: unpriced %q: want ceiling, block or ignore", who, g.Unpriced)
	}
	if g.ReleaseBelow == 0 {
		g.ReleaseBelow = 90_000
	}
	if g.ReleaseBelow == notPercent {
		c.bad(at+".release_below", "%s: release_below: want a percentage such as 90%%", who)
	}
	if g.ReleaseBelow > 100_000 {
		c.bad(at+".release_below", "%s: release_below %s: want at most 100%%", who, g.ReleaseBelow)
	}
	c.receivers(at+".page", who, g.Page)
	c.ladder(g, at, who)
	c.downgrade(g, at, who, p)
}

func (c *checker) ladder(g *Guard, at, who string) {
	if len(g.Ladder) == 0 {
		c.bad(at, "%s: ladder is missing: want e.g. [{at: 80%%, do: warn}, {at: 100%%, do: soft_block}]", who)
		return
	}
	for i, r := range g.Ladder {
		if r.Do.Severity() == 0 {
			c.bad(fmt.Sprintf("%s.ladder[%d]", at, i), "%s: unknown action %q: want warn, throttle, downgrade, soft_block, terminate or halt", who, r.Do)
			return
		}
		if r.At == notPercent {
			c.bad(fmt.Sprintf("%s.ladder[%d].at", at, i), "%s: at: want a percentage of the limit such as 80%% or 112.5%%", who)
			return
		}
		if r.At == 0 {
			c.bad(fmt.Sprintf("%s.ladder[%d]", at, i), "%s: a rung at 0%% would always hold; a limit of \"0\" denies all", who)
		}
		if i > 0 && (r.At <= g.Ladder[i-1].At || r.Do.Severity() < g.Ladder[i-1].Do.Severity()) {
			c.bad(fmt.Sprintf("%s.ladder[%d]", at, i), "%s: rungs have to rise, in percentage and in severity", who)
		}
		if g.limit != nil {
			t := new(big.Int).Mul(g.limit, big.NewInt(int64(r.At)))
			t.Add(t, big.NewInt(99_999)) // the first amount that reaches the rung
			t.Quo(t, big.NewInt(100_000))
			sum, err := schema.SumFromBig(t)
			if err != nil {
				c.bad(at+".limit", "%s: the limit is too large", who)
				return
			}
			g.rungs = append(g.rungs, rung{r, sum})
		}
	}
}

func (c *checker) downgrade(g *Guard, at, who string, p *Policy) {
	needs := slices.ContainsFunc(g.Ladder, func(r Rung) bool { return r.Do == directive.Downgrade })
	d := g.Downgrade
	if d == nil {
		if needs {
			c.bad(at, "%s: the ladder downgrades, so downgrade is needed: {to_tier: small} or {map: {dear: cheap}}", who)
		}
		return
	}
	if !needs {
		c.doubt(at+".downgrade", "%s: downgrade is never used: no rung does it", who)
	}
	if d.ToTier != "" && len(p.Tiers[d.ToTier]) == 0 {
		c.bad(at+".downgrade", "%s: downgrade to_tier %q is no tier", who, d.ToTier)
	}
	if d.ToTier == "" && len(d.Map) == 0 {
		c.bad(at+".downgrade", "%s: downgrade has neither to_tier nor map", who)
	}
	for from, to := range d.Map {
		switch {
		case from == to:
			c.bad(at+".downgrade", "%s: downgrade maps %s to itself", who, from)
		case d.Map[to] != "":
			c.bad(at+".downgrade", "%s: downgrade maps %s to %s, which is mapped on: name the last one", who, from, to)
		}
		for _, m := range []string{from, to} {
			if m != "*" && c.o.Known != nil && !c.o.Known(m) {
				c.bad(at+".downgrade", "%s: downgrade: model %s has no price; see `flyball prices list`", who, m)
			}
		}
		if c.o.Cheaper != nil && from != "*" {
			if cheaper, known := c.o.Cheaper(to, from); known && !cheaper {
				c.bad(at+".downgrade", "%s: downgrade maps %s to %s, which is not cheaper", who, from, to)
			}
		}
	}
}

func (c *checker) kill(k *KillPolicy) {
	var ok bool
	if k.multiple, ok = new(big.Rat).SetString(k.Multiple); !ok || k.multiple.Cmp(big.NewRat(1, 1)) <= 0 || strings.ContainsAny(k.Multiple, "/eE") {
		c.bad("$.kill.multiple", "kill: multiple %q: want a number above 1, e.g. 3", k.Multiple)
	}
	var err error
	if k.floor, err = schema.ParseMoney(k.Floor); err != nil || k.floor <= 0 {
		c.bad("$.kill.floor", "kill: floor %q: want USD an hour above 0, e.g. \"50\"", k.Floor)
	}
	for _, e := range k.Exempt {
		if !slices.Contains(criticalities, e) {
			c.bad("$.kill.exempt", "kill: exempt %q: want critical, standard or background", e)
		}
	}
	if k.Outcome == "" {
		k.Outcome = "pause"
	}
	if !slices.Contains(Outcomes, k.Outcome) {
		c.bad("$.kill.outcome", "kill: unknown outcome %q: want one of %s", k.Outcome, strings.Join(Outcomes, ", "))
	}
	c.mode("$.kill.mode", "kill", &k.Mode)
	c.receivers("$.kill.page", "kill", k.Page)
}

// families are the distinct families of the guards and of the objective, whose indexes
// are set in them.
func (p *Policy) families() []ledger.Family {
	var out []ledger.Family
	seen := map[string]int{}
	add := func(f ledger.Family) int {
		name := f.Name()
		i, ok := seen[name]
		if !ok {
			i = len(out)
			seen[name] = i
			out = append(out, f)
		}
		return i
	}
	for i := range p.Guards {
		g := &p.Guards[i]
		g.index, g.mix = add(g.family), -1
		if g.Downgrade != nil && g.Downgrade.ToTier != "" {
			g.mix = add(ledger.Family{Scope: g.family.Scope, Org: g.family.Org, Match: g.family.Match, Window: ledger.Window{Unit: ledger.Rolling, Over: mixOver}})
		}
	}
	if p.target = p.objective(); p.target != nil {
		p.target.index = add(p.target.family)
	}
	return out
}

// mixOver is how far back the mix of tokens is looked at by which a cheaper model is chosen.
const mixOver = 7 * 24 * time.Hour
