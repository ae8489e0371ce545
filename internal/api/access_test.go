package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

func (x *house) token(name string, role auth.Role) string {
	x.t.Helper()
	secret, err := x.auth.Create(x.t.Context(), auth.Token{Name: name, Role: role})
	if err != nil {
		x.t.Fatal(err)
	}
	return secret
}

// TestReadersOnlyRead: no name a reader can think of makes a write look like a question.
func TestReadersOnlyRead(t *testing.T) {
	x := open(t)
	reader := x.token("r", auth.Reader)
	job := props("jobType", "Command", "command", "true")
	for _, name := range []string{"x", "rundata", "listNodes", "batchGetResolvedUris"} {
		x.as(reader, "PUT", x.ws+"/jobs/"+name, job).want(403)
		x.as(reader, "DELETE", x.ws+"/jobs/"+name, nil).want(403)
		x.as(reader, "POST", x.ws+"/jobs/"+name, job).want(403)
		x.as(reader, "PUT", x.ws+"/data/d/versions/"+name, props("dataType", "uri_file", "dataUri", "https://x/y")).want(403)
		x.as(reader, "PATCH", "/history/v1.0"+x.ws+"/experiments/e/runs/"+name, `{"hidden":true}`).want(403)
		x.as(reader, "PUT", "/genericasset/v1"+x.ws+"/indexes/i/versions/"+name, "{}").want(403)
	}
	x.as(reader, "POST", "/tokens", `{"name":"more"}`).want(403)
	x.as(reader, "DELETE", "/subscriptions/sub/resourceGroups/rundata", nil).want(403)
	// Questions that are asked by POST.
	x.do("PUT", x.ws+"/jobs/j", job).want(201)
	x.as(reader, "POST", "/history/v1.0"+x.ws+"/rundata", `{"runId":"j"}`).want(200)
	x.as(reader, "POST", x.ws+"/computes/local/listNodes", nil).want(200)
	x.as(reader, "POST", "/data/v1.0"+x.ws+"/dataversion/batchGetResolvedUris", `{"values":[]}`).want(200)
}

func TestTaskTokensOpenNothingElse(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "true")).want(201)
	task := x.auth.Keys.TaskToken("j.1", time.Now().Add(time.Hour))
	for _, path := range []string{"/berth/v1/server", "/tenants", "/tokens", "/opstatus/cancel" + x.ws + "/jobs/j", "/opresult/cancel" + x.ws + "/jobs/j", "/subscriptions", x.ws + "/jobs/j/logs", "/genericasset/v1" + x.ws + "/indexes"} {
		x.as(task, "GET", path, nil).want(403)
	}
}

func TestWorkspaceStorageStays(t *testing.T) {
	x := open(t)
	user := x.token("u", auth.User)
	for _, name := range []string{"workspaceblobstore", "WorkspaceArtifactStore"} {
		x.as(user, "DELETE", x.ws+"/datastores/"+name, nil).want(409).says("cannot be")
	}
	x.do("PUT", "/subscriptions/sub/resourceGroups/g2", "{}").want(201)
	x.as(user, "DELETE", "/subscriptions/sub/resourceGroups/g2", nil).want(403)
	x.do("DELETE", "/subscriptions/sub/resourceGroups/g2", nil).want(200)
}

// TestSecretsOfOtherCasing: a name is the same in any case, and so are its secrets.
func TestSecretsOfOtherCasing(t *testing.T) {
	x := open(t)
	with := func(key string) map[string]any {
		return props("datastoreType", "AzureBlob", "accountName", "a", "credentials",
			map[string]any{"credentialsType": "AccountKey", "secrets": map[string]any{"secretsType": "AccountKey", "key": key}})
	}
	x.do("PUT", x.ws+"/datastores/Mine", with("one")).want(201)
	x.do("PUT", x.ws+"/datastores/mine", with("two")).want(200)
	x.do("POST", x.ws+"/datastores/MINE/listSecrets", "{}").want(200).is("key", "two")
}

// TestNobodySaysNothing: reports that prove nothing are turned away without a write.
func TestNobodySaysNothing(t *testing.T) {
	x := open(t)
	rev := x.db.Rev()
	other := x.auth.Keys.TaskToken("k.1", time.Now().Add(time.Hour))
	x.as("", "POST", "/runner/v1/reports", `[{"task":"j.1","token":"bt_x","state":"running"}]`).want(401)
	x.as(other, "POST", "/runner/v1/reports", `[{"task":"j.1","token":"bt_x","state":"running"},{"task":"j.1","token":"`+other+`"}]`).want(200).is("unknown.0", "j.1").is("unknown.1", "j.1")
	x.as(other, "POST", "/runner/v1/reports", `[]`).want(200)
	if x.db.Rev() != rev {
		t.Error("an unproved report was written")
	}
	x.as(other, "POST", "/runner/v1/reports", "["+strings.Repeat("[", 20000)).want(400)
}

// TestTaskTokensEndWithTheTask: nothing is added to the log of a task that is over.
func TestTaskTokensEndWithTheTask(t *testing.T) {
	x := open(t)
	task := x.auth.Keys.TaskToken("j.1", time.Now().Add(time.Hour))
	for state, want := range map[berth.TaskState]int{berth.TaskRunning: 404, berth.TaskDone: 410} { // there is no log to find
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			k := &berth.Task{ID: "j.1", Workspace: workspace.Key(), Job: "j", State: state}
			if err := tx.SaveTask(k); berth.CodeOf(err) != berth.NotFound {
				return err
			}
			return tx.InsertTask(k)
		})
		if err != nil {
			t.Fatal(err)
		}
		x.as(task, "POST", "/runner/v1/tasks/j.1/log?offset=0", "x").want(want)
	}
}
