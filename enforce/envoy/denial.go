package envoy

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/flyball/flyball/enforce/directive"
)

// kind is why a call is refused. It is the problem type of the answer.
type kind uint8

const (
	kindBudget    kind = iota // a guard's limit
	kindStopped               // terminated or halted, until someone lifts it
	kindKill                  // the org's kill switch
	kindThrottled             // a call too early
	kindTenant                // not a tenant of the gateway's key
	kindRequest               // a value that nobody could mean
)

// problems are type and title of each kind (RFC 9457). The types name, they lead
// nowhere; quotaType is the registered one, for what waiting cures.
var problems = [...]struct{ uri, title string }{
	kindBudget:    {"urn:flyball:problem:budget", "Budget exhausted"},
	kindStopped:   {"urn:flyball:problem:stopped", "Stopped by a guard"},
	kindKill:      {"urn:flyball:problem:kill", "Stopped by the kill switch"},
	kindThrottled: {quotaType, "Too many calls"},
	kindTenant:    {"urn:flyball:problem:tenant", "Tenant not allowed"},
	kindRequest:   {"urn:flyball:problem:request", "Request not understood"},
}

const quotaType = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// denial is one refusal, whichever service tells it.
type denial struct {
	kind     kind
	code     int // HTTP
	retry    int // seconds, of a 429; else 0
	guard    string
	reason   string
	outcome  string
	revision string
	budget   *Budget // of the same guard, or nil
}

// denialOf is the refusal that a decision is, after wait where it says Wait. It is a
// 429 only where waiting at most a minute cures it, so that no client library
// retries what stays refused.
func denialOf(d *directive.Decision, b *Budget, wait time.Duration) denial {
	n := denial{guard: d.Guard, reason: d.Reason, outcome: d.Outcome, revision: d.Version.String(), code: d.Status()}
	cure := d.RetryAfter
	switch {
	case d.Verdict == directive.Wait:
		n.kind, cure, n.code = kindThrottled, wait, http.StatusForbidden
		if wait <= time.Minute {
			n.code = http.StatusTooManyRequests
		}
	case isKill(d):
		n.kind, n.code = kindKill, http.StatusForbidden
	case d.Directive != nil && d.Directive.Action.Lasting():
		n.kind, n.code = kindStopped, http.StatusForbidden
	}
	if n.code == http.StatusTooManyRequests {
		n.retry = max(1, int((cure+time.Second-1)/time.Second))
	}
	if b != nil && b.Name == d.Guard {
		n.budget = b
	}
	return n
}

// spent is the refusal by a budget of which nothing is left, where no directive
// says so yet.
func spent(d *directive.Decision, b *Budget) denial {
	n := denial{kind: kindBudget, code: http.StatusForbidden, guard: b.Name, reason: b.Name + ": nothing is left of the budget", revision: d.Version.String(), budget: b}
	if b.ResetIn > 0 && b.ResetIn <= time.Minute {
		n.code, n.retry = http.StatusTooManyRequests, max(1, int((b.ResetIn+time.Second-1)/time.Second))
	}
	return n
}

// isKill reports whether the kill switch decided, which has no directive.
func isKill(d *directive.Decision) bool {
	return d.Verdict == directive.Deny && d.Guard == "kill" && d.Directive == nil
}

// worse reports whether n should give the headers and the body rather than m, of two
// refusals in one answer: the one that lasts.
func (n *denial) worse(m *denial) bool {
	return m == nil || m.retry > 0 && (n.retry == 0 || n.retry > m.retry)
}

// body is the problem. Its status is that of the HTTP answer, 0 where the gateway
// chooses that.
func (n *denial) body(code int) []byte {
	p := problems[n.kind]
	if n.code == http.StatusTooManyRequests {
		p.uri = quotaType
	}
	doc := struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status,omitempty"`
		Detail   string   `json:"detail"`
		Guard    string   `json:"guard,omitempty"`
		Outcome  string   `json:"outcome,omitempty"`
		Revision string   `json:"revision,omitempty"`
		Violated []string `json:"violated-policies,omitempty"`
	}{p.uri, p.title, code, n.reason, n.guard, n.outcome, n.revision, nil}
	if doc.Detail == "" {
		doc.Detail = p.title + "."
	}
	if p.uri == quotaType && n.guard != "" {
		doc.Violated = []string{n.guard}
	}
	b, err := json.Marshal(doc) // writes valid UTF-8 whatever the strings hold
	if err != nil {
		panic("BUG: a problem has no JSON: " + err.Error())
	}
	return b
}

// headers calls add for every header of the refusal.
func (n *denial) headers(add func(name, value string)) {
	add("content-type", "application/problem+json")
	add("x-should-retry", "false")
	if n.retry == 0 {
		return
	}
	after := strconv.Itoa(n.retry)
	add("retry-after", after)
	name := structured(n.guard)
	add("ratelimit", name+";r=0;t="+after)
	if n.budget != nil {
		policy := name + ";q=" + strconv.FormatUint(n.budget.LimitCents, 10) + `;qu="usd-cents"`
		if w := int64(n.budget.Window / time.Second); w > 0 {
			policy += ";w=" + strconv.FormatInt(w, 10)
		}
		add("ratelimit-policy", policy)
	}
}

// structured is a string as RFC 9651 writes it; what it cannot hold becomes "_".
func structured(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			b.WriteByte('_')
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// headerText is a string as the value of a header: a gateway refuses an answer with
// control characters in one, which would make a failure of a decision.
func headerText(s string) string {
	clean := true
	for i := range len(s) {
		clean = clean && s[i] >= ' ' && s[i] != 0x7f && s[i] < 0x80
	}
	if clean {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f {
			return '_'
		}
		return r
	}, s)
}
