package berth

import (
	"math"
	"regexp"
	"strconv"
	"time"
)

var isoDuration = regexp.MustCompile(`^P(?:(\d+(?:\.\d+)?)D)?(?:T(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?$`)

// ParseDuration reads an ISO 8601 duration such as PT1H30M; empty is zero.
func ParseDuration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	m := isoDuration.FindStringSubmatch(s)
	if m == nil || s == "P" || s[len(s)-1] == 'T' {
		return 0, Errorf(Invalid, "%q is not an ISO 8601 duration such as PT1H30M", s)
	}
	total := 0.0
	for i, unit := range []float64{86400, 3600, 60, 1} {
		if m[i+1] == "" {
			continue
		}
		n, err := strconv.ParseFloat(m[i+1], 64)
		if err != nil {
			return 0, Errorf(Invalid, "%q is not an ISO 8601 duration such as PT1H30M", s)
		}
		total += n * unit
	}
	if total*float64(time.Second) > math.MaxInt64 {
		return 0, Errorf(Invalid, "%q is longer than 292 years", s)
	}
	return time.Duration(total * float64(time.Second)), nil
}
