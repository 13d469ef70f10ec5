package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// The JSON of this file is what encoding/json calls valid plus what senders are known to write: the bare words NaN,
// Infinity and -Infinity (Python), and raw control characters in strings. Nothing here recurses on unchecked input:
// pdata's decoder does, and a Go stack that overflows cannot be recovered from.

// jsonFacts is what a scan found out about a value.
type jsonFacts struct {
	depth int // of brackets; 0 for a scalar
	// odd marks what pdata's decoder would misread or refuse and scrub can put right: an empty key, at which it stops
	// reading the object; bare NaN and Infinity; control characters.
	odd bool
}

// checkJSON checks that b is one JSON object with nothing behind it.
func checkJSON(b []byte) (jsonFacts, error) {
	i := skipSpace(b, 0)
	if i == len(b) {
		return jsonFacts{}, fmt.Errorf("body is empty: an empty request is {}")
	}
	if b[i] != '{' {
		return jsonFacts{}, fmt.Errorf("want { at offset %d, found %q", i, b[i])
	}
	end, facts, err := scanJSON(b, i)
	if err != nil {
		return facts, err
	}
	if end = skipSpace(b, end); end != len(b) {
		return facts, fmt.Errorf("unexpected %q after the request, at offset %d", b[end], end)
	}
	return facts, nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// scanJSON checks the structure of the value at b[i] and returns the offset behind it. Numbers and escapes are left to
// the decoder, so that one bad number costs one span. Any depth takes one bit a level and no stack.
func scanJSON(b []byte, i int) (end int, f jsonFacts, err error) {
	var (
		objects []uint64 // bit d: the bracket at depth d+1 is an object
		depth   int
		object  bool // the innermost bracket is an object
	)
	unexpected := func(want string) (int, jsonFacts, error) {
		if i >= len(b) {
			return i, f, fmt.Errorf("JSON ends early at offset %d: want %s", len(b), want)
		}
		return i, f, fmt.Errorf("want %s at offset %d, found %q", want, i, b[i])
	}
	for {
		// A value is due at i, or the end of an array that just began.
		i = skipSpace(b, i)
		if i >= len(b) {
			return unexpected("a value")
		}
		opened := false
		switch c := b[i]; c {
		case '{', '[':
			object = c == '{'
			if depth%64 == 0 && depth/64 == len(objects) {
				objects = append(objects, 0)
			}
			bit := uint64(1) << (depth % 64)
			if object {
				objects[depth/64] |= bit
			} else {
				objects[depth/64] &^= bit
			}
			depth++
			f.depth = max(f.depth, depth)
			opened = true
			i = skipSpace(b, i+1)
		case '"':
			var odd bool
			if i, odd = scanString(b, i); i < 0 {
				i = len(b)
				return unexpected("the end of a string")
			}
			f.odd = f.odd || odd
		default:
			word := scanWord(b, i)
			switch {
			case len(word) == 0:
				return unexpected("a value")
			case c == '-' && string(word) != "-Infinity", c >= '0' && c <= '9':
			case string(word) == "true", string(word) == "false", string(word) == "null":
			case string(word) == "NaN", string(word) == "Infinity", string(word) == "-Infinity":
				f.odd = true
			default:
				return unexpected("a value")
			}
			i += len(word)
		}
		// Close brackets as far as they go, then move on to the next value.
		for {
			if !opened {
				if depth == 0 {
					return i, f, nil
				}
				i = skipSpace(b, i)
			}
			if i >= len(b) {
				return unexpected("a bracket")
			}
			c := b[i]
			if object && c == '}' || !object && c == ']' {
				i++
				depth--
				opened = false
				if depth > 0 {
					object = objects[(depth-1)/64]&(1<<((depth-1)%64)) != 0
				}
				continue
			}
			if !opened {
				if c != ',' {
					return unexpected("a comma or a bracket")
				}
				i = skipSpace(b, i+1)
			}
			break
		}
		if object {
			if i >= len(b) || b[i] != '"' {
				return unexpected("a key")
			}
			start := i
			var odd bool
			if i, odd = scanString(b, i); i < 0 {
				i = len(b)
				return unexpected("the end of a key")
			}
			f.odd = f.odd || odd || i == start+2
			if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
				return unexpected("a colon")
			}
			i++
		}
	}
}

// scanString returns the offset behind the string at b[i], or -1 if it does not end, and whether it has raw control
// characters.
func scanString(b []byte, i int) (end int, odd bool) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, odd
		case c == '\\':
			i++
		case c < ' ':
			odd = true
		}
	}
	return -1, odd
}

// scanWord returns the number or bare word at b[i].
func scanWord(b []byte, i int) []byte {
	start := i
	for i < len(b) {
		c := b[i]
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.' {
			i++
			continue
		}
		break
	}
	return b[start:i]
}

// eachMember calls f for every member of the object at b[i], which scanJSON has accepted. The key is unescaped.
func eachMember(b []byte, i int, f func(key string, raw, value []byte) error) error {
	i = skipSpace(b, i+1)
	for b[i] != '}' {
		keyEnd, _ := scanString(b, i)
		raw := b[i:keyEnd]
		key := string(raw[1 : len(raw)-1])
		if bytes.IndexByte(raw, '\\') >= 0 {
			var s string
			if json.Unmarshal(raw, &s) == nil {
				key = s
			}
		}
		i = skipSpace(b, keyEnd)
		i = skipSpace(b, i+1) // the colon
		end, _, err := scanJSON(b, i)
		if err != nil {
			return err
		}
		if err := f(key, raw, b[i:end]); err != nil {
			return err
		}
		if i = skipSpace(b, end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return nil
}

// eachElement calls f for every element of the array at b[i], which scanJSON has accepted.
func eachElement(b []byte, i int, f func(value []byte) error) error {
	i = skipSpace(b, i+1)
	for b[i] != ']' {
		end, _, err := scanJSON(b, i)
		if err != nil {
			return err
		}
		if err := f(b[i:end]); err != nil {
			return err
		}
		if i = skipSpace(b, end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return nil
}

// plainValue spells the value of an integer or an enum as pdata's decoder wants it. Protobuf's JSON lets an integer have
// an exponent or a fraction of zeros (1e3, 1000.0), which is how languages without integers write large ones; enums are
// numbers in OTLP, but senders write the names that their own libraries have for them.
func plainValue(key string, value []byte) (string, bool) {
	switch key {
	case "intValue", "int_value", "asInt", "as_int", "startTimeUnixNano", "start_time_unix_nano", "endTimeUnixNano", "end_time_unix_nano",
		"timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano", "count", "flags",
		"droppedAttributesCount", "dropped_attributes_count", "droppedEventsCount", "dropped_events_count", "droppedLinksCount", "dropped_links_count":
		return plainInteger(value)
	case "bytesValue", "bytes_value":
		return plainBytes(value)
	case "kind":
		return plainEnum(value, "SPAN_KIND_", "UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
	case "code":
		return plainEnum(value, "STATUS_CODE_", "UNSET", "OK", "ERROR")
	}
	return "", false
}

func plainInteger(value []byte) (string, bool) {
	text := strings.Trim(string(value), `"`)
	if len(text) > 64 || !strings.ContainsAny(text, ".eE") {
		return "", false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<64 {
		return "", false
	}
	if f == 0 { // of a zero, or of a number too small for a float
		digits, _, _ := strings.Cut(strings.ToLower(text), "e")
		return `"0"`, !strings.ContainsAny(digits, "123456789")
	}
	r, ok := new(big.Rat).SetString(text) // what the float may have rounded; its size is bounded by now
	if !ok || !r.IsInt() {
		return "", false
	}
	return `"` + r.Num().String() + `"`, true
}

// noInteger reads a number that stands as an attribute's integer and is none, or is too large for one: languages
// whose numbers are all floats write what has no fraction as an integer, whatever its size. It is infinite where it
// is too large for a float as well, wherever it stands.
func noInteger(key string, value []byte) (float64, bool) {
	if key == "doubleValue" || key == "double_value" {
		f, err := strconv.ParseFloat(string(value), 64)
		return f, errors.Is(err, strconv.ErrRange)
	}
	if key != "intValue" && key != "int_value" {
		return 0, false
	}
	text := strings.Trim(string(value), `"`)
	if len(text) > 400 || strings.Trim(text, "0123456789+-.eE") != "" {
		return 0, false
	}
	if plain, ok := plainInteger(value); ok {
		text = strings.Trim(plain, `"`)
	}
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil || errors.Is(err, strconv.ErrRange)
}

func plainEnum(value []byte, prefix string, names ...string) (string, bool) {
	if value[0] == '{' || value[0] == '[' {
		return "", false
	}
	text := strings.Trim(string(value), `"`)
	name := strings.TrimPrefix(strings.ToUpper(text), prefix)
	for i, n := range names {
		if n == name {
			return strconv.Itoa(i), true
		}
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 && n == math.Trunc(n) && n < float64(len(names)) {
		return strconv.Itoa(int(n)), true
	}
	return "", false
}

func plainBytes(value []byte) (string, bool) {
	text := strings.TrimRight(strings.Trim(string(value), `"`), "=")
	b, err := base64.RawStdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "/", `\/`, "/").Replace(text))
	return `"` + base64.StdEncoding.EncodeToString(b) + `"`, err == nil && value[0] == '"'
}

// withoutContent is an error of pdata's decoder without what it quotes of the request: that may be a prompt, and the
// error is logged.
func withoutContent(err error) error {
	if err == nil {
		return nil
	}
	text, _, _ := strings.Cut(err.Error(), ", error found in #")
	if before, rest, ok := strings.Cut(text, `parsing "`); ok {
		text = strings.TrimRight(before, " ")
		if i := strings.LastIndex(rest, `": `); i >= 0 {
			text += " " + rest[i+len(`": `):]
		}
	}
	return errors.New(text)
}

// scrub appends a value to dst in the form that pdata's decoder reads as the sender meant it. A member that is null or
// NaN is left out, since in protobuf's JSON null is the same as absent: {"doubleValue": null} becomes a missing value.
// Infinity becomes a string, control characters are escaped, members without a name are dropped. Integers and enums get
// the one spelling of several that it takes; a number that is no 64-bit integer becomes a double.
// The value has been scanned and is at most maxJSONDepth deep.
func scrub(dst, b []byte) []byte {
	switch b[0] {
	case '{':
		dst = append(dst, '{')
		first := true
		_ = eachMember(b, 0, func(key string, raw, value []byte) error {
			if key == "" || string(value) == "null" || string(value) == "NaN" {
				return nil
			}
			f, beyond := noInteger(key, value)
			if beyond && math.IsInf(f, 0) {
				return nil
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			if beyond {
				dst = append(dst, `"doubleValue":`...)
				dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
				return nil
			}
			dst = scrub(dst, raw)
			dst = append(dst, ':')
			if plain, ok := plainValue(key, value); ok {
				dst = append(dst, plain...)
				return nil
			}
			dst = scrub(dst, value)
			return nil
		})
		return append(dst, '}')
	case '[':
		dst = append(dst, '[')
		first := true
		_ = eachElement(b, 0, func(value []byte) error {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = scrub(dst, value)
			return nil
		})
		return append(dst, ']')
	case '"':
		for _, c := range b {
			if c < ' ' {
				dst = fmt.Appendf(dst, `\u%04x`, c)
				continue
			}
			dst = append(dst, c)
		}
		return dst
	}
	switch string(b) {
	case "NaN":
		return append(dst, "null"...)
	case "Infinity":
		return append(dst, `"Infinity"`...)
	case "-Infinity":
		return append(dst, `"-Infinity"`...)
	}
	return append(dst, b...)
}
