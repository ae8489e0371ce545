package api_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/space"
	"github.com/berthml/berth/internal/store"
)

// TestCleaningVersions: code, models and environments that nothing refers to are deleted with the
// files that were uploaded for them; what is young, marked, referred to, the newest of its name or
// somebody else's stays.
func TestCleaningVersions(t *testing.T) {
	x := open(t)
	ann := x.token("ann", auth.User)
	var box string
	code := func(name, file string) {
		t.Helper()
		var url string
		box, url = x.files("codes-" + file + "/src/a.py")
		x.do("PUT", x.ws+"/codes/"+name+"/versions/1", props("codeUri", strings.TrimSuffix(url, "/a.py"))).want(201)
	}
	code("alone", "00000001")
	code("running", "00000002")
	code("recent", "00000003")
	code("longago", "00000004")
	code("bypath", "00000005")
	code("tagged", "00000006")
	x.do("PATCH", x.ws+"/codes/tagged/versions/1", map[string]any{"properties": map[string]any{"tags": map[string]any{"berth.keep": "true"}}}).want(200)
	x.files("codes-00000007/src/a.py") // nothing consists of it
	for version := range 3 {
		x.do("PUT", x.ws+"/environments/env/versions/"+fmt.Sprint(version+1), props("image", "x")).want(201)
		x.do("PUT", x.ws+"/models/m/versions/"+fmt.Sprint(version+1), props("modelUri", "azureml://datastores/workspaceblobstore/paths/somewhere/m"+fmt.Sprint(version))).want(201)
	}
	refer := func(name string, status berth.JobStatus, ended time.Duration, body string) {
		t.Helper()
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			d := &store.Doc{Workspace: workspace.Key(), Kind: "jobs", Name: name, Status: string(status), CreatedBy: "root", Body: []byte(body)}
			st := berth.JobState{}
			if status.Terminal() {
				st.Times.Ended = tx.Now().Add(ended)
			}
			if err := store.SetState(d, st); err != nil {
				return err
			}
			return tx.Insert(d)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	refer("j1", berth.Running, 0, `{"properties":{"codeId":"`+x.ws+`/codes/running/versions/1","environmentId":"azureml:env:1"}}`)
	refer("j2", berth.Completed, 24*time.Hour, `{"properties":{"codeId":"`+x.ws+`/codes/recent/versions/1","inputs":{"m":{"uri":"azureml:m:2"}}}}`)
	refer("j3", berth.Completed, -24*time.Hour, `{"properties":{"codeId":"`+x.ws+`/codes/longago/versions/1"}}`)
	refer("j4", berth.Running, 0, `{"properties":{"inputs":{"d":{"uri":"azureml://datastores/workspaceblobstore/paths/codes-00000005/src"}}}}`)
	ask := map[string]any{"kinds": []string{"code", "models", "environments"}, "before": time.Now().Add(time.Hour), "dryRun": true}
	dry := x.do("POST", x.ws+"/cleanStorage", ask).want(200)
	if n := len(x.names()); dry.at("versions").(float64) != 4 || dry.at("files").(float64) != 2 || n != 7+6 { // each version has its own copy of what is not its maker's folder
		t.Errorf("a dry run: %s, %d files", dry.raw, n)
	}
	x.as(ann, "POST", x.ws+"/cleanStorage", map[string]any{"kinds": []string{"code"}, "before": time.Now().Add(time.Hour)}).want(200).is("versions", nil)
	x.do("POST", x.ws+"/cleanStorage", map[string]any{"kinds": []string{"code"}, "before": time.Now().Add(-time.Hour)}).want(200).is("versions", nil)
	ask["dryRun"] = false
	done := x.do("POST", x.ws+"/cleanStorage", ask).want(200)
	if done.at("versions").(float64) != 4 || done.at("files").(float64) != 2 {
		t.Errorf("cleaned: %s", done.raw)
	}
	for path, status := range map[string]int{
		"codes/alone/versions/1": 404, "codes/running/versions/1": 200, "codes/recent/versions/1": 200, "codes/longago/versions/1": 404, "codes/bypath/versions/1": 200,
		"codes/tagged/versions/1": 200, "environments/env/versions/1": 200, "environments/env/versions/2": 404, "environments/env/versions/3": 200,
		"models/m/versions/1": 404, "models/m/versions/2": 200, "models/m/versions/3": 200,
	} {
		if got := x.do("GET", x.ws+"/"+path, nil); got.status != status {
			t.Errorf("%s: %d %s", path, got.status, got.raw)
		}
	}
	if got := strings.Join(x.names(), " "); strings.Contains(got, "codes-00000001") || strings.Contains(got, "codes-00000004") || strings.Count(got, "codes-0000000") != 5 || len(x.names()) != 5+4 {
		t.Errorf("left in %s: %s", box, got)
	}
	for _, reason := range []string{"something refers to it", "it has the tag berth.keep", "it is the newest version"} {
		if !strings.Contains(string(done.raw), reason) {
			t.Errorf("what is kept does not say %q: %s", reason, done.raw)
		}
	}
	if err := space.Retain(t.Context(), x.db, x.blobs, locator, map[string]int{"code": 1, "models": 1}, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

// TestCleaningLeavesFilesOfOthers: whoever registers the folder of another user, or a folder that
// many users upload to, cannot have it deleted.
func TestCleaningLeavesFilesOfOthers(t *testing.T) {
	x := open(t)
	bob := x.token("bob", auth.User)
	box, _ := x.files("LocalUpload/aaaa/data/x")
	x.files("LocalUpload/bbbb/data/y")
	x.files("models-prod/hers.bin")
	before := len(x.names())
	base := "https://127.0.0.1:8443/st.blob.berth/" + box + "/"
	for i, place := range []string{base + "LocalUpload/aaaa/data", base + "models-prod", base + "LocalUpload%2F", base + "other"} {
		x.as(bob, "PUT", x.ws+"/models/m/versions/"+fmt.Sprint(i+1), props("modelUri", place)).want(201)
	}
	for _, dry := range []bool{true, false} {
		ask := map[string]any{"kinds": []string{"models"}, "before": time.Now().Add(time.Hour), "dryRun": dry}
		if a := x.as(bob, "POST", x.ws+"/cleanStorage", ask).want(200); a.at("versions") != 3.0 || a.at("files") != 0.0 {
			t.Errorf("dry %v: %s", dry, a.raw)
		}
	}
	if got := len(x.names()); got != before {
		t.Errorf("%d of %d files are left", got, before)
	}
}

// TestCleaningKeepsServed: what a deployment serves and can go back to stays, also where its
// document names something else by now, and whatever the endpoint is called.
func TestCleaningKeepsServed(t *testing.T) {
	x := open(t)
	for version := range 5 {
		x.do("PUT", x.ws+"/models/m/versions/"+fmt.Sprint(version+1), props("modelUri", "azureml://datastores/workspaceblobstore/paths/somewhere/m"+fmt.Sprint(version))).want(201)
	}
	body := func(version int) []byte { return fmt.Appendf(nil, `{"properties":{"model":"azureml:m:%d"}}`, version) }
	err := x.db.Update(t.Context(), func(tx *store.Tx) error {
		d := &store.Doc{Workspace: workspace.Key(), Kind: serve.Kind, Name: "m", Version: "3", CreatedBy: "root", Body: body(3)}
		if err := store.SetState(d, berth.DeploymentState{GoodBody: body(2), PreviousBody: body(1)}); err != nil {
			return err
		}
		return tx.Insert(d)
	})
	if err != nil {
		t.Fatal(err)
	}
	x.do("POST", x.ws+"/cleanStorage", map[string]any{"kinds": []string{"models"}, "before": time.Now().Add(time.Hour)}).want(200).is("versions", 1.)
	for version, status := range map[int]int{1: 200, 2: 200, 3: 200, 4: 404, 5: 200} {
		if got := x.do("GET", x.ws+"/models/m/versions/"+fmt.Sprint(version), nil); got.status != status {
			t.Errorf("version %d: %d %s", version, got.status, got.raw)
		}
	}
}

// TestCleaningKeepsAliased: the versions of a model with an alias in MLflow's registry stay.
func TestCleaningKeepsAliased(t *testing.T) {
	x := open(t)
	mlflow := func(call string, body map[string]any) {
		t.Helper()
		x.do("POST", "/mlflow/v1.0"+x.ws+"/api/2.0/mlflow/"+call, body, "Content-Type", "application/json").want(200)
	}
	for _, name := range []string{"m", "plain"} {
		mlflow("registered-models/create", map[string]any{"name": name})
		for range 3 {
			mlflow("model-versions/create", map[string]any{"name": name, "source": "s3://b/x"})
		}
	}
	mlflow("registered-models/alias", map[string]any{"name": "m", "alias": "champion", "version": "1"})
	x.do("POST", x.ws+"/cleanStorage", map[string]any{"kinds": []string{"models"}, "before": time.Now().Add(time.Hour)}).want(200).is("versions", 2.)
	for path, status := range map[string]int{"m/versions/1": 200, "m/versions/2": 200, "m/versions/3": 200, "plain/versions/1": 404, "plain/versions/3": 200} {
		if got := x.do("GET", x.ws+"/models/"+path, nil); got.status != status {
			t.Errorf("%s: %d %s", path, got.status, got.raw)
		}
	}
}

// TestCleaningKeepsLatest: the version that @latest means stays where newer ones are archived.
func TestCleaningKeepsLatest(t *testing.T) {
	x := open(t)
	for version := range 3 {
		x.do("PUT", x.ws+"/environments/env/versions/"+fmt.Sprint(version+1), props("image", "x")).want(201)
		x.do("PUT", x.ws+"/models/m/versions/"+fmt.Sprint(version+1), props("modelUri", "azureml://datastores/workspaceblobstore/paths/somewhere/m"+fmt.Sprint(version))).want(201)
	}
	x.do("PUT", x.ws+"/environments/env/versions/3", props("image", "x", "isArchived", true)).want(200)
	x.do("PUT", x.ws+"/models/m/versions/3", props("modelUri", "azureml://datastores/workspaceblobstore/paths/somewhere/m2", "isArchived", true)).want(200)
	x.do("POST", x.ws+"/cleanStorage", map[string]any{"kinds": []string{"models", "environments"}, "before": time.Now().Add(time.Hour)}).want(200).is("versions", 4.)
	for _, path := range []string{"environments/env", "models/m"} {
		for version, status := range map[int]int{1: 404, 2: 200, 3: 404} {
			if got := x.do("GET", x.ws+"/"+path+"/versions/"+fmt.Sprint(version), nil); got.status != status {
				t.Errorf("%s:%d: %d %s", path, version, got.status, got.raw)
			}
		}
	}
}
