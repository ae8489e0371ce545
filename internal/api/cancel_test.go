package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/metrics"
)

// updates is how often the database was written to.
func (x *house) updates() string {
	var w metrics.Writer
	x.db.Metrics(&w)
	_, rest, _ := strings.Cut(w.String(), "\nberth_store_updates_total ")
	n, _, _ := strings.Cut(rest, "\n")
	return n
}

func (x *house) submitAs(token, name, experiment string) {
	x.t.Helper()
	x.as(token, "PUT", x.ws+"/jobs/"+name, props("jobType", "Command", "command", "sleep 1", "experimentName", experiment)).want(201)
}

// TestManyJobsAreCanceledInOneTransaction: however many jobs a call asks to end, the database is
// written to once.
func TestManyJobsAreCanceledInOneTransaction(t *testing.T) {
	for _, by := range []string{"names", "all"} {
		x := open(t)
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprintf("j%d", i))
			x.submitAs(x.admin, names[i], "e")
		}
		body := map[string]any{"all": true}
		if by == "names" {
			body = map[string]any{"names": names}
		}
		var before int
		if _, err := fmt.Sscan(x.updates(), &before); err != nil {
			t.Fatal(err)
		}
		x.do("POST", x.ws+"/cancelJobs", body).want(200).is("asked", 50)
		if got := x.updates(); got != fmt.Sprint(before+1) {
			t.Errorf("by %s: %s updates, %d before", by, got, before)
		}
		for _, name := range names {
			x.do("GET", x.ws+"/jobs/"+name, nil).want(200).is("properties.status", "CancelRequested")
		}
	}
}

// TestCancelJobsTakesThoseThatWereMeant: the caller's own unless it says everyone, of one
// experiment where it names one, and never by an empty body.
func TestCancelJobsTakesThoseThatWereMeant(t *testing.T) {
	x := open(t)
	ann, bob, reader := x.token("ann", auth.User), x.token("bob", auth.User), x.token("eve", auth.Reader)
	x.submitAs(ann, "a1", "e1")
	x.submitAs(ann, "a2", "e2")
	x.submitAs(bob, "b1", "e1")
	x.submitAs(bob, "b2", "e2")
	at := x.ws + "/cancelJobs"
	x.as(reader, "POST", at, map[string]any{"all": true}).want(403)
	x.as(ann, "POST", at, map[string]any{}).want(400).says("it does not say which jobs")
	x.as(ann, "POST", at, map[string]any{"everyone": true}).want(400)
	x.as(ann, "POST", at, map[string]any{"all": true, "names": []string{"a1"}}).want(400)
	x.as(ann, "POST", at, map[string]any{"experimentName": "e1"}).want(200).is("asked", 1)
	x.as(ann, "POST", at, map[string]any{"all": true}).want(200).is("asked", 2)
	x.as(ann, "GET", x.ws+"/jobs/b1", nil).is("properties.status", "NotStarted")
	x.do("POST", at, map[string]any{"experimentName": "e1", "everyone": true}).want(200)
	x.as(ann, "GET", x.ws+"/jobs/b1", nil).is("properties.status", "CancelRequested")
	x.as(ann, "GET", x.ws+"/jobs/b2", nil).is("properties.status", "NotStarted")
	x.as(bob, "POST", at, map[string]any{"names": []string{"b2", "nobody"}}).want(200).is("asked", 1).is("missing.0", "nobody")
	x.as(ann, "GET", x.ws+"/jobs/b2", nil).is("properties.status", "CancelRequested")
}
