package app_test

import (
	"regexp"
	"testing"
)

// TestMetricsOfAllParts: the page of a server that ran a job has what each part of it counts, the
// reports of its runner too.
func TestMetricsOfAllParts(t *testing.T) {
	s := start(t, shortHome(t))
	s.submit("hello", "true")
	if _, status := s.wait("hello"); status != "Completed" {
		t.Fatal(status)
	}
	_, page := s.do("GET", "/metrics", nil)
	text, _ := page["raw"].(string)
	for _, part := range []string{
		`berth_control_cycle_seconds_count [1-9]`, `berth_store_updates_total [1-9]`, `berth_store_transaction_seconds_count [1-9]`, `berth_store_failures_total 0`,
		`berth_http_requests_total{route="runner/reports",method="POST",status="200"} [1-9]`, `berth_http_requests_total{route="workspaces/jobs",method="PUT",status="201"} 1`,
		`berth_tasks{state="running"} 0`,
	} {
		if !regexp.MustCompile(`(?m)^` + part).MatchString(text) {
			t.Errorf("%s is missing in\n%s", part, text)
		}
	}
}
