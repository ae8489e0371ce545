package cron_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/cron"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := cron.Zone(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// firings are the next n times after from, in the zone, as text.
func firings(s cron.Schedule, from time.Time, n int, loc *time.Location) string {
	var out []string
	for range n {
		from = s.Next(from)
		if from.IsZero() {
			out = append(out, "never")
			break
		}
		out = append(out, from.In(loc).Format("Mon 2006-01-02 15:04 -07"))
	}
	return strings.Join(out, "\n")
}

func TestCron(t *testing.T) {
	for _, c := range []struct{ expression, zone, from, want string }{
		{"0 18 * * *", "UTC", "2026-03-01T18:00:00Z", "Mon 2026-03-02 18:00 +00\nTue 2026-03-03 18:00 +00"},
		{"*/20 8-9 * * MON-FRI", "UTC", "2026-03-06T09:30:00Z", "Fri 2026-03-06 09:40 +00\nMon 2026-03-09 08:00 +00"},
		{"0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "Tue 2028-02-29 00:00 +00\nSun 2032-02-29 00:00 +00"},
		{"0 0 13 * 5", "UTC", "2026-03-12T00:00:00Z", "Fri 2026-03-13 00:00 +00\nFri 2026-03-20 00:00 +00"}, // either day is enough
		{"15 6 * * 7", "UTC", "2026-03-02T00:00:00Z", "Sun 2026-03-08 06:15 +00\nSun 2026-03-15 06:15 +00"},
		// Berlin skips 02:00 to 03:00 on 2026-03-29: what was meant for it comes when the gap is
		// over.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "Sun 2026-03-29 03:00 +02\nMon 2026-03-30 02:30 +02"},
		// It repeats 02:00 to 03:00 on 2026-10-25: once is enough.
		{"30 2 * * *", "W. Europe Standard Time", "2026-10-24T12:00:00Z", "Sun 2026-10-25 02:30 +02\nMon 2026-10-26 02:30 +01"},
		// What happens every half hour goes on through both.
		{"*/30 * * * *", "Europe/Berlin", "2026-10-25T00:15:00Z", "Sun 2026-10-25 02:30 +02\nSun 2026-10-25 02:00 +01\nSun 2026-10-25 02:30 +01\nSun 2026-10-25 03:00 +01"},
		{"*/30 * * * *", "Europe/Berlin", "2026-03-29T00:15:00Z", "Sun 2026-03-29 01:30 +01\nSun 2026-03-29 03:00 +02"},
		{"0 0 30 2 *", "UTC", "2026-01-01T00:00:00Z", "never"},
	} {
		loc := zone(t, c.zone)
		s, err := cron.Parse(c.expression, loc)
		if err != nil {
			t.Fatal(err)
		}
		from, _ := time.Parse(time.RFC3339, c.from)
		if got := firings(s, from, strings.Count(c.want, "\n")+1, loc); got != c.want {
			t.Errorf("%s in %s after %s:\n%s\nwant\n%s", c.expression, c.zone, c.from, got, c.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for want, trigger := range map[string]cron.Trigger{
		"5: minute":                 {Expression: "0 18 * *"},
		"61":                        {Expression: "61 * * * *"},
		"backwards":                 {Expression: "0 18-8 * * *"},
		"never fires":               {Expression: "0 0 31 2 *"},
		"end time":                  {Expression: "0 0 * * *", EndTime: "2026-04-01T00:00:00"},
		"Mars/Olympus":              {Expression: "0 0 * * *", TimeZone: "Mars/Olympus"},
		"must be minute, hour":      {Frequency: "fortnight"},
		"at least 1":                {Frequency: "day", Interval: -2},
		"is not a valid hour":       {Frequency: "day", Schedule: cron.Recurrence{Hours: []int{24}}},
		"day of the week":           {Frequency: "week", Schedule: cron.Recurrence{WeekDays: []string{"caturday"}}},
		"start time":                {Expression: "0 0 * * *", StartTime: "soon"},
		"not both":                  {Expression: "0 0 * * *", Frequency: "day"},
		"before it starts":          {Expression: "0 0 * * *", StartTime: "2027-01-02", EndTime: "2027-01-01"},
		"no schedule of hours":      {Frequency: "hour", Schedule: cron.Recurrence{Hours: []int{1}}},
		"the recurrence never":      {Frequency: "month", Interval: 12, StartTime: "2026-02-01", Schedule: cron.Recurrence{MonthDays: []int{30}}},
		`unknown time zone "local"`: {Expression: "0 0 * * *", TimeZone: "local"},
	} {
		if _, err := trigger.Compile(now, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", trigger, err, want)
		}
	}
}

func TestRecurrence(t *testing.T) {
	anchor := time.Date(2026, 5, 6, 9, 10, 0, 0, time.UTC) // a Wednesday
	for _, c := range []struct {
		trigger cron.Trigger
		want    string
	}{
		{cron.Trigger{Frequency: "minute", Interval: 45}, "Wed 2026-05-06 09:10 +00\nWed 2026-05-06 09:55 +00"},
		{cron.Trigger{Frequency: "Hour", Interval: 5}, "Wed 2026-05-06 09:10 +00\nWed 2026-05-06 14:10 +00"},
		{cron.Trigger{Frequency: "day", Interval: 2, Schedule: cron.Recurrence{Hours: []int{18, 7}, Minutes: []int{30}}}, "Wed 2026-05-06 18:30 +00\nFri 2026-05-08 07:30 +00\nFri 2026-05-08 18:30 +00"},
		{cron.Trigger{Frequency: "week", Interval: 2, Schedule: cron.Recurrence{Hours: []int{8}, Minutes: []int{0}, WeekDays: []string{"Monday", "friday"}}}, "Fri 2026-05-08 08:00 +00\nMon 2026-05-18 08:00 +00\nFri 2026-05-22 08:00 +00"},
		{cron.Trigger{Frequency: "week"}, "Wed 2026-05-06 09:10 +00\nWed 2026-05-13 09:10 +00"},
		{cron.Trigger{Frequency: "month", Schedule: cron.Recurrence{Hours: []int{0}, Minutes: []int{0}, MonthDays: []int{31}}}, "Sun 2026-05-31 00:00 +00\nFri 2026-07-31 00:00 +00"},
		{cron.Trigger{Frequency: "day", StartTime: "2026-06-01T22:00:00", EndTime: "2026-06-02T23:00:00", TimeZone: "Tokyo Standard Time"}, "Mon 2026-06-01 13:00 +00\nTue 2026-06-02 13:00 +00\nnever"},
	} {
		s, err := c.trigger.Compile(anchor, anchor.Add(-time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if got := firings(s, anchor.Add(-time.Second), strings.Count(c.want, "\n")+1, time.UTC); got != c.want {
			t.Errorf("%+v:\n%s\nwant\n%s", c.trigger, got, c.want)
		}
	}
}

// TestLaws: the next firing is later, on the clock what the expression says (but for the end of a
// gap), and nothing between it and the time before was forgotten.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc, err := cron.Zone(rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"}).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		item := func(name string, low, high int) string {
			if rapid.Bool().Draw(t, name+" any") {
				return "*"
			}
			return strconv.Itoa(rapid.IntRange(low, high).Draw(t, name))
		}
		expression := item("minute", 0, 59) + " " + item("hour", 0, 23) + " " + item("day", 1, 28) + " " + item("month", 1, 12) + " " + item("week", 0, 6)
		s, err := cron.Parse(expression, loc)
		if err != nil {
			t.Fatal(err)
		}
		from := time.Unix(rapid.Int64Range(1767225600, 1798761600).Draw(t, "from"), 0) // in 2026
		next := s.Next(from)
		if !next.After(from) {
			t.Fatalf("%s after %v: %v", expression, from, next)
		}
		if between := from.Add(next.Sub(from) / 2); !s.Next(between).Equal(next) {
			t.Fatalf("%s fires at %v, and half way to it at %v", expression, next, s.Next(between))
		}
		l, f := next.In(loc), strings.Fields(expression)
		_, now := l.Zone()
		_, before := l.Add(-2 * time.Hour).Zone()
		if now <= before && f[1] != "*" && f[1] != strconv.Itoa(l.Hour()) {
			t.Fatalf("%s fires at %v", expression, l)
		}
		if l.Second() != 0 {
			t.Fatalf("%s fires at %v", expression, l)
		}
	})
}
