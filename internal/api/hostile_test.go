package api_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/store"
)

func clusterDoc(kv ...any) map[string]any {
	inner := map[string]any{"vmSize": "Standard_DS3_v2", "scaleSettings": map[string]any{"minNodeCount": 0, "maxNodeCount": 2}}
	for i := 0; i+1 < len(kv); i += 2 {
		inner[kv[i].(string)] = kv[i+1]
	}
	return map[string]any{"properties": map[string]any{"computeType": "AmlCompute", "properties": inner}}
}

// TestOddClusters: what is not a cluster is refused with a sentence, and leaves the one there is as
// it was.
func TestOddClusters(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/computes/c", clusterDoc()).want(201)
	for _, body := range []any{
		`{"properties":{"computeType":"AmlCompute","properties":[]}}`,
		`{"properties":{"computeType":"AmlCompute","properties":"x"}}`,
		`{"tags":{"n":{"a":1}},"properties":{"computeType":"AmlCompute"}}`,
		`{"tags":["n"],"properties":{"computeType":"AmlCompute"}}`,
		`{"tags":{"berth.jobs_per_node":5000},"properties":{"computeType":"AmlCompute"}}`,
		`{"Tags":{},"tags":{},"properties":{"computeType":"AmlCompute"}}`,
		`{"Properties":{"computeType":7},"properties":{"computeType":"AmlCompute"}}`,
		`{"propertie\u017f":{"computeType":7},"properties":{"computeType":"AmlCompute"}}`,
		`{"properties":{"computeType":"AmlCompute","computetype":"ComputeInstance"}}`,
		`{"properties":{"computeType":"AmlCompute","properties":{"vmSize":"Standard_DS3_v2","VMSize":"Standard_F72s_v2"}}}`,
	} {
		x.do("PUT", x.ws+"/computes/c", body).want(400)
		x.do("PUT", x.ws+"/computes/fresh", body).want(400)
	}
	// Nothing said about the nodes leaves them as they are.
	for _, body := range []string{`{"properties":{"computeType":"AmlCompute","properties":null}}`, `{"properties":null}`, `{}`} {
		x.do("PUT", x.ws+"/computes/c", body).want(200).is("properties.properties.vmSize", "Standard_DS3_v2").is("properties.properties.scaleSettings.maxNodeCount", 2.0)
	}
	x.do("PATCH", x.ws+"/computes/c", `{"properties":{"properties":{"scaleSettings":null}}}`)
	x.do("GET", x.ws+"/computes/c", nil).want(200).is("properties.properties.vmSize", "Standard_DS3_v2")
}

// TestWrongTypes: a value of another type than its field is called that, in words that are not a
// programming language's.
func TestWrongTypes(t *testing.T) {
	x := open(t)
	for most, want := range map[string]string{
		`99999999999999999999`: "scaleSettings.maxNodeCount cannot be the number 99999999999999999999; give a whole number",
		`"many"`:               "scaleSettings.maxNodeCount cannot be a string; give a whole number",
		`[1]`:                  "scaleSettings.maxNodeCount cannot be a list; give a whole number",
	} {
		got := x.do("PUT", x.ws+"/computes/c", `{"properties":{"computeType":"AmlCompute","properties":{"vmSize":"Standard_DS3_v2","scaleSettings":{"maxNodeCount":`+most+`}}}}`).want(400)
		if !strings.Contains(string(got.raw), want) || strings.Contains(string(got.raw), "Go ") {
			t.Errorf("%s", got.raw)
		}
	}
}

// TestIdleTimeIsShown: a cluster that was given no idle time shows the one that holds, and zero is
// zero.
func TestIdleTimeIsShown(t *testing.T) {
	x := open(t)
	const where = "properties.properties.scaleSettings.nodeIdleTimeBeforeScaleDown"
	for given, want := range map[string]string{`"maxNodeCount":2`: "PT120S", `"maxNodeCount":2,"nodeIdleTimeBeforeScaleDown":""`: "PT120S", `"maxNodeCount":2,"nodeIdleTimeBeforeScaleDown":"PT0S"`: "PT0S"} {
		body := `{"properties":{"computeType":"AmlCompute","properties":{"vmSize":"Standard_DS3_v2","scaleSettings":{` + given + `}}}}`
		x.do("PUT", x.ws+"/computes/idle", body)
		x.do("GET", x.ws+"/computes/idle", nil).want(200).is(where, want)
	}
}

// TestOddJobs: a job is read in one way only.
func TestOddJobs(t *testing.T) {
	x := open(t)
	for _, body := range []string{
		`{"properties":{"jobType":"Command","command":"true"},"propertie\u017f":5}`,
		`{"properties":{"jobType":"Command","command":"true"},"Properties":{}}`,
		`{"properties":{"jobType":"Command","command":"true","Command":"false"}}`,
		`{"properties":{"jobType":"Command","command":"true","resources":{"instanceCount":1000},"distribution":{"distributionType":"PyTorch","processCountPerInstance":1000}}}`,
	} {
		x.do("PUT", x.ws+"/jobs/j", body).want(400)
	}
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "true", "environmentVariables", map[string]any{"a": 1, "A": 2})).want(201)
}

// TestOthersInstances: nobody but its user and administrators ends an instance, and the files on
// it.
func TestOthersInstances(t *testing.T) {
	x := openBox(t)
	bob := x.token("bob", auth.User)
	for _, q := range []string{"", "?drain=true"} {
		x.as(bob, "DELETE", x.ws+"/computes/box"+q, nil).want(403).says("ann")
	}
	x.as(x.ann, "GET", x.ws+"/computes/box", nil).want(200).is("properties.properties.state", "Running")
	x.as(x.ann, "DELETE", x.ws+"/computes/box", nil).want(202)
}

// TestAllocationState: a cluster is resizing while a node comes or goes, whatever the loop had time
// to write down.
func TestAllocationState(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/computes/c", clusterDoc()).want(201).is("properties.properties.allocationState", "Steady")
	for _, s := range []struct {
		state berth.NodeState
		want  string
	}{{berth.NodePreparing, "Resizing"}, {berth.NodeIdle, "Steady"}, {berth.NodeRunning, "Steady"}, {berth.NodeLeaving, "Resizing"}} {
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			own, err := json.Marshal(berth.Node{Name: "c-1", State: s.state})
			if err != nil {
				return err
			}
			d := &store.Doc{Workspace: workspace.Key(), Kind: "nodes", Name: "c-1", Parent: "c", Own: own}
			if err := tx.Save(d); berth.CodeOf(err) != berth.NotFound {
				return err
			}
			return tx.Insert(d)
		})
		if err != nil {
			t.Fatal(err)
		}
		x.do("GET", x.ws+"/computes/c", nil).want(200).is("properties.properties.allocationState", s.want)
	}
}

// TestScriptsArePrivate: what somebody's setup scripts and applications are told is theirs.
func TestScriptsArePrivate(t *testing.T) {
	x := open(t)
	ann, bob, reader := x.token("ann", auth.User), x.token("bob", auth.User), x.token("r", auth.Reader)
	x.as(ann, "PUT", x.ws+"/computes/mine", map[string]any{"properties": map[string]any{"computeType": "ComputeInstance", "properties": map[string]any{
		"vmSize": "Standard_DS3_v2",
		"setupScripts": map[string]any{"scripts": map[string]any{
			"creationScript": map[string]any{"scriptSource": "inline", "scriptData": "aHVudGVyMg==", "scriptArguments": "--key hunter2"},
		}},
		"customServices": []any{map[string]any{
			"name": "rstudio", "image": map[string]any{"reference": "img"}, "endpoints": []any{map[string]any{"target": 80}},
			"environmentVariables": map[string]any{"PASSWORD": map[string]any{"type": "local", "value": "hunter2"}},
		}},
	}}}).want(201)
	for who, token := range map[string]string{"another user": bob, "a reader": reader} {
		for _, path := range []string{"/computes/mine", "/computes"} {
			if a := x.as(token, "GET", x.ws+path, nil).want(200); strings.Contains(string(a.raw), "hunter2") || strings.Contains(string(a.raw), "aHVudGVyMg") {
				t.Errorf("%s sees %s", who, a.raw)
			}
		}
	}
	for _, token := range []string{ann, x.admin} {
		x.as(token, "GET", x.ws+"/computes/mine", nil).want(200).is("properties.properties.setupScripts.scripts.creationScript.scriptData", "aHVudGVyMg==").
			is("properties.properties.customServices.0.environmentVariables.PASSWORD.value", "hunter2")
	}
}

// TestOpen: an address is that of JupyterLab, or of the application that was named, by its name or
// as it is shown.
func TestOpen(t *testing.T) {
	x := openBox(t)
	x.change(func(it *berth.InstanceState) {
		it.Apps = []berth.InstanceApp{
			{Name: "jupyter", Title: "Jupyter", Path: "/tree"},
			{Name: "jupyter", Title: "JupyterLab", Path: "/lab"},
			{Name: "jupyter", Title: "Terminal", Path: "/terminals/1"},
			{Name: "RStudio", Title: "RStudio", Path: "/"},
		}
	})
	for app, want := range map[string]string{"": "/jupyter/lab", "jupyter": "/jupyter/tree", "jupyterlab": "/jupyter/lab", "Terminal": "/jupyter/terminals/1", "rstudio": "/RStudio/"} {
		a := x.as(x.ann, "POST", x.ws+"/computes/box/open", map[string]any{"app": app}).want(200)
		url, _ := a.at("url").(string)
		page := x.as("", "GET", strings.TrimPrefix(url, "https://127.0.0.1:8443"), nil).want(200)
		if !strings.Contains(string(page.raw), `url=`+boxPath+want+`"`) {
			t.Errorf("%q opens %s", app, page.raw)
		}
	}
	x.as(x.ann, "POST", x.ws+"/computes/box/open", map[string]any{"app": "none"}).want(404)
}

// change changes what the loop would write.
func (x *box) change(f func(*berth.InstanceState)) {
	x.t.Helper()
	err := x.db.Update(x.t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(workspace.Key(), "computes", "box", "")
		if err != nil {
			return err
		}
		var st berth.ComputeState
		if err := json.Unmarshal(d.Own, &st); err != nil {
			return err
		}
		f(st.Instance)
		if d.Own, err = json.Marshal(st); err != nil {
			return err
		}
		return tx.Save(d)
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

// TestLogsAreFiles: what an instance put in the place of its log is not read for it.
func TestLogsAreFiles(t *testing.T) {
	x := openBox(t)
	dir := filepath.Join(devbox.Dir(x.h.(*api.Server).Instances.Dir, workspace.Key(), "box"), "log")
	secret := filepath.Join(t.TempDir(), "secret.key")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{secret: "hunter2", filepath.Join(dir, "agent.log"): "hello"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(dir, "creation.log")); err != nil {
		t.Fatal(err)
	}
	if a := x.as(x.ann, "POST", x.ws+"/computes/box/log", nil).want(200); string(a.raw) != "hello" {
		t.Errorf("%s", a.raw)
	}
	x.as(x.ann, "POST", x.ws+"/computes/box/log?name=creation", nil).want(404)
	x.as(x.ann, "POST", x.ws+"/computes/box/log?name=../agent", nil).want(400)
}

// TestDeleteWithFreshJob: a job that was just taken keeps its compute, although no loop has looked
// at it yet.
func TestDeleteWithFreshJob(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/computes/c", clusterDoc()).want(201)
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "true", "computeId", "C")).want(201)
	x.do("DELETE", x.ws+"/computes/c", nil).want(409).says("has jobs (j)")
}
