package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// TestSignaturesAreHidden: nobody is shown the signatures and passwords of addresses, wherever a
// document has them, and the database does not have them. Their owner can send what they were shown
// again; nobody else can.
func TestSignaturesAreHidden(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	const address, secret = "https://account.blob.core.windows.net/box/in?sp=rl&sig=hunter2%3D", "hunter2"
	with := func(kind string) map[string]any { return map[string]any{"jobInputType": kind, "uri": address} }
	hidden := func(a answer) answer {
		t.Helper()
		if strings.Contains(string(a.raw), secret) {
			t.Errorf("it is shown: %s", a.raw)
		}
		return a
	}
	x.as(ann, "PUT", x.ws+"/environments/e/versions/1", props("image", "x")).want(201)
	x.as(ann, "PUT", x.ws+"/components/c/versions/1", props("componentSpec", map[string]any{
		"type": "command", "command": "ls ${{inputs.i}}", "environment": "azureml:e:1", "inputs": map[string]any{"i": map[string]any{"type": "uri_folder"}},
	})).want(201)
	step := map[string]any{"type": "command", "componentId": "azureml:c:1", "computeId": "local", "inputs": map[string]any{"i": map[string]any{"job_input_type": "uri_folder", "uri": address}}}
	command := props("jobType", "Command", "command", "ls ${{inputs.d}}", "inputs", map[string]any{"d": with("uri_folder")},
		"outputs", map[string]any{"o": map[string]any{"jobOutputType": "uri_folder", "uri": address}})
	for path, body := range map[string]map[string]any{
		"/jobs/one":                  command,
		"/jobs/line":                 props("jobType", "Pipeline", "jobs", map[string]any{"s": step}, "inputs", map[string]any{"d": with("uri_folder")}),
		"/data/set/versions/1":       props("dataType", "uri_folder", "dataUri", address),
		"/models/net/versions/1":     props("modelType", "custom_model", "modelUri", strings.Replace(address, "account", "user:"+secret+"@account", 1)),
		"/codes/src/versions/1":      props("codeUri", address),
		"/environments/b/versions/1": props("build", map[string]any{"contextUri": address, "dockerfilePath": "Dockerfile"}),
		"/schedules/daily": props("isEnabled", false, "trigger", map[string]any{"triggerType": "Cron", "expression": "0 8 * * *"},
			"action", map[string]any{"actionType": "CreateJob", "jobDefinition": command["properties"]}),
	} {
		hidden(x.as(ann, "PUT", x.ws+path, body).want(http.StatusCreated))
		shown := hidden(x.as(bob, "GET", x.ws+path, nil).want(200))
		if !strings.Contains(string(shown.raw), "?sp=rl\\u0026sig=berth-sealed.") {
			t.Errorf("%s: %s", path, shown.raw)
		}
		list, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/versions/")
		if list == strings.TrimPrefix(path, "/") {
			list, _, _ = strings.Cut(list, "/")
		} else {
			list += "/versions"
		}
		hidden(x.as(bob, "GET", x.ws+"/"+list, nil).want(200))
		hidden(x.as(ann, "GET", x.ws+path, nil).want(200))
	}
	for _, path := range []string{"/events", "/jobs/one/explain"} {
		hidden(x.as(bob, "GET", x.ws+path, nil))
	}
	hidden(x.as(bob, "POST", "/data/v1.0"+x.ws+"/dataversion/batchGetResolvedUris", map[string]any{"values": []string{"azureml:set:1"}}).want(200))
	hidden(x.as(ann, "PUT", x.ws+"/jobs/bad", props("jobType", "Command", "command", "ls", "inputs", map[string]any{
		"d": map[string]any{"jobInputType": "uri_file", "uri": "ftp://u:" + secret + "@host/x?sig=" + secret},
	})).want(400))

	err := x.db.View(t.Context(), func(tx *store.Tx) error {
		for _, kind := range []string{"jobs", "data/versions", "models/versions", "codes/versions", "environments/versions", "schedules"} {
			docs, err := tx.All(store.Query{Workspace: workspace.Key(), Kind: kind})
			if err != nil || len(docs) == 0 {
				t.Error(kind, err)
			}
			for _, d := range docs {
				if strings.Contains(string(d.Body)+string(d.Own), secret) {
					t.Errorf("the database has it in %s %s: %s", kind, d.Name, d.Body)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	// What was shown is good for its owner, and for the same version of an asset.
	clone := x.as(ann, "GET", x.ws+"/jobs/one", nil).want(200).body
	x.as(ann, "PUT", x.ws+"/jobs/two", clone).want(201)
	x.as(bob, "PUT", x.ws+"/jobs/three", clone).want(400).says("the signature in https://account.blob.core.windows.net/box/in is hidden")
	for _, who := range []string{ann, bob} {
		x.as(who, "PUT", x.ws+"/data/set/versions/1", props("dataType", "uri_folder", "dataUri", address)).want(200)
	}
	x.as(bob, "PUT", x.ws+"/data/set/versions/1", props("dataType", "uri_folder", "dataUri", strings.Replace(address, "hunter2", "other", 1))).want(409)
	x.as(bob, "PUT", x.ws+"/jobs/four", props("jobType", "Command", "command", "ls", "inputs", map[string]any{"d": map[string]any{"jobInputType": "uri_folder", "uri": "azureml:set:1"}})).want(201)
}

// TestOlderSignaturesAreHidden: documents that were kept before addresses were sealed are shown as
// the others are, and sealed when they are edited.
func TestOlderSignaturesAreHidden(t *testing.T) {
	x := open(t)
	ann := x.token("ann", auth.User)
	body := func(address string) map[string]any {
		return props("jobType", "Command", "command", "ls", "inputs", map[string]any{"d": map[string]any{"jobInputType": "uri_file", "uri": address}})
	}
	x.as(ann, "PUT", x.ws+"/jobs/old", body("https://host/x?sig=sealed")).want(201)
	var had string
	change := func(f func(d *store.Doc)) {
		t.Helper()
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get(workspace.Key(), "jobs", "old", "")
			if err != nil {
				return err
			}
			f(d)
			return tx.Save(d)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	change(func(d *store.Doc) {
		before, rest, _ := strings.Cut(string(d.Body), "sig=")
		_, after, _ := strings.Cut(rest, `"`)
		d.Body = []byte(before + `sig=hunter2"` + after)
	})
	for _, path := range []string{"/jobs/old", "/jobs"} {
		if a := x.do("GET", x.ws+path, nil).want(200); strings.Contains(string(a.raw), "hunter2") || !strings.Contains(string(a.raw), "https://host/x?sig=berth-sealed.") {
			t.Errorf("%s", a.raw)
		}
	}
	x.as(ann, "PUT", x.ws+"/jobs/old", props("jobType", "Command", "tags", map[string]any{"a": "b"})).want(200)
	change(func(d *store.Doc) { had = string(d.Body) })
	if strings.Contains(had, "hunter2") {
		t.Errorf("it is kept: %s", had)
	}
}
