package attack

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/e2e/world"
)

// TestOutputsOfOthersStay: what a job wrote is its user's, registered or not. Others with the
// workspace's own signature leave it alone.
func TestOutputsOfOthersStay(t *testing.T) {
	s := world.Start(t)
	c := client(t, s)
	ann, bob := person(t, s, c, "ann"), person(t, s, c, "bob")
	admin := &caller{t, s, c, s.Token}
	job := func(p *caller, name string, output map[string]any) string {
		output["jobOutputType"] = "uri_folder"
		p.must(201, "PUT", p.ws()+"/jobs/"+name, map[string]any{"properties": map[string]any{
			"jobType": "Command", "command": "echo " + name + " > ${{outputs.o}}/x; mkdir -p outputs; echo " + name + " > outputs/y",
			"outputs": map[string]any{"o": output},
		}})
		out, _ := s.Command("job", "stream", "-n", name).CombinedOutput()
		status := p.must(200, "GET", p.ws()+"/jobs/"+name, nil)["properties"].(map[string]any)["status"].(string)
		t.Logf("%s: %s\n%s", name, status, out)
		return status
	}
	if got := job(ann, "hers", map[string]any{}); got != "Completed" {
		t.Fatal(got)
	}
	at := func(p *caller, datastore string) folder {
		ds := p.must(200, "GET", p.ws()+"/datastores/"+datastore, nil)["properties"].(map[string]any)
		sas := p.must(200, "POST", p.ws()+"/datastores/"+datastore+"/listSecrets", map[string]any{})["sasToken"].(string)
		return folder{p.s.URL + "/st.blob.berth/" + ds["containerName"].(string), strings.TrimPrefix(sas, "?")}
	}
	for datastore, name := range map[string]string{"workspaceblobstore": "azureml/hers/o/x", "workspaceartifactstore": "ExperimentRun/dcid.hers/outputs/y"} {
		bobs := at(bob, datastore)
		top, rest, _ := strings.Cut(name, "/")
		pack := berth.AppendPackEnd(append(berth.AppendPackFile(nil, rest, int64(len(evil))), evil...), 1)
		sent := func(method, query, body string, header ...string) int {
			status, _, answer := bob.send(method, bobs.at(name, query), body, header...)
			if status == http.StatusForbidden && !strings.Contains(string(answer), "job hers") {
				t.Errorf("%s %s does not say why: %s", method, query, answer)
			}
			return status
		}
		packed, _, _ := bob.send("PUT", bobs.at(top, "comp=pack"), string(pack))
		token, _, _ := bob.send("PUT", bobs.url+"/"+name, evil, "Authorization", "Bearer "+bob.token, "x-ms-blob-type", "BlockBlob")
		for how, status := range map[string]int{
			"put": sent("PUT", "", evil, "x-ms-blob-type", "BlockBlob"), "another file": bob.put(bobs, name+".more", evil), "block": sent("PUT", "comp=block&blockid=MDAwMQ==", evil),
			"block list": sent("PUT", "comp=blocklist", "<BlockList></BlockList>"), "metadata": sent("PUT", "comp=metadata", "", "x-ms-meta-a", "b"), "delete": sent("DELETE", "", ""),
			"by token": token, "pack": packed,
		} {
			if status != http.StatusForbidden {
				t.Errorf("%s, %s: %d", name, how, status)
			}
		}
		if got := bob.read(bobs, name); got != "hers\n" {
			t.Errorf("%s is now %q", name, got)
		}
		if got := [3]int{bob.put(bobs, "shared/o/x", "free"), ann.put(at(ann, datastore), name, "by ann"), admin.put(at(admin, datastore), name, "by root")}; got != [3]int{201, 201, 201} {
			t.Errorf("%s: free, its user, an administrator: %v", name, got)
		}
		status, _, _ := admin.send("PUT", bobs.url+"/"+name, "hers\n", "Authorization", "Bearer "+admin.token, "x-ms-blob-type", "BlockBlob")
		if status != http.StatusCreated {
			t.Errorf("an administrator's token: %d", status)
		}
	}
	there := func() map[string]any {
		return map[string]any{"uri": "azureml://datastores/workspaceblobstore/paths/azureml/hers/o"}
	}
	if got := job(bob, "his", there()); got != "Failed" {
		t.Errorf("bob's job writes to the outputs of ann's: %s", got)
	}
	if got := job(ann, "again", there()); got != "Completed" {
		t.Errorf("ann's second job writes to the outputs of her first: %s", got)
	}

	// Once it is registered, by whomever, it stays: the job has ended.
	bob.must(201, "PUT", bob.ws()+"/data/kept/versions/1", map[string]any{"properties": map[string]any{"dataType": "uri_folder", "dataUri": there()["uri"]}})
	if got := ann.put(at(ann, "workspaceblobstore"), "azureml/hers/o/x", "swapped"); got != http.StatusConflict {
		t.Errorf("ann changes what bob registered: %d", got)
	}
}

// TestNobodyPlantsOutputs: what somebody writes where the outputs of a job will be, before the job
// is there, does not become the job's.
func TestNobodyPlantsOutputs(t *testing.T) {
	s := world.Start(t)
	c := client(t, s)
	ann, bob := person(t, s, c, "ann"), person(t, s, c, "bob")
	for datastore, name := range map[string]string{"workspaceblobstore": "azureml/hers/o/planted", "workspaceartifactstore": "ExperimentRun/dcid.hers/outputs/planted"} {
		ds := bob.must(200, "GET", bob.ws()+"/datastores/"+datastore, nil)["properties"].(map[string]any)
		sas := bob.must(200, "POST", bob.ws()+"/datastores/"+datastore+"/listSecrets", map[string]any{})["sasToken"].(string)
		at := folder{bob.s.URL + "/st.blob.berth/" + ds["containerName"].(string), strings.TrimPrefix(sas, "?")}
		if status := bob.put(at, name, evil); status != http.StatusForbidden {
			t.Errorf("%s, by the workspace's signature: %d", name, status)
		}
		if status, _, _ := bob.send("PUT", at.url+"/"+name, evil, "Authorization", "Bearer "+bob.token, "x-ms-blob-type", "BlockBlob"); status != http.StatusForbidden {
			t.Errorf("%s, by a token: %d", name, status)
		}
	}
	tracking := "/mlflow/v1.0" + bob.ws() + "/api/2.0/mlflow-artifacts/artifacts/0/hers/artifacts/outputs/planted"
	bob.send("PUT", bob.s.URL+tracking, evil, "Authorization", "Bearer "+bob.token) // it is nobody's run, and stays so
	ann.must(201, "PUT", ann.ws()+"/jobs/hers", map[string]any{"properties": map[string]any{
		"jobType": "Command", "command": "ls ${{outputs.o}} outputs; echo mine > ${{outputs.o}}/mine", "outputs": map[string]any{"o": map[string]any{"jobOutputType": "uri_folder"}},
	}})
	out, err := s.Command("job", "stream", "-n", "hers").CombinedOutput()
	if err != nil || strings.Contains(string(out), "planted") {
		t.Errorf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	down := s.Command("job", "download", "-n", "hers", "--all", "-p", dir)
	if out, err := down.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	err = filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if strings.Contains(p, "planted") {
			t.Errorf("the job has %s", p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
