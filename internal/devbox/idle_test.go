package devbox_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/devbox"
)

// TestIdleLaws: what is busy or not known never stops; what nothing used for the idle time stops;
// nothing stops before; and what kept it awake is never later than now.
func TestIdleLaws(t *testing.T) {
	epoch := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		at := func(name string) time.Time {
			return epoch.Add(time.Duration(rapid.IntRange(-7200, 7200).Draw(t, name)) * time.Second)
		}
		now := at("now")
		p := devbox.Policy{After: time.Duration(rapid.IntRange(0, 3600).Draw(t, "after")) * time.Second, AwakeAt: at("awake")}
		var signals []devbox.Signal
		held, last := false, p.AwakeAt
		for range rapid.IntRange(0, 4).Draw(t, "signals") {
			s := devbox.Signal{Name: "s", Busy: rapid.Bool().Draw(t, "busy"), Why: "it is used"}
			if rapid.Bool().Draw(t, "unknown") {
				s.Error = "cannot be read"
			}
			if rapid.Bool().Draw(t, "has last") {
				s.Last = at("last")
			}
			held = held || s.Busy || s.Error != ""
			if s.Last.After(last) {
				last = s.Last
			}
			signals = append(signals, s)
		}
		v := devbox.Idle(signals, p, now)
		if v.Reason == "" {
			t.Fatalf("no reason: %+v", v)
		}
		if held && (v.Stop || !v.Busy) {
			t.Fatalf("it is in use and %+v", v)
		}
		if p.After == 0 && v.Stop {
			t.Fatalf("it has no idle time and %+v", v)
		}
		if v.AwakeAt.After(now) {
			t.Fatalf("kept awake in the future: %+v at %v", v, now)
		}
		if v.Stop && now.Sub(v.AwakeAt) < p.After {
			t.Fatalf("it stops after %v, not %v", now.Sub(v.AwakeAt), p.After)
		}
		if !held && p.After > 0 && !last.After(now) && now.Sub(last) >= p.After && !v.Stop {
			t.Fatalf("nothing used it since %v, and at %v %+v", last, now, v)
		}
		if again := devbox.Idle(signals, p, now); again != v {
			t.Fatalf("%+v, and again %+v", v, again)
		}
	})
}

func TestIdleReasons(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		name    string
		signals []devbox.Signal
		policy  devbox.Policy
		stop    bool
		want    string
	}{
		{"busy", []devbox.Signal{{Name: "kernels", Busy: true, Why: "a kernel is busy"}}, devbox.Policy{After: time.Hour, AwakeAt: ago(100 * time.Hour)}, false, "a kernel is busy"},
		{"unknown", []devbox.Signal{{Name: "gpu", Error: "nvidia-smi is gone"}}, devbox.Policy{After: time.Hour, AwakeAt: ago(100 * time.Hour)}, false, "counts as busy"},
		{"idle", []devbox.Signal{{Name: "ssh", Last: ago(time.Minute), Why: "ssh was used"}}, devbox.Policy{After: time.Hour, AwakeAt: ago(2 * time.Hour)}, false, "stops at 2026-05-01T12:59:00Z"},
		{"over", []devbox.Signal{{Name: "ssh", Last: ago(time.Hour), Why: "ssh was used"}}, devbox.Policy{After: time.Hour, AwakeAt: ago(2 * time.Hour)}, true, "nothing used it for 1h0m0s; last activity: ssh was used"},
		{"never", nil, devbox.Policy{AwakeAt: ago(time.Hour)}, false, "runs until it is stopped"},
	} {
		v := devbox.Idle(c.signals, c.policy, now)
		if v.Stop != c.stop || !strings.Contains(v.Reason, c.want) {
			t.Errorf("%s: %+v, want stop %v and %q", c.name, v, c.stop, c.want)
		}
	}
}
