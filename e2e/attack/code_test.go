package attack

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

const mine, evil = "echo mine", "echo evil"

// TestCodeOfOthersStays: a user changes nothing of what another one uploads or has registered,
// whichever way they go about it.
func TestCodeOfOthersStays(t *testing.T) {
	s := world.Start(t)
	c := client(t, s)
	ann, bob := person(t, s, c, "ann"), person(t, s, c, "bob")
	up := ann.pending("c1")
	all := bob.store()
	_, path, _ := strings.Cut(strings.TrimPrefix(up.url, all.url), "/")
	bobs := folder{all.url + "/" + path, all.sig} // the same place, by the signature everybody gets

	refused := func(when string) {
		t.Helper()
		for how, status := range map[string]int{
			"put": bob.put(bobs, "train.sh", evil), "block list": bob.commit(bobs, "train.sh", evil),
			"another file": bob.put(bobs, "sitecustomize.py", evil), "below a file": bob.put(bobs, "/train.sh", evil),
		} {
			if status != http.StatusConflict {
				t.Errorf("%s, %s: %d", when, how, status)
			}
		}
		if status, _, _ := bob.send("DELETE", bobs.at("train.sh", ""), ""); status != http.StatusConflict && status != http.StatusNotFound {
			t.Errorf("%s, delete: %d", when, status)
		}
		status, header, _ := bob.send("PUT", s.URL+strings.TrimPrefix(bobs.url, s.URL)+"/train.sh", evil, "Authorization", "Bearer "+bob.token, "x-ms-blob-type", "BlockBlob")
		if status != http.StatusConflict || header.Get("x-ms-error-code") != "BlobImmutableDueToPolicy" {
			t.Errorf("%s, by token: %d %s", when, status, header.Get("x-ms-error-code"))
		}
		for _, h := range []string{"x-ms-blob-type:AppendBlob", "x-ms-blob-type:PageBlob", "x-ms-copy-source:" + all.at("x", "")} {
			k, v, _ := strings.Cut(h, ":")
			if status, _, _ := bob.send("PUT", bobs.at("train.sh", ""), "", k, v); status/100 == 2 {
				t.Errorf("%s, %s: %d", when, h, status)
			}
		}
		for _, comp := range []string{"snapshot", "appendblock", "page", "tier", "lease", "copy", "properties", "undelete"} {
			if status, _, _ := bob.send("PUT", bobs.at("train.sh", "comp="+comp), ""); status/100 == 2 {
				t.Errorf("%s, %s: %d", when, comp, status)
			}
		}
	}
	refused("before the upload")
	if status := ann.put(up, "train.sh", mine); status != http.StatusCreated {
		t.Fatalf("upload: %d", status)
	}
	refused("during the upload")
	if status := bob.register("stolen", up, "h-of-bob"); status != http.StatusConflict {
		t.Errorf("a folder of another's was registered: %d", status)
	}
	if status := ann.register("c1", up, "h1"); status != http.StatusCreated {
		t.Fatalf("register: %d", status)
	}
	refused("once registered")
	// Nor does ann herself: versions do not change. The same again is not a change.
	for how, got := range map[string][2]int{
		"other content": {ann.put(up, "train.sh", evil), 409}, "by blocks": {ann.commit(up, "train.sh", evil), 409}, "another file": {ann.put(up, "more.sh", mine), 409},
		"the same": {ann.put(up, "train.sh", mine), 201}, "the same by blocks": {ann.commit(up, "train.sh", mine), 201}, "the same by bob": {bob.put(bobs, "train.sh", mine), 201},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", how, got[0], got[1])
		}
	}
	if status, _, _ := ann.send("DELETE", folder{bobs.url, ann.store().sig}.at("train.sh", ""), ""); status != http.StatusConflict {
		t.Errorf("delete: %d", status)
	}
	if got := ann.read(up, "train.sh"); got != mine {
		t.Errorf("the code is now %q", got)
	}
	// Once the version is deleted its files are anybody's who owns the folder.
	ann.must(200, "DELETE", ann.ws()+"/codes/c1/versions/1", nil)
	if status := ann.put(up, "train.sh", "echo next"); status != http.StatusCreated {
		t.Errorf("after the version: %d", status)
	}
}

// TestHashesAreNotTrusted: what one user says the hash of some code is has no effect on what
// another one runs.
func TestHashesAreNotTrusted(t *testing.T) {
	s := world.Start(t)
	c := client(t, s)
	ann, bob := person(t, s, c, "ann"), person(t, s, c, "bob")
	trap := bob.pending("trap")
	bob.put(trap, "train.sh", evil)
	if status := bob.register("trap", trap, "hash-of-ann"); status != http.StatusCreated {
		t.Fatalf("register: %d", status)
	}
	if got := ann.known("hash-of-ann"); len(got) != 0 {
		t.Errorf("ann is offered %v", got)
	}
	if got := bob.known("hash-of-ann"); len(got) != 1 {
		t.Errorf("bob is offered %v", got)
	}
	up := ann.pending("good")
	ann.put(up, "train.sh", mine)
	if status := ann.register("good", up, "hash-of-ann"); status != http.StatusCreated {
		t.Fatalf("register: %d", status)
	}
	// Nobody changes the hash of a version afterwards.
	bob.do("PUT", bob.ws()+"/codes/good/versions/1", map[string]any{"properties": map[string]any{"codeUri": trap.url, "properties": map[string]any{"hash_sha256": "other"}}})
	got := ann.known("hash-of-ann")
	if len(got) != 1 || !strings.Contains(got[0].(map[string]any)["id"].(string), "/codes/good/") || len(ann.known("other")) != 0 {
		t.Errorf("ann is offered %v and %v", got, ann.known("other"))
	}
	// An environment or a component without a name is called by a hash too.
	env := func(image string) any {
		return map[string]any{"properties": map[string]any{"isAnonymous": true, "image": image}}
	}
	at := "/environments/CliV2AnonymousEnvironment/versions/" + strings.Repeat("ab", 32)
	bob.must(201, "PUT", bob.ws()+at, env("evil"))
	if status, out := ann.do("PUT", ann.ws()+at, env("mine")); status != http.StatusConflict {
		t.Errorf("environment: %d %v", status, out)
	}
	ann.must(200, "PUT", ann.ws()+at, env("evil"))
	component := func(command string) any {
		return map[string]any{"properties": map[string]any{"isAnonymous": true, "componentSpec": map[string]any{
			"type": "command", "name": "azureml_anonymous", "command": command, "environment": "azureml:AzureML-sklearn-1.5:1", "inputs": map[string]any{}, "outputs": map[string]any{},
		}}}
	}
	at = "/components/azureml_anonymous/versions/0a1b2c3d-0000-0000-0000-000000000001"
	ann.must(201, "PUT", ann.ws()+at, component(mine))
	if status, out := bob.do("PUT", bob.ws()+at, component(evil)); status != http.StatusConflict {
		t.Errorf("component: %d %v", status, out)
	}
	bob.must(200, "PUT", bob.ws()+at, component(mine))
}

// TestUploadsNamedForTheirContent: clients upload data and build contexts to a folder named for its
// content, and upload nothing where it seems to be there. Somebody who was there first has no say
// in what another one registers.
func TestUploadsNamedForTheirContent(t *testing.T) {
	s := world.Start(t)
	c := client(t, s)
	ann, bob := person(t, s, c, "ann"), person(t, s, c, "bob")
	below := func(p *caller, name string) folder {
		f := p.store()
		return folder{f.url + "/LocalUpload/" + name + "/ctx", f.sig}
	}
	marked := func(p *caller, f folder) bool {
		_, h, _ := p.send("HEAD", f.at("Dockerfile", ""), "")
		return h.Get("x-ms-meta-upload_status") == "completed"
	}
	mark := func(p *caller, f folder) int {
		status, _, _ := p.send("PUT", f.at("Dockerfile", "comp=metadata"), "", "x-ms-meta-upload_status", "completed")
		return status
	}
	register := func(p *caller, name string, f folder) int {
		status, _ := p.do("PUT", p.ws()+"/environments/"+name+"/versions/1", map[string]any{"properties": map[string]any{"build": map[string]any{"contextUri": f.url + "/"}}})
		return status
	}
	// Bob puts other bytes where ann's would go, and says that they are complete.
	a, b := below(ann, "sha1"), below(bob, "sha1")
	if bob.put(b, "Dockerfile", evil) != 201 || mark(bob, b) != 200 || !marked(bob, b) {
		t.Fatal("bob cannot upload")
	}
	if marked(ann, a) {
		t.Error("ann's client would take bob's word")
	}
	if status := ann.put(a, "Dockerfile", mine); status != http.StatusConflict {
		t.Errorf("ann is not told: %d", status)
	}
	// Bob adds a file to what ann uploads as well.
	a, b = below(ann, "sha2"), below(bob, "sha2")
	bob.put(b, "Dockerfile", mine)
	bob.put(b, "extra", evil)
	if ann.put(a, "Dockerfile", mine) != 201 || mark(ann, a) != 200 {
		t.Error("the same content is refused")
	}
	if status := register(ann, "env2", a); status != http.StatusConflict {
		t.Errorf("ann's environment has bob's file: %d", status)
	}
	// Two who upload the same both may.
	a, b = below(ann, "sha3"), below(bob, "sha3")
	for _, x := range []struct {
		p *caller
		f folder
	}{{bob, b}, {ann, a}} {
		if x.p.put(x.f, "Dockerfile", mine) != 201 || x.p.put(x.f, "x", mine) != 201 || mark(x.p, x.f) != 200 {
			t.Error("the same content is refused")
		}
	}
	if register(ann, "env3", a) != 201 || register(bob, "env3b", b) != 201 {
		t.Error("not registered")
	}
	for name, body := range map[string]string{"Dockerfile": evil, "more": evil} {
		for _, x := range []struct {
			p *caller
			f folder
		}{{bob, b}, {ann, a}} {
			if status := x.p.put(x.f, name, body); status != http.StatusConflict {
				t.Errorf("%s: %d", name, status)
			}
		}
	}
	// Data may grow, and what there is of it stays.
	f := ann.store()
	d := folder{f.url + "/set", f.sig}
	ann.put(d, "a.csv", "1")
	ann.must(201, "PUT", ann.ws()+"/data/set/versions/1", map[string]any{"properties": map[string]any{"dataType": "uri_folder", "dataUri": "azureml://datastores/workspaceblobstore/paths/set"}})
	if got := [3]int{bob.put(folder{d.url, b.sig}, "a.csv", "2"), ann.put(d, "a.csv", "1"), ann.put(d, "b.csv", "2")}; got != [3]int{409, 201, 201} {
		t.Errorf("%v", got)
	}
	// A place that is everybody's is held by nobody.
	ann.must(201, "PUT", ann.ws()+"/data/everything/versions/1", map[string]any{"properties": map[string]any{"dataType": "uri_folder", "dataUri": "azureml://datastores/workspaceblobstore/paths/"}})
	if status := bob.put(folder{f.url, b.sig}, url.PathEscape("free.txt"), "x"); status != http.StatusCreated {
		t.Errorf("the whole storage is held: %d", status)
	}
}

// TestCodeInAFolderOfNobody: code that is registered where anybody may write runs as it was then,
// and nobody is kept from the folder.
func TestCodeInAFolderOfNobody(t *testing.T) {
	s := world.Start(t)
	c := client(t, s)
	ann, bob := person(t, s, c, "ann"), person(t, s, c, "bob")
	below := func(p *caller) folder {
		f := p.store()
		return folder{f.url + "/proj", f.sig}
	}
	a, b := below(ann), below(bob)
	ann.put(a, "train.sh", mine)
	ann.put(a, "lib/x.sh", mine)
	if status := ann.register("c1", a, "h1"); status != http.StatusCreated {
		t.Fatalf("register: %d", status)
	}
	if got := [3]int{bob.put(b, "evil.sh", evil), bob.put(b, "lib/evil.sh", evil), bob.put(b, "train.sh", evil)}; got != [3]int{201, 201, 409} {
		t.Errorf("bob writes to a folder of nobody: %v", got)
	}
	ann.must(201, "PUT", ann.ws()+"/jobs/j1", map[string]any{"properties": map[string]any{
		"jobType": "Command", "codeId": "azureml:c1:1", "command": "find . -name '*.sh' | sort | tr '\\n' ' '; sh ./train.sh",
	}})
	out, err := s.Command("job", "stream", "-n", "j1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "./lib/x.sh ./train.sh mine") || strings.Contains(string(out), "evil") {
		t.Errorf("the job runs with other files: %v\n%s", err, out)
	}
	// What is kept for the job is nobody's to write to.
	var fixed []string
	for _, item := range strings.Split(string(list(bob, b)), "<Name>")[1:] {
		name, _, _ := strings.Cut(item, "</Name>")
		if strings.HasPrefix(name, "azureml/versions/") {
			fixed = append(fixed, name)
		}
	}
	if len(fixed) != 2 {
		t.Errorf("kept: %v", fixed)
	}
	admin := &caller{t, s, c, s.Token}
	root, all := bob.store(), admin.store()
	for _, name := range fixed {
		for _, n := range []string{name, name + ".more"} {
			got := [3]int{bob.put(root, n, evil), ann.put(folder{root.url, a.sig}, n, evil), admin.put(all, n, evil)}
			if got != [3]int{403, 403, 409} {
				t.Errorf("%s: %v", n, got)
			}
		}
	}
	// A folder that is everybody's is not code.
	if status := ann.register("all", ann.store(), "h2"); status != http.StatusBadRequest {
		t.Errorf("the whole storage is code: %d", status)
	}
	ann.must(200, "DELETE", ann.ws()+"/codes/c1/versions/1", nil)
	if left := string(list(bob, b)); strings.Contains(left, "azureml/versions/") {
		t.Errorf("what the version consisted of is left: %s", left)
	}
}

// list is all that is in the workspace's storage.
func list(p *caller, f folder) []byte {
	p.t.Helper()
	root, _, _ := strings.Cut(f.url, "/proj")
	status, _, b := p.send("GET", root+"?restype=container&comp=list&"+f.sig, "")
	if status != http.StatusOK {
		p.t.Fatalf("list: %d %s", status, b)
	}
	return b
}
