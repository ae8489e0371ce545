package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// TestFilesOfTheServer: a user who is not an administrator names a file of the server in every way
// there is.
func TestFilesOfTheServer(t *testing.T) {
	x := open(t)
	user := x.token("u", auth.User)
	in := func(uri string) map[string]any {
		return map[string]any{"i": map[string]any{"jobInputType": "uri_file", "uri": uri}}
	}
	out := func(uri string) map[string]any {
		return map[string]any{"o": map[string]any{"jobOutputType": "uri_folder", "uri": uri}}
	}
	for uri, says := range map[string]string{
		"file:///etc/passwd": "allow: paths:", "FILE:///etc/passwd": "allow: paths:", "file://localhost/etc/passwd": "allow: paths:",
		"file:///open/../etc/passwd": "allow: paths:", "file:///opened/x": "allow: paths:",
		"file:/etc/passwd": "write file:///PATH", "file:///open/x?/../../etc": "a query or a fragment", "file:///open/x#/../../etc": "a query or a fragment",
	} {
		code := 403
		if says != "allow: paths:" {
			code = 400
		}
		x.as(user, "PUT", x.ws+"/jobs/in", props("jobType", "Command", "command", "true", "inputs", in(uri))).want(code).says(says)
		x.as(user, "POST", x.ws+"/jobs/in/plan", props("jobType", "Command", "command", "true", "inputs", in(uri))).want(code).says(says)
		x.as(user, "PUT", x.ws+"/jobs/out", props("jobType", "Command", "command", "true", "outputs", out(uri))).want(code).says(says)
		x.as(user, "PUT", x.ws+"/data/d/versions/1", props("dataType", "uri_file", "dataUri", uri)).want(code).says(says)
		x.as(user, "PUT", x.ws+"/models/m/versions/1", props("modelUri", uri)).want(code).says(says)
		x.as(user, "PUT", x.ws+"/codes/c/versions/1", props("codeUri", uri)).want(code).says(says)
		x.as(user, "PUT", x.ws+"/environments/e/versions/1", props("build", map[string]any{"contextUri": uri})).want(code).says(says)
	}
	// An administrator may, and what they registered may be read by others, but not written to.
	x.do("PUT", x.ws+"/jobs/a", props("jobType", "Command", "command", "true", "inputs", in("file:///etc/passwd"), "outputs", out("file:///var/out"))).want(201)
	x.do("PUT", x.ws+"/data/d/versions/1", props("dataType", "uri_folder", "dataUri", "file:///srv/data")).want(201)
	x.as(user, "PUT", x.ws+"/jobs/reads", props("jobType", "Command", "command", "true", "inputs", in("azureml:d:1"))).want(201)
	rw := map[string]any{"i": map[string]any{"jobInputType": "uri_folder", "uri": "azureml:d:1", "mode": "ReadWriteMount"}}
	x.as(user, "PUT", x.ws+"/jobs/mounts", props("jobType", "Command", "command", "true", "inputs", rw)).want(403).says("allow: paths:")
	x.as(user, "PUT", x.ws+"/jobs/writes", props("jobType", "Command", "command", "true", "outputs", out("azureml:d:1"))).want(403).says("allow: paths:")
	// The output of an administrator's job is not an asset.
	x.as(user, "PUT", x.ws+"/jobs/theirs", props("jobType", "Command", "command", "true", "inputs", in("azureml://jobs/a/outputs/o"))).want(403)
	x.as(user, "PUT", x.ws+"/data/d/versions/2", props("dataType", "uri_folder", "dataUri", "azureml://jobs/a/outputs/o")).want(403)
	// A step of a pipeline is a job.
	step := map[string]any{"type": "command", "name": "s", "component": "x", "componentId": "azureml:c:1", "inputs": in("file:///etc/passwd")}
	x.do("PUT", x.ws+"/components/c/versions/1", props("componentSpec", map[string]any{
		"type": "command", "name": "c", "command": "true ${{inputs.i}}", "environment": "azureml:always-1.5@latest", "inputs": map[string]any{"i": map[string]any{"type": "uri_file"}},
	})).want(201)
	pipe := props("jobType", "Pipeline", "jobs", map[string]any{"s": step})
	x.as(user, "PUT", x.ws+"/jobs/p", pipe).want(403).says("allow: paths:")
	x.do("PUT", x.ws+"/jobs/p", pipe).want(201)
	// A document from before there were marks is nobody's word.
	err := x.db.Update(t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(workspace.Key(), "data/versions", "d", "1")
		if err != nil {
			return err
		}
		d.Own = nil
		return tx.Save(d)
	})
	if err != nil {
		t.Fatal(err)
	}
	x.as(user, "PUT", x.ws+"/jobs/old", props("jobType", "Command", "command", "true", "inputs", in("azureml:d:1"))).want(403)
}

// TestEngineOptions: options that give a container more than others have are an administrator's to
// give.
func TestEngineOptions(t *testing.T) {
	x := open(t)
	user := x.token("u", auth.User)
	job := func(args any) map[string]any {
		return props("jobType", "Command", "command", "true", "resources", map[string]any{"dockerArgs": args})
	}
	for _, args := range []any{
		"--cap-add=SYS_ADMIN", "--network host", "--ipc=host --shm-size=1g", []any{"--env", "A=b", "--cap-add", "ALL"}, "--privileged", "-v /:/host", "--ulimit=memlock=-1",
	} {
		x.as(user, "PUT", x.ws+"/jobs/j", job(args)).want(403).says("allow: docker_args:")
	}
	x.as(user, "PUT", x.ws+"/jobs/ok", job("--shm-size=1g -e A=b --env C=d")).want(201)
	x.do("PUT", x.ws+"/jobs/admin", job("--cap-add=SYS_ADMIN --ipc host")).want(201)
	if got := x.do("GET", x.ws+"/jobs/ok", nil).want(200); strings.Contains(fmt.Sprint(got.body), "admin:true") {
		t.Errorf("a user's job is an administrator's: %s", got.body)
	}
}
