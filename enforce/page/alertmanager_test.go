package page

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// notification is what Alertmanager tells its own receivers.
type notification struct {
	Status string
	Alerts []struct {
		Status, Fingerprint string
		Labels, Annotations map[string]string
	}
}

// startAlertmanager runs the real one on loopback; what it notifies goes to url.
func startAlertmanager(t *testing.T, url string) string {
	t.Helper()
	binary, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		if binary, err = exec.LookPath("alertmanager"); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal("no Alertmanager: apt-get install prometheus-alertmanager")
			}
			t.Skip("no Alertmanager: apt-get install prometheus-alertmanager")
		}
	}
	dir := t.TempDir()
	config := fmt.Sprintf("route: {receiver: sink, group_by: ['...'], group_wait: 50ms, group_interval: 100ms, repeat_interval: 1h}\nreceivers: [{name: sink, webhook_configs: [{url: %q, send_resolved: true}]}]\n", url)
	if err := os.WriteFile(filepath.Join(dir, "config.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--config.file="+filepath.Join(dir, "config.yml"), "--storage.path="+dir, "--web.listen-address="+address, "--cluster.listen-address=")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("Alertmanager's log:\n%s", text)
		}
		_ = log.Close()
	})
	eventually(t, func() bool {
		resp, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == 200
	}, "Alertmanager")
	return "http://" + address
}

// activeAlerts asks Alertmanager what fires.
func activeAlerts(t *testing.T, base string) (out []struct {
	Fingerprint         string
	EndsAt              time.Time
	Labels, Annotations map[string]string
}) {
	t.Helper()
	resp, err := http.Get(base + "/api/v2/alerts?active=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAlertmanager(t *testing.T) {
	told := newSink(t, nil)
	base := startAlertmanager(t, told.URL)
	notes := func() (out []string) {
		for _, r := range told.requests() {
			for _, a := range decode[notification](t, r.body).Alerts {
				out = append(out, a.Status+" "+a.Fingerprint)
			}
		}
		return out
	}
	dir := t.TempDir()
	st, shut := openStore(t, dir)
	o := Options{Store: st, Resend: 250 * time.Millisecond, Receivers: []Receiver{alertmanager("oncall", base)}}
	p, stop := start(t, o)
	pg := sample("a")
	pg.URL = "http://127.0.0.1:8080/console?guard=user-day"
	put(t, p, pg)
	idle(t, p)
	eventually(t, func() bool { return len(notes()) == 1 }, "a notification")
	active := activeAlerts(t, base)
	if len(active) != 1 || active[0].Labels["alertname"] != "FlyballGuard" || active[0].Annotations["value"] != "81" || active[0].Annotations["undo"] != pg.Undo {
		t.Fatalf("active: %+v", active)
	}
	print := active[0].Fingerprint

	// It fires on for longer than one message makes it, and across a restart.
	time.Sleep(1200 * time.Millisecond)
	if a := activeAlerts(t, base); len(a) != 1 || !a[0].EndsAt.After(active[0].EndsAt) {
		t.Fatalf("not told again: %+v", a)
	}
	stop()
	shut()
	o.Store, _ = openStore(t, dir)
	o.Registerer = nil
	p, stop = start(t, o)
	time.Sleep(1200 * time.Millisecond)
	if a := activeAlerts(t, base); len(a) != 1 || len(notes()) != 1 {
		t.Fatalf("after a restart: %+v, %v", a, notes())
	}

	// The resolution has another severity and title, and ends the same alert.
	put(t, p, end(pg, "a-end"))
	eventually(t, func() bool { return len(activeAlerts(t, base)) == 0 && len(notes()) == 2 }, "the end: %v", notes())
	time.Sleep(600 * time.Millisecond)
	if a := activeAlerts(t, base); len(a) != 0 {
		t.Fatalf("fires on after its end: %+v", a)
	}

	// It is armed again, and ends by itself if nobody tells it on.
	again := sample("b")
	put(t, p, again)
	eventually(t, func() bool { return len(activeAlerts(t, base)) == 1 && len(notes()) == 3 }, "a second alarm: %v", notes())
	stop()
	eventually(t, func() bool { return len(activeAlerts(t, base)) == 0 }, "an end without us")
	want := []string{"firing " + print, "resolved " + print, "firing " + print}
	if got := notes(); fmt.Sprint(got[:3]) != fmt.Sprint(want) {
		t.Errorf("notified %v, want %v", got, want)
	}
}

// A higher rung takes the place of the lower one: one alert fires, and its end ends all.
func TestAlertmanagerEscalates(t *testing.T) {
	base := startAlertmanager(t, newSink(t, nil).URL)
	p, _ := start(t, Options{Receivers: []Receiver{alertmanager("oncall", base)}, Resend: 250 * time.Millisecond})
	low := sample("cap/0")
	low.Alert, low.Severity, low.Threshold = "cap", "warning", "80%"
	put(t, p, low)
	idle(t, p)
	high := sample("cap/1")
	high.Alert, high.Severity, high.Threshold = "cap", "critical", "100%"
	put(t, p, high)
	idle(t, p)
	severities := func() (out []string) {
		for _, a := range activeAlerts(t, base) {
			out = append(out, a.Labels["severity"])
		}
		return out
	}
	eventually(t, func() bool { return fmt.Sprint(severities()) == "[critical]" }, "the higher rung alone: %v", severities())
	put(t, p, end(high, "cap/1/resolved"))
	eventually(t, func() bool { return len(severities()) == 0 }, "the end: %v", severities())
}

// A crowd of alerts is one request, and Alertmanager keeps all of them apart.
func TestAlertmanagerTakesMany(t *testing.T) {
	base := startAlertmanager(t, newSink(t, nil).URL)
	p, _ := start(t, Options{Receivers: []Receiver{alertmanager("oncall", base)}})
	pages := many(300)
	pages = append(pages, hostile(1), hostile(2))
	put(t, p, pages...)
	idle(t, p)
	if n := len(activeAlerts(t, base)); n != 302 {
		t.Errorf("%d alerts fire, want 302", n)
	}
	if r := p.Test(t.Context(), ""); !r[0].OK {
		t.Errorf("test: %+v", r)
	}
}
