package devbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth/internal/cron"
	"github.com/berthml/berth/internal/devbox"
)

func TestParse(t *testing.T) {
	s, err := devbox.Parse([]byte(`{"computeType":"ComputeInstance","properties":{"vmSize":"Standard_DS3_v2","idleTimeBeforeShutdown":"PT30M",
		"schedules":{"computeStartStop":[
			{"status":"enabled","action":"stop","triggerType":"Cron","cron":{"timeZone":"UTC","triggerType":"Cron","expression":"0 18 * * *"}},
			{"status":"Disabled","action":"Start","triggerType":"Recurrence","recurrence":{"frequency":"day","interval":1,"schedule":{"hours":[8],"minutes":[0]}}}]},
		"setupScripts":{"scripts":{"creationScript":{"scriptSource":"inline","scriptData":"ZWNobyBoaQ==","scriptArguments":"a b","timeout":"3m"},
			"startupScript":{"scriptSource":"workspaceStorage","scriptData":"Users/me/s.sh","timeout":"PT1M"}}},
		"customServices":[{"name":"rstudio","image":{"type":"docker","reference":"r:1"},"endpoints":[{"target":8787,"published":8787}],
			"environmentVariables":{"A":{"type":"local","value":1}},"volumes":[{"source":"/home/azureuser/x","target":"/x"}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := devbox.Spec{
		Size: "Standard_DS3_v2", Idle: 30 * time.Minute,
		Schedules: []devbox.Schedule{
			{Enabled: true, Trigger: cron.Trigger{TimeZone: "UTC", Expression: "0 18 * * *"}},
			{Start: true, Trigger: cron.Trigger{Frequency: "day", Interval: 1, Schedule: cron.Recurrence{Hours: []int{8}, Minutes: []int{0}}}},
		},
		Creation: &devbox.Script{Data: []byte("echo hi"), Args: "a b", Timeout: 3 * time.Minute},
		Startup:  &devbox.Script{Path: "Users/me/s.sh", Timeout: time.Minute},
		Apps:     []devbox.App{{Name: "rstudio", Image: "r:1", Port: 8787, Env: map[string]string{"A": "1"}, Binds: []devbox.Bind{{Source: "/home/azureuser/x", Target: "/x"}}}},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
}

func TestParseRefuses(t *testing.T) {
	for properties, want := range map[string]string{
		`{"idleTimeBeforeShutdown":"PT0M"}`: "immediately",
		`{"idleTimeBeforeShutdown":"soon"}`: "ISO 8601",
		`{"schedules":{"computeStartStop":[{"action":"nap","cron":{"expression":"* * * * *"}}]}}`:      "start or stop",
		`{"schedules":{"computeStartStop":[{"action":"stop"}]}}`:                                       "neither",
		`{"setupScripts":{"scripts":{"creationScript":{"scriptSource":"inline","scriptData":"%%"}}}}`:  "base64",
		`{"setupScripts":{"scripts":{"startupScript":{"scriptData":"x","timeout":"0m"}}}}`:             "duration",
		`{"customServices":[{"name":"jupyter","image":{"reference":"x"},"endpoints":[{"target":1}]}]}`: "taken",
		`{"customServices":[{"name":"a"}]}`:                                                            "image.reference",
		`{"customServices":[{"name":"../a","image":{"reference":"x"},"endpoints":[{"target":1}]}]}`:    "not allowed",
	} {
		if _, err := devbox.Parse([]byte(`{"properties":` + properties + `}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", properties, err, want)
		}
	}
}

func TestSchedules(t *testing.T) {
	day := func(clock string) time.Time {
		at, err := time.Parse(time.RFC3339, "2026-05-04T"+clock+":00Z") // a Monday
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	s := devbox.Spec{Schedules: []devbox.Schedule{
		{Start: true, Enabled: true, Trigger: cron.Trigger{Expression: "0 8 * * 1-5"}},
		{Enabled: true, Trigger: cron.Trigger{Expression: "0 18 * * *"}},
		{Start: true, Trigger: cron.Trigger{Expression: "* * * * *"}}, // disabled
	}}
	if f, ok := s.Next(day("00:00"), day("07:00")); !ok || !f.Start || !f.At.Equal(day("08:00")) {
		t.Errorf("next: %+v %v", f, ok)
	}
	if f, ok := s.Due(day("00:00"), day("07:00"), day("07:59")); ok {
		t.Errorf("due before its time: %+v", f)
	}
	if f, ok := s.Due(day("00:00"), day("07:00"), day("18:05")); !ok || f.Start || !f.At.Equal(day("18:00")) {
		t.Errorf("the last one counts: %+v %v", f, ok)
	}
	if f, ok := s.Due(day("00:00"), day("00:00").Add(-1000*time.Hour), day("07:00")); !ok || f.Start {
		t.Errorf("one that was missed yesterday: %+v %v", f, ok)
	}
	s.Schedules = append(s.Schedules, devbox.Schedule{Enabled: true, Trigger: cron.Trigger{Expression: "0 0 30 2 *"}})
	if err := s.Check(day("00:00")); err == nil || !strings.Contains(err.Error(), "computeStartStop[3]") || !strings.Contains(err.Error(), "never fires") {
		t.Errorf("a day that never comes: %v", err)
	}
}
