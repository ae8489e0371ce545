package track_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// addJob makes a job of a user in an experiment, and returns the caller that its token stands for.
func (s *server) addJob(name, user, experiment string) track.Caller {
	s.t.Helper()
	d := &store.Doc{
		Workspace: s.ws.Key, Kind: "jobs", Name: name, CreatedBy: user, Status: "Running",
		Body: []byte(`{"properties": {"experimentName": "` + experiment + `"}}`), Own: []byte(`{}`),
	}
	err := s.db.Update(s.t.Context(), func(tx *store.Tx) error { return tx.Insert(d) })
	if err != nil {
		s.t.Fatal(err)
	}
	return track.Caller{User: user, Write: true, Job: name, JobID: d.ID}
}

// endJob gives a job its last status.
func (s *server) endJob(name, status string) {
	s.t.Helper()
	err := s.db.Update(s.t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(s.ws.Key, "jobs", name, "")
		if err != nil {
			return err
		}
		d.Status = status
		return tx.Save(d)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// as is the same server asked by somebody else.
func (s *server) as(who track.Caller) *server {
	other := *s
	other.who = who
	return &other
}

// want calls the API and wants it to answer with a status.
func (s *server) want(status int, method, path string, body any) obj {
	s.t.Helper()
	code, m := s.do(method, path, body)
	if code != status {
		s.t.Errorf("%s %s %v: %d %v, want %d", method, path, body, code, m, status)
	}
	return m
}

// TestJobRegisters: a job adds versions to every model, of what it may read itself. What a model
// says and where its aliases point, it changes where the model is its user's.
func TestJobRegisters(t *testing.T) {
	s := start(t, t.TempDir())
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	job, other := s.as(s.addJob("train", "ann", "mine")), s.as(s.addJob("other", "bob", "theirs"))

	exp := at(job.must("GET", "experiments/get-by-name?experiment_name=mine", nil), "experiment", "experiment_id").(string)
	theirs := at(other.must("GET", "experiments/get-by-name?experiment_name=theirs", nil), "experiment", "experiment_id").(string)
	own := at(job.must("POST", "logged-models", obj{"experiment_id": exp, "name": "own", "source_run_id": "train"}), "model", "info", "model_id").(string)
	secret := at(other.must("POST", "logged-models", obj{"experiment_id": theirs, "name": "secret"}), "model", "info", "model_id").(string)
	put := func(s *server, path string) {
		t.Helper()
		if code, _, out := s.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/"+path, "", "bytes"); code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, out)
		}
	}
	put(other, theirs+"/other/artifacts/model/MLmodel")
	put(job, exp+"/train/artifacts/model/MLmodel")
	put(other, theirs+"/models/"+secret+"/artifacts/MLmodel")
	ann.must("POST", "registered-models/create", obj{"name": "anns"})
	bob.must("POST", "registered-models/create", obj{"name": "bobs"})
	bob.must("POST", "model-versions/create", obj{"name": "bobs", "source": "mlflow-artifacts:/" + theirs + "/other/artifacts/model"})

	// Versions of what the job may read, of whosever model.
	for _, model := range []string{"anns", "bobs"} {
		for _, source := range []string{"models:/" + own, "models:/bobs/1", "mlflow-artifacts:/" + exp + "/train/artifacts/model", "s3://bucket/model"} {
			job.want(200, "POST", "model-versions/create", obj{"name": model, "source": source})
		}
	}
	// Not of what it may not.
	for _, body := range []obj{
		{"source": "models:/" + secret},
		{"source": "s3://bucket/model", "model_id": secret},
		{"source": "mlflow-artifacts:/" + theirs + "/models/" + secret + "/artifacts"},
		{"source": "mlflow-artifacts:/" + theirs + "/other/artifacts"},
		{"source": "http://h/api/2.0/mlflow-artifacts/artifacts/" + theirs + "/other/artifacts"},
		{"source": "mlflow-artifacts:/" + theirs},
		{"source": "mlflow-artifacts:/"},
	} {
		body["name"] = "anns"
		job.want(403, "POST", "model-versions/create", body)
	}
	if m := bob.must("GET", "logged-models/"+secret, nil); at(m, "model", "info", "tags") != nil {
		t.Errorf("the model of another's experiment was changed: %v", m)
	}

	change := func(model, version string, status int) {
		t.Helper()
		job.want(status, "POST", "registered-models/alias", obj{"name": model, "alias": "champion", "version": version})
		job.want(status, "PATCH", "registered-models/update", obj{"name": model, "description": "by the job"})
		job.want(status, "POST", "registered-models/set-tag", obj{"name": model, "key": "k", "value": "v"})
	}
	change("anns", "1", 200)
	change("bobs", "1", 403)
	changeVersion := func(model, version string, status int) {
		t.Helper()
		job.want(status, "PATCH", "model-versions/update", obj{"name": model, "version": version, "description": "by the job"})
		job.want(status, "POST", "model-versions/set-tag", obj{"name": model, "version": version, "key": "k", "value": "v"})
	}
	changeVersion("anns", "1", 200) // its user's model
	changeVersion("bobs", "2", 200) // its own version of another's
	changeVersion("bobs", "1", 403)
	job.want(200, "POST", "registered-models/create", obj{"name": "new"})
	job.want(200, "POST", "registered-models/set-tag", obj{"name": "new", "key": "k", "value": "v"})

	// Registered files are there to be loaded, by every job; the rest of their run is not.
	read := func(path string) int {
		code, _, _ := job.raw("GET", "/api/2.0/mlflow-artifacts/artifacts/"+path, "", "")
		return code
	}
	if code := read(theirs + "/other/artifacts/model/MLmodel"); code != http.StatusOK {
		t.Errorf("a registered model cannot be loaded: %d", code)
	}
	put(other, theirs+"/other/artifacts/model2/MLmodel")
	for _, path := range []string{theirs + "/other/artifacts/model2/MLmodel", theirs + "/models/" + secret + "/artifacts/MLmodel"} {
		if code := read(path); code != http.StatusForbidden {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// TestImportLeavesOthersAlone: what began here, or was brought over by somebody else, is not
// imported over, whatever tags it was given.
func TestImportLeavesOthersAlone(t *testing.T) {
	s := start(t, t.TempDir())
	ann, bob, root := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true}), s.as(track.Caller{User: "root", Write: true, Admin: true})
	run := at(ann.must("POST", "runs/create", obj{"experiment_id": "0"}), "run", "info", "run_id").(string)
	ann.must("POST", "runs/log-parameter", obj{"run_id": run, "key": "lr", "value": "1"})
	bring := func(id, value string) obj {
		return obj{"run_id": id, "experiment_id": "0", "status": "FINISHED", "from": "http://x", "params": []obj{{"key": "lr", "value": value}}}
	}
	const path = "/api/2.0/berth/import/run"
	post := func(s *server, id, value string, want int) {
		t.Helper()
		text, err := json.Marshal(bring(id, value))
		if err != nil {
			t.Fatal(err)
		}
		if code, _, out := s.raw("POST", path, "application/json", string(text)); code != want {
			t.Errorf("%s imports %s: %d %s", s.who.User, id, code, out)
		}
	}
	bob.must("POST", "runs/set-tag", obj{"run_id": run, "key": "berth.imported_from", "value": "http://x"})
	post(bob, run, "2", http.StatusBadRequest)
	const brought = "0123456789abcdef0123456789abcdef"
	post(ann, brought, "1", http.StatusOK)
	post(ann, brought, "1", http.StatusOK)
	ann.must("POST", "runs/set-tag", obj{"run_id": brought, "key": "mine", "value": "kept"})
	post(ann, brought, "1", http.StatusOK)
	tags := map[any]any{}
	for _, tag := range at(ann.must("GET", "runs/get?run_id="+brought, nil), "run", "data", "tags").([]any) {
		tags[at(tag, "key")] = at(tag, "value")
	}
	if tags["mine"] != "kept" {
		t.Errorf("another import left the tags %v", tags)
	}
	post(bob, brought, "2", http.StatusBadRequest)
	post(root, brought, "3", http.StatusOK)
	for id, want := range map[string]string{run: "1", brought: "3"} {
		params, _ := at(ann.must("GET", "runs/get?run_id="+id, nil), "run", "data", "params").([]any)
		if len(params) != 1 || at(params[0], "value") != want {
			t.Errorf("parameters of %s: %v, want lr=%s", id, params, want)
		}
	}
}

// TestJobAndVersionsOfRuns: what is registered as runs:/ID/PATH is as open to jobs as what is
// registered by the address of its files, and no job registers what it may not read.
func TestJobAndVersionsOfRuns(t *testing.T) {
	s := start(t, t.TempDir())
	job, other := s.as(s.addJob("train", "ann", "mine")), s.as(s.addJob("other", "bob", "theirs"))
	job.must("GET", "runs/get?run_id=train", nil)
	theirs := at(other.must("GET", "runs/get?run_id=other", nil), "run", "info", "experiment_id").(string)
	file := "/api/2.0/mlflow-artifacts/artifacts/" + theirs + "/other/artifacts/"
	for _, p := range []string{"f/a.txt", "secret.txt"} {
		if code, _, out := other.raw("PUT", file+p, "", "bytes"); code != http.StatusOK {
			t.Fatalf("%d %s", code, out)
		}
	}
	job.must("POST", "registered-models/create", obj{"name": "m"})
	for _, source := range []string{"runs:/other/f", "runs:/other", "runs:/none/f"} {
		job.want(http.StatusForbidden, "POST", "model-versions/create", obj{"name": "m", "source": source})
	}
	job.must("POST", "model-versions/create", obj{"name": "m", "source": "runs:/train/f"})
	if code, _, out := job.raw("GET", file+"f/a.txt", "", ""); code != http.StatusForbidden {
		t.Errorf("before it is registered: %d %s", code, out)
	}
	s.as(track.Caller{User: "bob", Write: true}).must("POST", "model-versions/create", obj{"name": "m", "source": "runs:/other/f"})
	if code, _, out := job.raw("GET", file+"f/a.txt", "", ""); code != http.StatusOK {
		t.Errorf("a registered version: %d %s", code, out)
	}
	if code, _, out := job.raw("GET", file+"secret.txt", "", ""); code != http.StatusForbidden {
		t.Errorf("beside a registered version: %d %s", code, out)
	}
}

// TestJobRegistersModelOfItsExperiment: a job registers models of its experiment that it did not
// make, and writes nothing to them.
func TestJobRegistersModelOfItsExperiment(t *testing.T) {
	s := start(t, t.TempDir())
	ann, job, other := s.as(track.Caller{User: "ann", Write: true}), s.as(s.addJob("train", "bob", "shared")), s.as(s.addJob("other", "ann", "shared"))
	exp := at(job.must("GET", "experiments/get-by-name?experiment_name=shared", nil), "experiment", "experiment_id").(string)
	job.must("POST", "registered-models/create", obj{"name": "m"})
	for maker, tagged := range map[*server]bool{ann: false, other: false, job: true} {
		model := at(maker.must("POST", "logged-models", obj{"experiment_id": exp, "name": "m"}), "model", "info", "model_id").(string)
		job.must("POST", "model-versions/create", obj{"name": "m", "source": "models:/" + model})
		job.must("POST", "model-versions/create", obj{"name": "m", "source": "s3://bucket/m", "model_id": model})
		if m := ann.must("GET", "logged-models/"+model, nil); at(m, "model", "info", "tags") != nil != tagged {
			t.Errorf("a model of %s has the tags %v", maker.who.User, at(m, "model", "info", "tags"))
		}
		ann.must("POST", "model-versions/create", obj{"name": "m", "source": "models:/" + model})
		if m := ann.must("GET", "logged-models/"+model, nil); at(m, "model", "info", "tags") == nil {
			t.Error("a version that a user makes is not noted in its model")
		}
	}
}

// TestJobNamedLikeTheBeginningOfAnother: a version of a run opens that run alone, and not those
// whose names continue its own, nor what lies beside it.
func TestJobNamedLikeTheBeginningOfAnother(t *testing.T) {
	s := start(t, t.TempDir())
	ann, job := s.as(s.addJob("train", "ann", "theirs")), s.as(s.addJob("train2", "bob", "mine"))
	theirs := at(ann.must("GET", "runs/get?run_id=train", nil), "run", "info", "experiment_id").(string)
	mine := at(job.must("GET", "runs/get?run_id=train2", nil), "run", "info", "experiment_id").(string)
	const files = "/api/2.0/mlflow-artifacts/artifacts/"
	ann.wantRaw(http.StatusOK, "PUT", files+theirs+"/train/artifacts/secret.txt")
	job.wantRaw(http.StatusOK, "PUT", files+mine+"/train2/artifacts/f/a.txt")
	job.must("POST", "registered-models/create", obj{"name": "m"})
	for _, source := range []string{"runs:/train2", "runs:/train2/f", "mlflow-artifacts:/x/train2/artifacts", "mlflow-artifacts:/" + mine + "/train2/artifacts"} {
		job.must("POST", "model-versions/create", obj{"name": "m", "source": source})
	}
	for _, first := range []string{theirs, mine, "x", "train", "train2"} {
		job.wantRaw(http.StatusForbidden, "GET", files+first+"/train/artifacts/secret.txt")
		job.wantRaw(http.StatusForbidden, "GET", files+"?path="+first+"/train/artifacts")
		ann.wantRaw(http.StatusOK, "GET", files+first+"/train2/artifacts/f/a.txt")
	}
}

// TestSourceNamesOneRun: a version of runs:/ names one run and a path in it. One that names none,
// or leads elsewhere, would be above the files of others.
func TestSourceNamesOneRun(t *testing.T) {
	s := start(t, t.TempDir())
	job, other := s.as(s.addJob("train", "ann", "mine")), s.as(s.addJob("other", "bob", "theirs"))
	job.must("GET", "runs/get?run_id=train", nil)
	theirs := at(other.must("GET", "runs/get?run_id=other", nil), "run", "info", "experiment_id").(string)
	file := "/api/2.0/mlflow-artifacts/artifacts/" + theirs + "/other/artifacts/a.txt"
	if code, _, out := other.raw("PUT", file, "", "bytes"); code != http.StatusOK {
		t.Fatalf("%d %s", code, out)
	}
	s.must("POST", "registered-models/create", obj{"name": "m"})
	prompt := []obj{{"key": "mlflow.prompt.is_prompt", "value": "true"}}
	for _, source := range []string{"runs:/", "runs://", "runs:///", "runs:/.", "runs:/..", "runs:/../other", "runs:/train/../other", "runs:/./other", "runs:/train/..", "runs:/train/%2e%2e/other"} {
		for _, tags := range [][]obj{nil, prompt} {
			s.want(http.StatusBadRequest, "POST", "model-versions/create", obj{"name": "m", "source": source, "tags": tags})
		}
	}
	if code, _, out := job.raw("GET", file, "", ""); code != http.StatusForbidden {
		t.Errorf("a job reads a file of another: %d %s", code, out)
	}
	s.must("POST", "model-versions/create", obj{"name": "m", "source": "runs:/train/model"})
}

// TestRunsOfAJob: a run that a job makes beside its own names the job, whatever the job says; those
// of people name none.
func TestRunsOfAJob(t *testing.T) {
	s := start(t, t.TempDir())
	job, ann := s.as(s.addJob("train", "ann", "mine")), s.as(track.Caller{User: "ann", Write: true})
	exp := at(job.must("GET", "experiments/get-by-name?experiment_name=mine", nil), "experiment", "experiment_id").(string)
	second := at(job.must("POST", "runs/create", obj{"experiment_id": exp, "tags": []obj{{"key": "berth.job", "value": "another"}}}), "run", "info", "run_id")
	ann.must("POST", "runs/create", obj{"experiment_id": exp})
	found := ann.must("POST", "runs/search", obj{"experiment_ids": []string{exp}, "filter": "tags.berth.job = 'train'"})
	if at(found, "runs", 0, "info", "run_id") != second || at(found, "runs", 1) != nil {
		t.Errorf("got %v, want %v", found, second)
	}
}

// TestFilesOfOthersStay: what somebody registers of another one's job, run or logged model that is
// over stays as it is, also for its maker; a run goes on while it is under way.
func TestFilesOfOthersStay(t *testing.T) {
	s := start(t, t.TempDir())
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	job := s.as(s.addJob("train", "ann", "mine"))
	exp := at(job.must("GET", "experiments/get-by-name?experiment_name=mine", nil), "experiment", "experiment_id").(string)
	over := at(ann.must("POST", "runs/create", obj{"experiment_id": exp}), "run", "info", "run_id").(string)
	goes := at(ann.must("POST", "runs/create", obj{"experiment_id": exp}), "run", "info", "run_id").(string)
	model := at(ann.must("POST", "logged-models", obj{"experiment_id": exp, "name": "m", "source_run_id": over}), "model", "info", "model_id").(string)
	put := func(who *server, path, text string) int {
		t.Helper()
		code, _, _ := who.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/"+path, "", text)
		return code
	}
	places := map[string]string{
		"job": exp + "/train/artifacts/model", "over": exp + "/" + over + "/artifacts/model", "goes": exp + "/" + goes + "/artifacts/model",
		"logged": exp + "/models/" + model + "/artifacts",
	}
	sources := map[string]string{"logged": "models:/" + model}
	for name, path := range places {
		if code := put(ann, path+"/MLmodel", "one"); code != http.StatusOK {
			t.Fatalf("%s: %d", name, code)
		}
	}
	ann.must("POST", "runs/update", obj{"run_id": over, "status": "FINISHED"})
	ann.must("PATCH", "logged-models/"+model, obj{"model_id": model, "status": "LOGGED_MODEL_READY"})
	s.endJob("train", "Completed")
	for name, path := range places {
		bob.must("POST", "registered-models/create", obj{"name": name})
		bob.must("POST", "model-versions/create", obj{"name": name, "source": cmp.Or(sources[name], "mlflow-artifacts:/"+path)})
		want := http.StatusBadRequest
		if name == "goes" {
			want = http.StatusOK
		}
		if code := put(ann, path+"/MLmodel", "two"); code != want {
			t.Errorf("%s: its file is replaced with status %d, want %d", name, code, want)
		}
		if code := put(ann, path+"/more", "new"); code != http.StatusOK {
			t.Errorf("%s: another file: %d", name, code)
		}
	}
}

// TestSchemesInUpperCase: a source is judged by its scheme in whatever case it is written.
func TestSchemesInUpperCase(t *testing.T) {
	s := start(t, t.TempDir())
	bob, job := s.as(track.Caller{User: "bob", Write: true}), s.as(s.addJob("train", "ann", "mine"))
	run := at(bob.must("POST", "runs/create", obj{"experiment_id": "0"}), "run", "info", "run_id").(string)
	model := at(bob.must("POST", "logged-models", obj{"experiment_id": "0", "name": "m"}), "model", "info", "model_id").(string)
	job.must("POST", "registered-models/create", obj{"name": "own"})
	for _, source := range []string{"runs:/" + run + "/model", "runs:/" + strings.Repeat("e", 32) + "/model", "models:/" + model} {
		scheme, rest, _ := strings.Cut(source, ":")
		for _, source := range []string{source, strings.ToUpper(scheme) + ":" + rest} {
			job.want(http.StatusForbidden, "POST", "model-versions/create", obj{"name": "own", "source": source})
		}
	}
	v := at(bob.must("POST", "model-versions/create", obj{"name": "own", "source": "Runs:/" + run + "/model"}), "model_version", "source")
	if v != "runs:/"+run+"/model" {
		t.Errorf("it is kept as %v", v)
	}
}
