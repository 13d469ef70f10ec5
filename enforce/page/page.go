// Package page brings decisions to on-call: to Alertmanager, signed webhooks,
// PagerDuty and Slack.
//
// It guarantees that a page which was committed to the local store is delivered to
// each of its receivers at least once, under an id that is the same at every try,
// or counted and logged as lost after three days; that a page is never put twice;
// that of one alert a receiver hears the resolution after the alarm; and that a
// receiver which is down, slow or gone holds up no other. It refuses to dial an
// address that is not public unless the configuration lists it, to follow a
// redirect, and to keep, log or show anything of an answer but its status class.
//
// It stands at the end of the enforcing loop: guards decide, put their pages into
// the batch that makes the decision durable, and wake the pager after the commit.
// DESIGN.md says why it is built the way it is.
package page

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Page is one message to on-call about one alert. Its texts say who, what and how
// much; they never hold prompts.
type Page struct {
	// ID is the identity of this message: the same crossing and status always has
	// the same, so that a repeat is recognised, here and by the receiver. Letters,
	// digits and "-_:/" are sent as they are, up to 128; anything else as a hash.
	ID string `json:"id"`
	// Alert is the identity of the alert: guard, scope, window, threshold. The
	// page that fires it and the one that resolves it share it.
	Alert    string `json:"alert"`
	Resolved bool   `json:"resolved"`
	Severity string `json:"severity"` // critical, error, warning or info
	Kind     string `json:"kind"`     // guard, kill, ledger, test and the like
	Guard    string `json:"guard,omitempty"`
	Tenant   string `json:"tenant,omitempty"`
	Scope    string `json:"scope,omitempty"` // such as "user u-1 of tenant t-1"
	Title    string `json:"title"`           // one sentence: who, what, how much

	Measure   string `json:"measure,omitempty"`
	Limit     string `json:"limit,omitempty"`
	Value     string `json:"value,omitempty"`
	Threshold string `json:"threshold,omitempty"`
	Window    string `json:"window,omitempty"`

	Since  time.Time `json:"since"`            // when the alert's condition began
	At     time.Time `json:"at"`               // when it was decided
	Action string    `json:"action,omitempty"` // what was done about it
	Undo   string    `json:"undo,omitempty"`   // the command that undoes it
	URL    string    `json:"url,omitempty"`    // link into the console, may be empty

	Receivers []string `json:"-"` // names; empty means all
	// Covers are the IDs of messages that need not be sent any more, since this one says
	// what they would.
	Covers []string `json:"-"`
}

var severities = []string{"critical", "error", "warning", "info"}

// clean returns the page in the form in which it is stored and sent. Names come
// from telemetry that anybody may send: they are cut to a length that no receiver
// refuses, and lose line breaks, text direction marks and other invisible
// characters with which one alert could be made to look like another.
func (pg Page) clean(now time.Time) Page {
	pg.ID = token(pg.ID)
	if clip(pg.Alert, 200) != pg.Alert {
		pg.Alert = "alert_" + hash(pg.Alert)
	}
	pg.Title = cmp.Or(pg.Title, pg.Alert) // some receivers refuse a message without one
	if pg.At.IsZero() {
		pg.At = now
	}
	if pg.Since.IsZero() || pg.Since.After(pg.At) {
		pg.Since = pg.At
	}
	if !slices.Contains(severities, pg.Severity) {
		pg.Severity = "error"
	}
	for _, s := range []*string{&pg.Kind, &pg.Guard, &pg.Tenant, &pg.Scope, &pg.Measure, &pg.Limit, &pg.Value, &pg.Threshold, &pg.Window} {
		*s = clip(*s, 200)
	}
	for _, s := range []*string{&pg.Title, &pg.Action, &pg.Undo} {
		*s = clip(*s, 500)
	}
	if u, err := url.Parse(pg.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(pg.URL) > 1000 {
		pg.URL = ""
	} else {
		pg.URL = u.String()
	}
	return pg
}

// details are the facts beside the title that are there, by name.
func (pg Page) details() map[string]string {
	out := map[string]string{
		"guard": pg.Guard, "tenant": pg.Tenant, "scope": pg.Scope, "measure": pg.Measure, "limit": pg.Limit,
		"value": pg.Value, "threshold": pg.Threshold, "window": pg.Window, "action": pg.Action, "undo": pg.Undo,
	}
	for k, v := range out {
		if v == "" {
			delete(out, k)
		}
	}
	return out
}

// resolvedBy is the resolution of a firing page: told by the second, labelled as
// the first was, since a receiver matches the two by their labels.
func (pg Page) resolvedBy(end Page) Page {
	end.Severity, end.Kind, end.Guard, end.Tenant, end.Scope = pg.Severity, pg.Kind, pg.Guard, pg.Tenant, pg.Scope
	end.Measure, end.Threshold, end.Window, end.Since = pg.Measure, pg.Threshold, pg.Window, pg.Since
	return end
}

// clip makes s valid and printable, and at most n characters long.
func clip(s string, n int) string {
	s = s[:min(len(s), 4*n+4)] // more than n characters, however long each is
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) <= n {
		return s
	}
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// token returns s if it can be a header's value and, joined by full stops, part of
// a signed text without ambiguity; else a hash that stands for it.
func token(s string) string {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_:/", r)) {
			return "page_" + hash(s)
		}
	}
	if len(s) > 128 {
		return "page_" + hash(s)
	}
	return s
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
