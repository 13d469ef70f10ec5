package schema

import (
	"testing"
	"time"
)

// No instant of a date lies before its start, in any year of any zone that changes its
// clocks around midnight.
func TestStartOfDayIsTheFirstInstant(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Havana", "Atlantic/Azores", "Asia/Beirut", "Africa/Cairo", "America/Santiago", "America/Asuncion", "America/Sao_Paulo", "Asia/Amman", "Asia/Gaza", "Asia/Damascus", "Australia/Lord_Howe", "Asia/Kathmandu"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for day := time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2029; day = day.AddDate(0, 0, 1) {
			got := StartOfDay(day, zone)
			y, m, d := got.Date()
			if before := got.Add(-time.Nanosecond); y != day.Year() || m != day.Month() || d != day.Day() || before.Day() == d {
				t.Errorf("%s in %s: got %s, before it is %s", day.Format(time.DateOnly), name, got, before)
			}
		}
	}
	// Samoa went from the 29th of December 2011 to the 31st.
	zone, err := time.LoadLocation("Pacific/Apia")
	if err != nil {
		t.Fatal(err)
	}
	if got := StartOfDay(time.Date(2011, 12, 30, 0, 0, 0, 0, time.UTC), zone).UTC(); !got.Equal(time.Date(2011, 12, 30, 10, 0, 0, 0, time.UTC)) {
		t.Errorf("a date that never was begins at %s", got)
	}
}
