package schema

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// Money is an amount in units of 1e-12 USD (pico-dollars), the unit in which
// every entry is stored. Its range is about ±9.2 million USD; sums are kept in
// Sum, which cannot overflow in practice.
type Money int64

// PicoPerUSD is the number of Money units in one US dollar.
const PicoPerUSD = 1_000_000_000_000

// ErrMoneyRange is returned where an amount does not fit Money.
var ErrMoneyRange = errors.New("amount is outside ±9223372.036854775807 USD")

// ParseMoney reads a decimal string such as "0.00000024" exactly. It refuses
// exponents, signs other than a leading "-", more than 12 significant decimals
// and anything that does not fit.
func ParseMoney(s string) (Money, error) {
	neg := strings.HasPrefix(s, "-")
	digits := strings.TrimPrefix(s, "-")
	whole, frac, _ := strings.Cut(digits, ".")
	if whole == "" || len(digits) == len(whole)+1 {
		return 0, fmt.Errorf("parse money %q: want a decimal number such as \"0.25\"", s)
	}
	frac = strings.TrimRight(frac, "0")
	if len(frac) > 12 {
		return 0, fmt.Errorf("parse money %q: more than 12 decimals", s)
	}
	var v uint64
	for _, part := range [2]string{whole, frac} {
		for i := 0; i < len(part); i++ {
			c := part[i] - '0'
			if c > 9 {
				return 0, fmt.Errorf("parse money %q: want a decimal number such as \"0.25\"", s)
			}
			hi, lo := bits.Mul64(v, 10)
			lo, carry := bits.Add64(lo, uint64(c), 0)
			if hi+carry != 0 {
				return 0, fmt.Errorf("parse money %q: %w", s, ErrMoneyRange)
			}
			v = lo
		}
	}
	for i := len(frac); i < 12; i++ {
		hi, lo := bits.Mul64(v, 10)
		if hi != 0 {
			return 0, fmt.Errorf("parse money %q: %w", s, ErrMoneyRange)
		}
		v = lo
	}
	if v > math.MaxInt64 {
		return 0, fmt.Errorf("parse money %q: %w", s, ErrMoneyRange)
	}
	if neg {
		return -Money(v), nil
	}
	return Money(v), nil
}

// RoundHalfEven is the integer that is nearest to v, of two the even one.
func RoundHalfEven(v *big.Rat) *big.Int {
	quo, rem := new(big.Int).QuoRem(v.Num(), v.Denom(), new(big.Int))
	if c := rem.Abs(rem).Lsh(rem, 1).Cmp(v.Denom()); c > 0 || c == 0 && quo.Bit(0) == 1 {
		quo.Add(quo, big.NewInt(int64(v.Sign())))
	}
	return quo
}

// String renders the amount in USD without trailing zeros, e.g. "0.0055".
func (m Money) String() string {
	return Sum{hi: uint64(int64(m) >> 63), lo: uint64(m)}.String()
}

// MarshalJSON writes the amount as a JSON string, since a JSON number would be
// read as a float by most clients.
func (m Money) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, m.String()), nil }

// UnmarshalJSON reads what MarshalJSON writes.
func (m *Money) UnmarshalJSON(b []byte) error {
	s, err := strconv.Unquote(string(b))
	if err != nil {
		return fmt.Errorf("parse money %s: want a string: %w", b, err)
	}
	*m, err = ParseMoney(s)
	return err
}

// Sum is a 128-bit sum of Money in two's complement. The zero value is zero.
type Sum struct{ hi, lo uint64 }

// Add adds m times sign (+1 or -1).
func (s *Sum) Add(m Money, sign int8) {
	v := int64(m)
	if sign < 0 {
		v = -v
	}
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, uint64(v), 0)
	s.hi, _ = bits.Add64(s.hi, uint64(v>>63), carry)
}

// Plus returns s + t.
func (s Sum) Plus(t Sum) Sum {
	lo, carry := bits.Add64(s.lo, t.lo, 0)
	hi, _ := bits.Add64(s.hi, t.hi, carry)
	return Sum{hi: hi, lo: lo}
}

// SumOf is the sum that is v.
func SumOf(v int64) Sum { return Sum{hi: uint64(v >> 63), lo: uint64(v)} }

// Minus returns s - t.
func (s Sum) Minus(t Sum) Sum { return s.Plus(t.Neg()) }

// Cmp is -1, 0 or +1 as s is less than, equal to or more than t.
func (s Sum) Cmp(t Sum) int {
	switch {
	case s == t:
		return 0
	case int64(s.hi) < int64(t.hi), s.hi == t.hi && s.lo < t.lo:
		return -1
	}
	return 1
}

// Words are the upper and the lower half of the sum, for codecs; SumFromWords is the inverse.
func (s Sum) Words() (hi, lo uint64) { return s.hi, s.lo }

// SumFromWords makes a sum of what Words returned.
func SumFromWords(hi, lo uint64) Sum { return Sum{hi: hi, lo: lo} }

// Big is the sum in pico-dollars.
func (s Sum) Big() *big.Int {
	b := new(big.Int).Lsh(big.NewInt(int64(s.hi)), 64)
	return b.Or(b, new(big.Int).SetUint64(s.lo))
}

// Neg returns -s.
func (s Sum) Neg() Sum {
	lo, carry := bits.Add64(^s.lo, 1, 0)
	return Sum{hi: ^s.hi + carry, lo: lo}
}

// Sign is -1, 0 or +1.
func (s Sum) Sign() int {
	switch {
	case int64(s.hi) < 0:
		return -1
	case s.hi|s.lo == 0:
		return 0
	}
	return 1
}

// Money returns the sum as Money, or ErrMoneyRange where it does not fit.
func (s Sum) Money() (Money, error) {
	if s.hi == uint64(int64(s.lo)>>63) {
		return Money(s.lo), nil
	}
	return 0, ErrMoneyRange
}

// SumFromBig converts an integer of pico-dollars, as ClickHouse returns an
// Int128 sum. It reports ErrMoneyRange beyond 127 bits.
func SumFromBig(b *big.Int) (Sum, error) {
	if b.BitLen() > 127 {
		return Sum{}, ErrMoneyRange
	}
	mag := new(big.Int).Abs(b)
	lo := new(big.Int).And(mag, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	hi := new(big.Int).Rsh(mag, 64).Uint64()
	s := Sum{hi: hi, lo: lo}
	if b.Sign() < 0 {
		s = s.Neg()
	}
	return s, nil
}

// String renders the sum in USD without trailing zeros.
func (s Sum) String() string {
	neg := s.Sign() < 0
	if neg {
		s = s.Neg()
	}
	// 2^127 / 1e12 fits 64 bits only after one division step, so divide twice.
	qhi, r := s.hi/PicoPerUSD, s.hi%PicoPerUSD
	qlo, frac := bits.Div64(r, s.lo, PicoPerUSD)
	var b []byte
	if neg {
		b = append(b, '-')
	}
	if qhi == 0 {
		b = strconv.AppendUint(b, qlo, 10)
	} else {
		whole := new(big.Int).Lsh(new(big.Int).SetUint64(qhi), 64)
		b = append(b, whole.Or(whole, new(big.Int).SetUint64(qlo)).String()...)
	}
	if frac != 0 {
		var f [12]byte
		for i := 11; i >= 0; i-- {
			f[i] = byte('0' + frac%10)
			frac /= 10
		}
		b = append(b, '.')
		b = append(b, strings.TrimRight(string(f[:]), "0")...)
	}
	return string(b)
}

// MarshalJSON writes the sum as a decimal string.
func (s Sum) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, s.String()), nil }

// UnmarshalJSON reads a sum as MarshalJSON writes it.
func (s *Sum) UnmarshalJSON(b []byte) error {
	text, err := strconv.Unquote(string(b))
	if err != nil {
		return fmt.Errorf("read sum %s: want a decimal string", b)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok || strings.ContainsAny(text, "eE/_") {
		return fmt.Errorf("read sum %q: want a decimal number", text)
	}
	if r.Mul(r, new(big.Rat).SetInt64(PicoPerUSD)); !r.IsInt() {
		return fmt.Errorf("read sum %q: it is finer than 1e-12", text)
	}
	*s, err = SumFromBig(r.Num())
	return err
}
