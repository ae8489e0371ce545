package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// saveTask puts task j.1 in a state.
func (x *house) saveTask(state berth.TaskState) {
	x.t.Helper()
	err := x.db.Update(x.t.Context(), func(tx *store.Tx) error {
		k := &berth.Task{ID: "j.1", Workspace: workspace.Key(), Job: "j", State: state}
		if err := tx.SaveTask(k); berth.CodeOf(err) != berth.NotFound {
			return err
		}
		return tx.InsertTask(k)
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

// storageGrant is the grant of a task for storage elsewhere.
func (x *house) storageGrant(id berth.TaskID, g locate.Grant) string {
	x.t.Helper()
	raw, err := json.Marshal(g)
	if err != nil {
		x.t.Fatal(err)
	}
	return x.auth.Keys.Seal(raw, auth.StorageGrant(id))
}

// TestStorageGrants: requests to storage elsewhere are signed for the task that has the grant, for
// what it grants, and while the task, its user and the datastore are there.
func TestStorageGrants(t *testing.T) {
	x := open(t)
	x.token("ann", auth.User)
	x.do("PUT", x.ws+"/datastores/lake", props("datastoreType", "S3", "bucket", "data", "endpoint", "https://s3.example.org", "credentials",
		map[string]any{"credentialsType": "AccessKey", "accessKeyId": "id", "secrets": map[string]any{"secretsType": "AccessKey", "secretAccessKey": "s3cret"}})).want(201)
	save := x.saveTask
	save(berth.TaskRunning)
	token := func(id berth.TaskID) string { return x.auth.Keys.TaskToken(id, time.Now().Add(time.Hour)) }
	grant := x.storageGrant
	reads := grant("j.1", locate.Grant{Datastore: "lake", Path: "in", User: "ann"})
	writes := grant("j.1", locate.Grant{Datastore: "lake", Path: "out", Write: true, User: "ann"})
	ask := func(grant string, do berth.OutsideVerb, name string) map[string]any {
		return map[string]any{"grant": grant, "requests": []any{map[string]any{"do": do, "name": name}}}
	}
	const path = "/runner/v1/tasks/j.1/storage"
	signed := func(do berth.OutsideVerb, grant, want string) {
		t.Helper()
		got := x.as(token("j.1"), "POST", path, ask(grant, do, "a")).want(200)
		if u, _ := got.at("urls.0").(string); !strings.HasPrefix(u, want+"?") || strings.Contains(u, "s3cret") {
			t.Errorf("%s is signed as %s", do, u)
		}
	}
	signed(berth.OutsideGet, reads, "https://s3.example.org/data/in/a")
	signed(berth.OutsidePut, writes, "https://s3.example.org/data/out/a")
	signed(berth.OutsideDelete, writes, "https://s3.example.org/data/out/a")
	for why, body := range map[string]map[string]any{
		"an input is written to":    ask(reads, berth.OutsidePut, "a"),
		"an upload to an input":     ask(reads, berth.OutsideBegin, "a"),
		"the grant of another task": ask(grant("k.1", locate.Grant{Datastore: "lake", Path: "in"}), berth.OutsideGet, "a"),
		"no grant":                  ask("", berth.OutsideGet, "a"),
	} {
		if got := x.as(token("j.1"), "POST", path, body); got.status != 403 {
			t.Errorf("%s: %d", why, got.status)
		}
	}
	x.as(token("j.1"), "POST", path, ask(reads, berth.OutsideGet, "../out/a")).want(400)
	x.as(token("j.1"), "POST", path, ask(reads, "delete", "a")).want(403)
	x.as(token("k.1"), "POST", path, ask(reads, berth.OutsideGet, "a")).want(403)
	x.as(token("k.1"), "POST", "/runner/v1/tasks/k.1/storage", ask(reads, berth.OutsideGet, "a")).want(403)
	x.do("POST", path, ask(reads, berth.OutsideGet, "a")).want(403) // the owner has no task
	if err := x.auth.Revoke(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	x.as(token("j.1"), "POST", path, ask(reads, berth.OutsideGet, "a")).want(401)
	x.token("ann", auth.User)
	x.as(token("j.1"), "POST", path, ask(reads, berth.OutsideGet, "a")).want(200)
	x.do("DELETE", x.ws+"/datastores/lake", nil).want(200)
	x.as(token("j.1"), "POST", path, ask(reads, berth.OutsideGet, "a")).want(404).says("datastore lake was deleted")
	save(berth.TaskDone)
	x.as(token("j.1"), "POST", path, ask(reads, berth.OutsideGet, "a")).want(410)
}
