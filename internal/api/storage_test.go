package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/space"
	"github.com/berthml/berth/internal/store"
)

var locator = locate.Locator{BaseURL: "https://127.0.0.1:8443", Account: "st", Suffix: "berth/"}

// left makes a job of user that ended long ago, and the files it left.
func (x *house) left(user, name string, status berth.JobStatus, st berth.JobState, files ...string) {
	x.t.Helper()
	var own locate.Storage
	err := x.db.Update(x.t.Context(), func(tx *store.Tx) (err error) {
		if own, err = locate.StorageOf(tx, workspace.Key()); err != nil {
			return err
		}
		d := &store.Doc{Workspace: workspace.Key(), Kind: "jobs", Name: name, Status: string(status), CreatedBy: user, Body: []byte(`{"properties":{"jobType":"Command"}}`)}
		if status.Terminal() {
			st.Times.Ended = tx.Now().Add(-40 * 24 * time.Hour)
		}
		if err := store.SetState(d, st); err != nil {
			return err
		}
		return tx.Insert(d)
	})
	if err != nil {
		x.t.Fatal(err)
	}
	for _, f := range files {
		container := own.Blobs
		if strings.HasPrefix(f, "ExperimentRun/") {
			container = own.Artifacts
		}
		if _, err := x.blobs.Put(x.t.Context(), container, f, strings.NewReader("some words"), blob.PutOptions{}); err != nil {
			x.t.Fatal(err)
		}
	}
}

// names are the files that are there.
func (x *house) names() (out []string) {
	x.t.Helper()
	err := x.db.View(x.t.Context(), func(tx *store.Tx) error {
		own, err := locate.StorageOf(tx, workspace.Key())
		if err != nil {
			return err
		}
		for _, c := range []string{own.Blobs, own.Artifacts} {
			page, err := tx.ListBlobs(store.BlobQuery{Container: c})
			if err != nil {
				return err
			}
			for _, b := range page {
				out = append(out, b.Name)
			}
		}
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return out
}

// TestCleaningIsOnesOwn: users clean what their own jobs left; what others' left is for
// administrators.
func TestCleaningIsOnesOwn(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	x.left("ann", "hers", berth.Completed, berth.JobState{}, "azureml/hers/o/x", "ExperimentRun/dcid.hers/user_logs/std_log.txt", "ExperimentRun/dcid.hers/a")
	x.left("bob", "his", berth.Failed, berth.JobState{}, "azureml/his/o/x")
	x.left("ann", "hersagain", berth.Completed, berth.JobState{}, "azureml/hersagain/o/x") // whose name begins with another's
	ask := map[string]any{"kinds": []string{"outputs"}, "before": time.Now().Add(-30 * 24 * time.Hour)}
	x.as(bob, "POST", x.ws+"/cleanStorage", ask).want(200)
	if got := strings.Join(x.names(), " "); strings.Contains(got, "/his/") || !strings.Contains(got, "azureml/hers/o/x") {
		t.Errorf("after bob: %s", got)
	}
	all := map[string]any{"kinds": []string{"outputs", "logs"}, "before": time.Now(), "everyone": true}
	x.as(bob, "POST", x.ws+"/cleanStorage", all).want(403).says("only an administrator")
	x.as(x.token("eve", auth.Reader), "POST", x.ws+"/cleanStorage", ask).want(403)
	x.as(ann, "POST", x.ws+"/cleanStorage", map[string]any{"kinds": []string{"outputs"}, "before": time.Now().Add(-50 * 24 * time.Hour)}).want(200)
	x.as(ann, "POST", x.ws+"/cleanStorage", map[string]any{"kinds": []string{"everything"}, "before": time.Now()}).want(400)
	x.as(ann, "POST", x.ws+"/cleanStorage", map[string]any{"kinds": []string{"outputs"}}).want(400).says("before is required")
	if got := strings.Join(x.names(), " "); got != "azureml/hers/o/x azureml/hersagain/o/x ExperimentRun/dcid.hers/a ExperimentRun/dcid.hers/user_logs/std_log.txt" {
		t.Errorf("what is young enough was deleted: %s", got)
	}
	x.do("POST", x.ws+"/cleanStorage", all).want(200)
	if got := strings.Join(x.names(), " "); got != "ExperimentRun/dcid.hers/a" {
		t.Errorf("after the administrator: %s", got)
	}
}

// TestRetention: what is kept for how long is the workspace's to say, then the server's; steps of a
// pipeline that goes on are kept.
func TestRetention(t *testing.T) {
	x := open(t)
	for i := range 250 { // more than a page
		name := fmt.Sprintf("old%d", i)
		x.left("ann", name, berth.Completed, berth.JobState{}, "azureml/"+name+"/o/x")
	}
	x.left("ann", "whole", berth.Running, berth.JobState{})
	x.left("ann", "step", berth.Completed, berth.JobState{Parent: "whole"}, "azureml/step/o/x")
	retain := func(days map[string]int) int {
		if err := space.Retain(t.Context(), x.db, x.blobs, locator, days, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		return len(x.names())
	}
	if n := retain(map[string]int{"outputs": 0, "logs": 1}); n != 251 {
		t.Errorf("%d files are left where they are kept for ever", n)
	}
	tag := func(days string) {
		x.do("PATCH", x.ws, map[string]any{"tags": map[string]any{"berth.keep_outputs_days": days}}).want(200)
	}
	for _, days := range []string{"60", "0", "a month"} {
		tag(days)
		if n := retain(map[string]int{"outputs": 30}); n != 251 {
			t.Errorf("%d files are left where the workspace keeps them for %s", n, days)
		}
	}
	tag("30")
	if n := retain(nil); n != 1 {
		t.Errorf("%d files are left", n)
	}
}

// TestStorageOfAllWorkspaces: grouped by workspace, what all of them store is shown, and what only
// one of them has.
func TestStorageOfAllWorkspaces(t *testing.T) {
	x := open(t)
	other := strings.Replace(x.ws, "/"+workspace.Name, "/second", 1)
	x.do("PUT", other, map[string]any{"location": "here"}).want(200)
	x.left("ann", "one", berth.Completed, berth.JobState{}, "azureml/one/o/x", "azureml/one/o/y") // "some words", twice
	put := func(name, text string) {
		t.Helper()
		var own locate.Storage
		err := x.db.View(t.Context(), func(tx *store.Tx) (err error) {
			own, err = locate.StorageOf(tx, berth.Workspace{Subscription: workspace.Subscription, Group: workspace.Group, Name: "second"}.Key())
			return err
		})
		if err == nil {
			_, err = x.blobs.Put(t.Context(), own.Blobs, name, strings.NewReader(text), blob.PutOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put("LocalUpload/a/x", "some words")
	put("LocalUpload/a/y", "its own")
	eve := x.token("eve", auth.Reader)
	read := func(by string) (use berth.StorageUse) {
		t.Helper()
		if err := json.Unmarshal(x.as(eve, "GET", x.ws+"/storage?by="+by, nil).want(200).raw, &use); err != nil {
			t.Fatal(err)
		}
		return use
	}
	use := read("workspace,kind")
	want := []berth.StorageLine{
		{Workspace: workspace.Group + "/" + workspace.Name, Kind: "outputs", Files: 2, Bytes: 20},
		{Workspace: workspace.Group + "/second", Kind: "uploads", Files: 2, Bytes: 17, OwnBytes: 7},
	}
	if d := cmp.Diff(want, use.Groups); d != "" || use.Total.Bytes != 37 || use.Total.OwnBytes != 17 {
		t.Errorf("%s, total %+v", d, use.Total)
	}
	if use = read("kind"); len(use.Groups) != 1 || use.Total.Files != 2 || use.Groups[0].Workspace != "" {
		t.Errorf("one workspace has %+v", use)
	}
}

// TestRetentionOfOneJob: a job's tags say for how long what it left is kept, shorter or longer than
// its workspace does, or although that keeps everything; those of a pipeline count for its steps,
// from its own end on. Who cleans by hand deletes nothing that a tag keeps longer.
func TestRetentionOfOneJob(t *testing.T) {
	x := open(t)
	left := func(name, parent string, ended time.Duration, tags string) { // 40 days ago, or less
		t.Helper()
		x.left("ann", name, berth.Completed, berth.JobState{Parent: parent}, "azureml/"+name+"/o/x", "ExperimentRun/dcid."+name+"/user_logs/std_log.txt")
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get(workspace.Key(), "jobs", name, "")
			if err != nil {
				return err
			}
			if err := store.SetState(d, berth.JobState{Parent: parent, Times: berth.Waterfall{Ended: tx.Now().Add(-ended)}}); err != nil {
				return err
			}
			return tx.Save(d)
		})
		if err != nil {
			t.Fatal(err)
		}
		if tags != "" {
			x.do("PUT", x.ws+"/jobs/"+name, json.RawMessage(`{"properties":{"jobType":"Command","tags":{`+tags+`}}}`)).want(200)
		}
	}
	const day = 24 * time.Hour
	left("short", "", 5*day, `"berth.keep_outputs_days":"3"`)
	left("young", "", 2*day, `"berth.keep_outputs_days":"3"`)
	left("long", "", 40*day, `"berth.keep_outputs_days":"100","berth.keep_logs_days":"100"`)
	left("ever", "", 40*day, `"berth.keep_outputs_days":"0"`)
	left("odd", "", 40*day, `"berth.keep_outputs_days":"a week"`)
	for _, days := range []string{"106752", "150000", "9999999"} { // more than a time.Duration counts
		left("age"+days, "", 40*day, `"berth.keep_outputs_days":"`+days+`"`)
	}
	left("plain", "", 40*day, "")
	left("whole", "", 5*day, `"berth.keep_outputs_days":"7"`)
	left("step", "whole", 40*day, "") // younger than its pipeline's days, from that one's end on
	left("own", "whole", 40*day, `"berth.keep_outputs_days":"3"`)
	outputs := func() (kept []string) {
		for _, name := range x.names() {
			if rest, ok := strings.CutPrefix(name, "azureml/"); ok {
				job, _, _ := strings.Cut(rest, "/")
				kept = append(kept, job)
			}
		}
		return kept
	}
	retain := func(days map[string]int) string {
		t.Helper()
		if err := space.Retain(t.Context(), x.db, x.blobs, locator, days, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		return strings.Join(outputs(), " ")
	}
	if got := retain(nil); got != "age106752 age150000 age9999999 ever long odd plain step whole young" {
		t.Errorf("where everything is kept, there are left %s", got)
	}
	if got := retain(map[string]int{"outputs": 1}); got != "age106752 age150000 age9999999 ever long odd step whole young" {
		t.Errorf("where a day is kept, there are left %s", got)
	}
	ask := map[string]any{"kinds": []string{"outputs", "logs"}, "before": time.Now(), "everyone": true}
	said := string(x.do("POST", x.ws+"/cleanStorage", ask).want(200).raw)
	if !strings.Contains(said, "a tag of its job keeps it longer") {
		t.Errorf("it is not said what is kept: %s", said)
	}
	if got := strings.Join(x.names(), " "); got != "azureml/age106752/o/x azureml/age150000/o/x azureml/age9999999/o/x azureml/ever/o/x azureml/long/o/x azureml/odd/o/x azureml/step/o/x azureml/whole/o/x azureml/young/o/x ExperimentRun/dcid.long/user_logs/std_log.txt" {
		t.Errorf("cleaned by hand, there are left %s", got)
	}
}

// TestRetentionReadsNoJobs: where neither the workspace nor the server says for how long what jobs
// left is kept, and no job has a tag that does, retention costs the same however many jobs there
// are. A tag of the first job that has one counts from when it is submitted.
func TestRetentionReadsNoJobs(t *testing.T) {
	x := open(t)
	retain := func() {
		if err := space.Retain(t.Context(), x.db, x.blobs, locator, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	x.left("ann", "first", berth.Completed, berth.JobState{})
	one := testing.AllocsPerRun(10, retain)
	for i := range 500 {
		x.left("ann", fmt.Sprintf("old%d", i), berth.Completed, berth.JobState{})
	}
	if many := testing.AllocsPerRun(10, retain); many > one+100 {
		t.Errorf("retention of 501 jobs allocates %g times, of one %g times", many, one)
	}
	x.do("PUT", x.ws+"/environments/always/versions/1.5", map[string]any{"properties": map[string]any{"image": "x"}})
	x.do("PUT", x.ws+"/jobs/tagged", map[string]any{"properties": map[string]any{
		"jobType": "Command", "command": "true", "environmentId": "azureml:always-1.5@latest", "tags": map[string]any{"berth.keep_logs_days": "3"},
	}}).want(201)
	err := x.db.Update(t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(workspace.Key(), "jobs", "tagged", "")
		if err != nil {
			return err
		}
		d.Status = string(berth.Completed)
		if err := store.SetState(d, berth.JobState{Times: berth.Waterfall{Ended: tx.Now().AddDate(0, 0, -5)}}); err != nil {
			return err
		}
		return tx.Save(d)
	})
	if err != nil {
		t.Fatal(err)
	}
	var own locate.Storage
	err = x.db.View(t.Context(), func(tx *store.Tx) (err error) {
		own, err = locate.StorageOf(tx, workspace.Key())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.blobs.Put(t.Context(), own.Artifacts, "ExperimentRun/dcid.tagged/user_logs/std_log.txt", strings.NewReader("words"), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if retain(); len(x.names()) != 0 {
		t.Errorf("what its tag keeps for 3 days is kept for 5: %v", x.names())
	}
}

// TestRetentionIsForAdministrators: by its tags a workspace deletes what everybody's jobs left.
func TestRetentionIsForAdministrators(t *testing.T) {
	x := open(t)
	ann := x.token("ann", auth.User)
	tags := map[string]any{"tags": map[string]any{"berth.keep_outputs_days": "1"}}
	x.as(ann, "PATCH", x.ws, tags).want(403)
	x.as(ann, "PUT", x.ws, tags).want(403)
}

// TestCleaningKeeps: what a job that has not ended names, what a pipeline that is kept consists of,
// and what cannot be read.
func TestCleaningKeeps(t *testing.T) {
	x := open(t)
	body := func(name, text string) {
		t.Helper()
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get(workspace.Key(), "jobs", name, "")
			if err == nil {
				d.Body = []byte(text)
				err = tx.Save(d)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	x.left("ann", "train.v2", berth.Completed, berth.JobState{}, "azureml/train.v2/o/x")
	x.left("ann", "reads", berth.Running, berth.JobState{})
	body("reads", `{"properties":{"inputs":{"i":{"uri":"azureml://datastores/workspaceblobstore/paths/azureml/train.v2/o"}}}}`)
	x.left("ann", "whole", berth.Completed, berth.JobState{})
	body("whole", `{"properties":{"tags":{"berth.keep":true,"epoch":3}}}`) // as clients send them that are not Azure's
	x.left("ann", "step", berth.Completed, berth.JobState{Parent: "whole"}, "azureml/step/o/x")
	x.left("ann", "odd", berth.Completed, berth.JobState{}, "azureml/odd/o/x")
	body("odd", `[]`)
	x.left("ann", "goes", berth.Completed, berth.JobState{}, "azureml/goes/o/x")
	body("goes", `{"properties":{"tags":{"epoch":3}}}`)
	ask := map[string]any{"kinds": []string{"outputs"}, "before": time.Now(), "everyone": true}
	x.do("POST", x.ws+"/cleanStorage", ask).want(200)
	if got := strings.Join(x.names(), " "); got != "azureml/odd/o/x azureml/step/o/x azureml/train.v2/o/x" {
		t.Errorf("left: %s", got)
	}
	// A number where a text is expected stops neither jobs nor cleaning.
	x.do("PATCH", x.ws, map[string]any{"tags": map[string]any{"berth.storage_bytes": 5000000000, "berth.keep_outputs_days": 1}})
	x.do("PUT", x.ws+"/jobs/new", props("jobType", "Command", "command", "true", "environmentId", "azureml:always-1.5@latest")).want(201)
}

// TestFullWorkspace: a workspace that stores what it may warns before, and then takes no more jobs
// until something was deleted.
func TestFullWorkspace(t *testing.T) {
	x := open(t)
	x.do("PATCH", x.ws, map[string]any{"tags": map[string]any{"berth.storage_bytes": "32"}}).want(200)
	job := props("jobType", "Command", "command", "true", "environmentId", "azureml:always-1.5@latest")
	x.left("root", "one", berth.Completed, berth.JobState{}, "azureml/one/o/x", "azureml/one/o/y", "azureml/one/o/z") // 30 bytes
	x.do("PUT", x.ws+"/jobs/warned", job).want(201)
	if got := string(x.do("GET", x.ws+"/jobs/warned/events", nil).want(200).raw); !strings.Contains(got, "workspace lab uses 30 bytes of its limit of 32 bytes") {
		t.Errorf("no warning: %s", got)
	}

	y := open(t)
	y.do("PATCH", y.ws, map[string]any{"tags": map[string]any{"berth.storage_bytes": "30"}}).want(200)
	y.left("root", "one", berth.Completed, berth.JobState{}, "azureml/one/o/x", "azureml/one/o/y", "azureml/one/o/z")
	y.do("PUT", y.ws+"/jobs/refused", job).want(400).says("workspace lab stores 30 bytes; the limit is 30 bytes")
	y.do("POST", y.ws+"/cleanStorage", map[string]any{"kinds": []string{"outputs"}, "before": time.Now()}).want(200)
	y.do("PUT", y.ws+"/jobs/taken", job).want(201)
}

// TestSurveysOfStorageTakeTurns: who reads all names of a workspace waits while others do.
func TestSurveysOfStorageTakeTurns(t *testing.T) {
	x := open(t)
	paths := []string{x.ws + "/storage", "/mlflow/v2.0" + x.ws + "/api/2.0/berth/experiments/sizes"}
	for _, path := range paths {
		x.do("GET", path, nil).want(200)
	}
	for range 2 {
		done, err := x.blobs.Survey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer done()
	}
	for _, path := range paths {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // as long as an answer may take if it does not wait
		req := httptest.NewRequestWithContext(ctx, "GET", path, nil)
		req.Header.Set("Authorization", "Bearer "+x.admin)
		w := httptest.NewRecorder()
		x.h.ServeHTTP(w, req)
		cancel()
		if w.Code == 200 {
			t.Errorf("%s was answered although two others read", path)
		}
	}
}

// TestCleaningCountsOnce: a job with more files than one transaction deletes, some of which belong
// to a version, is counted once, and so is what stays of it and a kind that is asked for twice.
func TestCleaningCountsOnce(t *testing.T) {
	x := open(t)
	files := []string{"azureml/big/o/00000"}
	for i := range 4001 {
		files = append(files, fmt.Sprintf("azureml/big/o/%05d", i+1))
	}
	x.left("ann", "big", berth.Completed, berth.JobState{}, files...)
	x.left("ann", "small", berth.Completed, berth.JobState{}, "azureml/small/o/x")
	x.do("PUT", x.ws+"/data/d/versions/1", props("dataType", "uri_file", "dataUri", "azureml://datastores/workspaceblobstore/paths/azureml/big/o/00000")).want(201)
	for version := range 2 {
		x.do("PUT", x.ws+"/environments/env/versions/"+fmt.Sprint(version+1), props("image", "x")).want(201)
	}
	ask := map[string]any{"kinds": []string{"outputs", "environments", "outputs", "environments"}, "before": time.Now().Add(time.Hour), "everyone": true}
	a := x.do("POST", x.ws+"/cleanStorage", ask).want(200)
	a.is("jobs", 2.).is("files", 4002.).is("versions", 1.)
	want := []any{map[string]any{"reason": berth.KeptHeld, "jobs": 1., "files": 1.}, map[string]any{"reason": "it is the newest version", "jobs": 0., "files": 0., "versions": 1.}}
	if diff := cmp.Diff(want, a.at("kept")); diff != "" {
		t.Error(diff)
	}
}
