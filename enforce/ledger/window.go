package ledger

import (
	"fmt"
	"strconv"
	"time"

	"github.com/flyball/flyball/schema"
)

// Unit is the kind of a window.
type Unit uint8

// The units. Run is the life of a run; Rolling ends now; the others are calendar
// windows, half open, in a time zone.
const (
	Run Unit = iota
	Rolling
	Hour
	Day
	Week
	Month
)

// UnitNames are the names in policies.
var UnitNames = [...]string{"run", "rolling", "hour", "day", "week", "month"}

// Window is the time over which an account counts.
type Window struct {
	Unit Unit
	Over time.Duration  // Rolling: how long
	Zone *time.Location // calendar; nil is the tenant's own
	// Anchor is the day on which months (1 to 31; clamped to the month's end) or weeks
	// (1 Monday to 7 Sunday) begin. 0 is 1.
	Anchor int
}

// String names the window; equal windows have equal names.
func (w Window) String() string {
	s := UnitNames[w.Unit]
	if w.Unit == Rolling {
		return s + " " + w.Over.String()
	}
	if w.Unit == Run {
		return s
	}
	if w.Anchor > 1 {
		s += " from " + strconv.Itoa(w.Anchor)
	}
	if w.Zone == nil {
		return s + " tenant"
	}
	return s + " " + w.Zone.String()
}

// Bounds are the first instant of the window that holds t and the first instant
// after it. Windows are half open, follow each other without a gap, and follow the
// zone's clock: a day may have 23 or 25 hours. It begins when its date is first shown;
// where the clock goes back over midnight, the end of the day before is not shown again.
// The bounds of Run and Rolling windows are zero.
func (w Window) Bounds(t time.Time, zone *time.Location) (start, end time.Time) {
	if w.Zone != nil {
		zone = w.Zone
	}
	if zone == nil {
		zone = time.UTC
	}
	t = t.In(zone)
	y, m, d := t.Date()
	anchor := max(w.Anchor, 1)
	switch w.Unit {
	case Hour:
		// By elapsed time from the hour's minute 0: both of two equal hours are windows of
		// their own. A shift by half an hour ends one in the middle.
		start = t.Add(-time.Duration(t.Minute())*time.Minute - time.Duration(t.Second())*time.Second - time.Duration(t.Nanosecond()))
		end = start.Add(time.Hour)
		shifted, shifts := t.ZoneBounds()
		if start.Before(shifted) {
			start = shifted
		}
		if !shifts.IsZero() && shifts.Before(end) {
			end = shifts
		}
		return start, end
	case Day:
		return holding(t, func(n int) time.Time { return first(y, m, d+n, zone) })
	case Week:
		d -= (int(t.Weekday()) + 6 - (anchor - 1) + 7) % 7
		return holding(t, func(n int) time.Time { return first(y, m, d+7*n, zone) })
	case Month:
		if t.Before(monthStart(y, m, anchor, zone)) {
			m--
		}
		return holding(t, func(n int) time.Time { return monthStart(y, m+time.Month(n), anchor, zone) })
	}
	return time.Time{}, time.Time{}
}

// holding is the window from begin(0) to begin(1), or the one after it, whichever holds t:
// a clock that goes back over midnight shows the day before after the next one began.
func holding(t time.Time, begin func(n int) time.Time) (start, end time.Time) {
	if end = begin(1); t.Before(end) {
		return begin(0), end
	}
	return end, begin(2)
}

// first is the first instant of a date, which need not exist: days beyond a month
// belong to the next.
func first(y int, m time.Month, d int, zone *time.Location) time.Time {
	return schema.StartOfDay(time.Date(y, m, d, 12, 0, 0, 0, time.UTC), zone)
}

// monthStart is the anchor's day in the month, or its last day where the month is
// shorter; always counted from the anchor itself, so that it does not drift.
func monthStart(y int, m time.Month, anchor int, zone *time.Location) time.Time {
	last := time.Date(y, m+1, 0, 12, 0, 0, 0, time.UTC)
	return first(last.Year(), last.Month(), min(anchor, last.Day()), zone)
}

// step is the grain of a rolling window's sums: a sixtieth, at least a second.
func (w Window) step() int64 {
	return max(int64(time.Second), int64(w.Over)/60)
}

// Validate checks the window.
func (w Window) Validate() error {
	switch {
	case w.Unit == Rolling && (w.Over < 10*time.Second || w.Over > 31*24*time.Hour):
		return fmt.Errorf("rolling window %s: want from 10s to 744h", w.Over)
	case w.Unit == Month && (w.Anchor < 0 || w.Anchor > 31):
		return fmt.Errorf("anchor %d of a month: want a day from 1 to 31", w.Anchor)
	case w.Unit == Week && (w.Anchor < 0 || w.Anchor > 7):
		return fmt.Errorf("anchor %d of a week: want from 1, Monday, to 7, Sunday", w.Anchor)
	case w.Unit < Week && w.Anchor != 0:
		return fmt.Errorf("anchor %d does not fit a window of %s", w.Anchor, UnitNames[w.Unit])
	}
	return nil
}
