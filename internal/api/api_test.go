package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// house is the front door over a real store, without the loops: what is written stays as the handlers wrote it.
type house struct {
	t     testing.TB
	db    *store.DB
	blobs *blob.Store
	auth  *auth.Authority
	admin string
	ws    string
	h     http.Handler
}

// curated is a list of one environment that is always there.
func curated(name string) (berth.LaunchEnv, bool) {
	return berth.LaunchEnv{Conda: "dependencies: [python=3.10]"}, name == "always-1.5"
}

var workspace = berth.Workspace{Subscription: "sub", Group: "Group", Name: "lab"}

func open(t testing.TB) *house {
	t.Helper()
	w, err := filewatch.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return openWith(t, w)
}

func openWith(t testing.TB, w *filewatch.Watcher) *house {
	t.Helper()
	dir := t.TempDir()
	return openOn(t, w, "sqlite:"+filepath.Join(dir, "db"), dir)
}

func openOn(t testing.TB, w *filewatch.Watcher, url, dir string) *house {
	t.Helper()
	db, err := store.Open(t.Context(), url, store.Options{NoSync: true, Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	blobs, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	keys, err := auth.LoadKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	x := &house{t: t, db: db, blobs: blobs, auth: auth.NewAuthority(keys, db), ws: workspace.ID()}
	if x.admin, err = x.auth.AdminToken(t.Context(), dir, "root"); err != nil {
		t.Fatal(err)
	}
	signer := front.NewSigner(keys.SAS)
	tracking := track.New(track.Options{DB: db, Blobs: blobs, Dir: filepath.Join(dir, "tracking"), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { tracking.Close() })
	s := api.New(api.Options{
		Tracking: tracking,
		DB:       db, Blobs: blobs, Authority: x.auth, Signer: signer, Watcher: w, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Front:    front.New(blobs, signer, front.Options{Account: "st", Suffix: "berth"}),
		Locator:  locate.Locator{BaseURL: "https://127.0.0.1:8443", Account: "st", Suffix: "berth/"},
		Location: "here", Default: workspace, Curated: curated,
	})
	if err := s.EnsureWorkspace(t.Context(), workspace, "root"); err != nil {
		t.Fatal(err)
	}
	x.h = s
	return x
}

type answer struct {
	t      testing.TB
	status int
	header http.Header
	raw    []byte
	body   map[string]any
}

func (x *house) as(token, method, path string, body any, header ...string) answer {
	x.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			x.t.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	req := httptest.NewRequestWithContext(ctx, method, path, r)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	x.h.ServeHTTP(w, req)
	a := answer{t: x.t, status: w.Code, header: w.Header(), raw: w.Body.Bytes(), body: map[string]any{}}
	if bytes.HasPrefix(a.raw, []byte("{")) {
		if err := json.Unmarshal(a.raw, &a.body); err != nil {
			x.t.Fatalf("%s %s: %v in %s", method, path, err, a.raw)
		}
	}
	return a
}

func (x *house) do(method, path string, body any, header ...string) answer {
	x.t.Helper()
	return x.as(x.admin, method, path, body, header...)
}

func (a answer) want(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.raw)
	}
	return a
}

// at is a value of the answer by dotted path; a number is a list index.
func (a answer) at(path string) any {
	var v any = a.body
	for k := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[k]
		case []any:
			var i int
			if _, err := fmt.Sscan(k, &i); err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func (a answer) is(path string, want any) answer {
	a.t.Helper()
	if got := a.at(path); fmt.Sprint(got) != fmt.Sprint(want) {
		a.t.Errorf("%s = %v, want %v", path, got, want)
	}
	return a
}

func (a answer) says(words ...string) answer {
	a.t.Helper()
	msg := fmt.Sprint(a.at("error.message"))
	for _, w := range words {
		if !strings.Contains(msg, w) {
			a.t.Errorf("message %q does not say %q", msg, w)
		}
	}
	return a
}

func props(kv ...any) map[string]any {
	p := map[string]any{}
	for i := 0; i+1 < len(kv); i += 2 {
		p[kv[i].(string)] = kv[i+1]
	}
	return map[string]any{"properties": p}
}

func TestUnknownFieldsComeBack(t *testing.T) {
	x := open(t)
	doc := `{"properties":{"dataType":"uri_file","dataUri":"https://x/y","preview":{"deep":[1,2.50,12345678901234567890,null,true]},"n":202208}}`
	x.do("PUT", x.ws+"/data/d/versions/1", doc).want(201)
	got := x.do("GET", strings.ToUpper(x.ws)+"/DATA/d/VERSIONS/1", nil).want(200)
	for _, want := range []string{`"deep":[1,2.50,12345678901234567890,null,true]`, `"n":202208`} {
		if !bytes.Contains(got.raw, []byte(want)) {
			t.Errorf("%s is not in %s", want, got.raw)
		}
	}
	got.is("id", x.ws+"/data/d/versions/1").is("name", "1").is("systemData.createdBy", "root")
}

func TestVersions(t *testing.T) {
	x := open(t)
	x.do("GET", x.ws+"/data/d", nil).want(404)
	put := func(v, uri string) answer {
		return x.do("PUT", x.ws+"/data/d/versions/"+v, props("dataType", "uri_folder", "dataUri", uri))
	}
	put("1", "azureml://datastores/workspaceblobstore/paths/a").want(201)
	put("foo", "https://b").want(201)
	put("bar", "https://c").want(201)
	x.do("GET", x.ws+"/data/d", nil).want(200).is("properties.latestVersion", "bar").is("properties.nextVersion", "2")
	x.do("GET", x.ws+"/data/d/versions?$orderBy=createdtime%20desc&$top=1", nil).want(200).is("value.0.name", "bar")
	x.do("GET", x.ws+"/data/d/labels/latest", nil).want(200).is("name", "bar")
	x.do("GET", x.ws+"/data/d/labels/nope", nil).want(404)
	put("1", "https://other").want(409).says("exists with another dataUri")
	x.do("PUT", x.ws+"/data/d/versions/bar", props("isArchived", true)).want(200)
	if v := x.do("GET", x.ws+"/data/d/versions?listViewType=ActiveOnly", nil).want(200).at("value").([]any); len(v) != 2 {
		t.Errorf("%d active versions, want 2", len(v))
	}
	x.do("GET", x.ws+"/data/d/versions?listViewType=ArchivedOnly", nil).is("value.0.name", "bar").is("value.1", nil)
	x.do("PUT", x.ws+"/data/d", props("isArchived", true)).want(200)
	x.do("GET", x.ws+"/data", nil).want(200).is("value.0", nil)
	x.do("GET", x.ws+"/data?listViewType=All", nil).want(200).is("value.0.name", "d")
	x.do("DELETE", x.ws+"/data/d/versions/foo", nil).want(200)
	x.do("DELETE", x.ws+"/data/d/versions/foo", nil).want(204)
}

func TestCodeIsFoundByHash(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/codes/one/versions/1", map[string]any{"properties": map[string]any{
		"codeUri": "https://127.0.0.1:8443/st.blob.berth/c/codes-1/src", "properties": map[string]any{"hash_sha256": "abc", "hash_version": 202208},
	}}).want(201)
	x.do("GET", x.ws+"/codes/two/versions?hash=abc&hashVersion=202208", nil).want(200).is("value.0.id", x.ws+"/codes/one/versions/1")
	x.do("GET", x.ws+"/codes/two/versions?hash=zzz", nil).want(200).is("value.0", nil)
	x.do("GET", x.ws+"/codes/one/versions/1", nil).is("properties.codeUri", "https://berth.blob.core.windows.net/c/codes-1/src")
	up := x.do("POST", x.ws+"/codes/g/versions/1/startPendingUpload", `{"pendingUploadType":"TemporaryBlobReference"}`).want(200)
	uri := up.at("blobReferenceForConsumption.credential.sasUri").(string)
	path, query, _ := strings.Cut(strings.TrimPrefix(uri, "https://127.0.0.1:8443"), "?")
	x.as("", "PUT", path+"/src/a.py?"+query, "print()", "x-ms-blob-type", "BlockBlob").want(201)
	x.as("", "PUT", strings.TrimSuffix(path, path[len(path)-2:])+"zz/a.py?"+query, "print()", "x-ms-blob-type", "BlockBlob").want(403)
}

func TestComponentSpec(t *testing.T) {
	x := open(t)
	spec := map[string]any{"type": "command", "command": "x", "inputs": map[string]any{"a": map[string]any{"type": "number"}}, "distribution": map[string]any{"process_count_per_instance": 4}, "environment": "azureml:AzureML-foo:3"}
	x.do("PUT", x.ws+"/components/c/versions/1", props("componentSpec", spec)).want(201).
		is("properties.componentSpec.name", "c").is("properties.componentSpec.version", "1").is("properties.componentSpec.inputs.a.optional", "False").
		is("properties.componentSpec.resources.instance_count", 1).is("properties.componentSpec.distribution.process_count_per_instance", "4").
		is("properties.componentSpec.environment", "azureml://registries/azureml/environments/AzureML-foo/versions/3")
	spec["command"] = "y"
	x.do("PUT", x.ws+"/components/c/versions/1", props("componentSpec", spec)).want(400).says("another command", "immutable")
	spec["command"] = "x"
	for _, in := range []map[string]any{
		{},
		{"a": map[string]any{"type": "integer"}},
		{"a": map[string]any{"type": "number", "default": 1}},
		{"a": map[string]any{"type": "number", "optional": true}},
		{"a": map[string]any{"type": "number"}, "b": map[string]any{"type": "string"}},
		{"a": map[string]any{"type": "number", "max": 3}},
	} {
		spec["inputs"] = in
		x.do("PUT", x.ws+"/components/c/versions/1", props("componentSpec", spec)).want(400).says("another inputs", "immutable")
	}
	// What was read may be sent back, and what is said of an input may change.
	spec["inputs"] = map[string]any{"a": map[string]any{"type": "Number", "optional": "False", "default": nil, "description": "how many"}}
	spec["outputs"] = map[string]any{}
	spec["description"] = "new words"
	x.do("PUT", x.ws+"/components/c/versions/1", props("componentSpec", spec)).want(200).is("properties.componentSpec.description", "new words")
	x.do("GET", x.ws+"/components/c/versions/azureml_default", nil).want(200).is("properties.componentSpec.name", "c").is("id", x.ws+"/components/c/labels/default")
}

func TestETags(t *testing.T) {
	x := open(t)
	a := x.do("PUT", x.ws+"/datastores/s", props("datastoreType", "AzureBlob", "accountName", "a")).want(201)
	tag := a.header.Get("ETag")
	x.do("PUT", x.ws+"/datastores/s", props("datastoreType", "AzureBlob", "accountName", "b"), "If-Match", tag).want(200)
	x.do("PUT", x.ws+"/datastores/s", props("datastoreType", "AzureBlob", "accountName", "c"), "If-Match", tag).want(412)
	x.do("PUT", x.ws+"/datastores/s", props("datastoreType", "AzureBlob"), "If-None-Match", "*").want(412)
	x.do("GET", x.ws+"/datastores/s", nil).is("properties.accountName", "b")
	now := x.do("GET", x.ws+"/datastores/s", nil).header.Get("ETag")
	x.do("GET", x.ws+"/datastores/s", nil, "If-None-Match", now).want(304)
}

func TestSecretsStayInside(t *testing.T) {
	x := open(t)
	const secret = "c2VjcmV0LWtleS12YWx1ZQ=="
	cred := map[string]any{"credentialsType": "AccountKey", "secrets": map[string]any{"secretsType": "AccountKey", "key": secret}}
	for _, a := range []answer{
		x.do("PUT", x.ws+"/datastores/s", props("datastoreType", "AzureBlob", "accountName", "a", "credentials", cred)).want(201),
		x.do("GET", x.ws+"/datastores/s", nil).want(200),
		x.do("GET", x.ws+"/datastores", nil).want(200),
		x.do("PUT", x.ws+"/connections/c", props("category", "S3", "credentials", map[string]any{"key": secret})).want(200),
		x.do("GET", x.ws+"/connections/c", nil).want(200).is("properties.credentials", nil),
	} {
		if bytes.Contains(a.raw, []byte(secret)) {
			t.Errorf("the secret is in %s", a.raw)
		}
	}
	x.do("POST", x.ws+"/datastores/s/listSecrets", "{}").want(200).is("key", secret)
	x.do("POST", x.ws+"/connections/c/listsecrets", nil).want(200).is("properties.credentials.key", secret)
	reader, err := x.auth.Create(t.Context(), auth.Token{Name: "r", Role: auth.Reader})
	if err != nil {
		t.Fatal(err)
	}
	x.as(reader, "POST", x.ws+"/datastores/s/listSecrets", "{}").want(403)
	x.as(reader, "GET", x.ws+"/datastores/s", nil).want(200)
	if err := x.db.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(x.blobs.Dir())
	files, err := filepath.Glob(filepath.Join(dir, "db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("the secret is in clear in %s", filepath.Base(f))
		}
	}
}

func TestHostileNames(t *testing.T) {
	x := open(t)
	job := props("jobType", "Command", "command", "true")
	for _, name := range []string{"..%2f..%2fetc", "%2e%2e", "a%00b", strings.Repeat("x", 300), "a%20b", "-a", "a..b", "%ff"} {
		if a := x.do("PUT", x.ws+"/jobs/"+name, job); a.status != 400 || a.at("error.code") == nil {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	for _, body := range []string{"", "null", "[]", "{", `{"properties":[]}`, `{"properties":{"jobType":7}}`, `"x"`} {
		if a := x.do("PUT", x.ws+"/jobs/j", body); a.status != 400 || a.at("error.message") == nil {
			t.Errorf("%q: %d %s", body, a.status, a.raw)
		}
	}
	big := `{"properties":{"x":"` + strings.Repeat("y", 17<<20) + `"}}`
	if a := x.do("PUT", x.ws+"/jobs/j", big); a.status != 400 {
		t.Errorf("a huge document: %d", a.status)
	}
}

func TestJobDocuments(t *testing.T) {
	x := open(t)
	for _, c := range []struct {
		props map[string]any
		words []string
	}{
		{props("command", "true"), []string{"jobType"}},
		{props("jobType", "Sweep"), []string{"Sweep", "yet"}},
		{props("jobType", "Command"), []string{"command is empty"}},
		{props("jobType", "Command", "command", "x ${{inputs.a}}"), []string{"inputs.a", "names no input"}},
		{props("jobType", "Command", "command", "x ${{inputs.a"), []string{"not closed"}},
		{props("jobType", "Command", "command", "x", "computeId", "azureml:gone"), []string{`"gone"`, "berth compute list"}},
		{props("jobType", "Command", "command", "x", "environmentId", "azureml:e:1"), []string{"e:1", "`berth environment list`"}},
		{props("jobType", "Command", "command", "x", "limits", map[string]any{"timeout": "1h"}), []string{"timeout", "ISO 8601"}},
		{props("jobType", "Command", "command", "x", "inputs", map[string]any{"a": map[string]any{"jobInputType": "uri_file", "uri": "azureml://datastores/none/paths/x"}}), []string{"datastore none could not be found"}},
		{props("jobType", "Command", "command", "x", "environmentVariables", map[string]any{"A": []int{1}}), []string{"scalar"}},
	} {
		a := x.do("PUT", x.ws+"/jobs/j", c.props).want(400)
		a.says(c.words...)
	}
	x.do("GET", x.ws+"/jobs/j", nil).want(404).says("not found")
	in := map[string]any{"d": map[string]any{"jobInputType": "uri_folder", "uri": "https://x/"}, "l": map[string]any{"jobInputType": "literal", "value": "1"}}
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "x", "inputs", in, "outputs", map[string]any{"o": map[string]any{"jobOutputType": "uri_folder"}})).want(201).
		is("properties.status", "NotStarted").is("properties.inputs.d.mode", "ReadOnlyMount").is("properties.inputs.l.mode", nil).
		is("properties.outputs.o.mode", "ReadWriteMount").is("properties.experimentName", "Default").is("properties.services.Studio.jobServiceType", "Studio")
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "other", "tags", map[string]any{"a": "b"})).want(200).is("properties.command", "x").is("properties.tags.a", "b")
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "x"), "If-None-Match", "*").want(409)
	x.do("PATCH", "/history/v1.0"+x.ws+"/experiments/Default/runs/j", `{"hidden":true,"tags":{"c":"d"}}`).want(200)
	x.do("GET", x.ws+"/jobs/j", nil).is("properties.isArchived", true).is("properties.tags.a", "b").is("properties.tags.c", "d")
	x.do("DELETE", x.ws+"/jobs/j", nil).want(409).says("cancel it first")
	x.do("POST", x.ws+"/jobs/j/cancel", nil).want(202)
	x.do("GET", x.ws+"/jobs/j", nil).is("properties.status", "CancelRequested")
	x.do("GET", x.ws+"/jobs/j/explain", nil).want(200).is("status", "CancelRequested")
	x.do("POST", x.ws+"/jobs/none/cancel", nil).want(404)
}

func TestPaging(t *testing.T) {
	x := open(t)
	for i := range 450 {
		x.do("PUT", fmt.Sprintf("%s/jobs/j%03d", x.ws, i), props("jobType", "Command", "command", "x")).want(201)
	}
	seen := map[string]bool{}
	pages := 0
	for link := x.ws + "/jobs?listViewType=ActiveOnly"; link != ""; pages++ {
		a := x.do("GET", strings.TrimPrefix(link, "https://127.0.0.1:8443"), nil).want(200)
		for _, v := range a.at("value").([]any) {
			n := v.(map[string]any)["name"].(string)
			if seen[n] {
				t.Errorf("%s came twice", n)
			}
			seen[n] = true
		}
		link, _ = a.at("nextLink").(string)
	}
	if len(seen) != 450 || pages != 3 {
		t.Errorf("%d jobs on %d pages", len(seen), pages)
	}
	x.do("GET", x.ws+"/jobs?$top=0", nil).want(400)
	x.do("GET", x.ws+"/jobs?$skip=x", nil).want(400)
}

func TestTokens(t *testing.T) {
	x := open(t)
	x.as("", "GET", x.ws+"/jobs", nil).want(401)
	x.as("nonsense", "GET", x.ws+"/jobs", nil).want(401)
	secret := x.do("POST", "/tokens", `{"name":"ann","role":"user"}`).want(201).at("token").(string)
	x.as(secret, "GET", x.ws+"/jobs", nil).want(200)
	x.as(secret, "GET", "/tokens", nil).want(403)
	x.do("POST", "/tokens", `{"name":"ann"}`).want(409)
	x.do("POST", "/tokens", `{"name":"bob","role":"king"}`).want(400)
	x.do("POST", "/tokens", `{"name":"old","expires":"2020-01-01T00:00:00Z"}`).want(201)
	// The identity endpoint turns the token into a JWT for any audience.
	a := x.as("", "GET", "/msi/token?api-version=2019-08-01&resource=https://ml.azure.test", nil, "X-IDENTITY-HEADER", secret).want(200)
	jwt := a.at("access_token").(string)
	x.as(jwt, "GET", x.ws+"/jobs", nil).want(200)
	x.as(jwt[:len(jwt)-2]+"xx", "GET", x.ws+"/jobs", nil).want(401)
	x.as("", "GET", "/msi/token?resource=x", nil, "X-IDENTITY-HEADER", "wrong").want(401)
	x.as("", "GET", "/msi/token?resource=x", nil).want(401)
	if list := x.do("GET", "/tokens", nil).want(200); bytes.Contains(list.raw, []byte(secret)) {
		t.Error("a token's secret is in the list")
	}
	x.do("DELETE", "/tokens/ann", nil).want(204)
	x.as(secret, "GET", x.ws+"/jobs", nil).want(401)
	x.as(jwt, "GET", x.ws+"/jobs", nil).want(401)
	// A task's token opens nothing but its task.
	task := x.auth.Keys.TaskToken("j.1", time.Now().Add(time.Hour))
	x.as(task, "GET", x.ws+"/jobs", nil).want(403)
	x.as(task, "POST", "/runner/v1/tasks/other.1/log?offset=0", "x").want(403)
	x.as("", "GET", "/msi/token?resource=x", nil, "X-IDENTITY-HEADER", task).want(403)
	x.as(task, "GET", "/history/v1.0"+x.ws+"/runs/j/details", nil).want(403)
}

func TestBootstrap(t *testing.T) {
	x := open(t)
	var list []map[string]any
	a := x.as("", "GET", "/metadata/endpoints?api-version=2019-05-01", nil).want(200)
	if err := json.Unmarshal(a.raw, &list); err != nil || list[0]["resourceManager"] != "https://127.0.0.1:8443/" {
		t.Errorf("%v %s", err, a.raw)
	}
	x.as("", "GET", "/metadata/endpoints?api-version=2022-09-01", nil).want(200).is("name", "Berth").is("suffixes.storage", "berth/")
	x.as("", "GET", "/discovery", nil).want(200).is("api", "https://127.0.0.1:8443")
	x.do("GET", "/subscriptions?api-version=2022-12-01", nil).want(200).is("value.0.state", "Enabled")
	x.do("GET", x.ws, nil).want(200).is("properties.discoveryUrl", "https://127.0.0.1:8443/discovery").is("name", "lab")
	x.do("GET", strings.Replace(x.ws, "lab", "nope", 1), nil).want(404).says("nope")
	x.do("GET", x.ws+"/computes/local", nil).want(200)
	x.do("DELETE", x.ws+"/computes/local", nil).want(409)
	x.do("GET", "/nothing/here", nil).want(404)
}

func TestWorkspaceByTemplate(t *testing.T) {
	x := open(t)
	dep := "/subscriptions/sub/resourcegroups/Group/providers/Microsoft.Resources/deployments/d1"
	tmpl := map[string]any{"properties": map[string]any{"parameters": map[string]any{"workspaceName": map[string]any{"value": "made"}, "description": map[string]any{"value": "mine"}}}}
	a := x.do("PUT", dep, tmpl).want(201)
	if a.header.Get("Azure-AsyncOperation") == "" || a.header.Get("Retry-After") != "1" {
		t.Errorf("headers %v", a.header)
	}
	op := strings.TrimPrefix(a.header.Get("Azure-AsyncOperation"), "https://127.0.0.1:8443")
	x.do("GET", op, nil).want(200).is("status", "Succeeded")
	x.do("GET", dep, nil).want(200).is("properties.provisioningState", "Succeeded")
	made := strings.Replace(x.ws, "lab", "made", 1)
	x.do("GET", made, nil).want(200).is("properties.description", "mine")
	x.do("GET", made+"/datastores?isDefault=true", nil).want(200).is("value.0.name", "workspaceblobstore").is("value.1", nil)
	x.do("DELETE", made, nil).want(200)
	x.do("DELETE", x.ws, nil).want(409)
	x.do("PUT", "/subscriptions/sub/resourcegroups/rg2", `{"location":"x"}`).want(201)
	x.do("GET", "/subscriptions/sub/resourcegroups/rg2", nil).want(200).is("location", "x")
}

func TestEvents(t *testing.T) {
	x := open(t)
	for _, n := range []string{"a", "b"} {
		x.do("PUT", x.ws+"/jobs/"+n, props("jobType", "Command", "command", "x")).want(201)
	}
	x.do("POST", x.ws+"/jobs/a/cancel", nil).want(202)
	x.do("GET", x.ws+"/jobs/A/events", nil).want(200).is("value.0.type", "job.created").is("value.1.type", "job.cancel").is("value.2", nil)
	x.do("GET", x.ws+"/jobs/none/events", nil).want(404)
	x.do("GET", x.ws+"/events?from=x", nil).want(400)
	// A stream goes on from a revision; the recorder ends it with the request's context.
	ctx, cancel := context.WithCancel(t.Context())
	req := httptest.NewRequestWithContext(ctx, "GET", x.ws+"/jobs/a/events", nil)
	req.Header.Set("Authorization", "Bearer "+x.admin)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", fmt.Sprint(int64(x.do("GET", x.ws+"/jobs/a/events", nil).at("value.0.rev").(float64))))
	w := &streamed{ResponseRecorder: httptest.NewRecorder(), want: "event: job.changed", found: cancel}
	done := make(chan struct{})
	go func() {
		x.h.ServeHTTP(w, req)
		close(done)
	}()
	x.do("PATCH", "/history/v1.0"+x.ws+"/experiments/Default/runs/b", `{"hidden":true}`).want(200)
	x.do("PATCH", "/history/v1.0"+x.ws+"/experiments/Default/runs/a", `{"hidden":true}`).want(200)
	<-done
	got := w.Body.String()
	if strings.Contains(got, "job.created") || !strings.Contains(got, "event: job.cancel") || strings.Contains(got, "jobs/b") {
		t.Errorf("stream: %s", got)
	}
}

// streamed ends a stream once it has said something.
type streamed struct {
	*httptest.ResponseRecorder
	want  string
	found func()
}

func (s *streamed) Write(p []byte) (int, error) {
	n, err := s.ResponseRecorder.Write(p)
	if strings.Contains(s.Body.String(), s.want) {
		s.found()
	}
	return n, err
}
