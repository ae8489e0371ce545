package api_test

import (
	"testing"
)

// TestTableOfJobIsChecked: a table that nodes cannot evaluate is refused when the job is submitted,
// with the transformation that is not supported.
func TestTableOfJobIsChecked(t *testing.T) {
	x := open(t)
	box, _ := x.files("workspaceblobstore")
	for name, text := range map[string]string{
		"good/MLTable": "paths: [{pattern: ./*.csv}]\ntransformations: [read_delimited, {take: 5}]",
		"bad/MLTable":  "paths: [{pattern: ./*.csv}]\ntransformations: [{read_delta_lake: {version_as_of: 1}}]",
	} {
		if err := x.write(box, name, text); err != nil {
			t.Fatal(err)
		}
	}
	submit := func(name, kind, path string) answer {
		return x.do("PUT", x.ws+"/jobs/"+name, map[string]any{"properties": map[string]any{
			"jobType": "Command", "command": "true", "experimentName": "e",
			"inputs": map[string]any{"d": map[string]any{"jobInputType": kind, "mode": "EvalMount", "uri": "azureml://datastores/workspaceblobstore/paths/" + path}},
		}})
	}
	submit("good", "mltable", "good").want(201)
	submit("later", "mltable", "written-by-a-step").want(201)
	submit("bad", "mltable", "bad/").want(400).says("properties.inputs.d: the MLTable file: read_delta_lake cannot be evaluated on a node")
	submit("folder", "uri_folder", "good").want(400).says("properties.inputs.d: mode EvalMount is for inputs of type mltable, not uri_folder")
}
