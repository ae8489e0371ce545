package api_test

import (
	"fmt"
	"testing"

	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

func bucket(name, endpoint string) map[string]any {
	return props("datastoreType", "S3", "bucket", name, "endpoint", endpoint)
}

// TestDatastoreNameStaysWithItsMaker: jobs and assets name datastores, so a name that was deleted
// is not for somebody else to take.
func TestDatastoreNameStaysWithItsMaker(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	lake := x.ws + "/datastores/lake"
	x.as(ann, "PUT", lake, bucket("data", "")).want(201)
	x.as(ann, "DELETE", lake, nil).want(200)
	x.as(bob, "PUT", x.ws+"/datastores/LAKE", bucket("data", "https://bob.example.org")).want(403).says("only ann, who created it")
	x.as(ann, "PUT", lake, bucket("data", "")).want(201)
	x.as(ann, "DELETE", lake, nil).want(200)
	x.do("PUT", lake, bucket("data", "")).want(201)
}

// TestAddressesLeadToOwnDatastores: which datastore an address is in is decided among those of the
// submitter and of administrators, so nobody else can put theirs in the way.
func TestAddressesLeadToOwnDatastores(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	submit := func(name, uri string) answer {
		return x.as(ann, "PUT", x.ws+"/jobs/"+name, props("jobType", "Command", "command", "true", "inputs", map[string]any{"i": map[string]any{"jobInputType": "uri_file", "uri": uri}}))
	}
	found := func(user, uri, want string) {
		t.Helper()
		err := x.db.View(t.Context(), func(tx *store.Tx) error {
			p, err := locate.Locator{BaseURL: "https://127.0.0.1:8443", Account: "st", Suffix: "berth/"}.Resolve(tx, workspace, user, uri)
			if p.Datastore != want {
				t.Errorf("%s is in %q for %s, want %q", uri, p.Datastore, user, want)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s for %s: %v", uri, user, err)
		}
	}
	x.as(bob, "PUT", x.ws+"/datastores/bobs", bucket("data", "")).want(201)
	submit("one", "s3://data/x").want(400).says("datastore bobs", "azureml://datastores/bobs/paths/x")
	found("bob", "s3://data/x", "bobs")

	x.do("PUT", x.ws+"/datastores/lake", bucket("data", "")).want(201)
	submit("two", "s3://data/x").want(201)
	found("ann", "s3://data/x", "lake")
	found("bob", "s3://data/x", "bobs")

	x.as(ann, "PUT", x.ws+"/datastores/anns", bucket("data", "")).want(201)
	found("ann", "s3://data/x", "anns")
	x.as(ann, "PUT", x.ws+"/datastores/anns2", bucket("data", "")).want(201)
	submit("three", "s3://data/x").want(400).says("anns, anns2")

	// An address of a public file stays one, whatever others register.
	x.as(bob, "PUT", x.ws+"/datastores/public", bucket("files", "https://public.example.org")).want(201)
	found("ann", "https://public.example.org/files/x", "")
}

// TestAssetsLeadToTheirMakersDatastores: what an asset's address means does not depend on who uses
// the asset.
func TestAssetsLeadToTheirMakersDatastores(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	x.as(bob, "PUT", x.ws+"/datastores/bobs", bucket("data", "")).want(201)
	x.as(bob, "PUT", x.ws+"/data/d/versions/1", props("dataType", "uri_file", "dataUri", "s3://data/x")).want(201)
	x.as(ann, "PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "true", "inputs", map[string]any{"i": map[string]any{"jobInputType": "uri_file", "uri": "azureml:d:1"}})).want(201)
}

// TestAdministratorsDatastoreThatAUserChanged: one that was changed without the rights of an
// administrator is not an administrator's any more.
func TestAdministratorsDatastoreThatAUserChanged(t *testing.T) {
	x := open(t)
	root, err := x.auth.Create(t.Context(), auth.Token{Name: "plain", User: "root", Role: auth.User})
	if err != nil {
		t.Fatal(err)
	}
	ann := x.token("ann", auth.User)
	job := props("jobType", "Command", "command", "true", "inputs", map[string]any{"i": map[string]any{"jobInputType": "uri_file", "uri": "s3://data/x"}})
	x.do("PUT", x.ws+"/datastores/lake", bucket("data", "")).want(201)
	x.as(ann, "PUT", x.ws+"/jobs/before", job).want(201)
	x.do("PUT", x.ws+"/datastores/lake", bucket("data", "")).want(200)
	x.as(ann, "PUT", x.ws+"/jobs/still", job).want(201)
	x.as(root, "PUT", x.ws+"/datastores/lake", bucket("data", "")).want(200)
	x.as(ann, "PUT", x.ws+"/jobs/after", job).want(400)
	x.do("PUT", x.ws+"/datastores/lake", bucket("data", "")).want(200)
	x.as(ann, "PUT", x.ws+"/jobs/again", job).want(201)
}

// TestDatastoresAreLimited: all of a workspace are read to find the one for an address.
func TestDatastoresAreLimited(t *testing.T) {
	x := open(t)
	err := x.db.Update(t.Context(), func(tx *store.Tx) error {
		docs, err := tx.All(store.Query{Workspace: workspace.Key(), Kind: "datastores"})
		for i := len(docs); i < 999 && err == nil; i++ {
			err = tx.Insert(&store.Doc{Workspace: workspace.Key(), Kind: "datastores", Name: fmt.Sprint("d", i), Body: []byte("{}")})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	x.do("PUT", x.ws+"/datastores/last", bucket("data", "")).want(201)
	x.do("PUT", x.ws+"/datastores/more", bucket("data", "")).want(400).says("1000 datastores", "delete")
	x.do("PUT", x.ws+"/datastores/last", bucket("data2", "")).want(200)
}

// TestStreamedInputsAreInputs: a job that asks for an input to be streamed which it does not have,
// or not mounted read-only, is refused.
func TestStreamedInputsAreInputs(t *testing.T) {
	x := open(t)
	submit := func(name, stream, mode string) answer {
		p := props("jobType", "Command", "command", "true", "properties", map[string]any{"berth.stream": stream}, "inputs", map[string]any{
			"i": map[string]any{"jobInputType": "uri_file", "uri": "azureml://datastores/workspaceblobstore/paths/x", "mode": mode},
			"n": map[string]any{"jobInputType": "literal", "value": "7"},
		})
		return x.do("PUT", x.ws+"/jobs/"+name, p)
	}
	submit("a", "i", "ReadOnlyMount").want(201)
	submit("b", " i , ", "ReadOnlyMount").want(201)
	submit("c", "i,n", "ReadOnlyMount").want(400).says("berth.stream", `"n"`)
	submit("d", "other", "ReadOnlyMount").want(400).says(`"other"`)
	submit("e", "i", "Download").want(400).says("whose mode is Download")
}

// TestNamesOfServicesStayWithTheirMakers: jobs, assets and clients name connections, endpoints and
// schedules as well.
func TestNamesOfServicesStayWithTheirMakers(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	for _, tt := range []struct {
		path string
		body map[string]any
	}{
		{"/connections/feed", props("category", "PythonFeed", "target", "https://ann.example.org", "authType", "None")},
		{"/onlineEndpoints/scores", map[string]any{"location": "local", "properties": map[string]any{"authMode": "Key"}}},
		{"/batchEndpoints/scores", map[string]any{"location": "local", "properties": map[string]any{"authMode": "AADToken"}}},
		{"/schedules/nightly", props(
			"trigger", map[string]any{"triggerType": "Cron", "expression": "0 3 * * *"},
			"action", map[string]any{"actionType": "CreateJob", "jobDefinition": map[string]any{"jobType": "Command", "command": "true"}},
		)},
	} {
		made := func(a answer) {
			t.Helper()
			if a.status != 200 && a.status != 201 {
				t.Fatalf("%s: %d %s", tt.path, a.status, a.raw)
			}
		}
		made(x.as(ann, "PUT", x.ws+tt.path, tt.body))
		deleted := x.as(ann, "DELETE", x.ws+tt.path, nil)
		if deleted.status/100 != 2 {
			t.Fatalf("%s: %d %s", tt.path, deleted.status, deleted.raw)
		}
		x.as(bob, "PUT", x.ws+tt.path, tt.body).want(403).says("only ann, who created it")
		made(x.as(ann, "PUT", x.ws+tt.path, tt.body))
	}
}

// TestDatastoresOfOneUserAreLimited: one user leaves room for the datastores of others.
func TestDatastoresOfOneUserAreLimited(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	err := x.db.Update(t.Context(), func(tx *store.Tx) (err error) {
		for i := 0; i < 199 && err == nil; i++ {
			err = tx.Insert(&store.Doc{Workspace: workspace.Key(), Kind: "datastores", Name: fmt.Sprint("d", i), CreatedBy: "ann", Body: []byte("{}")})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	x.as(ann, "PUT", x.ws+"/datastores/last", bucket("data", "")).want(201)
	x.as(ann, "PUT", x.ws+"/datastores/more", bucket("data", "")).want(400).says("200 datastores", "delete")
	x.as(ann, "PUT", x.ws+"/datastores/last", bucket("data2", "")).want(200)
	x.as(bob, "PUT", x.ws+"/datastores/bobs", bucket("data", "")).want(201)
	x.do("PUT", x.ws+"/datastores/admins", bucket("data", "")).want(201)
}
