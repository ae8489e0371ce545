package batch_test

import (
	"strings"
	"testing"
)

// TestPipelineComponent: a pipeline component is deployed from files as az does it, invoked with a
// folder, a file and a value, and its output is read; a pipeline job that ran is deployed too.
func TestPipelineComponent(t *testing.T) {
	u := newUser(t)
	u.write("data/a.txt", "tide\ntide\n")
	u.write("data/b.txt", "ship\n")
	u.write("title.txt", "Words")
	u.write("conda.yml", "dependencies:\n- python\n")
	u.write("count.yml", `
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
name: count
version: "1"
type: command
inputs:
  data: {type: uri_folder}
  title: {type: uri_file}
  word: {type: string}
outputs:
  counts: {type: uri_folder}
environment:
  image: example/none:1
  conda_file: conda.yml
command: >-
  (cat ${{inputs.title}}; echo; for f in ${{inputs.data}}/*; do echo "$(basename $f),$(grep -c ${{inputs.word}} $f)"; done) > ${{outputs.counts}}/counts.csv
`)
	u.write("whole.yml", `
$schema: https://azuremlschemas.azureedge.net/latest/pipelineComponent.schema.json
name: whole
version: "1"
type: pipeline
inputs:
  data: {type: uri_folder}
  title: {type: uri_file}
  word: {type: string, default: ship}
outputs:
  result: {type: uri_folder}
jobs:
  count:
    type: command
    component: azureml:count:1
    inputs:
      data: ${{parent.inputs.data}}
      title: ${{parent.inputs.title}}
      word: ${{parent.inputs.word}}
    outputs:
      counts: ${{parent.outputs.result}}
`)
	u.write("deployment.yml", `
$schema: https://azuremlschemas.azureedge.net/latest/pipelineComponentBatchDeployment.schema.json
name: words
endpoint_name: counted
type: pipeline
component: azureml:whole:1
settings:
  default_compute: local
`)
	u.write("inputs.yml", `
inputs:
  data: {type: uri_folder, path: data}
  title: {type: uri_file, path: title.txt}
  word: tide
`)
	u.berth("component", "create", "-f", "count.yml", "-o", "none")
	u.berth("component", "create", "-f", "whole.yml", "-o", "none")
	u.berth("batch-endpoint", "create", "-n", "counted", "-o", "none")
	u.berth("batch-deployment", "create", "-f", "deployment.yml", "--set-default", "-o", "none")
	for name, args := range map[string][]string{
		"flags": {"-n", "counted", "--inputs", "data=data", "--inputs", "title=title.txt", "--inputs", "word=tide"},
		"file":  {"-n", "counted", "-f", "inputs.yml"},
	} {
		job, status, why := u.invoke(args...)
		if status != "Completed" {
			t.Fatalf("%s: %s: %s", name, status, why)
		}
		if got := string(u.result(job, "result", "counts.csv")); got != "Words\na.txt,2\nb.txt,0\n" {
			t.Errorf("%s: the result is %q", name, got)
		}
	}
	job, status, why := u.invoke("-n", "counted", "--inputs", "data=data", "--inputs", "title=title.txt")
	if status != "Completed" {
		t.Fatalf("%s: %s", status, why)
	}
	if got := string(u.result(job, "result", "counts.csv")); got != "Words\na.txt,0\nb.txt,1\n" {
		t.Errorf("with the default of the value the result is %q", got)
	}
	if out, err := u.try("batch-endpoint", "invoke", "-n", "counted", "--inputs", "word=tide"); err == nil || !strings.Contains(out, "data") {
		t.Errorf("an invocation without its inputs: %v, %s", err, out)
	}
}
