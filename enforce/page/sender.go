package page

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// sender is a receiver ready to be sent to. What it has from its configuration
// never changes; the rest is the run loop's alone.
type sender struct {
	Receiver
	target  *url.URL
	address string // host and port
	keys    [][]byte
	dialer  *net.Dialer
	tls     *tls.Config // nil without TLS
	timeout time.Duration

	busy      bool      // a send is under way
	gone      bool      // it answered that it does not exist, nothing more goes to it
	notBefore time.Time // until when it asked to be left alone
	repeatAt  time.Time // when what fires is due to be sent again
}

// delivery is what one request carries.
type delivery struct {
	id    string    // the same at every try
	pages []Page    // at least one; all firing or all resolved, but for Alertmanager
	key   string    // PagerDuty's key of the incident
	until time.Time // when Alertmanager may take what fires for over

	silent bool // it changes what we know and needs no request
}

// listed is how many alerts of a group are spelled out.
const listed = 20

func newSender(r Receiver, o *Options) (*sender, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	allow, err := r.allow()
	if err != nil {
		return nil, err
	}
	s := &sender{Receiver: r, timeout: o.Timeout}
	if r.Webhook != nil {
		if s.keys, err = r.Webhook.keys(); err != nil {
			return nil, err
		}
	}
	if s.target, err = checkURL(r.url(), allow); err != nil {
		return nil, err
	}
	port := "80"
	if s.target.Scheme == "https" {
		port = "443"
		s.tls = &tls.Config{ServerName: strings.TrimSuffix(s.target.Hostname(), "."), RootCAs: o.roots}
	}
	s.address = net.JoinHostPort(s.target.Hostname(), cmp.Or(s.target.Port(), port))
	s.dialer = &net.Dialer{
		Timeout:  o.ConnectTimeout,
		Resolver: o.resolver,
		// Control sees the address after DNS, at every dial, so there is nothing
		// between the check and the use of a name.
		Control: func(network, address string, c syscall.RawConn) error {
			if ap, err := netip.ParseAddrPort(address); err == nil && covered(allow, ap.Addr()) {
				return nil
			}
			if s.tls == nil {
				return fmt.Errorf("%w: without TLS", ssrf.ErrProhibitedIP)
			}
			return public.Safe(network, address, c)
		},
	}
	return s, nil
}

// post sends the delivery and returns the status, or an error if there was none.
func (s *sender) post(ctx context.Context, d delivery) (status int, after time.Duration, err error) {
	now := time.Now()
	header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"flyball"}}
	var body []byte
	switch {
	case s.Alertmanager != nil:
		body = alertmanagerBody(d, now)
	case s.Webhook != nil:
		body = webhookBody(d)
		sign(header, s.keys, d.id, now, body)
	case s.PagerDuty != nil:
		body = pagerDutyBody(d, s.PagerDuty.RoutingKey)
	case s.Slack != nil:
		body = slackBody(d)
	}
	req := &http.Request{Method: http.MethodPost, URL: s.target, Header: header, Close: true, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.exchange(ctx, req)
	if ctx.Err() != nil && err != nil {
		err = ctx.Err() // the cause of what the connection says
	}
	if err != nil {
		return 0, 0, err
	}
	return resp.StatusCode, retryAfter(resp.Header.Get("Retry-After"), now), nil
}

// exchange writes a request on a connection of its own and reads the head of the
// answer. It is not http.Client, which takes proxies from the environment, keeps
// connections to what a name once stood for, and logs bytes of an answer that
// comes before it is due.
func (s *sender) exchange(ctx context.Context, req *http.Request) (*http.Response, error) {
	raw, err := s.dialer.DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	conn := raw
	if s.tls != nil {
		secure := tls.Client(raw, s.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = secure
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	// Enough for any head, and all that is ever read: nobody needs the body.
	r := bufio.NewReaderSize(io.LimitReader(conn, 16<<10), 4<<10)
	for {
		resp, err := http.ReadResponse(r, req)
		if err != nil || resp.StatusCode/100 != 1 {
			return resp, err
		}
	}
}

func (s *sender) send(ctx context.Context, d delivery) (retry bool, after time.Duration, err error) {
	return judge(s.post(ctx, d))
}

// errGone is the answer of a receiver that wants nothing more.
var errGone = errors.New("answered 410: disabled until the configuration is loaded again")

// judge is the one place that says whether a send succeeded and, if not, whether
// it is worth repeating. Its errors say nothing that the other side wrote.
func judge(status int, after time.Duration, err error) (bool, time.Duration, error) {
	switch {
	case err != nil:
		return true, 0, errors.New(reason(err))
	case status >= 200 && status <= 299:
		return false, 0, nil
	case status == http.StatusGone:
		return true, 0, errGone
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests, status >= 500:
		return true, after, fmt.Errorf("answered %s", class(status))
	}
	return false, 0, fmt.Errorf("answered %s", class(status))
}

func class(status int) string { return strconv.Itoa(status/100) + "xx" }

// reason names what went wrong with a request in words of our own: the errors of
// net/http repeat the URL, which may be a secret, and parts of a bad answer.
func reason(err error) string {
	var timeout net.Error
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedPort), errors.Is(err, ssrf.ErrProhibitedNetwork):
		return "address not dialled: it is not public, or its port or the lack of TLS is not allowed; add its network to allow if it is meant"
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timed out"
	case errors.As(err, &dns):
		return "host not found"
	case errors.As(err, &cert):
		return "certificate not accepted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	}
	return "connection failed"
}

// retryAfter reads the header's two forms, 0 where there is none.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// encode is JSON that leaves <, > and & alone: each is one byte to count, and no
// receiver puts it into a web page as it is.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("BUG: encode page: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
