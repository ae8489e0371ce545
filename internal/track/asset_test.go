package track_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// model is what the document of a version of a model says, nil when there is none.
func (s *server) model(name, version string) obj {
	s.t.Helper()
	var props obj
	err := s.db.View(s.t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(s.ws.Key, "models/versions", name, version)
		if berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		var v struct{ Properties obj }
		err = json.Unmarshal(d.Body, &v)
		props = v.Properties
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return props
}

// change does what the API does to a model, with the event that it emits.
func (s *server) change(name, version string, fn func(tx *store.Tx) error) {
	s.t.Helper()
	err := s.db.Update(s.t.Context(), func(tx *store.Tx) error {
		tx.Emit(berth.Event{Workspace: s.ws.Key, Subject: "models/" + name + "/versions/" + version, Type: berth.EventResourcePut})
		return fn(tx)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) makeModel(name, version, uri string) {
	s.t.Helper()
	s.change(name, version, func(tx *store.Tx) error {
		_, err := asset.Create(tx, asset.Version{
			Workspace: s.ws.Key, Collection: "models", Name: name, Version: version, User: "ann",
			Properties: map[string]any{"modelUri": uri, "description": "by hand", "tags": map[string]any{"a": "b"}},
		})
		return err
	})
}

// TestRegisteredIsModel: what MLflow registers is a model of the workspace, with what changes of
// it, until it is deleted.
func TestRegisteredIsModel(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	s.must("POST", "registered-models/create", obj{"name": "M"})
	s.must("POST", "model-versions/create", obj{"name": "M", "source": "mlflow-artifacts:/0/" + run + "/artifacts/model", "run_id": run, "description": "first"})
	if m := s.model("M", "1"); m["modelUri"] != "azureml://datastores/workspaceartifactstore/paths/ExperimentRun/dcid."+run+"/model" ||
		m["description"] != "first" || m["modelType"] != "mlflow_model" {
		t.Errorf("the model is %v", m)
	}
	s.must("PATCH", "model-versions/update", obj{"name": "M", "version": "1", "description": "second"})
	s.must("POST", "model-versions/set-tag", obj{"name": "M", "version": "1", "key": "k", "value": "v"})
	if m := s.model("M", "1"); m["description"] != "second" || at(m, "tags", "k") != "v" {
		t.Errorf("after a change the model is %v", m)
	}
	s.must("POST", "registered-models/rename", obj{"name": "M", "new_name": "N"})
	if old, now := s.model("M", "1"), s.model("N", "1"); old != nil || at(now, "tags", "k") != "v" {
		t.Errorf("after it was renamed the model is %v and %v", old, now)
	}
	s.must("POST", "model-versions/create", obj{"name": "N", "source": "s3://bucket/x"})
	if m := s.model("N", "2"); m["modelUri"] != "s3://bucket/x" {
		t.Errorf("the model is %v", m)
	}
	s.must("DELETE", "model-versions/delete", obj{"name": "N", "version": "1"})
	s.must("DELETE", "registered-models/delete", obj{"name": "N"})
	if one, two := s.model("N", "1"), s.model("N", "2"); one != nil || two != nil {
		t.Errorf("deleted models are there: %v %v", one, two)
	}
	// Names that no model of the workspace can have are MLflow's alone.
	s.must("POST", "registered-models/create", obj{"name": "a name, with blanks"})
	s.must("POST", "model-versions/create", obj{"name": "a name, with blanks", "source": "s3://bucket/x"})
}

// TestModelIsRegistered: a model of the workspace is a registered one, with its files, its changes
// and its end.
func TestModelIsRegistered(t *testing.T) {
	s := start(t, t.TempDir())
	err := s.db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.Insert(&store.Doc{Workspace: s.ws.Key, Kind: "datastores", Name: "workspaceblobstore", Body: []byte(`{}`), Own: []byte(`{"container":"artifacts"}`)})
	})
	if err != nil {
		t.Fatal(err)
	}
	if code, _, out := s.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/up/model.bin", "", "bytes"); code != 200 { // below mlflow/
		t.Fatalf("%d %s", code, out)
	}
	s.must("POST", "registered-models/create", obj{"name": "both"})
	s.must("POST", "model-versions/create", obj{"name": "both", "source": "s3://bucket/x"})
	s.makeModel("mine", "1", "azureml://datastores/workspaceblobstore/paths/mlflow/up")
	s.makeModel("mine", "beta", "azureml://datastores/workspaceblobstore/paths/mlflow/up")
	s.makeModel("both", "5", "s3://bucket/y")
	for range 2 { // and again when the server was started again
		v := s.must("GET", "model-versions/get?name=mine&version=1", nil)
		if at(v, "model_version", "description") != "by hand" || at(v, "model_version", "tags", 0, "value") != "b" || at(v, "model_version", "user_id") != "ann" {
			t.Errorf("the version is %v", v)
		}
		all := s.must("GET", "model-versions/search?filter=name%3D%27mine%27", nil)
		if n := len(all["model_versions"].([]any)); n != 1 {
			t.Errorf("there are %d versions", n)
		}
		uri := s.must("GET", "model-versions/get-download-uri?name=mine&version=1", nil)["artifact_uri"]
		if uri != "mlflow-artifacts:/azureml-models/mine/1" {
			t.Errorf("the files are at %v", uri)
		}
		const files = "/api/2.0/mlflow-artifacts/artifacts"
		if l := s.must("GET", files+"?path=azureml-models/mine/1", nil); at(l, "files", 0, "path") != "model.bin" {
			t.Errorf("the files are %v", l)
		}
		if code, _, out := s.raw("GET", files+"/azureml-models/mine/1/model.bin", "", ""); code != 200 || out != "bytes" {
			t.Errorf("the file is %d %q", code, out)
		}
		if code, _, _ := s.raw("PUT", files+"/azureml-models/mine/1/model.bin", "", "other"); code != 403 {
			t.Errorf("the file of a model was changed: %d", code)
		}
		if code, _, _ := s.raw("DELETE", files+"/azureml-models/mine/1/model.bin", "", ""); code != 403 {
			t.Errorf("the file of a model was deleted: %d", code)
		}
		s.stop()
		s = start(t, s.dir)
	}
	s.want(400, "POST", "registered-models/create", obj{"name": "mine"})
	// Both count on from the highest number.
	if v := s.must("POST", "model-versions/create", obj{"name": "both", "source": "s3://bucket/z"}); at(v, "model_version", "version") != "6" {
		t.Errorf("the next version is %v", v)
	}
	s.change("mine", "1", func(tx *store.Tx) error {
		d, err := tx.Get(s.ws.Key, "models/versions", "mine", "1")
		if err != nil {
			return err
		}
		d.Body = []byte(`{"properties": {"modelUri": "x", "description": "changed"}}`)
		return tx.Save(d)
	})
	if v := s.must("GET", "model-versions/get?name=mine&version=1", nil); at(v, "model_version", "description") != "changed" || at(v, "model_version", "tags") != nil {
		t.Errorf("after a change the version is %v", v)
	}
	s.must("POST", "registered-models/alias", obj{"name": "mine", "alias": "best", "version": "1"})
	s.change("mine", "1", func(tx *store.Tx) error { return tx.Delete(s.ws.Key, "models/versions", "mine", "1") })
	s.want(404, "GET", "model-versions/get?name=mine&version=1", nil)
	s.want(400, "GET", "registered-models/alias?name=mine&alias=best", nil)
	if v := s.must("POST", "model-versions/create", obj{"name": "mine", "source": "s3://bucket/z"}); at(v, "model_version", "version") != "2" {
		t.Errorf("the next version is %v", v)
	}
}

// TestRegisteredOfOthersStays: a version that MLflow registered is ended and renamed by its maker
// or an administrator only, its files stay as they are until then, and who made it is remembered.
func TestRegisteredOfOthersStays(t *testing.T) {
	s := start(t, t.TempDir())
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	admin := s.as(track.Caller{User: "root", Write: true, Admin: true})
	run := ann.newRun("0", nil)
	files := "/api/2.0/mlflow-artifacts/artifacts/0/" + run + "/artifacts/model/MLmodel"
	put := func(who *server, status int, content string) {
		t.Helper()
		if code, _, out := who.raw("PUT", files, "", content); code != status {
			t.Errorf("%q: %d %s, want %d", content, code, out, status)
		}
	}
	put(ann, 200, "first")
	register := func(name string) {
		t.Helper()
		ann.must("POST", "model-versions/create", obj{"name": name, "source": "mlflow-artifacts:/0/" + run + "/artifacts/model", "run_id": run})
	}
	ann.must("POST", "registered-models/create", obj{"name": "M"})
	register("M")
	put(bob, 400, "other")
	put(ann, 400, "other")
	put(bob, 200, "first")
	if code, _, _ := bob.raw("DELETE", files, "", ""); code != 400 {
		t.Errorf("the file of a registered version was deleted: %d", code)
	}
	bob.want(403, "DELETE", "model-versions/delete", obj{"name": "M", "version": "1"})
	bob.want(403, "DELETE", "registered-models/delete", obj{"name": "M"})
	bob.want(403, "POST", "registered-models/rename", obj{"name": "M", "new_name": "N"})
	if s.model("M", "1") == nil {
		t.Error("the model is gone")
	}
	ann.want(200, "DELETE", "model-versions/delete", obj{"name": "M", "version": "1"})
	put(bob, 200, "other")
	put(ann, 200, "second")
	err := s.db.View(t.Context(), func(tx *store.Tx) error {
		maker, was, err := asset.Deleted(tx, s.ws.Key, "models", "M", "1")
		if maker != "ann" || !was {
			t.Errorf("the version was made by %q: %v", maker, was)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	register("M")
	admin.want(200, "POST", "registered-models/rename", obj{"name": "M", "new_name": "N"})
	admin.want(200, "POST", "registered-models/rename", obj{"name": "N", "new_name": "M"})
	put(bob, 400, "again")
	admin.want(200, "DELETE", "registered-models/delete", obj{"name": "M"})
	put(bob, 200, "again")
}

// TestModelComesBackAsItWas: a change through MLflow leaves the rest of a client's document as it
// was sent.
func TestModelComesBackAsItWas(t *testing.T) {
	s := start(t, t.TempDir())
	const body = `{"properties":{"zebra":12345678901234567890,"modelUri":"s3://bucket/x","apple":{"y":1,"b":2},"description":"old"}}`
	s.makeModel("mine", "1", "s3://bucket/x")
	s.change("mine", "1", func(tx *store.Tx) error {
		d, err := tx.Get(s.ws.Key, "models/versions", "mine", "1")
		if err != nil {
			return err
		}
		d.Body = []byte(body)
		return tx.Save(d)
	})
	s.must("PATCH", "model-versions/update", obj{"name": "mine", "version": "1", "description": "new"})
	var got string
	err := s.db.View(t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(s.ws.Key, "models/versions", "mine", "1")
		if err == nil {
			got = string(d.Body)
		}
		return err
	})
	want := `{"properties":{"zebra":12345678901234567890,"modelUri":"s3://bucket/x","apple":{"y":1,"b":2},"description":"new","tags":{}}}`
	if err != nil || got != want {
		t.Errorf("the document is %s, %v; want %s", got, err, want)
	}
}

// addDatastores makes the workspace's own datastores.
func (s *server) addDatastores() {
	s.t.Helper()
	err := s.db.Update(s.t.Context(), func(tx *store.Tx) error {
		for name, container := range map[string]string{"workspaceblobstore": "blobs", "workspaceartifactstore": "artifacts"} {
			d := &store.Doc{Workspace: s.ws.Key, Kind: "datastores", Name: name, Body: []byte(`{}`), Own: []byte(`{"container":"` + container + `"}`)}
			if err := tx.Insert(d); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// write writes a blob as a user does who uploads it to a datastore.
func (s *server) write(user, container, name, content string) error {
	s.t.Helper()
	_, err := s.blobs.Put(blob.WithUser(s.t.Context(), user), container, name, strings.NewReader(content), blob.PutOptions{})
	return err
}

// TestDatastoreOfVersionIsHeld: the files of a version that MLflow registers by a path of a
// datastore stay as they are, as those of a version that is made otherwise, until it is deleted.
func TestDatastoreOfVersionIsHeld(t *testing.T) {
	s := start(t, t.TempDir())
	s.addDatastores()
	bob := s.as(track.Caller{User: "bob", Write: true})
	put := func(content string, want berth.Code) {
		t.Helper()
		if err := s.write("bob", "blobs", "bobdir/model/MLmodel", content); berth.CodeOf(err) != want {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
	put("first", "")
	for _, m := range []string{"azm", "a name, with blanks", "copy"} {
		bob.must("POST", "registered-models/create", obj{"name": m})
		source := "azureml://datastores/workspaceblobstore/paths/bobdir/model"
		if m == "copy" {
			source = "models:/azm/1"
		}
		bob.must("POST", "model-versions/create", obj{"name": m, "source": source})
		if v := bob.must("GET", "model-versions/get?name="+url.QueryEscape(m)+"&version=1", nil); at(v, "model_version", "source") != source {
			t.Errorf("the version is %v", v)
		}
	}
	bob.must("POST", "registered-models/rename", obj{"name": "azm", "new_name": "azn"})
	for _, m := range []string{"azn", "a name, with blanks", "copy"} {
		put("second", berth.Conflict)
		bob.must("DELETE", "model-versions/delete", obj{"name": m, "version": "1"})
	}
	put("second", "")
	// What leads elsewhere is the client's business.
	bob.must("POST", "registered-models/create", obj{"name": "far"})
	for _, uri := range []string{"datastores/none/paths/x", "subscriptions/a/resourcegroups/b/workspaces/c/datastores/d/paths/e", "jobs/none/outputs/o", "registries/r/models/m/versions/1"} {
		bob.must("POST", "model-versions/create", obj{"name": "far", "source": "azureml://" + uri})
	}
}

// TestJobRegistersByDatastore: also by a path of a datastore a job registers what it may read, and
// nothing else.
func TestJobRegistersByDatastore(t *testing.T) {
	s := start(t, t.TempDir())
	s.addDatastores()
	s.addJob("regjob", "ann", "theirs")
	job := s.as(s.addJob("train", "bob", "mine"))
	exp := at(job.must("GET", "runs/get?run_id=train", nil), "run", "info", "experiment_id").(string)
	own := at(job.must("POST", "logged-models", obj{"experiment_id": exp, "name": "own"}), "model", "info", "model_id").(string)
	job.must("POST", "registered-models/create", obj{"name": "m"})
	for source, want := range map[string]int{
		"datastores/workspaceartifactstore/paths/ExperimentRun/dcid.train/f":              200,
		"datastores/workspaceartifactstore/paths/mlflow/" + exp + "/models/" + own + "/f": 200,
		"datastores/workspaceblobstore/paths/azureml/train/out":                           200,
		"jobs/train/outputs/artifacts/paths/f":                                            200,
		"datastores/workspaceartifactstore/paths/ExperimentRun/dcid.regjob/outputs":       403,
		"Datastores/WorkspaceArtifactStore/Paths/ExperimentRun/dcid.regjob/outputs":       403,
		"jobs/regjob/outputs/artifacts/paths/outputs":                                     403,
		"jobs/none/outputs/artifacts":                                                     403,
		"datastores/none/paths/x":                                                         403,
		"datastores/workspaceartifactstore/paths/":                                        403,
		"datastores/workspaceartifactstore/paths/ExperimentRun":                           403,
		"datastores/workspaceartifactstore/paths/mlflow/" + exp:                           403,
		"datastores/workspaceblobstore/paths/azureml":                                     403,
		"datastores/workspaceblobstore/paths/azureml/regjob/out":                          403,
		"datastores/workspaceblobstore/paths/bobdir/model":                                403,
	} {
		job.want(want, "POST", "model-versions/create", obj{"name": "m", "source": "azureml://" + source})
	}
	// A version that somebody registered is open to all jobs.
	ann := s.as(track.Caller{User: "ann", Write: true})
	ann.must("POST", "registered-models/create", obj{"name": "anns"})
	ann.must("POST", "model-versions/create", obj{"name": "anns", "source": "azureml://datastores/workspaceartifactstore/paths/ExperimentRun/dcid.regjob/outputs"})
	job.must("POST", "model-versions/create", obj{"name": "m", "source": "models:/anns/1"})
}

// TestVersionIsNotAboveModels: a version would keep every logged model that there is, or comes,
// below its folder.
func TestVersionIsNotAboveModels(t *testing.T) {
	s := start(t, t.TempDir())
	s.addDatastores()
	own := s.must("POST", "experiments/create", obj{"name": "own", "artifact_location": "mlflow-artifacts:/shelf"})["experiment_id"].(string)
	s.must("POST", "registered-models/create", obj{"name": "m"})
	run := s.newRun(own, nil)
	model := at(s.must("POST", "logged-models", obj{"experiment_id": own, "name": "lm"}), "model", "info", "model_id").(string)
	create := func(want int, source string) {
		t.Helper()
		s.want(want, "POST", "model-versions/create", obj{"name": "m", "source": source})
	}
	const store = "azureml://datastores/workspaceartifactstore/paths/"
	for _, p := range []string{"", "0", "0/models", "77", "77/models", "shelf", "shelf/models", "shelf/" + run} {
		create(400, "mlflow-artifacts:/"+p)
		create(400, store+"mlflow/"+p)
	}
	for _, p := range []string{"", "ExperimentRun"} {
		create(400, store+p)
	}
	create(400, "azureml://datastores/workspaceblobstore/paths/")
	create(400, "azureml://datastores/workspaceblobstore/paths/azureml")
	for _, p := range []string{"0/x", "other", "other/models", "shelf/models/" + model, "shelf/models/" + model + "/artifacts", "shelf/" + run + "/artifacts"} {
		create(200, "mlflow-artifacts:/"+p)
	}
	for _, p := range []string{"mlflow/other", "mlflow/shelf/models/" + model, "ExperimentRun/dcid." + run} {
		create(200, store+p)
	}
	create(200, "azureml://datastores/workspaceblobstore/paths/azureml/x")
}
