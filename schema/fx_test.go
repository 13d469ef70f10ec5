package schema_test

import (
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

func rates(t *testing.T, files ...string) (*schema.Rates, error) {
	t.Helper()
	var names []string
	for i, text := range files {
		name := filepath.Join(t.TempDir(), string(rune('a'+i))+".csv")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return schema.LoadRates(names)
}

func TestRates(t *testing.T) {
	r, err := rates(t, "date,currency,rate\n2026-03-10,EUR,1.1\n2026-03-08,EUR,3\n2026-03-09,JPY,0.0065\n", "date,currency,rate\n2026-03-12,EUR,1.25\n")
	if err != nil {
		t.Fatal(err)
	}
	f := func(currency, day, want string) {
		t.Helper()
		at, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		x, ok := r.On(currency, at)
		got := ""
		if ok {
			got = x.String()
		}
		if got != want {
			t.Errorf("%s on %s: got %s, want %s", currency, day, got, want)
		}
	}
	f("EUR", "2026-03-07", "")
	f("EUR", "2026-03-08", `3 of 2026-03-08 in "a.csv"`)
	f("EUR", "2026-03-09", `3 of 2026-03-08 in "a.csv"`)
	f("EUR", "2026-03-10", `1.1 of 2026-03-10 in "a.csv"`)
	f("EUR", "2027-01-01", `1.25 of 2026-03-12 in "b.csv"`)
	f("GBP", "2026-03-10", "")
	if got := strings.Join(r.Currencies(), " "); got != "EUR JPY" {
		t.Error(got)
	}
	if _, ok := (*schema.Rates)(nil).On("EUR", time.Now()); ok {
		t.Error("nothing has a rate")
	}

	// Half even on both sides of zero.
	three, _ := r.On("EUR", time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC))
	quarters, _ := r.On("EUR", time.Date(2026, 3, 12, 0, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		got  *big.Int
		want int64
	}{{three.FromUSD(big.NewInt(1)), 0}, {three.FromUSD(big.NewInt(2)), 1}, {three.FromUSD(big.NewInt(-2)), -1}, {three.ToUSD(big.NewInt(-7)), -21},
		{quarters.ToUSD(big.NewInt(2)), 2}, {quarters.ToUSD(big.NewInt(6)), 8}, {quarters.ToUSD(big.NewInt(-2)), -2}, {quarters.ToUSD(big.NewInt(-6)), -8}, {quarters.FromUSD(big.NewInt(5)), 4}} {
		if c.got.Int64() != c.want {
			t.Errorf("got %s, want %d", c.got, c.want)
		}
	}
}

func TestRatesAreStrict(t *testing.T) {
	f := func(words string, files ...string) {
		t.Helper()
		if _, err := rates(t, files...); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %q", err, words)
		}
	}
	const head = "date,currency,rate\n"
	f("want the header date,currency,rate", "")
	f("want the header", "day,currency,rate\n")
	f(`line 2: date "10.03.2026"`, head+"10.03.2026,EUR,1\n")
	f(`line 3: currency "eur"`, head+"2026-03-10,EUR,1\n2026-03-11,eur,1\n")
	f("which is not USD", head+"2026-03-10,USD,1\n")
	for _, rate := range []string{"0", "-1", "1e3", "1/3", "1.0000000000001", "", "0.000"} {
		f("line 2: rate", head+"2026-03-10,EUR,"+rate+"\n")
	}
	f("wrong number of fields", head+"2026-03-10,EUR\n")
	f("EUR has two of 2026-03-10, 1.1 in a.csv and 1.2 in b.csv", head+"2026-03-10,EUR,1.1\n", head+"2026-03-10,EUR,1.2\n")
	if _, err := schema.LoadRates([]string{"/nowhere.csv"}); err == nil {
		t.Error("a file that is not there")
	}
}

// A spreadsheet writes a mark in front and other line ends.
func TestRatesFromASpreadsheet(t *testing.T) {
	r, err := rates(t, "\ufeffdate,currency,rate\r\n2026-03-10,EUR,1.1\r\n\"2026-03-11\",\"EUR\",\"1.2\"\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if x, ok := r.On("EUR", time.Date(2026, 3, 12, 0, 0, 0, 0, time.UTC)); !ok || x.String() != `1.2 of 2026-03-11 in "a.csv"` {
		t.Errorf("got %s", x)
	}
}
