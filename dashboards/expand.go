// Package dashboards holds the Grafana boards and the Prometheus rules.
//
// Boards are built by the module in gen and committed as JSON. This package's tests
// guarantee that every query of a board runs on the real engine and gives the columns
// that its panel shows, that boards and rules use only metrics which the service has,
// and that every alert fires when it should and leads to a page of the runbook. It
// imports nothing but schema. Statements and Expand are for who runs the boards' SQL
// without Grafana: these tests, and the benchmark of queries.
package dashboards

import (
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

//go:embed *.json
var files embed.FS

// Statement is the SQL of a panel.
type Statement struct {
	Board, Panel string // the board's file without .json, the panel's title
	SQL          string // with Grafana's macros and variables
}

// Statements are those of every board, in the order of the files and of the panels.
func Statements() ([]Statement, error) {
	names, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list boards: %w", err)
	}
	var out []Statement
	for _, n := range names {
		text, err := files.ReadFile(n.Name())
		if err != nil {
			return nil, fmt.Errorf("read board: %w", err)
		}
		var b struct {
			Panels []struct {
				Title   string `json:"title"`
				Targets []struct {
					SQL string `json:"rawSql"`
				} `json:"targets"`
			} `json:"panels"`
		}
		if err := json.Unmarshal(text, &b); err != nil {
			return nil, fmt.Errorf("decode board %s: %w", n.Name(), err)
		}
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				if q.SQL != "" {
					out = append(out, Statement{strings.TrimSuffix(n.Name(), ".json"), p.Title, q.SQL})
				}
			}
		}
	}
	return out, nil
}

// View is what somebody chose on a board.
type View struct {
	From, To time.Time
	Interval time.Duration       // of the points of a graph
	Vars     map[string][]string // values of each variable; All alone is every one
}

// All is the value of a variable of which every value was chosen.
const All = "$__all"

var (
	variable = regexp.MustCompile(`\$\{(\w+)(?::(\w+))?\}|\$(\w+)`)
	argument = regexp.MustCompile(`\$__timeInterval\((\w+)\)`)
	instants = regexp.MustCompile(`\$__(fromTime|toTime)\b`)
)

// Expand turns a panel's SQL into what the data source sends, in the order in which
// it does: $__conditionalAll and variables in the browser, the other macros behind it.
func Expand(sql string, v View) (string, error) {
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
		values, ok := v.Vars[name]
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
			if len(values) != 1 || values[0] == All {
				err = fmt.Errorf("expand variable %s: it has several values and no format", name)
			}
			return strings.Join(values, ",")
		}
		err = fmt.Errorf("expand variable %s: the format %s is not known", name, p[2])
		return m
	})
	if err != nil {
		return "", err
	}
	sql = argument.ReplaceAllString(sql, fmt.Sprintf("toStartOfInterval(toDateTime($1), INTERVAL %d second)", int(v.Interval.Seconds())))
	sql = instants.ReplaceAllStringFunc(sql, func(m string) string {
		if m == "$__fromTime" {
			return fmt.Sprintf("toDateTime(%d)", v.From.Unix())
		}
		return fmt.Sprintf("toDateTime(%d)", v.To.Unix())
	})
	if m := regexp.MustCompile(`\$\w*`).FindString(sql); m != "" {
		return "", fmt.Errorf("expand: %s is left", m)
	}
	return sql, nil
}

// conditions expands $__conditionalAll(condition, $variable), the last one first,
// which may hold others before it.
func conditions(sql string, v View) (string, error) {
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
		values, ok := v.Vars[strings.TrimPrefix(name, "$")]
		if !ok || !strings.HasPrefix(name, "$") {
			return "", fmt.Errorf("expand $__conditionalAll: the board has no variable %s", name)
		}
		if slices.Equal(values, []string{All}) {
			cond = "1=1"
		}
		sql = sql[:i] + cond + sql[end+1:]
	}
}
