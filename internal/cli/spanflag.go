package cli

import (
	"strconv"
	"time"
)

// spanFlag is a flag for a length of time: 90s, 2h, or seconds as Azure writes them.
type spanFlag struct{ at *time.Duration }

func (f spanFlag) String() string {
	if f.at == nil || *f.at == 0 {
		return ""
	}
	return f.at.String()
}

func (spanFlag) Type() string { return "duration" }

// Set reads the length.
func (f spanFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if n, plain := strconv.ParseInt(text, 10, 32); plain == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < 0 {
		return usagef("must be a duration such as 90s or 2h, or a number of seconds")
	}
	*f.at = d
	return nil
}
