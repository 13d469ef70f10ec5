package page

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"code.dny.dev/ssrf"
)

// Receiver is where pages go: a name and exactly one kind.
type Receiver struct {
	Name         string        `yaml:"name"`
	Alertmanager *Alertmanager `yaml:"alertmanager,omitempty"`
	Webhook      *Webhook      `yaml:"webhook,omitempty"`
	PagerDuty    *PagerDuty    `yaml:"pagerduty,omitempty"`
	Slack        *Slack        `yaml:"slack,omitempty"`
	// Allow lists networks that may be dialled although they are not public, on any
	// port and without TLS.
	Allow []string `yaml:"allow,omitempty"`
}

// Alertmanager is the base URL of one; alerts go to api/v2/alerts below it.
type Alertmanager struct {
	URL string `yaml:"url"`
}

// Webhook is a receiver of Standard Webhooks 1.0. Each secret makes one signature,
// so that a secret can be replaced without a gap.
type Webhook struct {
	URL     string   `yaml:"url"`
	Secrets []string `yaml:"secrets"` // whsec_ and the base64 of 24 to 64 bytes
}

// PagerDuty is a service with an Events API v2 integration.
type PagerDuty struct {
	RoutingKey string `yaml:"routing_key"`
	URL        string `yaml:"url,omitempty"` // default https://events.pagerduty.com/v2/enqueue
}

// Slack is an incoming webhook. Whoever knows its URL can post: it is a secret.
type Slack struct {
	URL string `yaml:"url"`
}

const pagerDutyURL = "https://events.pagerduty.com/v2/enqueue"

var (
	receiverName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`)
	routingKey   = regexp.MustCompile(`^[a-zA-Z0-9]{32}$`)
	hostName     = regexp.MustCompile(`^[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*\.?$`)
	// A host whose last part is a number is an address to some resolvers, in
	// decimal, octal or hexadecimal and with parts left out.
	numericHost = regexp.MustCompile(`(^|\.)([0-9]+|0[xX][0-9a-fA-F]*)\.?$`)
)

// Validate says what is wrong with the receiver and what to do about it. It never
// repeats a URL or a secret.
func (r *Receiver) Validate() error {
	if !receiverName.MatchString(r.Name) {
		return fmt.Errorf("receiver %.64q: give it a name of letters, digits and _.-, at most 64 of them", r.Name)
	}
	if err := r.validate(); err != nil {
		return fmt.Errorf("receiver %q: %w", r.Name, err)
	}
	return nil
}

func (r *Receiver) validate() error {
	kinds := 0
	for _, is := range []bool{r.Alertmanager != nil, r.Webhook != nil, r.PagerDuty != nil, r.Slack != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("it has %d kinds: give it exactly one of alertmanager, webhook, pagerduty and slack", kinds)
	}
	if r.Webhook != nil {
		if len(r.Webhook.Secrets) == 0 {
			return errors.New("list at least one secret: whsec_ and the base64 of 24 to 64 random bytes")
		}
		if _, err := r.Webhook.keys(); err != nil {
			return err
		}
	}
	if r.PagerDuty != nil && !routingKey.MatchString(r.PagerDuty.RoutingKey) {
		return errors.New("routing_key is not the 32 letters and digits that PagerDuty shows as the integration key of the service: copy it again")
	}
	allow, err := r.allow()
	if err != nil {
		return err
	}
	_, err = checkURL(r.url(), allow)
	return err
}

// url is where the receiver's messages are posted.
func (r *Receiver) url() string {
	switch {
	case r.Alertmanager != nil:
		// An address that cannot be joined is refused as it is.
		if u, err := url.JoinPath(r.Alertmanager.URL, "api/v2/alerts"); err == nil {
			return u
		}
		return r.Alertmanager.URL
	case r.Webhook != nil:
		return r.Webhook.URL
	case r.PagerDuty != nil && r.PagerDuty.URL != "":
		return r.PagerDuty.URL
	case r.PagerDuty != nil:
		return pagerDutyURL
	}
	return r.Slack.URL
}

// repeats reports whether the receiver forgets an alert that is not sent again.
func (r *Receiver) repeats() bool { return r.Alertmanager != nil }

// remembers reports whether what the receiver was told decides how it is told the end.
func (r *Receiver) remembers() bool { return r.repeats() || r.PagerDuty != nil }

func (w *Webhook) keys() ([][]byte, error) {
	var keys [][]byte
	for i, s := range w.Secrets {
		text, ok := strings.CutPrefix(s, "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("secret %d is not whsec_ followed by the base64 of 24 to 64 bytes: make one with `echo whsec_$(head -c 32 /dev/urandom | base64)`", i+1)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func (r *Receiver) allow() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range r.Allow {
		prefix, err := netip.ParsePrefix(s)
		if err != nil || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("allow has %q, which is no network: write it as 10.1.2.3/32 or fd00::/8", s)
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

// covered reports whether the address is in one of the networks.
func covered(allow []netip.Prefix, addr netip.Addr) bool {
	for _, prefix := range allow {
		if prefix.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

// publicPorts are the ports on which an address is dialled that is not in allow.
var publicPorts = []uint16{443, 8443}

// public decides which addresses may be dialled without being listed.
var public = ssrf.New(ssrf.WithPorts(publicPorts...))

// checkURL refuses what can be seen to be wrong without asking DNS. What a name
// stands for is checked at each dial; here a name with an allow list gets the
// benefit of the doubt.
func checkURL(raw string, allow []netip.Prefix) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return nil, errors.New("url is not an absolute URL: write it as https://host/path")
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("url has the scheme %q: use https", clip(u.Scheme, 20))
	}
	if u.User != nil {
		return nil, errors.New("url has a user or password before the host: remove them")
	}
	port := uint64(443)
	if u.Scheme == "http" {
		port = 80
	}
	if u.Port() != "" {
		if port, err = strconv.ParseUint(u.Port(), 10, 16); err != nil {
			return nil, errors.New("url has a port over 65535: correct it")
		}
	}
	host := u.Hostname()
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil && addr.Zone() != "":
		return nil, errors.New("url has an address with a zone: use an address without one, or a name")
	case err == nil && covered(allow, addr):
		return u, nil
	case err == nil:
		if err := public.SafeAddr(addr.Unmap()); err != nil {
			return nil, fmt.Errorf("url has the address %s, which is not public: add its network to allow if it is meant", addr)
		}
	case numericHost.MatchString(host):
		return nil, errors.New("url has an address in an unusual form: write it with four decimal numbers, or use a name")
	case !hostName.MatchString(host):
		return nil, errors.New("url has a host that is no name in ASCII: write an international name in its xn-- form")
	case len(allow) > 0:
		return u, nil
	case strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") || strings.HasSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), ".localhost"):
		return nil, errors.New("url names this machine: add 127.0.0.0/8 and ::1/128 to allow if it is meant")
	}
	if u.Scheme != "https" {
		return nil, errors.New("url is not https: use https, or add the network of a receiver inside your own network to allow")
	}
	if port != 443 && port != 8443 {
		return nil, fmt.Errorf("url has port %d: use 443 or 8443, or add the network of a receiver inside your own network to allow", port)
	}
	return u, nil
}
