package envoy

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/flyball/flyball/enforce/directive"
)

// scanBody reads the model and the ceiling of output tokens out of the top level
// of a JSON body, and looks at nothing else in it. It takes a body that was cut
// off, as gateways do, and stops there. It neither recurses nor copies, so that
// depth and size cost nothing; of a key that comes twice the last counts, as JSON
// decoders have it.
func scanBody[T string | []byte](b T, c *directive.Call) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return
	}
	i++
	for {
		i = skipSpace(b, i)
		if i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
		}
		if i >= len(b) || b[i] != '"' {
			return // the end, or no JSON
		}
		keyAt := i
		if i = skipString(b, i); i < 0 {
			return
		}
		keyEnd := i
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return
		}
		at := skipSpace(b, i+1)
		end := skipValue(b, at)
		if end < 0 || end >= len(b) && at < len(b) && b[at] != '"' && b[at] != '{' && b[at] != '[' {
			return // cut off: half a number is another number
		}
		i = end
		if keyEnd-keyAt > 64 || at >= len(b) {
			continue
		}
		switch unquote(b[keyAt:keyEnd]) {
		case "model":
			if b[at] == '"' {
				// A name too long to be one is kept long enough to be refused, and no name
				// keeps the body it stood in.
				c.Model = strings.Clone(valid(unquote(b[at:min(end, at+6*maxValue+8)])))
			}
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			if n, err := strconv.ParseFloat(string(b[at:min(end, at+32)]), 64); err == nil && n > 0 {
				c.MaxOutputTokens = uint64(min(n, math.MaxInt32))
			}
		}
	}
}

func skipSpace[T string | []byte](b T, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString is the index behind the string that starts at i, -1 if it is cut off.
func skipString[T string | []byte](b T, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return -1
}

// skipValue is the index behind the value that starts at i, -1 if it is cut off.
func skipValue[T string | []byte](b T, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				if depth < 0 {
					return i // of the object around a number
				}
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	if depth > 0 {
		return -1
	}
	return i
}

// unquote is the text of a JSON string. One without escapes, which is nearly every
// one, is taken as it is.
func unquote[T string | []byte](b T) string {
	for i := range len(b) {
		if b[i] == '\\' {
			var s string
			if json.Unmarshal([]byte(b), &s) == nil {
				return s
			}
			break
		}
	}
	if len(b) < 2 || b[len(b)-1] != '"' {
		return string(b[1:])
	}
	return string(b[1 : len(b)-1])
}
