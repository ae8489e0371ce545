package devbox

import (
	"fmt"
	"time"
)

// A Signal is one way to see whether an instance is used.
type Signal struct {
	Name string `json:"name"` // kernels, terminals, ssh, apps, jobs, cpu, gpu
	// Busy says that it is used now. Last is when it was last used, where that is known.
	Busy bool      `json:"busy"`
	Last time.Time `json:"last,omitzero"`
	// Why says what was seen, as the end of a sentence: "a notebook kernel is busy".
	Why string `json:"why,omitempty"`
	// Error is why the signal could not be read. Unknown counts as busy.
	Error string `json:"error,omitempty"`
}

// Policy is when an instance stops by itself.
type Policy struct {
	After time.Duration // 0: never
	// Awake and AwakeAt are what was known before: the last thing that kept it awake, and when.
	Awake   string
	AwakeAt time.Time
}

// Verdict is what the signals mean.
type Verdict struct {
	Stop    bool
	Busy    bool
	Awake   string    // what kept it awake last
	AwakeAt time.Time // when that was
	StopsAt time.Time // when it stops if nothing happens; zero while it is in use, and when it never does
	Reason  string    // one sentence
}

// Idle decides whether an instance should stop. An instance that is busy, or of which it is not
// known, never stops, however late it is: so a clock that jumped, or a server that was away, ends
// nothing that is in use.
func Idle(signals []Signal, p Policy, now time.Time) Verdict {
	v := Verdict{Awake: p.Awake, AwakeAt: p.AwakeAt}
	if v.AwakeAt.After(now) { // the clock was set back
		v.AwakeAt = now
	}
	for _, s := range signals {
		switch {
		case s.Error != "":
			if !v.Busy {
				v.Awake = fmt.Sprintf("whether it is in use cannot be determined (%s: %s), so it counts as busy", s.Name, s.Error)
			}
			v.Busy, v.AwakeAt = true, now
		case s.Busy:
			if !v.Busy {
				v.Awake = s.Why
			}
			v.Busy, v.AwakeAt = true, now
		case !v.Busy && !s.Last.IsZero() && !s.Last.Before(v.AwakeAt) && !s.Last.After(now):
			v.Awake, v.AwakeAt = s.Why, s.Last
		}
	}
	if p.After <= 0 {
		v.Reason = "it has no idle time and runs until it is stopped"
		return v
	}
	if v.Busy {
		v.Reason = "it is in use: " + v.Awake
		return v
	}
	v.StopsAt = v.AwakeAt.Add(p.After)
	switch {
	case now.Before(v.StopsAt):
		v.Reason = fmt.Sprintf("it is idle and stops at %s", v.StopsAt.UTC().Format(time.RFC3339))
	default:
		v.Stop = true
		v.Reason = fmt.Sprintf("nothing used it for %s", now.Sub(v.AwakeAt).Round(time.Second))
		if v.Awake != "" {
			v.Reason += "; last activity: " + v.Awake
		}
	}
	return v
}
