package serve

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Scale is how the number of a deployment's replicas follows the load.
type Scale struct {
	Follows  bool // it does; otherwise there are as many as instance_count says
	Min, Max int
	Target   float64       // share of the workers that should be at work
	Idle     time.Duration // without requests, after which all replicas stop, where Min is 0
	Poll     time.Duration
	// Freeze and Fork are how long the workers of a replica may be without requests until they are
	// stopped, and until only the process remains that imported their modules; 0 is for ever.
	Freeze, Fork time.Duration
}

// The properties of a deployment that say how it scales, beside its scaleSettings.
const (
	minProperty    = "berth.min"
	maxProperty    = "berth.max"
	targetProperty = "berth.target"
	idleProperty   = "berth.idle"
	freezeProperty = "berth.freeze"
	forkProperty   = "berth.fork"
)

// What holds where nothing is said.
const (
	defaultTarget = 70 // percent, as in Azure
	defaultPoll   = time.Second
	defaultIdle   = 15 * time.Minute
	defaultFreeze = 30 * time.Second
	defaultFork   = 2 * time.Minute
	maxIdle       = 30 * 24 * time.Hour
	downWindow    = time.Minute // that a lower need has to last
)

// scaleSettings is that of a document.
type scaleSettings struct {
	Type   string `json:"scaleType"`
	Min    *int   `json:"minInstances"`
	Max    *int   `json:"maxInstances"`
	Poll   string `json:"pollingInterval"`
	Target *int   `json:"targetUtilizationPercentage"`
}

// parseScale reads the settings; properties count more than scaleSettings.
func parseScale(in scaleSettings, props map[string]berth.Scalar, instances int) (s Scale, err error) {
	s = Scale{Min: 1, Max: max(1, instances), Target: defaultTarget / 100.0, Poll: defaultPoll, Idle: defaultIdle}
	target := defaultTarget
	if strings.EqualFold(in.Type, "TargetUtilization") {
		s.Follows = true
		for _, f := range []struct{ to, from *int }{{&s.Min, in.Min}, {&s.Max, in.Max}, {&target, in.Target}} {
			if f.from != nil {
				*f.to = *f.from
			}
		}
		if in.Max == nil {
			s.Max = max(s.Max, s.Min)
		}
		if err := duration(&s.Poll, "scaleSettings.pollingInterval", in.Poll); err != nil {
			return s, err
		}
	}
	for name, to := range map[string]*int{minProperty: &s.Min, maxProperty: &s.Max, targetProperty: &target} {
		if text := string(props[name]); text != "" {
			if *to, err = strconv.Atoi(strings.TrimSuffix(text, "%")); err != nil {
				return s, berth.Errorf(berth.Invalid, "properties.properties.%s must be a whole number, not %q", name, text)
			}
			s.Follows = s.Follows || name != targetProperty
		}
	}
	if string(props[idleProperty]) != "" && string(props[minProperty]) == "" && in.Min == nil {
		s.Min, s.Follows = 0, true
	}
	if s.Min == 0 && s.Follows {
		s.Freeze, s.Fork = defaultFreeze, defaultFork
	}
	for name, to := range map[string]*time.Duration{idleProperty: &s.Idle, freezeProperty: &s.Freeze, forkProperty: &s.Fork} {
		if err := restTime(to, name, string(props[name])); err != nil {
			return s, err
		}
	}
	switch {
	case s.Follows && (s.Min < 0 || s.Max < 1 || s.Max > maxInstances || s.Min > s.Max):
		return s, berth.Errorf(berth.Invalid, "the fewest (%d) and most (%d) instances of the deployment must be numbers from 0 to %d, the first not above the second", s.Min, s.Max, maxInstances)
	case target < 1 || target > 100:
		return s, berth.Errorf(berth.Invalid, "the target utilization of the deployment must be a number from 1 to 100, not %d", target)
	}
	s.Target = float64(target) / 100
	return s, nil
}

// restTime reads a time after which something rests: a duration such as 90s or PT90S, or "never".
func restTime(to *time.Duration, name, text string) error {
	if text == "" {
		return nil
	}
	if strings.EqualFold(text, "never") {
		*to = 0
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = berth.ParseDuration(text)
	}
	if err != nil || d <= 0 || d > maxIdle {
		return berth.Errorf(berth.Invalid, "properties.properties.%s must be a duration such as 90s or PT90S, or never, not %q", name, text)
	}
	*to = d
	return nil
}

// rest tells the workers of a replica when to rest.
func (s Scale) rest(env map[string]berth.Scalar) {
	for name, d := range map[string]time.Duration{"BERTH_FREEZE": s.Freeze, "BERTH_FORK": s.Fork} {
		if d > 0 && env[name] == "" {
			env[name] = berth.Scalar(strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
		}
	}
}

// need is how many replicas the load asks for, and until when that is known to be so.
type need struct {
	replicas int
	at       time.Time
}

// demand is what a scaler knows of the requests.
type demand struct {
	atWork  float64 // requests at work, on average since it was last asked
	waiting float64 // requests that waited, likewise
	now     int     // requests that wait now
	last    time.Time
}

// want is how many replicas a deployment should have, why, and when to look again (0 is when
// something happens). has is how many it should have had, needs what was needed lately.
func (s Scale) want(has, workers int, d demand, needs []need, proving bool, now time.Time) (n int, why string, kept []need, again time.Duration) {
	load := d.atWork + d.waiting
	asked := int(math.Ceil(load / (float64(max(workers, 1)) * s.Target) * 0.999))
	idleFor := now.Sub(d.last)
	if d.now > 0 || load > 0 || idleFor < s.Idle || proving {
		asked = max(asked, 1)
	}
	asked = min(max(asked, s.Min), s.Max)
	for _, old := range needs {
		if now.Sub(old.at) < downWindow {
			kept = append(kept, old)
		}
	}
	kept = append(kept, need{asked, now})
	n = asked
	highest := asked
	for _, old := range kept {
		highest = max(highest, old.replicas)
	}
	toZero := asked == 0 && d.now == 0
	switch {
	case n < has && !toZero:
		n = min(has, max(n, highest)) // a lower need has to last
	case toZero && has > 0:
		kept = kept[len(kept)-1:]
	}
	switch {
	case n == 0:
		return n, "no request came for " + s.Idle.String() + ", and it may have none; the next request starts one", kept, 0
	case n == s.Max && asked >= s.Max && load > 0:
		why = fmt.Sprintf("%.1f requests at once need %d or more, and it may have %d", load, asked, s.Max)
	case n > asked:
		why = fmt.Sprintf("%.1f requests at once need %d; %d were needed within the last %s", load, asked, n, downWindow)
	case n == s.Min && load == 0:
		why = fmt.Sprintf("it has at least %d", s.Min)
	default:
		why = fmt.Sprintf("%.1f requests at once, with %d workers each of which %.0f %% should be at work", load, workers, s.Target*100)
	}
	switch {
	case load > 0 || n > asked:
		again = s.Poll
	case s.Min == 0:
		again = max(s.Idle-idleFor, s.Poll)
		why += "; all stop after " + s.Idle.String() + " without requests"
	}
	return n, why, kept, again
}
