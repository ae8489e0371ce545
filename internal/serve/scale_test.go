package serve

import (
	"strings"
	"testing"
	"time"
)

func scaleOf(t *testing.T, doc string) (Scale, error) {
	t.Helper()
	s, err := ParseSpec([]byte(doc))
	return s.Scale, err
}

func TestParseScale(t *testing.T) {
	s, err := scaleOf(t, `{"sku":{"capacity":3},"properties":{}}`)
	if err != nil || s.Follows || s.Freeze != 0 || s.Fork != 0 {
		t.Errorf("nothing said: %+v %v", s, err)
	}
	s, err = scaleOf(t, `{"properties":{"scaleSettings":{"scaleType":"TargetUtilization","minInstances":2,"maxInstances":5,"targetUtilizationPercentage":50,"pollingInterval":"PT5S"}}}`)
	if err != nil || !s.Follows || s.Min != 2 || s.Max != 5 || s.Target != 0.5 || s.Poll != 5*time.Second || s.Freeze != 0 {
		t.Errorf("Azure's settings: %+v %v", s, err)
	}
	s, err = scaleOf(t, `{"properties":{"properties":{"berth.idle":"90s","berth.fork":"never"}}}`)
	if err != nil || !s.Follows || s.Min != 0 || s.Max != 1 || s.Idle != 90*time.Second || s.Freeze != defaultFreeze || s.Fork != 0 {
		t.Errorf("to zero: %+v %v", s, err)
	}
	for _, bad := range []string{
		`{"berth.min":"x"}`, `{"berth.min":"3","berth.max":"2"}`, `{"berth.max":"1000"}`, `{"berth.target":"0"}`, `{"berth.idle":"-1s"}`, `{"berth.freeze":"soon"}`, `{"berth.min":"-1"}`,
	} {
		if _, err := scaleOf(t, `{"properties":{"properties":`+bad+`}}`); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestScaleUpAndDown(t *testing.T) {
	s := Scale{Follows: true, Min: 1, Max: 4, Target: 0.5, Poll: time.Second, Idle: time.Minute}
	n, why, needs, again := s.want(1, 1, demand{atWork: 1.4, last: noon}, nil, false, noon)
	if n != 3 || again != time.Second || !strings.Contains(why, "1.4") {
		t.Errorf("%d %s %v", n, why, again)
	}
	n, why, _, _ = s.want(3, 1, demand{atWork: 9, last: noon}, needs, false, noon.Add(time.Second))
	if n != 4 || !strings.Contains(why, "it may have 4") {
		t.Errorf("%d %s", n, why)
	}
	n, why, needs, _ = s.want(3, 1, demand{atWork: 0.2, last: noon}, needs, false, noon.Add(10*time.Second))
	if n != 3 || !strings.Contains(why, "last 1m0s") {
		t.Errorf("a short calm: %d %s", n, why)
	}
	if n, why, _, _ = s.want(3, 1, demand{atWork: 0.2, last: noon}, needs, false, noon.Add(61*time.Second)); n != 1 {
		t.Errorf("a long calm: %d %s", n, why)
	}
}

func TestScaleToZero(t *testing.T) {
	s := Scale{Follows: true, Max: 2, Target: 0.7, Poll: time.Second, Idle: time.Minute}
	n, _, needs, again := s.want(1, 1, demand{last: noon}, nil, false, noon.Add(20*time.Second))
	if n != 1 || again != 40*time.Second {
		t.Errorf("%d, again in %v", n, again)
	}
	n, why, needs, again := s.want(1, 1, demand{last: noon}, needs, false, noon.Add(60*time.Second))
	if n != 0 || again != 0 || !strings.Contains(why, "no request came") {
		t.Errorf("%d %s, again in %v", n, why, again)
	}
	if n, why, _, _ = s.want(0, 1, demand{last: noon}, needs, true, noon.Add(time.Hour)); n != 1 {
		t.Errorf("a new form is tried: %d %s", n, why)
	}
	if n, why, _, _ = s.want(0, 1, demand{last: noon.Add(time.Hour), now: 1}, needs, false, noon.Add(time.Hour)); n != 1 {
		t.Errorf("a request comes: %d %s", n, why)
	}
}

// TestScalerHears: requests at another server count as the last ones, also when it is some time ago
// that it spoke, and older words than one's own requests change nothing.
func TestScalerHears(t *testing.T) {
	var z scaler
	now := time.Unix(1000, 0)
	z.demanded.Store(now.UnixNano())
	for past, want := range map[time.Duration]int{demandTime / 2: 1, 2 * demandTime: 0} {
		d := demand{last: now.Add(-time.Hour)}
		if z.hear(&d, now.Add(past)); d.now != want || !d.last.Equal(now) {
			t.Errorf("%s later: %+v", past, d)
		}
	}
	d := demand{last: now.Add(time.Second)}
	if z.hear(&d, now.Add(2*demandTime)); !d.last.Equal(now.Add(time.Second)) {
		t.Errorf("%+v", d)
	}
}

// TestConcurrency: workers of ours are processes, requests of a server of the user's own are not.
func TestConcurrency(t *testing.T) {
	const command = `"properties":{"berth.command":"serve"},`
	for doc, good := range map[string]bool{
		`{"properties":{"requestSettings":{"maxConcurrentRequestsPerInstance":64}}}`:                  true,
		`{"properties":{"requestSettings":{"maxConcurrentRequestsPerInstance":65}}}`:                  false,
		`{"properties":{"environmentVariables":{"WORKER_COUNT":"65"}}}`:                               false,
		`{"properties":{` + command + `"requestSettings":{"maxConcurrentRequestsPerInstance":512}}}`:  true,
		`{"properties":{` + command + `"requestSettings":{"maxConcurrentRequestsPerInstance":1025}}}`: false,
		`{"properties":{` + command + `"requestSettings":{"maxConcurrentRequestsPerInstance":0}}}`:    false,
	} {
		if _, err := ParseSpec([]byte(doc)); (err == nil) != good {
			t.Errorf("%s: %v", doc, err)
		}
	}
}
