package app_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestDashboard: every metric that the dashboard, the alert rules and docs/server.md name is one
// that a server has, and the dashboard shows all of them.
func TestDashboard(t *testing.T) {
	s := start(t, shortHome(t))
	s.submit("hello", "true")
	if _, status := s.wait("hello"); status != "Completed" {
		t.Fatal(status)
	}
	_, page := s.do("GET", "/metrics", nil)
	text, _ := page["raw"].(string)
	var has []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)`).FindAllStringSubmatch(text, -1) {
		has = append(has, m[1])
		if m[2] == "histogram" {
			has = append(has, m[1]+"_bucket", m[1]+"_sum", m[1]+"_count")
		}
	}
	name := regexp.MustCompile(`\bberth_[a-z_]+[a-z]\b`)
	var shown []string
	for _, path := range []string{"../../deploy/grafana.json", "../../deploy/alerts.yaml", "../../docs/server.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names := name.FindAllString(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", path)
		}
		for _, n := range names {
			if !slices.Contains(has, n) && n != "berth_control" { // berth_control_…
				t.Errorf("%s names %s, which the server does not have", path, n)
			}
		}
		shown = append(shown, names...)
	}
	for _, m := range has {
		if bucket := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(m, ""); !slices.Contains(shown, m) && !slices.Contains(shown, bucket) && !slices.Contains(shown, bucket+"_bucket") {
			t.Errorf("%s is shown and explained nowhere", m)
		}
	}
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	b, err := os.ReadFile("../../deploy/grafana.json")
	if err == nil {
		err = json.Unmarshal(b, &dashboard)
	}
	if err != nil || len(dashboard.Panels) < 10 {
		t.Error(len(dashboard.Panels), err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if b, err = os.ReadFile("../../deploy/alerts.yaml"); err == nil {
		err = yaml.Unmarshal(b, &rules)
	}
	if err != nil || len(rules.Groups) != 1 || len(rules.Groups[0].Rules) < 5 {
		t.Errorf("%+v, %v", rules, err)
	}
}
