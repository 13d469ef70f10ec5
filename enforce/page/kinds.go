package page

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// alertmanagerBody is a request of Alertmanager's API v2. An alert is its labels,
// so they hold nothing that changes while it fires; the figures are annotations.
func alertmanagerBody(d delivery, now time.Time) []byte {
	type alert struct {
		Labels       map[string]string `json:"labels"`
		Annotations  map[string]string `json:"annotations"`
		StartsAt     time.Time         `json:"startsAt"`
		EndsAt       time.Time         `json:"endsAt"`
		GeneratorURL string            `json:"generatorURL,omitempty"`
	}
	out := []alert{}
	for _, pg := range d.pages {
		a := alert{Labels: pg.labels(), Annotations: map[string]string{"summary": pg.Title}, StartsAt: pg.Since, EndsAt: d.until, GeneratorURL: pg.URL}
		details := pg.details()
		for _, k := range annotations {
			if v := details[k]; v != "" {
				a.Annotations[k] = v
			}
		}
		if pg.Resolved {
			if a.EndsAt = now; pg.At.Before(now) {
				a.EndsAt = pg.At
			}
		}
		if a.StartsAt.After(a.EndsAt) {
			a.StartsAt = a.EndsAt
		}
		out = append(out, a)
	}
	return encode(out)
}

// annotations are the details that may change while an alert fires.
var annotations = []string{"limit", "value", "action", "undo"}

// labels are what an alert is to Alertmanager.
func (pg Page) labels() map[string]string {
	out := pg.details()
	for _, k := range annotations {
		delete(out, k)
	}
	out["alertname"] = "Flyball" + camel(pg.Kind)
	out["severity"] = pg.Severity
	// Two alerts may differ in what no label shows, such as the limit.
	out["alert_id"] = hash(pg.Alert)[:16]
	return out
}

// camel makes the second half of an alert's name from a kind.
func camel(kind string) string {
	var b strings.Builder
	for _, w := range strings.FieldsFunc(kind, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9') }) {
		b.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	if b.Len() == 0 {
		return "Alert"
	}
	return b.String()
}

// maxWebhook is what Standard Webhooks advise a payload to stay under.
const maxWebhook = 20_000

// webhookBody is the payload of a Standard Webhook. It depends on the pages alone,
// so that every try sends the same bytes under the same id.
func webhookBody(d delivery) []byte {
	type data struct {
		Alerts []Page `json:"alerts"`
		More   int    `json:"more"` // alerts that were left out
	}
	v := struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      data      `json:"data"`
	}{Type: "flyball.alert.firing", Timestamp: d.pages[0].At}
	switch {
	case d.pages[0].Kind == "test":
		v.Type = "flyball.test"
	case d.pages[0].Resolved:
		v.Type = "flyball.alert.resolved"
	}
	for n := min(listed, len(d.pages)); ; n-- {
		v.Data = data{Alerts: d.pages[:n], More: len(d.pages) - n}
		if body := encode(v); len(body) < maxWebhook || n == 1 {
			return body
		}
	}
}

// sign sets the headers of Standard Webhooks 1.0.
func sign(h http.Header, keys [][]byte, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	var signatures []string
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, stamp, body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", stamp)
	h.Set("webhook-signature", strings.Join(signatures, " "))
}

// pagerDutyBody is one event of the Events API v2.
func pagerDutyBody(d delivery, routingKey string) []byte {
	type payload struct {
		Summary   string         `json:"summary"` // at most 1024 characters
		Source    string         `json:"source"`
		Severity  string         `json:"severity"`
		Timestamp time.Time      `json:"timestamp"`
		Component string         `json:"component,omitempty"`
		Group     string         `json:"group,omitempty"`
		Class     string         `json:"class,omitempty"`
		Details   map[string]any `json:"custom_details"`
	}
	type link struct {
		Href string `json:"href"`
		Text string `json:"text"`
	}
	v := struct {
		RoutingKey string  `json:"routing_key"`
		Action     string  `json:"event_action"`
		DedupKey   string  `json:"dedup_key"` // at most 255 characters
		Client     string  `json:"client"`
		Payload    payload `json:"payload"`
		Links      []link  `json:"links,omitempty"`
	}{RoutingKey: routingKey, Action: "trigger", DedupKey: d.key, Client: "Flyball"}
	first := d.pages[0]
	if first.Resolved {
		v.Action = "resolve"
	}
	v.Payload = payload{Summary: clip(headline(d.pages), 1024), Source: "flyball", Severity: worst(d.pages), Timestamp: first.At, Class: first.Kind, Details: map[string]any{}}
	if len(d.pages) == 1 {
		v.Payload.Component, v.Payload.Group = first.Scope, first.Tenant
		for k, text := range first.details() {
			v.Payload.Details[k] = text
		}
	} else {
		n := min(listed, len(d.pages))
		var titles []string
		for _, pg := range d.pages[:n] {
			titles = append(titles, pg.Title)
		}
		v.Payload.Details["guard"], v.Payload.Details["alerts"], v.Payload.Details["more"] = first.Guard, titles, len(d.pages)-n
	}
	if first.URL != "" {
		v.Links = []link{{first.URL, "Flyball"}}
	}
	return encode(v)
}

// slackBody is a message of an incoming webhook. Names in it come from telemetry:
// &, < and > are escaped, so that nothing becomes a mention or a link, and Slack
// is asked to find none by itself.
func slackBody(d delivery) []byte {
	type text struct {
		Type     string `json:"type"`
		Text     string `json:"text"` // at most 3000 characters
		Verbatim bool   `json:"verbatim"`
	}
	type block struct {
		Type string `json:"type"`
		Text text   `json:"text"`
	}
	v := struct {
		Text        string  `json:"text"` // what a notification shows
		Mrkdwn      bool    `json:"mrkdwn"`
		Parse       string  `json:"parse"`
		LinkNames   bool    `json:"link_names"`
		UnfurlLinks bool    `json:"unfurl_links"`
		UnfurlMedia bool    `json:"unfurl_media"`
		Blocks      []block `json:"blocks"` // at most 50
	}{Parse: "none"}
	status := "Firing, " + worst(d.pages)
	if d.pages[0].Resolved {
		status = "Resolved"
	}
	head := escape(clip(headline(d.pages), 500)) // escaping can make five times of it
	v.Text = status + ": " + head
	add := func(s string) {
		v.Blocks = append(v.Blocks, block{"section", text{"mrkdwn", s, true}})
	}
	add("*" + status + "* " + head)
	n := min(listed, len(d.pages))
	for _, pg := range d.pages[:n] {
		var b strings.Builder
		if len(d.pages) > 1 {
			b.WriteString("• " + escape(clip(pg.Title, 300)))
		}
		facts := pg.details()
		for _, k := range []string{"value", "limit", "action", "undo", "threshold", "measure", "window"} {
			if facts[k] == "" {
				continue
			}
			line := "\n" + k + ": " + escape(clip(facts[k], 200))
			if k == "undo" {
				line = "\nundo: `" + escape(strings.ReplaceAll(facts[k], "`", "'")) + "`"
			}
			if b.Len()+len(line) < 2700 {
				b.WriteString(line)
			}
		}
		if pg.URL != "" && !strings.ContainsAny(pg.URL, "|<>&") && len(pg.URL) < 200 {
			b.WriteString("\n<" + pg.URL + "|open in the console>")
		}
		if s := strings.TrimSpace(b.String()); s != "" {
			add(s)
		}
	}
	if more := len(d.pages) - n; more > 0 {
		add(fmt.Sprintf("and %d more", more))
	}
	return encode(v)
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace

// headline is the sentence that stands for all pages of a delivery.
func headline(pages []Page) string {
	if len(pages) == 1 {
		return pages[0].Title
	}
	what := "alerts"
	if g := pages[0].Guard; g != "" {
		what = "alerts of guard " + g
	}
	return fmt.Sprintf("%d %s, first: %s", len(pages), what, pages[0].Title)
}

// worst is the highest severity among the pages.
func worst(pages []Page) string {
	best := len(severities) - 1
	for _, pg := range pages {
		best = min(best, slices.Index(severities, pg.Severity))
	}
	return severities[max(best, 0)]
}
