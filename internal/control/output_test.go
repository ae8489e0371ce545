package control_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berthml/berth"
)

// uriOf is where a version of a data asset is, empty when there is none.
func (p *fixture) uriOf(name, version string) string {
	code, b := p.do("GET", p.ws+"/data/"+name+"/versions/"+version, nil)
	var v struct {
		Properties struct {
			DataURI string `json:"dataUri"`
		} `json:"properties"`
	}
	if code == http.StatusOK && json.Unmarshal(b, &v) != nil {
		p.t.Fatalf("%s", b)
	}
	return v.Properties.DataURI
}

// TestNamedOutput ends jobs whose outputs are to become assets: one is new, one was taken
// meanwhile, one is of a job that fails, and one of a pipeline.
func TestNamedOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 4)
		named := func(version string) object {
			return object{"jobOutputType": "uri_folder", "assetName": "set", "assetVersion": version}
		}
		job := func(version string) object {
			return object{"jobType": "Command", "command": "forever ${{outputs.o}}", "outputs": object{"o": named(version)}}
		}
		for name, version := range map[string]string{"good": "1", "late": "2", "bad": "3"} {
			if why := p.offer(name, job(version)); why != "" {
				t.Fatal(why)
			}
			p.until(name, berth.Running)
		}
		taken := object{"properties": object{"dataType": "uri_folder", "dataUri": "azureml://datastores/workspaceblobstore/paths/other/"}}
		if code, b := p.do("PUT", p.ws+"/data/set/versions/2", taken); code != http.StatusCreated {
			t.Fatalf("%d %s", code, b)
		}
		p.driver.Finish(p.task("good"), berth.Exit{})
		p.driver.Finish(p.task("late"), berth.Exit{})
		p.driver.Finish(p.task("bad"), berth.Exit{Code: 1})
		p.until("good", berth.Completed)
		p.until("late", berth.Completed)
		p.until("bad", berth.Failed)
		if got := p.uriOf("set", "1"); !strings.HasSuffix(got, "/paths/azureml/good/o/") {
			t.Errorf("the output of a job that completed is %q", got)
		}
		if got := p.uriOf("set", "2"); !strings.HasSuffix(got, "/paths/other/") {
			t.Errorf("a version that was there is now %q", got)
		}
		if got := p.uriOf("set", "3"); got != "" {
			t.Errorf("a job that failed made %q", got)
		}
		warned := ""
		for _, e := range p.events("jobs/late") {
			if e.Type == berth.EventJobWarning {
				warned += e.Reason
			}
		}
		if !strings.Contains(warned, "output o did not become an asset") || !strings.Contains(warned, "paths/azureml/late/o/") {
			t.Errorf("warned: %q", warned)
		}
		if why := p.offer("again", job("1")); !strings.Contains(why, "set:1 already exists") {
			t.Errorf("a version that is there: %q", why)
		}

		chain := p.chain()
		chain["outputs"] = object{"all": named("")}
		if why := p.offer("pipe", chain); why != "" {
			t.Fatal(why)
		}
		for _, step := range []string{"pipe_a", "pipe_b"} {
			p.until(step, berth.Running)
			p.driver.Finish(p.task(step), berth.Exit{})
		}
		p.until("pipe", berth.Completed)
		if got := p.uriOf("set", "3"); !strings.HasSuffix(got, "/paths/azureml/pipe/all/") {
			t.Errorf("the output of a pipeline is %q", got)
		}
		if got := p.uriOf("set", "4"); got != "" {
			t.Errorf("and again %q", got)
		}
	})
}
