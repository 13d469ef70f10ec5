package page

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	good := func(r Receiver) {
		t.Helper()
		if err := r.Validate(); err != nil {
			t.Errorf("refused: %v", err)
		}
	}
	bad := func(want string, r Receiver) {
		t.Helper()
		err := r.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
			return
		}
		if r.Name != "" && !strings.Contains(err.Error(), r.Name) {
			t.Errorf("%v does not name the receiver", err)
		}
		if strings.Contains(err.Error(), "T0PSECRET") {
			t.Errorf("%v repeats a secret", err)
		}
	}
	at := func(url string, allow ...string) Receiver {
		return Receiver{Name: "chat", Slack: &Slack{URL: url}, Allow: allow}
	}

	good(at("https://hooks.example.com/services/T0PSECRET"))
	good(at("https://hooks.example.com:8443/"))
	good(at("https://1.1.1.1/"))
	good(at("https://[2606:4700::1111]/"))
	good(at("http://127.0.0.1:9093/", "127.0.0.0/8"))
	good(at("http://[::1]:9093/", "::1/128"))
	good(at("http://[::ffff:127.0.0.1]:9093/", "127.0.0.0/8"))
	good(at("http://alertmanager.monitoring.svc:9093", "10.0.0.0/8"))
	good(at("http://localhost:9093", "127.0.0.0/8"))
	good(alertmanager("oncall", "http://127.0.0.1:9093"))
	good(Receiver{Name: "pd", PagerDuty: &PagerDuty{RoutingKey: strings.Repeat("a1", 16)}})
	good(Receiver{Name: "hook", Webhook: &Webhook{URL: "https://example.com/", Secrets: []string{secret(), secret()}}})

	bad("give it a name", Receiver{Slack: &Slack{URL: "https://example.com"}})
	bad("give it a name", Receiver{Name: "a/b", Slack: &Slack{URL: "https://example.com"}})
	bad("exactly one", Receiver{Name: "none"})
	bad("exactly one", Receiver{Name: "two", Slack: &Slack{URL: "https://example.com"}, Alertmanager: &Alertmanager{URL: "https://example.com"}})
	bad("at least one secret", Receiver{Name: "hook", Webhook: &Webhook{URL: "https://example.com"}})
	bad("secret 2", Receiver{Name: "hook", Webhook: &Webhook{URL: "https://example.com", Secrets: []string{secret(), "T0PSECRET"}}})
	bad("secret 1", Receiver{Name: "hook", Webhook: &Webhook{URL: "https://example.com", Secrets: []string{"whsec_c2hvcnQ="}}})
	bad("routing_key", Receiver{Name: "pd", PagerDuty: &PagerDuty{RoutingKey: "T0PSECRET"}})
	bad("no network", at("https://example.com", "10.0.0.1"))
	bad("no network", at("https://example.com", "::ffff:10.0.0.0/104"))
	bad("absolute", at(""))
	bad("absolute", at("hooks.example.com/T0PSECRET"))
	bad("absolute", at("https:///T0PSECRET"))
	bad("absolute", at("https://a b/T0PSECRET"))
	bad("absolute", Receiver{Name: "am", Alertmanager: &Alertmanager{}})
	bad("not https", at("http://hooks.example.com/T0PSECRET"))
	bad("not https", at("http://1.1.1.1/T0PSECRET"))
	bad("port 22", at("https://hooks.example.com:22/T0PSECRET"))
	bad("port 80", at("https://hooks.example.com:80/T0PSECRET"))
	bad("over 65535", at("https://hooks.example.com:70000/T0PSECRET"))
}

// A project member who may set a webhook must not reach what only this machine
// can reach, however the address is written.
func TestPrivateAddressesAreRefused(t *testing.T) {
	for _, url := range []string{
		"http://169.254.169.254/latest/", "http://127.0.0.1:8123/", "http://localhost/", "http://[::1]/",
		"http://[::ffff:169.254.169.254]/", "http://2130706433/", "http://0x7f.1/", "http://0.0.0.0/",
		"http://10.0.0.1/", "http://100.64.0.1/", "http://[fd00::1]/", "http://[64:ff9b::a9fe:a9fe]/",
		"https://hooks.example.com@127.0.0.1/", "file:///etc/passwd",
		// The same with TLS, where the scheme is no reason.
		"https://169.254.169.254/latest/", "https://127.0.0.1/", "https://localhost/", "https://LOCALHOST./", "https://a.localhost/",
		"https://[::1]/", "https://[::ffff:169.254.169.254]/", "https://[::ffff:a9fe:a9fe]/", "https://[::127.0.0.1]/", "https://2130706433/",
		"https://0x7f.1/", "https://0x7f000001/", "https://017700000001/", "https://0177.0.0.1/", "https://127.1/", "https://127.0.1/",
		"https://0.0.0.0/", "https://0/", "https://10.0.0.1/", "https://10.0.0.1./", "https://100.64.0.1/", "https://[fd00::1]/", "https://[fe80::1%25eth0]/",
		"https://[2606:4700::1111%25eth0]/", "https://[64:ff9b::a9fe:a9fe]/", "https://[64:ff9b:1::a00:1]/", "https://[2002:7f00:1::]/",
		"https://[2001:0:7f00:1::]/", "https://[::]/", "https://224.0.0.1/", "https://255.255.255.255/", "https://192.0.2.1/",
		"https://１２７.0.0.1/", "https://127。0。0。1/", "https://%31%32%37.0.0.1/", "https://user:pw@hooks.example.com/", "gopher://example.com/", "ftp://example.com/",
		"https:example.com", "//example.com/", "https://", "https://example.com:99999/",
	} {
		r := Receiver{Name: "r", Slack: &Slack{URL: url}}
		if err := r.Validate(); err == nil {
			t.Errorf("%s is not refused", url)
		}
		if _, err := New(Options{Receivers: []Receiver{r}}); err == nil {
			t.Errorf("a pager takes %s", url)
		}
	}
	// What is allowed opens nothing else.
	for _, url := range []string{"http://127.0.0.1/", "http://10.1.2.4/", "https://10.1.2.4/", "http://0x0a.1.2.3/", "http://u@10.1.2.3/", "https://[fe80::1%25lo]/"} {
		r := Receiver{Name: "r", Slack: &Slack{URL: url}, Allow: []string{"10.1.2.3/32", "fe80::/10"}}
		if err := r.Validate(); err == nil {
			t.Errorf("%s is not refused", url)
		}
	}
}
