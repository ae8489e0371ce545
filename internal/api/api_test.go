package api_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/auth"
)

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
		{props("jobType", "Command"), []string{"command is required"}},
		{props("jobType", "Command", "command", "x ${{inputs.a}}"), []string{"inputs.a", "is not an input of the job"}},
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
	in := map[string]any{"d": map[string]any{"jobInputType": "uri_folder", "uri": "https://x/account/container"}, "l": map[string]any{"jobInputType": "literal", "value": "1"}}
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
