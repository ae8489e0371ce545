// Package cron says when schedules fire: five-field cron expressions and Azure's recurrences, in
// any time zone, right across the hours that daylight saving skips and repeats. It computes and
// does nothing else.
package cron

import (
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// A Schedule fires at certain times.
type Schedule interface {
	// Next is the first time after t at which it fires, zero when there is none.
	Next(t time.Time) time.Time
}

// Cron is a five-field expression: minute, hour, day of the month, month, day of the week.
//
// A time that daylight saving skips fires when the gap is over; one that it repeats fires once.
// Expressions that say nothing about the hour follow the clock on the wall minute by minute
// instead: what is skipped is skipped, and what is repeated fires again.
type Cron struct {
	minutes, hours, days, months, weekdays uint64
	anyHour, anyDay, anyWeekday            bool
	loc                                    *time.Location
}

type field struct {
	name     string
	min, max int
	names    []string // of the values from min on
}

var (
	months   = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
	fields   = [5]field{
		{"minute", 0, 59, nil}, {"hour", 0, 23, nil}, {"day of the month", 1, 31, nil}, {"month", 1, 12, months}, {"day of the week", 0, 7, weekdays},
	}
)

// Parse reads an expression whose times are those of loc.
func Parse(expression string, loc *time.Location) (*Cron, error) {
	parts := strings.Fields(expression)
	if len(parts) != len(fields) {
		return nil, berth.Errorf(berth.Invalid, "the cron expression %q has %d fields; it must have 5: minute, hour, day of the month, month, day of the week", expression, len(parts))
	}
	c := &Cron{loc: loc}
	for i, to := range []*uint64{&c.minutes, &c.hours, &c.days, &c.months, &c.weekdays} {
		set, err := fields[i].parse(parts[i])
		if err != nil {
			return nil, berth.Errorf(berth.Invalid, "the cron expression %q: %w", expression, err)
		}
		*to = set
	}
	if c.weekdays&(1<<7) != 0 {
		c.weekdays |= 1 // 7 is Sunday too
	}
	c.anyHour = strings.HasPrefix(parts[1], "*")
	c.anyDay, c.anyWeekday = strings.HasPrefix(parts[2], "*"), strings.HasPrefix(parts[4], "*")
	return c, nil
}

// parse reads one field: a list of values, ranges and steps.
func (f field) parse(text string) (set uint64, err error) {
	for item := range strings.SplitSeq(text, ",") {
		span, by, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(by); err != nil || step < 1 {
				return 0, berth.Errorf(berth.Invalid, "%q is not a step of the field %s", item, f.name)
			}
		}
		from, to := f.min, f.max
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			if from, err = f.value(first); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if to, err = f.value(last); err != nil {
					return 0, err
				}
			case !stepped:
				to = from
			}
			if to < from {
				return 0, berth.Errorf(berth.Invalid, "%q runs backwards in the field %s", item, f.name)
			}
		} else if f.max == 7 {
			to = 6
		}
		for v := from; v <= to; v += step {
			set |= 1 << v
		}
	}
	return set, nil
}

func (f field) value(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < f.min || v > f.max {
		return 0, berth.Errorf(berth.Invalid, "%q is not a valid %s; use %d to %d", text, f.name, f.min, f.max)
	}
	return v, nil
}

// horizon is how many days are looked at before a schedule is said never to fire again. February 29
// is at most eight years away.
const horizon = 366 * 9

// Next is [Schedule.Next].
func (c *Cron) Next(t time.Time) time.Time {
	y, m, d := t.In(c.loc).Date()
	for i := range horizon {
		// Noon is there on every day, whatever the clocks do.
		noon := time.Date(y, m, d+i, 12, 0, 0, 0, c.loc)
		if !c.onDay(noon) {
			continue
		}
		if at := c.within(noon, t); !at.IsZero() {
			return at
		}
	}
	return time.Time{}
}

// onDay says whether it fires on the day of t. As in every cron, of a day of the month and a day of
// the week one is enough.
func (c *Cron) onDay(t time.Time) bool {
	day, week := c.days&(1<<t.Day()) != 0, c.weekdays&(1<<t.Weekday()) != 0
	if c.months&(1<<t.Month()) == 0 {
		return false
	}
	if c.anyDay || c.anyWeekday {
		return day && week
	}
	return day || week
}

// within is the first time after t at which it fires on a day that is right.
func (c *Cron) within(day, t time.Time) time.Time {
	if c.anyHour {
		return c.walk(day, t)
	}
	y, m, d := day.Date()
	for hs := c.hours; hs != 0; hs &= hs - 1 {
		for ms := c.minutes; ms != 0; ms &= ms - 1 {
			if at := Clock(y, m, d, bits.TrailingZeros64(hs), bits.TrailingZeros64(ms), c.loc); at.After(t) {
				return at
			}
		}
	}
	return time.Time{}
}

// walk goes through a day minute by minute, as the clock on the wall does.
func (c *Cron) walk(day, t time.Time) time.Time {
	y, m, d := day.Date()
	at := Clock(y, m, d, 0, 0, c.loc)
	if t.After(at) {
		at = at.Add(t.Sub(at).Truncate(time.Minute))
	}
	for ; at.In(c.loc).Day() == d; at = at.Add(time.Minute) {
		l := at.In(c.loc)
		if at.After(t) && c.hours&(1<<l.Hour()) != 0 && c.minutes&(1<<l.Minute()) != 0 {
			return at
		}
	}
	return time.Time{}
}

// Clock is when the clock in loc shows this time: the first time where it does so twice, the end of
// the gap where it never does.
func Clock(year int, month time.Month, day, hour, minute int, loc *time.Location) time.Time {
	wall := time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	// The clock shows the wall time at wall-offset, with an offset that holds shortly before or
	// after.
	var first time.Time
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := wall.Add(near).In(loc).Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		if _, o := at.In(loc).Zone(); o == offset && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if !first.IsZero() {
		return first.In(loc)
	}
	// What the clock would have shown without the change is after it.
	_, offset := wall.Add(-24 * time.Hour).In(loc).Zone()
	change, _ := wall.Add(-time.Duration(offset) * time.Second).In(loc).ZoneBounds()
	return change.In(loc)
}
