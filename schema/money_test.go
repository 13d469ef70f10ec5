package schema

import (
	"errors"
	"math"
	"math/big"
	"testing"
)

func TestParseMoneyIsExact(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		m, err := ParseMoney(in)
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if m.String() != want {
			t.Fatalf("%q: got %s, want %s", in, m, want)
		}
	}
	f("0", "0")
	f("-0.5", "-0.5")
	f("0.00000024", "0.00000024")
	f("0.000000000001", "0.000000000001")
	f("1.2500000000000000", "1.25")
	f("9223372.036854775807", "9223372.036854775807")
	f("-9223372.036854775807", "-9223372.036854775807")
}

func TestParseMoneyRefuses(t *testing.T) {
	f := func(in string) {
		t.Helper()
		if m, err := ParseMoney(in); err == nil {
			t.Fatalf("%q was read as %s", in, m)
		}
	}
	for _, in := range []string{"", ".", "1.", ".5", "+1", "1e3", "NaN", "0x1", "1,5", " 1", "0.0000000000001", "--1"} {
		f(in)
	}
	if _, err := ParseMoney("9223372.036854775808"); !errors.Is(err, ErrMoneyRange) {
		t.Fatalf("got %v, want ErrMoneyRange", err)
	}
	if _, err := ParseMoney("99999999999999999999999"); !errors.Is(err, ErrMoneyRange) {
		t.Fatalf("got %v, want ErrMoneyRange", err)
	}
}

func TestSumAgreesWithBigIntegers(t *testing.T) {
	values := []Money{0, 1, -1, math.MaxInt64, -math.MaxInt64, 240_000, 5_500_000_000, -7}
	var s Sum
	want := new(big.Int)
	for i := range 10_000 {
		v := values[(i*7+i/3)%len(values)]
		sign := int8(1)
		if i%5 == 0 {
			sign = -1
		}
		s.Add(v, sign)
		want.Add(want, new(big.Int).Mul(big.NewInt(int64(v)), big.NewInt(int64(sign))))
		got, err := SumFromBig(want)
		if err != nil || got != s {
			t.Fatalf("step %d: got %v, want %v (%v)", i, s, want, err)
		}
	}
	if s.Plus(s.Neg()).Sign() != 0 {
		t.Fatal("s - s is not zero")
	}
	huge, _ := new(big.Int).SetString("-170141183460469231731687303715884105727", 10)
	got, err := SumFromBig(huge)
	if err != nil || got.String() != "-170141183460469231731687303.715884105727" {
		t.Fatalf("got %s, %v", got, err)
	}
}

// A million embeddings of 12 tokens at 0.02 USD per million are real money that
// six decimals would round away.
func TestSmallAmountsAddUp(t *testing.T) {
	one, err := ParseMoney("0.00000024")
	if err != nil {
		t.Fatal(err)
	}
	var s Sum
	for range 1_000_000 {
		s.Add(one, 1)
	}
	if s.String() != "0.24" {
		t.Fatalf("got %s, want 0.24", s)
	}
}
