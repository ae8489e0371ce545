package api_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/parallel"
	"github.com/berthml/berth/internal/store"
)

// pulling is a house with a job p whose task p.1 asks for mini-batches.
type pulling struct {
	*house
	token string
}

func openPulling(t *testing.T) *pulling {
	t.Helper()
	x := open(t)
	if err := os.MkdirAll(filepath.Join(x.blobs.Dir(), "logs", "00"), 0o700); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(props(
		"jobType", "Parallel", "inputData", "${{inputs.data}}", "inputs", map[string]any{"data": map[string]any{"jobInputType": "uri_folder", "uri": "file:///data"}},
		"outputs", map[string]any{"out": map[string]any{"jobOutputType": "uri_file"}}, "retrySettings", map[string]any{"max_retries": 1},
		"task", map[string]any{"type": "run_function", "entry_script": "score.py", "append_row_to": "${{outputs.out}}"},
	))
	if err != nil {
		t.Fatal(err)
	}
	err = x.db.Update(t.Context(), func(tx *store.Tx) error {
		if err := tx.Insert(&store.Doc{Workspace: workspace.Key(), Kind: "jobs", Name: "p", CreatedBy: "root", Status: string(berth.Running), Body: body}); err != nil {
			return err
		}
		return tx.InsertTask(&berth.Task{ID: "p.1", Workspace: workspace.Key(), Job: "p", User: "root", Attempt: 1, State: berth.TaskRunning})
	})
	if err != nil {
		t.Fatal(err)
	}
	return &pulling{x, x.auth.Keys.TrackToken("p.1", time.Now().Add(time.Hour))}
}

// ask sends a question with rows after it.
func (x *pulling) ask(question any, rows string) answer {
	x.t.Helper()
	line, ok := question.(string)
	if !ok {
		raw, err := json.Marshal(question)
		if err != nil {
			x.t.Fatal(err)
		}
		line = string(raw)
	}
	return x.as(x.token, "POST", "/runner/v1/tasks/p.1/work", line+"\n"+rows)
}

// live is the file that the rows are in, below the directory of blobs.
func (x *pulling) live() (rel string) {
	x.t.Helper()
	err := x.db.View(x.t.Context(), func(tx *store.Tx) error {
		own, err := locate.StorageOf(tx, workspace.Key())
		if err != nil {
			return err
		}
		b, err := tx.Blob(own.Artifacts, locate.ArtifactPath("p")+"/"+parallel.RowsName)
		if err == nil {
			rel = b.Live
		}
		return err
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return rel
}

// result is what became of a mini-batch.
func result(number, size int) map[string]any {
	return map[string]any{"number": number, "try": 0, "returned": 1, "size": size}
}

// TestRowsStayOutOfReach: rows are kept where jobs cannot write, and a link in their place is not
// followed.
func TestRowsStayOutOfReach(t *testing.T) {
	x := openPulling(t)
	x.ask(map[string]any{"want": 1}, "").want(200).is("plan", true)
	x.ask(map[string]any{"want": 2, "plan": [][]string{{"a"}, {"b"}}}, "").want(200).is("batches.1.number", 2)
	x.ask(map[string]any{"finished": []any{result(2, 4)}, "holding": []int{1}}, "two\n").want(200)
	rel := x.live()
	if !strings.HasPrefix(rel, "rows/") {
		t.Errorf("the rows are in %s, where jobs can write", rel)
	}
	if n, err := x.blobs.LiveSize(rel); n != 4 || err != nil {
		t.Errorf("the rows take %d bytes (%v)", n, err)
	}
	runner := x.auth.Keys.TaskToken("p.1", time.Now().Add(time.Hour))
	x.as(runner, "POST", "/runner/v1/tasks/p.1/log?offset=4&name="+parallel.RowsName, "x").want(400).says("is not a log")

	file := filepath.Join(x.blobs.Dir(), filepath.FromSlash(rel))
	secret := filepath.Join(x.blobs.Dir(), "..", "admin.token")
	before, err := os.ReadFile(secret)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	swap := func(make func() error) {
		t.Helper()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := make(); err != nil {
			t.Fatal(err)
		}
	}
	swap(func() error { return os.Symlink(secret, file) })
	x.ask(map[string]any{"finished": []any{result(1, 4)}}, "bad\n").want(503)
	swap(func() error { return os.WriteFile(file, kept, 0o600) })
	x.ask(map[string]any{"want": 1, "finished": []any{result(1, 4)}}, "one\n").want(200).is("write", true)
	if a := x.as(x.token, "GET", "/runner/v1/tasks/p.1/rows", nil).want(200); string(a.raw) != "one\ntwo\n" {
		t.Errorf("the rows are %q", a.raw)
	}
	swap(func() error { return os.Symlink(secret, file) })
	if a := x.as(x.token, "GET", "/runner/v1/tasks/p.1/rows", nil); a.status == 200 || strings.Contains(string(a.raw), string(before[:4])) {
		t.Errorf("a link was followed: %d %q", a.status, a.raw)
	}
	if after, err := os.ReadFile(secret); err != nil || string(after) != string(before) {
		t.Errorf("the file behind the link was changed (%v)", err)
	}
}

// TestAppendedLogFollowsNoLink: a runner elsewhere does not write where a link in a log's place
// points to.
func TestAppendedLogFollowsNoLink(t *testing.T) {
	x := openPulling(t)
	var own locate.Storage
	err := x.db.View(t.Context(), func(tx *store.Tx) (err error) {
		own, err = locate.StorageOf(tx, workspace.Key())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.blobs.PutLive(t.Context(), own.Artifacts, locate.ArtifactPath("p")+"/user_logs/std_log.txt", "logs/00/p"); err != nil {
		t.Fatal(err)
	}
	runner := x.auth.Keys.TaskToken("p.1", time.Now().Add(time.Hour))
	x.as(runner, "POST", "/runner/v1/tasks/p.1/log?offset=0", "some words").want(200).is("size", 10)
	secret, file := filepath.Join(x.blobs.Dir(), "secret"), filepath.Join(x.blobs.Dir(), "logs/00/p")
	if err := errors.Join(os.WriteFile(secret, nil, 0o600), os.Remove(file), os.Symlink("../../secret", file)); err != nil {
		t.Fatal(err)
	}
	if a := x.as(runner, "POST", "/runner/v1/tasks/p.1/log?offset=0", "bad"); a.status == 200 {
		t.Errorf("the log was written: %s", a.raw)
	}
	if b, err := os.ReadFile(secret); err != nil || len(b) > 0 {
		t.Errorf("the file behind the link is %q (%v)", b, err)
	}
}

// TestQuestionsAreBounded: a task has a bounded number of mini-batches, and says nothing of more;
// sizes that cannot be are refused before anything is written.
func TestQuestionsAreBounded(t *testing.T) {
	x := openPulling(t)
	plan := make([][]string, 1500)
	for i := range plan {
		plan[i] = []string{"f"}
	}
	a := x.ask(map[string]any{"want": 5000, "plan": plan}, "").want(200)
	given, _ := a.at("batches").([]any)
	if len(given) != 1024 {
		t.Fatalf("the task was given %d mini-batches", len(given))
	}
	holding := make([]int, 1025)
	for i := range holding {
		holding[i] = i + 1
	}
	a = x.ask(map[string]any{"want": 5, "holding": holding[:1024]}, "").want(200)
	if a.at("batches") != nil || a.at("end") != nil {
		t.Errorf("a task that has all it can have is answered %s", a.raw)
	}
	x.ask(map[string]any{"holding": holding}, "").want(400).says("at most 1024")
	many := make([]any, 1025)
	for i := range many {
		many[i] = result(1, 0)
	}
	x.ask(map[string]any{"finished": many}, "").want(400).says("at most 1024")
	huge := map[string]any{"number": 1, "size": int64(math.MaxInt64)}
	x.ask(map[string]any{"finished": []any{huge, huge}}, "").want(400).says("the rows have more than")
	x.ask(map[string]any{"finished": []any{result(1, 1<<20)}}, "").want(400).says("the request has")
	if n, err := x.blobs.LiveSize(x.live()); n != 0 || err != nil {
		t.Errorf("%d bytes were written (%v)", n, err)
	}
}
