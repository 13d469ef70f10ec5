package page

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func decode[T any](t *testing.T, body string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("decode %s: %v", body, err)
	}
	return v
}

type webhookPayload struct {
	Type      string
	Timestamp time.Time
	Data      struct {
		Alerts []Page
		More   int
	}
}

type pagerDutyEvent struct {
	RoutingKey string `json:"routing_key"`
	Action     string `json:"event_action"`
	DedupKey   string `json:"dedup_key"`
	Payload    struct {
		Summary, Source, Severity, Component, Group, Class string
		Timestamp                                          time.Time
		Details                                            map[string]any `json:"custom_details"`
	}
	Links []struct{ Href, Text string }
}

type slackMessage struct {
	Text        string
	Parse       string
	LinkNames   bool `json:"link_names"`
	UnfurlLinks bool `json:"unfurl_links"`
	Blocks      []struct {
		Type string
		Text struct {
			Type, Text string
			Verbatim   bool
		}
	}
}

// The example that the specification's libraries share.
func TestSignatureVector(t *testing.T) {
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	sign(h, [][]byte{key}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got := h.Get("webhook-signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("got %s", got)
	}
}

func TestWebhook(t *testing.T) {
	s := newSink(t, status(500, 200))
	r := webhook("hook", s.URL)
	r.Webhook.Secrets = append(r.Webhook.Secrets, secret())
	p, _ := start(t, Options{Receivers: []Receiver{r}})
	pg := sample("crossing-1")
	pg.URL = "https://flyball.example.com/console?guard=user-day&scope=u-1"
	put(t, p, pg)
	idle(t, p)
	put(t, p, end(pg, "crossing-1-end"))
	got := s.wait(t, 3)
	for i, req := range got {
		for _, sec := range r.Webhook.Secrets {
			wh, err := standardwebhooks.NewWebhook(sec)
			if err != nil {
				t.Fatal(err)
			}
			if err := wh.Verify([]byte(req.body), req.header); err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		}
		other, err := standardwebhooks.NewWebhook(secret())
		if err != nil {
			t.Fatal(err)
		}
		if other.Verify([]byte(req.body), req.header) == nil {
			t.Error("another secret verifies")
		}
	}
	if got[0].body != got[1].body || got[0].header.Get("webhook-id") != "crossing-1" || got[1].header.Get("webhook-id") != "crossing-1" || got[2].header.Get("webhook-id") != "crossing-1-end" {
		t.Errorf("the second try differs from the first, or the ids are wrong: %v", got)
	}
	first, last := decode[webhookPayload](t, got[0].body), decode[webhookPayload](t, got[2].body)
	if first.Type != "flyball.alert.firing" || last.Type != "flyball.alert.resolved" || len(first.Data.Alerts) != 1 {
		t.Errorf("got %+v and %+v", first, last)
	}
	a, b := first.Data.Alerts[0], last.Data.Alerts[0]
	if a.Title != pg.Title || a.Undo != pg.Undo || a.URL != pg.URL || a.Value != "81" || a.Alert != b.Alert || !b.Resolved {
		t.Errorf("got %+v and %+v", a, b)
	}
}

func TestPagerDuty(t *testing.T) {
	s := newSink(t, status(202))
	p, _ := start(t, Options{Receivers: []Receiver{pagerDuty("pd", s.URL)}})
	pg := sample("a")
	pg.URL = "https://flyball.example.com/console"
	put(t, p, pg)
	idle(t, p)
	put(t, p, end(pg, "b"))
	idle(t, p)
	got := s.wait(t, 2)
	a, b := decode[pagerDutyEvent](t, got[0].body), decode[pagerDutyEvent](t, got[1].body)
	if a.Action != "trigger" || b.Action != "resolve" || a.DedupKey != b.DedupKey || a.DedupKey == "" || len(a.RoutingKey) != 32 {
		t.Errorf("got %+v and %+v", a, b)
	}
	if a.Payload.Summary != pg.Title || a.Payload.Source == "" || a.Payload.Severity != "warning" || a.Payload.Group != "t-1" || a.Payload.Details["undo"] != pg.Undo || len(a.Links) != 1 {
		t.Errorf("got %+v", a)
	}
}

// hostile is a page whose every name was chosen by somebody who means harm.
func hostile(i int) Page {
	evil := strings.Repeat("<!channel> <@U123> <https://evil.example|ok> `\"\\\n\r\u202e&\xff\u2028*", 10)
	return Page{
		ID: evil + fmt.Sprint(i), Alert: evil + fmt.Sprint(i), Severity: evil, Kind: evil, Guard: evil, Tenant: evil, Scope: evil, Title: evil, Measure: evil,
		Limit: evil, Value: evil, Threshold: evil, Window: evil, Action: evil, Undo: evil, URL: "javascript:alert(1)//" + evil, At: time.Now(),
	}
}

func TestLimitsOfReceivers(t *testing.T) {
	now := time.Now()
	worst := strings.Repeat("𝕏", 600) // four bytes each, and longer than anything may be
	wide := Page{ID: "w", Alert: worst, Title: worst, Kind: worst, Guard: worst, Tenant: worst, Scope: worst, Measure: worst, Limit: worst,
		Value: worst, Threshold: worst, Window: worst, Action: worst, Undo: worst, URL: "https://example.com/" + strings.Repeat("a", 900)}
	for _, make := range []func(int) Page{hostile, func(i int) Page { wide.ID = fmt.Sprint(i); return wide }} {
		for _, n := range []int{1, 2, 20, 21, 100} {
			d := delivery{id: "x", key: make(0).clean(now).Alert}
			for i := range n {
				pg := make(i).clean(now)
				if !utf8.ValidString(pg.Title) || strings.ContainsAny(pg.Title, "\n\r\u202e\u2028") || pg.ID != token(pg.ID) || strings.HasPrefix(pg.URL, "javascript") {
					t.Fatalf("not clean: %+v", pg)
				}
				d.pages = append(d.pages, pg)
			}
			if b := webhookBody(d); len(b) >= maxWebhook {
				t.Errorf("webhook of %d pages has %d bytes", n, len(b))
			} else if v := decode[webhookPayload](t, string(b)); len(v.Data.Alerts)+v.Data.More != n || len(v.Data.Alerts) == 0 {
				t.Errorf("webhook of %d pages: %d listed, %d more", n, len(v.Data.Alerts), v.Data.More)
			}
			b := pagerDutyBody(d, "")
			e := decode[pagerDutyEvent](t, string(b))
			if len(b) > 512<<10 || utf8.RuneCountInString(e.Payload.Summary) > 1024 || utf8.RuneCountInString(e.DedupKey) > 255 || e.DedupKey == "" {
				t.Errorf("event of %d pages: %d bytes, summary %d, key %d", n, len(b), len(e.Payload.Summary), len(e.DedupKey))
			}
			m := decode[slackMessage](t, string(slackBody(d)))
			if len(m.Blocks) > 50 || len(m.Text) > 4000 || len(m.Blocks) < min(n, listed) {
				t.Errorf("message of %d pages: %d blocks, text %d", n, len(m.Blocks), len(m.Text))
			}
			for _, bl := range m.Blocks {
				if l := utf8.RuneCountInString(bl.Text.Text); l > 3000 || l == 0 {
					t.Errorf("block of %d characters", l)
				}
			}
		}
	}
}

func TestSlackEscapes(t *testing.T) {
	s := newSink(t, nil)
	p, _ := start(t, Options{Receivers: []Receiver{slack("chat", s.URL)}})
	a, b := hostile(1), hostile(2)
	put(t, p, a)
	idle(t, p)
	put(t, p, a, b) // the first was put before
	idle(t, p)
	good := sample("good")
	good.URL = "https://flyball.example.com/console"
	put(t, p, good)
	got := s.wait(t, 3)
	for _, req := range got[:2] {
		m := decode[slackMessage](t, req.body)
		if m.Parse != "none" || m.LinkNames || m.UnfurlLinks {
			t.Errorf("Slack may look for links: %+v", m)
		}
		if strings.ContainsAny(m.Text, "<>") {
			t.Errorf("markup in %q", m.Text)
		}
		for _, bl := range m.Blocks {
			if strings.ContainsAny(bl.Text.Text, "<>") || !bl.Text.Verbatim {
				t.Errorf("markup in %+v", bl)
			}
		}
	}
	m := decode[slackMessage](t, got[2].body)
	all := fmt.Sprint(m.Blocks)
	for _, want := range []string{good.Title, "*Firing, warning*", "`" + good.Undo + "`", good.Action, "<" + good.URL + "|open in the console>"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s lacks %q", all, want)
		}
	}
}

// An alert is its labels: no figure may be among them.
func TestAlertmanagerLabels(t *testing.T) {
	type alert struct{ Labels, Annotations map[string]string }
	body := func(pg Page) alert {
		return decode[[]alert](t, string(alertmanagerBody(delivery{pages: []Page{pg.clean(time.Now())}, until: time.Now()}, time.Now())))[0]
	}
	pg := sample("a")
	again := pg
	again.Value, again.Title, again.Action, again.ID = "95", "User u-1 spent 95", "", "b"
	x, y := body(pg), body(again)
	if fmt.Sprint(x.Labels) != fmt.Sprint(y.Labels) {
		t.Errorf("labels differ: %v and %v", x.Labels, y.Labels)
	}
	for k, want := range map[string]string{"alertname": "FlyballGuard", "guard": "user-day", "tenant": "t-1", "scope": "user u-1 of tenant t-1", "severity": "warning", "measure": "cost", "window": "2026-11-29", "threshold": "80%"} {
		if x.Labels[k] != want {
			t.Errorf("label %s is %q, want %q", k, x.Labels[k], want)
		}
	}
	if y.Annotations["value"] != "95" || y.Annotations["summary"] != again.Title || y.Annotations["limit"] != "100" {
		t.Errorf("annotations: %v", y.Annotations)
	}
	other := pg
	other.Alert = "the same with another limit"
	if z := body(other); z.Labels["alert_id"] == x.Labels["alert_id"] {
		t.Error("two alerts have one label set")
	}
}
