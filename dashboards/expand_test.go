package dashboards

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// view is what somebody chose on a board.
type view struct {
	from, to time.Time
	interval time.Duration
	vars     map[string][]string // values; all is every one
}

const all = "$__all"

var (
	variable = regexp.MustCompile(`\$\{(\w+)(?::(\w+))?\}|\$(\w+)`)
	argument = regexp.MustCompile(`\$__timeInterval\((\w+)\)`)
	instants = regexp.MustCompile(`\$__(fromTime|toTime)\b`)
)

// expand turns a panel's SQL into what the data source sends, in the order in which
// it does: $__conditionalAll and variables in the browser, the other macros behind it.
func expand(sql string, v view) (string, error) {
	sql, err := conditions(sql, v)
	if err != nil {
		return "", err
	}
	sql = variable.ReplaceAllStringFunc(sql, func(m string) string {
		p := variable.FindStringSubmatch(m)
		name := p[1] + p[3]
		if strings.HasPrefix(name, "__") {
			return m
		}
		values, ok := v.vars[name]
		if !ok {
			err = fmt.Errorf("expand variable: the board has no %s", name)
		}
		switch p[2] {
		case "singlequote":
			quoted := make([]string, len(values))
			for i, x := range values {
				quoted[i] = "'" + strings.ReplaceAll(x, "'", `\'`) + "'"
			}
			return strings.Join(quoted, ",")
		case "", "raw":
			if len(values) != 1 || values[0] == all {
				err = fmt.Errorf("expand variable %s: it has several values and no format", name)
			}
			return strings.Join(values, ",")
		}
		err = fmt.Errorf("expand variable %s: this test does not know the format %s", name, p[2])
		return m
	})
	if err != nil {
		return "", err
	}
	sql = argument.ReplaceAllString(sql, fmt.Sprintf("toStartOfInterval(toDateTime($1), INTERVAL %d second)", int(v.interval.Seconds())))
	sql = instants.ReplaceAllStringFunc(sql, func(m string) string {
		if m == "$__fromTime" {
			return fmt.Sprintf("toDateTime(%d)", v.from.Unix())
		}
		return fmt.Sprintf("toDateTime(%d)", v.to.Unix())
	})
	if m := regexp.MustCompile(`\$\w*`).FindString(sql); m != "" {
		return "", fmt.Errorf("expand: %s is left", m)
	}
	return sql, nil
}

// conditions expands $__conditionalAll(condition, $variable), the last one first,
// which may hold others before it.
func conditions(sql string, v view) (string, error) {
	const macro = "$__conditionalAll("
	for {
		i := strings.LastIndex(sql, macro)
		if i < 0 {
			return sql, nil
		}
		var commas []int
		depth, end := 1, -1
		for j := i + len(macro); j < len(sql) && end < 0; j++ {
			switch sql[j] {
			case '(':
				depth++
			case ')':
				if depth--; depth == 0 {
					end = j
				}
			case ',':
				if depth == 1 {
					commas = append(commas, j)
				}
			}
		}
		if end < 0 || len(commas) != 1 {
			return "", fmt.Errorf("expand %s…: want a condition and a variable", sql[i:min(len(sql), i+60)])
		}
		cond, name := sql[i+len(macro):commas[0]], strings.TrimSpace(sql[commas[0]+1:end])
		values, ok := v.vars[strings.TrimPrefix(name, "$")]
		if !ok || !strings.HasPrefix(name, "$") {
			return "", fmt.Errorf("expand $__conditionalAll: the board has no variable %s", name)
		}
		if slices.Equal(values, []string{all}) {
			cond = "1=1"
		}
		sql = sql[:i] + cond + sql[end+1:]
	}
}

func TestExpand(t *testing.T) {
	v := view{from: time.Unix(1000, 0), to: time.Unix(2000, 0), interval: 15 * time.Minute, vars: map[string][]string{"one": {"a", "b'c"}, "every": {all}, "top": {"10"}}}
	f := func(sql, want string) {
		t.Helper()
		got, err := expand(sql, v)
		if err != nil {
			t.Errorf("expand %s: %v", sql, err)
		} else if got != want {
			t.Errorf("expand %s:\n got %s\nwant %s", sql, got, want)
		}
	}
	f("SELECT 1", "SELECT 1")
	f("x IN (${one:singlequote}) LIMIT ${top}", `x IN ('a','b\'c') LIMIT 10`)
	f("$__conditionalAll(if(x = '', '(none)', x) IN (${one:singlequote}), $one) AND 1", `if(x = '', '(none)', x) IN ('a','b\'c') AND 1`)
	f("$__conditionalAll(x IN (${every:singlequote}), $every)", "1=1")
	f("at >= f($__fromTime) AND at < $__toTime", "at >= f(toDateTime(1000)) AND at < toDateTime(2000)")
	f("$__timeInterval(at) AS time", "toStartOfInterval(toDateTime(at), INTERVAL 900 second) AS time")

	bad := func(sql string) {
		t.Helper()
		if got, err := expand(sql, v); err == nil {
			t.Errorf("expand %s: got %s, want an error", sql, got)
		}
	}
	bad("${other}")
	bad("LIMIT ${one}")
	bad("$__timeFilter(at)")
	bad("$__timeInterval(toDate(at))")
	bad("$__conditionalAll(x, $other)")
	bad("$__conditionalAll(x IN (1, 2), 3, $one)")
}
