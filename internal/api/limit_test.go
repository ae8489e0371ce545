package api_test

import (
	"fmt"
	"strings"
	"testing"
)

// many is a map of so many members.
func many(from, n int) map[string]any {
	m := map[string]any{}
	for i := range n {
		m[fmt.Sprintf("k%d", from+i)] = "v"
	}
	return m
}

// TestLimitsOfDocuments: more tags than anybody could mean are refused, at once or by and by.
func TestLimitsOfDocuments(t *testing.T) {
	x := open(t)
	job := func(key string, m map[string]any) map[string]any {
		return props("jobType", "Command", "command", "true", key, m)
	}
	for _, key := range []string{"tags", "properties"} {
		x.do("PUT", x.ws+"/jobs/j", job(key, many(0, 1000))).want(400).says("properties."+key, "at most")
		x.do("PUT", x.ws+"/jobs/j", job(key, map[string]any{strings.Repeat("n", 513): "v"})).want(400).says("at most 512")
		x.do("PUT", x.ws+"/jobs/j", job(key, map[string]any{"n": strings.Repeat("ü", 8001)})).want(400).says("at most 8000")
		x.do("PUT", x.ws+"/models/m/versions/1", props("modelUri", "https://x/y", key, many(0, 1000))).want(400).says("at most")
	}
	x.do("PUT", x.ws+"/jobs/j", job("tags", many(0, 100))).want(201)
	run := "/history/v1.0" + x.ws + "/experiments/e/runs/j"
	x.do("PATCH", run, map[string]any{"tags": many(50, 50)}).want(200)
	x.do("PATCH", run, map[string]any{"tags": many(100, 1)}).want(400).says("at most 100")
	c := clusterDoc()
	c["tags"] = many(0, 101)
	x.do("PUT", x.ws+"/computes/c", c).want(400).says("at most 100")
	x.do("PUT", x.ws+"/data/d/versions/1", props("dataType", "uri_file", "dataUri", "https://x/y", "tags", many(0, 100))).want(201)
	x.do("PATCH", x.ws+"/data/d", props("tags", many(0, 100)))
	x.do("PATCH", x.ws+"/data/d", props("tags", many(100, 100))).want(400).says("at most 100")
	x.do("PUT", x.ws+"/environments/e/versions/1", props("condaFile", strings.Repeat("x", 1<<20))).want(400).says("larger than 1 MiB")
	x.do("PUT", x.ws+"/datastores/d", props("datastoreType", "AzureBlob", "accountName", "a", "containerName", "c", "description", strings.Repeat("x", 16<<10))).want(400).says("larger than 16 KiB")
}

// TestInputLimits: inputs are copied into every step and into every command that names them, so
// they have bounds.
func TestInputLimits(t *testing.T) {
	x := open(t)
	literal := func(n int) map[string]any {
		return map[string]any{"jobInputType": "literal", "value": strings.Repeat("x", n)}
	}
	many := map[string]any{}
	for i := range 1_001 {
		many[fmt.Sprint("i", i)] = literal(1)
	}
	command := func(inputs map[string]any) map[string]any {
		return props("jobType", "Command", "command", "true", "environmentId", "azureml:always-1.5@latest", "inputs", inputs)
	}
	x.do("PUT", x.ws+"/jobs/a", command(many)).want(400).says("there are 1001 inputs; at most 1000 are possible")
	x.do("PUT", x.ws+"/jobs/b", command(map[string]any{"a": literal(64<<10 + 1)})).want(400).says("the value of input a is")
	x.do("PUT", x.ws+"/jobs/c", command(map[string]any{"a": literal(64 << 10)})).want(201)
	steps := map[string]any{}
	for i := range 1_100 {
		steps[fmt.Sprint("s", i)] = map[string]any{"type": "command", "command": "true", "inputs": map[string]any{"a": map[string]any{"job_input_type": "literal", "value": "${{parent.inputs.a}}"}}}
	}
	x.do("PUT", x.ws+"/jobs/d", props("jobType", "Pipeline", "inputs", map[string]any{"a": literal(64 << 10)}, "jobs", steps)).want(400).says("put long values into a file")
	spec := func(n int) map[string]any {
		return props("componentSpec", map[string]any{
			"type": "command", "name": "c", "command": "true", "environment": "azureml:always-1.5@latest",
			"inputs": map[string]any{"a": map[string]any{"type": "string", "default": strings.Repeat("x", n)}},
		})
	}
	x.do("PUT", x.ws+"/components/c/versions/1", spec(64<<10+1)).want(400).says("the value of input a is")
	x.do("PUT", x.ws+"/components/c/versions/1", spec(64<<10)).want(201)
}
