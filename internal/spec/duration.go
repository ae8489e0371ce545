package spec

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// duration is a whole number of a unit, in milliseconds, that travels as an ISO 8601 duration.
func duration(unit string, ms int64) typ {
	return typ{name: "a whole number of " + unit, yaml: readWhole, readFunc: func(s *scope, v *value) any {
		n, ok := wholeOf(v)
		if !ok {
			s.fail(v, "must be a whole number of %s, not %s", unit, describe(v))
			return nil
		}
		n = new(big.Int).Mul(n, big.NewInt(ms))
		if !n.IsInt64() || abs64(n.Int64()) > 999_999_999*86_400_000 {
			s.fail(v, "%s %s is too long", v.python(), unit)
			return nil
		}
		if n.Sign() == 0 {
			return nil // no time is no limit
		}
		return isoDuration(n.Int64())
	}, showFunc: func(j any) any {
		if t, ok := j.(string); ok {
			if got, ok := parseISO(t); ok {
				return number(strconv.FormatInt(got/ms, 10))
			}
		}
		return j
	}}
}

func abs64(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}

// isoDuration writes milliseconds as ISO 8601: 130000 is PT2M10S, 90061000 is P1DT1H1M1S.
func isoDuration(ms int64) string {
	sign := ""
	if ms < 0 {
		sign, ms = "-", -ms
	}
	if ms == 0 {
		return "PT0S"
	}
	var b strings.Builder
	b.WriteString(sign + "P")
	if d := ms / 86_400_000; d > 0 {
		fmt.Fprintf(&b, "%dD", d)
	}
	ms %= 86_400_000
	if ms == 0 {
		return b.String()
	}
	b.WriteByte('T')
	if h := ms / 3_600_000; h > 0 {
		fmt.Fprintf(&b, "%dH", h)
	}
	if m := ms / 60_000 % 60; m > 0 {
		fmt.Fprintf(&b, "%dM", m)
	}
	if r := ms % 60_000; r > 0 {
		b.WriteString(strconv.FormatFloat(float64(r)/1000, 'f', -1, 64) + "S")
	}
	return b.String()
}

var isoForm = re(`^(-)?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$`)

// parseISO reads an ISO 8601 duration of days and less into milliseconds.
func parseISO(text string) (int64, bool) {
	m := isoForm.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	total := 0.0
	for i, unit := range []float64{86_400_000, 3_600_000, 60_000, 1000} {
		if m[i+2] != "" {
			n, err := strconv.ParseFloat(m[i+2], 64)
			if err != nil {
				return 0, false
			}
			total += n * unit
		}
	}
	if m[1] != "" {
		total = -total
	}
	return int64(total), true
}

var clockForm = re(`^(\d{4}-\d{1,2}-\d{1,2})[T ](\d{1,2}:\d{1,2})(:\d{1,2}(\.\d{1,12})?)?(Z|[+-]\d{2}(:?\d{2})?)?$`)

// isoTime normalises a date and time: 2022-03-10T10:15 is 2022-03-10 10:15:00. Fractions and
// offsets are dropped: times are in the zone that stands beside them.
func isoTime(text string) (string, bool) {
	m := clockForm.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	seconds, _, _ := strings.Cut(m[3], ".")
	if seconds == "" {
		seconds = ":0"
	}
	at, err := time.Parse("2006-1-2 15:4:5", m[1]+" "+m[2]+seconds)
	return at.Format("2006-01-02 15:04:05"), err == nil
}

// isoDay is the beginning of a day: 2026-01-31 is 2026-01-31T00:00:00.000Z.
func isoDay(text string) (string, bool) {
	at, err := time.Parse("2006-1-2", text)
	return at.Format("2006-01-02T15:04:05.000Z"), err == nil
}

var stampForm = re(`^(\d{4})-(\d\d?)-(\d\d?)(?:[Tt]|[ \t]+)(\d\d?:\d\d:\d\d)(?:\.(\d*))?[ \t]*(Z|[-+]\d\d?(?::\d\d)?)?$`)

// isoStamp is a date or time of YAML as JSON has it: 2022-1-2 3:04:05 is 2022-01-02T03:04:05Z, a
// day stays a day.
func isoStamp(text string) string {
	m := stampForm.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	at, err := time.Parse("2006-1-2 15:04:05", m[1]+"-"+m[2]+"-"+m[3]+" "+m[4])
	if err != nil {
		return text
	}
	if zone := m[6]; len(zone) > 1 {
		hours, mins, _ := strings.Cut(zone[1:], ":")
		h, _ := strconv.Atoi(hours)
		n, _ := strconv.Atoi(mins)
		ahead := time.Duration(h)*time.Hour + time.Duration(n)*time.Minute
		if zone[0] == '-' {
			ahead = -ahead
		}
		at = at.Add(-ahead)
	}
	out := at.Format("2006-01-02T15:04:05")
	if micros := (m[5] + "000000")[:6]; micros != "000000" {
		out += "." + micros
	}
	return out + "Z"
}
