package cron

import (
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Trigger is a schedule as Azure's documents have it: a cron expression or a recurrence, between
// two times.
type Trigger struct {
	Expression string     `json:"expression"` // of a cron trigger; empty for a recurrence
	Frequency  string     `json:"frequency"`  // minute, hour, day, week, month
	Interval   int        `json:"interval"`   // 0 is 1
	Schedule   Recurrence `json:"schedule"`
	TimeZone   string     `json:"timeZone"`
	StartTime  string     `json:"startTime"` // ISO 8601; without an offset it is in TimeZone
	EndTime    string     `json:"endTime"`
}

// Recurrence is at what times of its days a recurrence fires.
type Recurrence struct {
	Hours     []int    `json:"hours"`
	Minutes   []int    `json:"minutes"`
	WeekDays  []string `json:"weekDays"`
	MonthDays []int    `json:"monthDays"`
}

// Compile makes a schedule of t. anchor is when a recurrence without a start time begins to count.
// A trigger that never fires after now is refused.
func (t Trigger) Compile(anchor, now time.Time) (Schedule, error) {
	loc, err := Zone(t.TimeZone)
	if err != nil {
		return nil, err
	}
	start, err := moment("start", t.StartTime, loc)
	if err != nil {
		return nil, err
	}
	end, err := moment("end", t.EndTime, loc)
	if err != nil {
		return nil, err
	}
	if !end.IsZero() && !end.After(start) {
		return nil, berth.Errorf(berth.Invalid, "the schedule ends (%s) before it starts", t.EndTime)
	}
	var inner Schedule
	what := "the cron expression " + t.Expression
	switch {
	case t.Expression != "" && t.Frequency != "":
		return nil, berth.Errorf(berth.Invalid, "a trigger must have either an expression or a frequency, not both")
	case t.Expression != "":
		inner, err = Parse(t.Expression, loc)
	default:
		what = "the recurrence"
		if !start.IsZero() {
			anchor = start
		}
		inner, err = t.recurrence(anchor.In(loc))
	}
	if err != nil {
		return nil, err
	}
	w := window{inner, start, end}
	if w.Next(now).IsZero() {
		if !end.IsZero() && !end.After(now) {
			return nil, berth.Errorf(berth.Invalid, "%s never fires: its end time %s is past", what, t.EndTime)
		}
		return nil, berth.Errorf(berth.Invalid, "%s never fires: no date matches all of its fields", what)
	}
	return w, nil
}

// window is a schedule between two times, either of which may be zero.
type window struct {
	Schedule
	start, end time.Time
}

func (w window) Next(t time.Time) time.Time {
	if !w.start.IsZero() && t.Before(w.start) {
		t = w.start.Add(-time.Nanosecond) // its first moment counts
	}
	next := w.Schedule.Next(t)
	if !w.end.IsZero() && next.After(w.end) {
		return time.Time{}
	}
	return next
}

// moment reads a time as clients write them, with an offset or in loc.
func moment(what, text string, loc *time.Location) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999999", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, loc); err == nil {
			return t, nil
		}
	}
	return time.Time{}, berth.Errorf(berth.Invalid, "the %s time %q is not a time such as 2026-05-01T08:00:00", what, text)
}

func (t Trigger) recurrence(anchor time.Time) (Schedule, error) {
	n := t.Interval
	if n == 0 {
		n = 1
	}
	if n < 0 {
		return nil, berth.Errorf(berth.Invalid, "the interval %d of a recurrence must be at least 1", n)
	}
	r := &recurrence{anchor: anchor, every: n, unit: strings.ToLower(t.Frequency)}
	s := t.Schedule
	switch r.unit {
	case "minute", "hour":
		if len(s.Hours)+len(s.Minutes)+len(s.WeekDays)+len(s.MonthDays) > 0 {
			return nil, berth.Errorf(berth.Invalid, "a recurrence by the %s has no schedule of hours or days: use frequency day, week or month, or a cron expression", r.unit)
		}
		return r, nil
	case "day", "week", "month":
	default:
		return nil, berth.Errorf(berth.Invalid, "the frequency must be minute, hour, day, week or month, not %q", t.Frequency)
	}
	var err error
	if r.hours, err = numbers("hour", s.Hours, 0, 23, anchor.Hour()); err != nil {
		return nil, err
	}
	if r.minutes, err = numbers("minute", s.Minutes, 0, 59, anchor.Minute()); err != nil {
		return nil, err
	}
	if r.monthDays, err = numbers("day of the month", s.MonthDays, 1, 31, anchor.Day()); err != nil {
		return nil, err
	}
	for _, name := range s.WeekDays {
		i := slices.IndexFunc(weekdays, func(short string) bool { return len(name) >= 3 && strings.EqualFold(name[:3], short) })
		if i < 0 {
			return nil, berth.Errorf(berth.Invalid, "%q is not a day of the week", name)
		}
		r.weekDays[i] = true
	}
	r.filtered = len(s.WeekDays) > 0
	if r.unit == "week" && !r.filtered {
		r.weekDays[anchor.Weekday()], r.filtered = true, true
	}
	return r, nil
}

func numbers(what string, given []int, low, high, otherwise int) ([]int, error) {
	if len(given) == 0 {
		return []int{otherwise}, nil
	}
	for _, n := range given {
		if n < low || n > high {
			return nil, berth.Errorf(berth.Invalid, "%d is not a valid %s; use %d to %d", n, what, low, high)
		}
	}
	sorted := slices.Clone(given)
	slices.Sort(sorted)
	return slices.Compact(sorted), nil
}

// recurrence fires every so many units from its anchor on.
type recurrence struct {
	anchor                    time.Time // in the schedule's zone
	unit                      string
	every                     int
	hours, minutes, monthDays []int
	weekDays                  [7]bool
	filtered                  bool // only on weekDays
}

func (r *recurrence) Next(t time.Time) time.Time {
	if t.Before(r.anchor) {
		t = r.anchor.Add(-time.Nanosecond)
	}
	switch r.unit {
	case "minute", "hour":
		unit := time.Minute
		if r.unit == "hour" {
			unit = time.Hour
		}
		step := unit * time.Duration(r.every)
		if t.Before(r.anchor) {
			return r.anchor
		}
		return r.anchor.Add((t.Sub(r.anchor)/step + 1) * step)
	}
	loc := r.anchor.Location()
	y, m, d := t.In(loc).Date()
	for i := range max(horizon, r.every*62) {
		noon := time.Date(y, m, d+i, 12, 0, 0, 0, loc)
		if !r.onDay(noon) {
			continue
		}
		for _, h := range r.hours {
			for _, min := range r.minutes {
				if at := Clock(noon.Year(), noon.Month(), noon.Day(), h, min, loc); at.After(t) {
					return at
				}
			}
		}
	}
	return time.Time{}
}

// onDay says whether the day of noon is one of those that count.
func (r *recurrence) onDay(noon time.Time) bool {
	if r.filtered && !r.weekDays[noon.Weekday()] {
		return false
	}
	days := dayNumber(noon) - dayNumber(r.anchor)
	switch r.unit {
	case "day":
		return days%r.every == 0
	case "week": // of Monday to Sunday, as the anchor's
		monday := (int(r.anchor.Weekday()) + 6) % 7
		return (days+monday)/7%r.every == 0
	}
	apart := (noon.Year()-r.anchor.Year())*12 + int(noon.Month()-r.anchor.Month())
	return apart%r.every == 0 && (r.filtered || slices.Contains(r.monthDays, noon.Day()))
}

// dayNumber counts days whatever the clocks do.
func dayNumber(t time.Time) int {
	y, m, d := t.Date()
	return int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400)
}
