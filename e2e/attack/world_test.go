package attack

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// caller is somebody with a token.
type caller struct {
	t     *testing.T
	s     *world.Server
	c     *http.Client
	token string
}

// person makes a token for a new user.
func person(t *testing.T, s *world.Server, c *http.Client, name string) *caller {
	t.Helper()
	admin := &caller{t, s, c, s.Token}
	status, body := admin.do("POST", "/tokens", map[string]any{"name": name, "role": "user"})
	if status != http.StatusCreated {
		t.Fatalf("token: %d %v", status, body)
	}
	return &caller{t, s, c, body["token"].(string)}
}

func (p *caller) ws() string {
	return "/subscriptions/" + p.s.Sub + "/resourceGroups/" + p.s.Group + "/providers/Microsoft.MachineLearningServices/workspaces/" + p.s.Workspace
}

// do calls the API.
func (p *caller) do(method, path string, body any) (int, map[string]any) {
	p.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	status, _, b := p.send(method, p.s.URL+path, string(raw), "Authorization", "Bearer "+p.token, "Content-Type", "application/json")
	out := map[string]any{}
	if len(b) > 0 {
		if err := json.Unmarshal(b, &out); err != nil {
			p.t.Fatalf("%s %s: %v in %s", method, path, err, b)
		}
	}
	return status, out
}

// send sends any request.
func (p *caller) send(method, url, body string, header ...string) (int, http.Header, []byte) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := p.c.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, res.Header, b
}

// must is do with the status it has to have.
func (p *caller) must(status int, method, path string, body any) map[string]any {
	p.t.Helper()
	got, out := p.do(method, path, body)
	if got != status {
		p.t.Fatalf("%s %s: %d %v, want %d", method, path, got, out, status)
	}
	return out
}

// folder is a place in the storage with a signature.
type folder struct{ url, sig string }

func (f folder) at(name, query string) string {
	u := f.url + "/" + name + "?" + f.sig
	if query != "" {
		u += "&" + query
	}
	return u
}

// store is the workspace's storage, open to everybody with a token.
func (p *caller) store() folder {
	p.t.Helper()
	ds := p.must(200, "GET", p.ws()+"/datastores/workspaceblobstore", nil)["properties"].(map[string]any)
	sas := p.must(200, "POST", p.ws()+"/datastores/workspaceblobstore/listSecrets", map[string]any{})["sasToken"].(string)
	return folder{p.s.URL + "/st.blob.berth/" + ds["containerName"].(string), strings.TrimPrefix(sas, "?")}
}

// pending is a private folder to upload code to.
func (p *caller) pending(name string) folder {
	p.t.Helper()
	out := p.must(200, "POST", p.ws()+"/codes/"+name+"/versions/1/startPendingUpload", map[string]any{})
	cred := out["blobReferenceForConsumption"].(map[string]any)["credential"].(map[string]any)
	url, sig, _ := strings.Cut(cred["sasUri"].(string), "?")
	return folder{url, sig}
}

// put writes a blob and is the status of the answer.
func (p *caller) put(f folder, name, body string) int {
	p.t.Helper()
	status, _, _ := p.send("PUT", f.at(name, ""), body, "x-ms-blob-type", "BlockBlob")
	return status
}

// commit writes a blob by a block.
func (p *caller) commit(f folder, name, body string) int {
	p.t.Helper()
	id := base64.StdEncoding.EncodeToString([]byte("0001"))
	status, _, _ := p.send("PUT", f.at(name, "comp=block&blockid="+id), body)
	if status != http.StatusCreated {
		return status
	}
	status, _, _ = p.send("PUT", f.at(name, "comp=blocklist"), "<BlockList><Latest>"+id+"</Latest></BlockList>")
	return status
}

func (p *caller) read(f folder, name string) string {
	p.t.Helper()
	status, _, b := p.send("GET", f.at(name, ""), "")
	if status != http.StatusOK {
		p.t.Fatalf("read %s: %d", name, status)
	}
	return string(b)
}

// register makes a code version of what lies in a folder.
func (p *caller) register(name string, f folder, hash string) int {
	p.t.Helper()
	status, _ := p.do("PUT", p.ws()+"/codes/"+name+"/versions/1", map[string]any{"properties": map[string]any{
		"codeUri": f.url, "isAnonymous": true, "properties": map[string]any{"hash_sha256": hash, "hash_version": 202208},
	}})
	return status
}

// known is the code that the server offers for a hash.
func (p *caller) known(hash string) []any {
	p.t.Helper()
	v, _ := p.must(200, "GET", p.ws()+"/codes/new/versions?hash="+hash+"&hashVersion=202208", nil)["value"].([]any)
	return v
}
