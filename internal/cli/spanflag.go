package cli

import "time"

// spanFlag is a flag for a length of time.
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
	d, ok := spanOf(text)
	if !ok {
		return usagef("must be a duration such as 90s, 2h or 1d, or a number of seconds")
	}
	*f.at = d
	return nil
}
