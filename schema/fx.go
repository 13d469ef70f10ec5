package schema

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rate is what one unit of a currency was worth on a day.
type Rate struct {
	Day    time.Time // midnight UTC stands for the date
	Text   string    // USD for one unit, as it was written
	Source string    // name of the file
	pico   *big.Int  // 1e-12 USD for one unit, above 0
}

// Pico is 1e-12 USD for one unit, above 0. It is not to be changed.
func (r Rate) Pico() *big.Int { return r.pico }

// FromUSD converts 1e-12 USD into 1e-12 of the currency, rounded half even.
func (r Rate) FromUSD(v *big.Int) *big.Int {
	return RoundHalfEven(new(big.Rat).SetFrac(new(big.Int).Mul(v, big.NewInt(PicoPerUSD)), r.pico))
}

// ToUSD converts 1e-12 of the currency into 1e-12 USD, rounded half even.
func (r Rate) ToUSD(v *big.Int) *big.Int {
	return RoundHalfEven(new(big.Rat).SetFrac(new(big.Int).Mul(v, r.pico), big.NewInt(PicoPerUSD)))
}

// Rates are dated rates of exchange. The nil Rates has none. They are immutable.
type Rates struct{ by map[string][]Rate } // in the order of the days

var (
	rateHeader   = []string{"date", "currency", "rate"}
	currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)
	rateForm     = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,12})?$`)
)

// LoadRates reads CSV files with the header date,currency,rate, where the rate is the
// USD that one unit of the currency is worth, an exact decimal of up to 12 digits on
// either side. A row that is not understood, or there twice, is an error that names
// the file and the line.
func LoadRates(files []string) (*Rates, error) {
	r := &Rates{by: map[string][]Rate{}}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read rates: %w", err)
		}
		err = r.read(f, filepath.Base(name))
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return nil, fmt.Errorf("read rates %s: %w", name, err)
		}
	}
	for currency, list := range r.by {
		slices.SortStableFunc(list, func(a, b Rate) int { return a.Day.Compare(b.Day) })
		for i := range list[1:] {
			if a, b := list[i], list[i+1]; a.Day.Equal(b.Day) {
				return nil, fmt.Errorf("read rates: %s has two of %s, %s in %s and %s in %s; keep one", currency, a.Day.Format(time.DateOnly), a.Text, a.Source, b.Text, b.Source)
			}
		}
	}
	return r, nil
}

func (r *Rates) read(f io.Reader, source string) error {
	in := csv.NewReader(WithoutBOM(f))
	in.FieldsPerRecord = len(rateHeader)
	head, err := in.Read()
	if err != nil || !slices.Equal(head, rateHeader) {
		return fmt.Errorf("line 1: want the header %s", strings.Join(rateHeader, ","))
	}
	for {
		rec, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := in.FieldPos(0)
		day, err := time.Parse(time.DateOnly, rec[0])
		if err != nil {
			return fmt.Errorf("line %d: date %q: want one such as 2026-11-30", line, rec[0])
		}
		if !currencyCode.MatchString(rec[1]) || rec[1] == "USD" {
			return fmt.Errorf("line %d: currency %q: want a code such as EUR, which is not USD", line, rec[1])
		}
		v, ok := new(big.Rat).SetString(rec[2])
		if !ok || !rateForm.MatchString(rec[2]) || v.Sign() == 0 {
			return fmt.Errorf("line %d: rate %q: want the USD that one %s is worth, a decimal above 0 such as 1.0842", line, rec[2], rec[1])
		}
		v.Mul(v, new(big.Rat).SetInt64(PicoPerUSD))
		r.by[rec[1]] = append(r.by[rec[1]], Rate{day, rec[2], source, v.Num()})
	}
}

// WithoutBOM skips the mark that spreadsheets and shells put in front of UTF-8.
func WithoutBOM(r io.Reader) io.Reader {
	b := bufio.NewReader(r)
	if head, err := b.Peek(3); err == nil && string(head) == "\ufeff" {
		_, _ = b.Discard(3) // they are buffered
	}
	return b
}

// On is the rate of a day, else the last one before it; false where there is none.
func (r *Rates) On(currency string, day time.Time) (Rate, bool) {
	if r == nil {
		return Rate{}, false
	}
	list := r.by[currency]
	i, found := slices.BinarySearchFunc(list, day, func(x Rate, day time.Time) int { return x.Day.Compare(day) })
	if !found {
		i--
	}
	if i < 0 {
		return Rate{}, false
	}
	return list[i], true
}

// Currencies are those that have a rate.
func (r *Rates) Currencies() []string {
	var out []string
	if r != nil {
		for c := range r.by {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

// String names the rate with its day and source.
func (r Rate) String() string {
	return r.Text + " of " + r.Day.Format(time.DateOnly) + " in " + strconv.Quote(r.Source)
}
