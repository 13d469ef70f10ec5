package schema

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// fill sets every exported field of v, so that a field the codec forgets shows.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(string([]byte{byte('a' + r.IntN(26)), byte('a' + r.IntN(26)), 0xff}))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(r.Int64() - r.Int64())
	case reflect.Int8:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1 + r.Uint64N(2))
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1 + r.Uint64N(1<<15))
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	default:
		panic("BUG: codec test does not know " + v.Kind().String())
	}
}

func TestEntryReadsBackAsWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var batch Batch
	var want []Entry
	batch.Reset(1_789_000_000_000_001)
	for i := range 50 {
		var e Entry
		if i > 0 { // the first is all zeros
			fill(r, reflect.ValueOf(&e).Elem())
		}
		if i%3 == 0 {
			e.Posting.Identity = e.Identity
			e.Posting.Tokens = e.Call.Tokens
		}
		e.Sign, e.Version, e.RecordedAt = 1-2*int8(i%2), uint32(i), 1_789_000_000_000_001
		call := AppendCall(nil, &e.Call)
		batch.Add(e.Sign, e.Version, 42, call, AppendPosting(nil, &e.Posting, &e.Call))
		want = append(want, e)
	}
	var got []Entry
	err := EachEntry(batch.Bytes(), func(raw RawEntry) error {
		var e Entry
		if err := raw.Decode(&e); err != nil {
			return err
		}
		if raw.Received != 42 {
			t.Fatalf("received: got %d", raw.Received)
		}
		got = append(got, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("entry %d:\n got %+v\nwant %+v", i, got[i], want[i])
		}
	}
	for cut := range len(batch.Bytes()) - 1 {
		_ = EachEntry(batch.Bytes()[:cut], func(raw RawEntry) error {
			var e Entry
			return raw.Decode(&e)
		})
	}
}

func FuzzDecodeEntry(f *testing.F) {
	var e Entry
	fill(rand.New(rand.NewPCG(3, 4)), reflect.ValueOf(&e).Elem())
	var batch Batch
	batch.Reset(7)
	batch.Add(1, 1, 1, AppendCall(nil, &e.Call), AppendPosting(nil, &e.Posting, &e.Call))
	f.Add(batch.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = EachEntry(b, func(raw RawEntry) error {
			var e Entry
			if raw.Decode(&e) != nil {
				return nil
			}
			_, _, _ = e.Kind.String(), e.Posting.Status.String(), e.AllFlags().Names()
			call := AppendCall(nil, &e.Call)
			var again Call
			if err := DecodeCall(call, &again); err != nil || again != e.Call {
				t.Fatalf("a decoded call does not read back: %v", err)
			}
			return nil
		})
	})
}

func BenchmarkAppendEntry(b *testing.B) {
	e := Entry{Call: Call{Tenant: "t-1", Start: 1_789_000_000_000_000_000, Duration: 812_000_000, Kind: KindModel, Usage: UsageKnown, Name: "chat m-5", Operation: "chat", Provider: "openai", Model: "m-5", RequestedModel: "m-5", ResponseID: "chatcmpl-0123456789", Scope: "opentelemetry.instrumentation.openai@1.2.3", TokenBasis: "declared_inclusive", Tokens: Tokens{Input: 1760, CacheRead: 10240, Output: 900, Reasoning: 640}}}
	e.Identity[User], e.Identity[Feature] = "user-12345", "checkout"
	e.Posting.Identity = e.Identity
	e.Posting.Identity[Run] = "5b8efff798038103d269b633813fc60c"
	e.Posting.Tokens = e.Call.Tokens
	e.Posting.Cost, e.Posting.Exposure, e.Posting.Status, e.Posting.ModelCalls, e.Posting.PriceID = 5_500_000_000, 5_500_000_000, CostPriced, 1, "openai/m-5@2026-01-01"
	var call, post []byte
	b.ReportAllocs()
	for b.Loop() {
		call = AppendCall(call[:0], &e.Call)
		post = AppendPosting(post[:0], &e.Posting, &e.Call)
	}
	b.ReportMetric(float64(len(call)+len(post)), "bytes/entry")
}

func BenchmarkDecodeEntry(b *testing.B) {
	e := Entry{Call: Call{Tenant: "t-1", Start: 1_789_000_000_000_000_000, Kind: KindModel, Operation: "chat", Provider: "openai", Model: "m-5", ResponseID: "chatcmpl-0123456789", Tokens: Tokens{Input: 1760, Output: 900}}}
	call := AppendCall(nil, &e.Call)
	raw := RawEntry{Sign: 1, Call: call, Posting: AppendPosting(nil, &e.Posting, &e.Call)}
	var out Entry
	b.ReportAllocs()
	for b.Loop() {
		if err := raw.Decode(&out); err != nil {
			b.Fatal(err)
		}
	}
}
