package berth

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads an ISO 8601 duration such as PT1H30M or P1DT0.5S; empty is zero.
func ParseDuration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	bad := Errorf(Invalid, "%q is not an ISO 8601 duration such as PT1H30M", s)
	rest, ok := strings.CutPrefix(s, "P")
	days, clock, hasT := strings.Cut(rest, "T")
	if !ok || rest == "" || (hasT && clock == "") {
		return 0, bad
	}
	total := 0.0
	for _, part := range []struct {
		text  string
		units string
		size  []float64
	}{{days, "D", []float64{86400}}, {clock, "HMS", []float64{3600, 60, 1}}} {
		for next := 0; part.text != ""; {
			i := strings.IndexFunc(part.text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
			if i <= 0 {
				return 0, bad
			}
			unit := strings.IndexByte(part.units[next:], part.text[i])
			n, err := strconv.ParseFloat(part.text[:i], 64)
			if unit < 0 || err != nil {
				return 0, bad
			}
			total += n * part.size[next+unit]
			next, part.text = next+unit+1, part.text[i+1:]
		}
	}
	if total*float64(time.Second) > math.MaxInt64 {
		return 0, Errorf(Invalid, "%q is longer than 292 years", s)
	}
	return time.Duration(total * float64(time.Second)), nil
}
