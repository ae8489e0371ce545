package api_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth/internal/auth"
)

// TestVersionsOfOthersStay: a version means what its maker made it, to everybody who names it.
// Others neither delete it nor take its place.
func TestVersionsOfOthersStay(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	data := func(uri string) map[string]any { return props("dataType", "uri_file", "dataUri", "https://x/"+uri) }
	at := x.ws + "/data/d/versions/1"
	x.as(ann, "PUT", at, data("mine")).want(201)
	x.as(bob, "DELETE", at, nil).want(403).says("data asset d:1 was created by ann: only they or an administrator may delete it")
	x.as(bob, "DELETE", x.ws+"/data/d", nil).want(403).says("was created by ann")
	x.as(ann, "GET", at, nil).want(200)
	x.as(ann, "DELETE", at, nil).want(200)
	x.as(ann, "DELETE", at, nil).want(204)
	x.as(bob, "DELETE", at, nil).want(204)
	x.as(bob, "PUT", at, data("evil")).want(403).says("data asset d:1 was deleted; only ann, who created it, or an administrator may create it again: choose another version")
	x.as(bob, "PUT", x.ws+"/data/D/versions/1", data("evil")).want(403)
	x.as(bob, "PUT", x.ws+"/data/d/versions/2", data("other")).want(201)
	x.as(ann, "PUT", at, data("mine")).want(201)
	// An administrator may do both, and whose it was is not forgotten.
	x.do("DELETE", at, nil).want(200)
	x.do("PUT", at, data("mended")).want(201)
	x.as(ann, "DELETE", at, nil).want(403)
	x.do("DELETE", at, nil).want(200)
	x.as(bob, "PUT", at, data("evil")).want(403)
	x.as(ann, "PUT", at, data("mine")).want(201)
}

// TestOpenVersionsOfOthersStay: where a version may be written over, only its maker does.
func TestOpenVersionsOfOthersStay(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	for _, at := range []string{x.ws + "/featuresets/f/versions/1", "/genericasset/v1" + x.ws + "/indexes/i/versions/1"} {
		x.as(ann, "PUT", at, props("description", "mine"))
		x.as(ann, "PUT", at, props("description", "mine")).want(200)
		x.as(bob, "PUT", at, props("description", "evil")).want(403).says("was created by ann: only they or an administrator may change it")
		x.as(bob, "DELETE", at, nil).want(403).says("was created by ann")
		x.as(ann, "DELETE", at, nil).want(200)
		x.as(ann, "GET", at, nil).want(404)
		x.as(bob, "PUT", at, props("description", "evil")).want(403).says("was deleted")
		x.do("POST", at, props()).want(405)
	}
}

// TestComponentsWithoutANameStay: what a component without a name runs is looked up when a step
// starts. Somebody who is given the one that another made runs what they asked for, then and later.
func TestComponentsWithoutANameStay(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	at := x.ws + "/components/azureml_anonymous/versions/0a1b2c3d-0000-0000-0000-000000000001"
	spec := func(command, value, shm, says string) map[string]any {
		return props("isAnonymous", true, "componentSpec", map[string]any{
			"type": "command", "name": "azureml_anonymous", "command": command, "environment": "azureml:always-1.5@latest", "display_name": says,
			"inputs": map[string]any{"n": map[string]any{"type": "integer", "default": value}}, "resources": map[string]any{"shm_size": shm},
		})
	}
	x.as(bob, "PUT", at, spec("echo ${{inputs.n}}", "1", "1g", "bob's")).want(201)
	x.as(ann, "PUT", at, spec("echo ${{inputs.n}}", "2", "1g", "ann's")).want(409).says("another inputs")
	x.as(ann, "PUT", at, spec("echo ${{inputs.n}}", "1", "2g", "ann's")).want(409).says("another resources")
	x.as(ann, "PUT", at, spec("echo ${{inputs.n}}", "1", "1g", "ann's")).want(200)
	x.as(bob, "PUT", at, spec("evil ${{inputs.n}}", "1", "1g", "bob's")).want(409).says("another command")
	x.as(bob, "PUT", at, spec("echo ${{inputs.n}}", "1", "1g", "new")).want(200)
	x.as(ann, "GET", at, nil).want(200).is("properties.componentSpec.command", "echo ${{inputs.n}}")
}

// TestJobsAndComputesOfOthersStay: only who made a job or a compute deletes it; what lies in a
// job's folder may be a version of somebody's, and a compute made again in its place is another
// machine.
func TestJobsAndComputesOfOthersStay(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	job := x.ws + "/jobs/trained"
	x.as(ann, "PUT", job, props("jobType", "Command", "command", "true", "environmentId", "azureml:always-1.5@latest")).want(201)
	x.as(bob, "DELETE", job, nil).want(403).says("job trained was created by ann: only they or an administrator may delete it")
	for _, name := range []string{"versions", "Versions", "experimentrun"} {
		x.as(bob, "PUT", x.ws+"/jobs/"+name, props("jobType", "Command", "command", "true")).want(400).says("a job cannot be called " + name)
	}
	cluster := map[string]any{"properties": map[string]any{"computeType": "AmlCompute", "properties": map[string]any{"vmSize": "Standard_DS3_v2"}}}
	x.as(ann, "PUT", x.ws+"/computes/hers", cluster).want(201)
	x.as(bob, "DELETE", x.ws+"/computes/hers", nil).want(403).says("compute hers was created by ann")
	x.as(ann, "DELETE", x.ws+"/computes/hers", nil).want(202)
}

// TestJobsOfOthersGoOn: who did not submit a job neither cancels nor changes it, whichever way they
// go about it; an administrator does.
func TestJobsOfOthersGoOn(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	doc := func(tag string) map[string]any {
		return props("jobType", "Command", "command", "true", "environmentId", "azureml:always-1.5@latest", "experimentName", "e", "tags", map[string]any{"t": tag})
	}
	job, history := x.ws+"/jobs/hers", "/history/v1.0"+x.ws
	x.as(ann, "PUT", job, doc("mine")).want(201)
	x.as(bob, "PUT", x.ws+"/jobs/his", doc("his")).want(201)
	x.as(bob, "POST", job+"/cancel", nil).want(403).says("job hers was created by ann: only they or an administrator may cancel it")
	x.as(bob, "POST", x.ws+"/cancelJobs", map[string]any{"names": []string{"his", "hers"}}).want(403).says("job hers was created by ann")
	x.as(bob, "POST", x.ws+"/cancelJobs", map[string]any{"all": true, "everyone": true}).want(403).says("only an administrator")
	x.as(bob, "PUT", job, doc("bob's")).want(403).says("job hers was created by ann: only they or an administrator may change it")
	x.as(bob, "PATCH", history+"/experiments/e/runs/hers", map[string]any{"tags": map[string]any{"t": "bob's"}}).want(403).says("may change it")
	x.as(ann, "GET", job, nil).want(200).is("properties.tags.t", "mine").is("properties.status", "NotStarted")
	x.as(bob, "GET", x.ws+"/jobs/his", nil).want(200).is("properties.status", "NotStarted")
	x.as(bob, "POST", x.ws+"/cancelJobs", map[string]any{"experimentName": "e"}).want(200).is("asked", float64(1))
	x.as(ann, "PUT", job, doc("new")).want(200).is("properties.tags.t", "new")
	x.as(ann, "PATCH", history+"/experiments/e/runs/hers", map[string]any{"tags": map[string]any{"t": "newer"}}).want(200)
	x.do("PUT", job, doc("root's")).want(200).is("properties.tags.t", "root's")
	x.do("POST", x.ws+"/cancelJobs", map[string]any{"all": true, "everyone": true}).want(200)
	x.as(bob, "GET", job, nil).want(200).is("properties.status", "CancelRequested")
	x.as(ann, "POST", job+"/cancel", nil).want(202)
}

// TestSecretsOfOthersStayWhereTheyAre: a datastore or connection is changed and deleted by its
// maker or an administrator, and a secret that was given for one place is not kept for another.
func TestSecretsOfOthersStayWhereTheyAre(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	datastore := func(account, key string) map[string]any {
		secrets := map[string]any{"secretsType": "AccountKey"}
		if key != "" {
			secrets["key"] = key
		}
		return props("datastoreType", "AzureBlob", "accountName", account, "containerName", "c", "credentials", map[string]any{"credentialsType": "AccountKey", "secrets": secrets})
	}
	connection := func(target, pat string) map[string]any {
		p := props("category", "PythonFeed", "authType", "PAT", "target", "https://"+target)
		if pat != "" {
			p["properties"].(map[string]any)["credentials"] = map[string]any{"pat": pat}
		}
		return p
	}
	for at, doc := range map[string]func(place, secret string) map[string]any{x.ws + "/datastores/s": datastore, x.ws + "/connections/s": connection} {
		if got := x.as(ann, "PUT", at, doc("ann", "a25vdw==")); got.status/100 != 2 {
			t.Fatalf("%s: %s", at, got.raw)
		}
		x.as(bob, "PUT", at, doc("bob", "")).want(403).says("was created by ann: only they or an administrator may change it")
		x.as(bob, "PATCH", at, doc("bob", "")).want(403)
		x.as(bob, "DELETE", at, nil).want(403).says("was created by ann")
		x.as(ann, "PUT", at, doc("ann", "")).want(200)
		if got := x.as(ann, "POST", at+"/listSecrets", nil).want(200); !strings.Contains(string(got.raw), "a25vdw==") {
			t.Errorf("%s: the secret is lost: %s", at, got.raw)
		}
		x.as(ann, "PUT", at, doc("elsewhere", "")).want(200)
		if got := x.as(ann, "POST", at+"/listSecrets", nil); strings.Contains(string(got.raw), "a25vdw==") {
			t.Errorf("%s: the secret is kept for another place: %s", at, got.raw)
		}
		x.do("PUT", at, doc("mended", "bW9yZQ==")).want(200)
		x.do("DELETE", at, nil).want(200)
	}
}

// TestArchivingOthers: whoever archives a version moves what @latest means for everybody.
func TestArchivingOthers(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	at := x.ws + "/environments/e/versions/1"
	x.as(ann, "PUT", at, props("image", "i")).want(201)
	x.as(bob, "PUT", at, props("image", "i", "isArchived", true)).want(403).says("environment e:1 was created by ann: only they or an administrator may archive it")
	x.as(bob, "PATCH", at, props("isArchived", true)).want(403)
	x.as(bob, "PUT", x.ws+"/environments/e", props("isArchived", true)).want(403)
	x.as(bob, "PUT", at, props("image", "i", "isArchived", false, "tags", map[string]any{"a": "b"})).want(200)
	x.as(ann, "PUT", at, props("image", "i", "isArchived", true)).want(200)
	x.as(bob, "PUT", at, props("image", "i", "isArchived", false)).want(403).says("archive")
	x.do("PUT", at, props("image", "i", "isArchived", false)).want(200)
}

// TestDeletingAnAssetDeletesItsVersions: with an asset go all its versions, or none where one is
// somebody else's.
func TestDeletingAnAssetDeletesItsVersions(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	data, asset := props("dataType", "uri_file", "dataUri", "https://x/y"), x.ws+"/data/d"
	x.as(ann, "PUT", asset+"/versions/1", data).want(201)
	x.as(ann, "PUT", asset+"/versions/2", data).want(201)
	x.as(bob, "PUT", asset+"/versions/3", data).want(201)
	x.as(ann, "DELETE", asset, nil).want(403).says("data asset d:3 was created by bob")
	x.as(ann, "GET", asset+"/versions/1", nil).want(200)
	x.as(bob, "DELETE", asset+"/versions/3", nil).want(200)
	x.as(ann, "DELETE", asset, nil).want(200)
	x.as(ann, "GET", asset+"/versions/1", nil).want(404)
	x.as(ann, "GET", asset+"/versions/2", nil).want(404)
	x.as(ann, "GET", asset, nil).want(404)
	x.as(bob, "PUT", asset+"/versions/1", data).want(403).says("was deleted")
}

// TestSecretsStayWithoutTheirKind: a connection that does not say how it authenticates keeps its
// secret when something else is changed.
func TestSecretsStayWithoutTheirKind(t *testing.T) {
	x := open(t)
	at := x.ws + "/connections/c"
	x.do("PUT", at, props("category", "S3", "target", "https://a", "credentials", map[string]any{"key": "hidden"})).want(200)
	x.do("PATCH", at, props("metadata", map[string]any{"a": "b"})).want(200)
	x.do("POST", at+"/listsecrets", nil).want(200).is("properties.credentials.key", "hidden")
	x.do("PUT", at, props("category", "S3", "target", "https://a", "authType", "PAT")).want(200)
	x.do("POST", at+"/listsecrets", nil).want(200).is("properties.credentials", nil)
}
