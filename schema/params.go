package schema

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// filled are the parameters that say nothing when they are empty. An empty filter asks
// for what has no such value, and an empty cursor for the first page.
var filled = []string{"from", "to", "limit", "history", "base_from", "base_to"}

// CheckParams refuses parameters of a request that would be ignored: those that are not
// among the names, those that stand twice and are not in many, and empty ones that say
// nothing. The error says what is wrong, for the caller.
func CheckParams(query url.Values, names []string, many ...string) error {
	for name, values := range query {
		switch {
		case len(names) == 0:
			return fmt.Errorf("unknown parameter %q; this takes none", name)
		case !slices.Contains(names, name):
			known := slices.Compact(slices.Sorted(slices.Values(names)))
			return fmt.Errorf("unknown parameter %q; known are %s", name, strings.Join(known, ", "))
		case len(values) > 1 && !slices.Contains(many, name):
			return fmt.Errorf("parameter %q stands twice", name)
		case values[0] == "" && slices.Contains(filled, name):
			return fmt.Errorf("parameter %q is empty; give it a value or leave it out", name)
		}
	}
	return nil
}
