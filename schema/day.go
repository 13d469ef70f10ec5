package schema

import "time"

// StartOfDay is the first instant of a date in a zone. Where the clocks skip midnight,
// or the whole date, it is the instant after; where they go back over midnight, which
// comes twice then, it is the first one.
func StartOfDay(day time.Time, zone *time.Location) time.Time {
	const quarter = 15 * time.Minute // in which every zone's clocks change
	y, m, d := day.Date()
	compare := func(t time.Time) int {
		ty, tm, td := t.Date()
		return time.Date(ty, tm, td, 0, 0, 0, 0, time.UTC).Compare(time.Date(y, m, d, 0, 0, 0, 0, time.UTC))
	}
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	for compare(t) < 0 {
		t = t.Add(quarter)
	}
	for compare(t.Add(-quarter)) >= 0 {
		t = t.Add(-quarter)
	}
	return t
}
