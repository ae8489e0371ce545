package devbox_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

func TestJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.made("box", map[string]any{"idleTimeBeforeShutdown": "PT5M"})
		submit := func(name, command string) {
			t.Helper()
			if code, b := p.do("PUT", p.ws+"/jobs/"+name, map[string]any{"properties": map[string]any{"jobType": "Command", "command": command, "computeId": "box"}}); code != http.StatusCreated {
				t.Fatalf("%d %s", code, b)
			}
		}
		submit("early", "sleep 900") // waits until the instance is up
		p.reaches("box", "JobRunning")
		time.Sleep(8 * time.Minute)
		if got := p.state("box"); got != "JobRunning" {
			t.Errorf("with a job on it it is %s", got)
		}
		p.until("the job ends", func() bool { return p.job("early") == "Completed" })
		p.reaches("box", "Running")
		submit("late", "forever")
		p.reaches("box", "JobRunning")
		p.action("box", "stop", nil)
		p.until("stop", func() bool { return p.op("stop", "box") == "Succeeded" })
		if got := p.state("box"); got != "Stopped" {
			t.Errorf("it is %s", got)
		}
		p.until("the job ends", func() bool { return p.job("late") == "Canceled" })
		reason := ""
		for _, e := range p.jobEvents("late") {
			if e.Type == berth.EventJobCancel {
				reason = e.Reason
			}
		}
		if !strings.Contains(reason, "compute instance box ends: stopped by ann") {
			t.Errorf("why the job was canceled: %q", reason)
		}
	})
}

// TestDrain: an instance that is deleted with a job on it waits for the job.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.made("box", nil)
		if code, b := p.do("PUT", p.ws+"/jobs/long", map[string]any{"properties": map[string]any{"jobType": "Command", "command": "sleep 600", "computeId": "box"}}); code != http.StatusCreated {
			t.Fatalf("%d %s", code, b)
		}
		p.reaches("box", "JobRunning")
		if code, b := p.do("DELETE", p.ws+"/computes/box", nil); code != http.StatusConflict || !strings.Contains(string(b), "has jobs (long)") {
			t.Fatalf("%d %s", code, b)
		}
		if code, b := p.do("DELETE", p.ws+"/computes/box?drain=true", nil); code != http.StatusAccepted {
			t.Fatalf("%d %s", code, b)
		}
		time.Sleep(5 * time.Minute)
		if got := p.state("box"); got != "Deleting" || p.job("long") != "Running" {
			t.Errorf("the instance is %s, its job %s", got, p.job("long"))
		}
		p.reaches("box", "gone")
		if got := p.job("long"); got != "Completed" {
			t.Errorf("the job is %s", got)
		}
	})
}

func (p *fixture) job(name string) (status string) {
	p.t.Helper()
	err := p.db.View(p.t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(space.Key(), "jobs", name, "")
		if err == nil {
			status = d.Status
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return status
}

func (p *fixture) jobEvents(name string) (out []berth.Event) {
	err := p.db.View(p.t.Context(), func(tx *store.Tx) (err error) {
		out, err = tx.Events(store.EventQuery{Workspace: space.Key(), Subject: "jobs/" + name})
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}
