package dashboards

import (
	"testing"
	"time"
)

func TestExpand(t *testing.T) {
	v := View{From: time.Unix(1000, 0), To: time.Unix(2000, 0), Interval: 15 * time.Minute, Vars: map[string][]string{"one": {"a", "b'c"}, "every": {All}, "top": {"10"}}}
	f := func(sql, want string) {
		t.Helper()
		got, err := Expand(sql, v)
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
		if got, err := Expand(sql, v); err == nil {
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
