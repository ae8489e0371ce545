package api_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

var (
	metaLine   = regexp.MustCompile(`^# (HELP|TYPE) ([a-z_]+) (.+)$`)
	sampleLine = regexp.MustCompile(`^([a-z_]+)(\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (\S+)$`)
	leLabel    = regexp.MustCompile(`,?le="([^"]*)"`)
)

// scrape reads a page of metrics as Prometheus does, and fails on what Prometheus would not take.
func scrape(t *testing.T, page string) map[string]float64 {
	t.Helper()
	out, types, last := map[string]float64{}, map[string]string{}, map[string]float64{}
	family, closed := "", map[string]bool{}
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if m := metaLine.FindStringSubmatch(line); m != nil {
			if m[2] != family {
				if closed[m[2]] || out[m[2]] != 0 {
					t.Errorf("%s comes twice", m[2])
				}
				closed[family], family = true, m[2]
			}
			if m[1] == "TYPE" {
				types[m[2]] = m[3]
			}
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%q is no sample", line)
		}
		name := m[1]
		if types[family] == "histogram" {
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		}
		if name != family || types[family] == "" {
			t.Errorf("%q is not below its type", line)
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if _, twice := out[m[1]+m[2]]; twice {
			t.Errorf("%q comes twice", line)
		}
		out[m[1]+m[2]] = v
		if le := leLabel.FindString(m[2]); le != "" {
			of := m[1] + strings.Replace(m[2], le, "", 1)
			if v < last[of] {
				t.Errorf("%q is below the bucket before", line)
			}
			last[of] = v
		}
	}
	return out
}

// TestMetrics: the page is one that Prometheus reads, counts what was asked, and has nothing that a
// user chose.
func TestMetrics(t *testing.T) {
	x := open(t)
	if err := x.db.Update(t.Context(), func(tx *store.Tx) error {
		for i, state := range []berth.TaskState{berth.TaskWaiting, berth.TaskWaiting, berth.TaskRunning, berth.TaskDone} {
			id := berth.TaskID("secretname." + strconv.Itoa(i))
			if err := tx.InsertTask(&berth.Task{ID: id, Workspace: workspace.Key(), Job: "secretname", State: state, Created: tx.Now().Add(-time.Hour)}); err != nil {
				return err
			}
		}
		return tx.Insert(&store.Doc{Workspace: workspace.Key(), Kind: "nodes", Name: "secretnode", Status: string(berth.NodeIdle)})
	}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		x.do("GET", x.ws+"/jobs/secretname", nil).want(404)
	}
	x.do("PUT", x.ws+"/environments/secretname/versions/1", `{"properties":{"image":"x"}}`).want(201)
	x.do("BREW", x.ws+"/jobs/secretname", nil)
	x.do("GET", "/secretname/x", nil).want(404)
	x.do("GET", x.ws+"/secretname", nil)
	page := x.do("GET", "/metrics", nil).want(200)
	if got := page.header.Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Error(got)
	}
	if strings.Contains(string(page.raw), "secret") || strings.Contains(string(page.raw), "BREW") {
		t.Errorf("it has what a user chose:\n%s", page.raw)
	}
	got := scrape(t, string(page.raw))
	for series, want := range map[string]float64{
		`berth_http_requests_total{route="workspaces/jobs",method="GET",status="404"}`:         3,
		`berth_http_request_seconds_count{route="workspaces/jobs",method="GET"}`:               3,
		`berth_http_request_seconds_bucket{route="workspaces/jobs",method="GET",le="+Inf"}`:    3,
		`berth_http_requests_total{route="workspaces/environments",method="PUT",status="201"}`: 1,
		`berth_http_requests_total{route="other",method="GET",status="404"}`:                   1,
		`berth_tasks{state="waiting"}`: 2, `berth_tasks{state="running"}`: 1, `berth_nodes{state="idle"}`: 1, `berth_nodes{state="leaving"}`: 0,
		"berth_queue_count": 2, `berth_queue_up_to{seconds="900"}`: 0, `berth_queue_up_to{seconds="21600"}`: 2,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", series, v, ok, want)
		}
	}
	if v := got["berth_queue_oldest_seconds"]; v < 3600 || v > 7200 {
		t.Errorf("the oldest has waited for %v s", v)
	}
	if v := scrape(t, string(x.do("GET", "/metrics", nil).want(200).raw))[`berth_http_requests_total{route="metrics",method="GET",status="200"}`]; v != 1 {
		t.Errorf("%v pages before this one", v)
	}
}

// TestMetricsNeedAToken: everybody who has a token may read them, a task not.
func TestMetricsNeedAToken(t *testing.T) {
	x := open(t)
	x.as("", "GET", "/metrics", nil).want(401)
	x.as("bt_wrong", "GET", "/metrics", nil).want(401)
	x.as(x.auth.Keys.TaskToken("j.1", time.Now().Add(time.Hour)), "GET", "/metrics", nil).want(403)
	x.as(x.token("watcher", auth.Reader), "GET", "/metrics", nil).want(200)
}
