package spec

import (
	"math"
	"strconv"
	"strings"
)

// number is a JSON number kept as written, so that 1.0 stays 1.0.
type number string

// MarshalJSON writes the number as it is.
func (n number) MarshalJSON() ([]byte, error) { return []byte(n), nil }

// pythonFloat formats f as Python's repr does: the shortest digits, exponents below 1e-4 and from
// 1e16.
func pythonFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	case f == 0:
		if math.Signbit(f) {
			return "-0.0"
		}
		return "0.0"
	}
	if a := math.Abs(f); a < 1e-4 || a >= 1e16 {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// jsonFloat is pythonFloat as far as JSON can say it; what it cannot becomes null.
func jsonFloat(f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return "null"
	}
	return pythonFloat(f)
}
