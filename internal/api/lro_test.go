package api_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// The place of a result answers 202 until there is one, as scripts expect that ask it in a loop;
// the status beside it says the same in words.
func TestResultOfAnOperation(t *testing.T) {
	x := open(t)
	at := func(a answer, header string) string {
		t.Helper()
		path, ok := strings.CutPrefix(a.header.Get(header), "https://127.0.0.1:8443")
		if !ok || a.header.Get("Retry-After") != "1" {
			t.Fatalf("%v", a.header)
		}
		return path
	}
	become := func(kind, name string, status berth.JobStatus, own string) {
		t.Helper()
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get(workspace.Key(), kind, name, "")
			if err != nil {
				return err
			}
			if d.Status = string(status); own != "" {
				d.Own = []byte(own)
			}
			return tx.Save(d)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	job := x.ws + "/jobs/j"
	x.do("PUT", job, props("jobType", "Command", "command", "x")).want(201)
	asked := x.do("POST", job+"/cancel", nil).want(202)
	result, status := at(asked, "Location"), at(asked, "Azure-AsyncOperation")
	if again := at(x.do("GET", result, nil).want(202), "Location"); again != result {
		t.Errorf("the result moved from %s to %s", result, again)
	}
	x.do("GET", status, nil).want(200).is("status", "InProgress")
	become("jobs", "j", berth.Canceled, "")
	if done := x.do("GET", result, nil).want(200); len(done.raw) > 0 || done.header.Get("Location") != "" {
		t.Errorf("%s %v", done.raw, done.header)
	}
	x.do("GET", status, nil).want(200).is("status", "Succeeded")
	gone := x.do("DELETE", job, nil).want(202)
	x.do("GET", at(gone, "Location"), nil).want(200)
	x.do("GET", result, nil).want(409).is("error.code", "OperationFailed").says("no longer exists")

	cluster := map[string]any{"properties": map[string]any{"computeType": "AmlCompute", "properties": map[string]any{"vmSize": "Standard_DS3_v2"}}}
	made := at(x.do("PUT", x.ws+"/computes/cpu", cluster).want(201), "Location")
	become("computes", "cpu", "", `{"provisioningState":"Creating"}`)
	x.do("GET", made, nil).want(202)
	become("computes", "cpu", "", `{"provisioningState":"Failed","error":"no room"}`)
	x.do("GET", made, nil).want(409).says("no room")
	become("computes", "cpu", "", `{}`)
	x.do("GET", made, nil).want(200).is("name", "cpu")
	x.do("GET", strings.Replace(made, "/computes/", "/moons/", 1), nil).want(404)
}
