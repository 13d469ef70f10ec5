package app

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A file of what a running service stored is split by the prices it was priced with,
// and by none once they are others.
func TestFinanceOfARunningService(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(prices)
	s := newService(t, "", `FLYBALL_PRICES__FILES=["`+list+`"]`)
	s.start()
	b := runs(1, 40)
	s.mustSend(b.td)
	s.drain()
	ask := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.url("http", "/api/v1/"+path), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		out, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(out)
	}
	now := time.Now().UTC()
	window := "from=" + now.AddDate(0, 0, -2).Format(time.DateOnly) + "&to=" + now.AddDate(0, 0, 2).Format(time.DateOnly)
	file := func() (total *big.Rat, bases []string) {
		t.Helper()
		code, body := ask(http.MethodGet, "export/focus?"+window, "")
		rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
		if code != http.StatusOK || err != nil || len(rows) < 3 {
			t.Fatal(code, err, body)
		}
		total = new(big.Rat)
		basis, billed := slices.Index(rows[0], "x_FlyballCostBasis"), slices.Index(rows[0], "BilledCost")
		for _, r := range rows[1:] {
			v, ok := new(big.Rat).SetString(r[billed])
			if !ok {
				t.Fatalf("BilledCost %q", r[billed])
			}
			total.Add(total, v)
			if !slices.Contains(bases, r[basis]) {
				bases = append(bases, r[basis])
			}
		}
		slices.Sort(bases)
		return total, bases
	}
	_, answer := ask(http.MethodGet, "spend?"+window, "")
	var spend struct {
		Total struct {
			Cost string `json:"cost_usd"`
		}
	}
	if err := json.Unmarshal([]byte(answer), &spend); err != nil {
		t.Fatal(err, answer)
	}
	want, ok := new(big.Rat).SetString(spend.Total.Cost)
	if !ok || want.Sign() <= 0 {
		t.Fatalf("spend: %s", answer)
	}
	if total, bases := file(); total.Cmp(want) != 0 || !slices.Contains(bases, "unit_price") || slices.Contains(bases, "total") {
		t.Errorf("file: %s of %v, spend %s", total.FloatString(12), bases, spend.Total.Cost)
	}
	if code, body := ask(http.MethodGet, "export/focus?format=parquet&"+window, ""); code != http.StatusOK || !strings.HasPrefix(body, "PAR1") {
		t.Errorf("parquet: %d %.200q", code, body)
	}
	write(strings.ReplaceAll(prices, `"1"`, `"3"`))
	if code, body := ask(http.MethodPost, "reload", ""); code != http.StatusOK {
		t.Fatal(code, body)
	}
	if total, bases := file(); total.Cmp(want) != 0 || slices.Contains(bases, "unit_price") || !slices.Contains(bases, "total") {
		t.Errorf("file after a change of prices: %s of %v, spend %s", total.FloatString(12), bases, spend.Total.Cost)
	}

	month := now.AddDate(0, -2, 0).Format("2006-01")
	if code, body := ask(http.MethodPost, "close", `{"period":"`+month+`"}`); code != http.StatusOK || !strings.Contains(body, `"closed_by":"local"`) {
		t.Errorf("close: %d %s", code, body)
	}
	if code, body := ask(http.MethodPost, "close", `{"period":"`+now.Format("2006-01")+`"}`); code != http.StatusConflict {
		t.Errorf("close of a month that goes on: %d %s", code, body)
	}
	if code, body := ask(http.MethodGet, "close", ""); code != http.StatusOK || !strings.Contains(body, month) {
		t.Errorf("closes: %d %s", code, body)
	}

	// Our own file is a bill that agrees with us to the last digit.
	_, own := ask(http.MethodGet, "export/focus?"+window, "")
	code, body := ask(http.MethodPost, "reconcile?source=focus", own)
	var compared struct {
		Reconciliation struct {
			Ours       string `json:"ours_usd"`
			Difference string `json:"difference_usd"`
		}
		Rows []struct{ Model string }
	}
	if err := json.Unmarshal([]byte(body), &compared); code != http.StatusOK || err != nil {
		t.Fatal(code, err, body)
	}
	if compared.Reconciliation.Ours != spend.Total.Cost || compared.Reconciliation.Difference != "0" || len(compared.Rows) == 0 {
		t.Errorf("our own file: %s", body)
	}
}
