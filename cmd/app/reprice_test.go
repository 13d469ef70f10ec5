package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// A price that comes later: shown first, then posted once.
func TestRepriceWhenAPriceComes(t *testing.T) {
	list := filepath.Join(t.TempDir(), "later.yaml")
	if err := os.WriteFile(list, []byte(strings.ReplaceAll(prices, "m-1", "m-0")), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newService(t, "", `FLYBALL_PRICES__FILES=["`+list+`"]`)
	s.start()
	b := runs(1, 40)
	s.mustSend(b.td)
	s.drain()
	if got := s.one("SELECT countIf(cost_status = 'unpriced' AND sign > 0) > 0 FROM journal"); got != "1" {
		t.Fatal("nothing is unpriced")
	}
	post := func(path, body string) (int, string) {
		t.Helper()
		res, err := client.Post(s.url("http", "/api/v1/"+path), "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		out, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(out)
	}
	if code, out := post("reprice", `{"dry_run":true}`); code != http.StatusBadRequest || !strings.Contains(out, "since") {
		t.Error(code, out)
	}
	if err := os.WriteFile(list, []byte(prices), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := post("reload", ""); code != http.StatusOK {
		t.Fatal(code, out)
	}
	ask := func(dry bool) (r struct {
		Lines  int
		Change string `json:"change_usd"`
	}) {
		t.Helper()
		code, out := post("reprice", fmt.Sprintf(`{"since":%q,"dry_run":%v}`, time.Now().Add(-time.Hour).Format(time.RFC3339), dry))
		if code != http.StatusOK || json.Unmarshal([]byte(out), &r) != nil {
			t.Fatal(code, out)
		}
		return r
	}
	want := schema.Money(b.cost * 1_000_000).String()
	if r := ask(true); r.Lines != 2*39 || r.Change != want {
		t.Errorf("dry run %+v, want %s", r, want)
	}
	s.drain()
	if got := s.one("SELECT sum(cost) FROM spend_15m"); got != "0" {
		t.Error("a dry run posted", got)
	}
	if r := ask(false); r.Change != want {
		t.Errorf("%+v, want %s", r, want)
	}
	if r := ask(false); r.Lines != 0 {
		t.Errorf("again %+v", r)
	}
	s.drain()
	if got := s.one("SELECT sum(cost) FROM spend_15m"); got != fmt.Sprint(b.cost*1_000_000) {
		t.Errorf("spend is %s, want %d", got, b.cost*1_000_000)
	}
	s.checkBooks()
}
