package batch_test

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"testing"
)

// parallelStep is a pipeline with a step of type parallel over a table; %s are how it is cut and
// its script.
const parallelStep = `
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
type: pipeline
settings: {default_compute: azureml:local}
inputs:
  sales: {type: mltable, path: sales, mode: direct}
outputs:
  rows: {type: uri_file}
jobs:
  each:
    type: parallel
    inputs: {table: "${{parent.inputs.sales}}"}
    outputs: {rows: "${{parent.outputs.rows}}"}
    input_data: ${{inputs.table}}
    %s
    mini_batch_error_threshold: 0
    logging_level: DEBUG
    retry_settings: {max_retries: 1, timeout: 120}
    max_concurrency_per_instance: 2
    task:
      type: run_function
      code: src
      entry_script: %s
      append_row_to: ${{outputs.rows}}
      environment: {image: "example/none:1", conda_file: conda.yml}
`

// TestTables: a step of type parallel cuts a table by the values of columns, or by bytes; its
// script gets DataFrames, and every row is in one of them.
func TestTables(t *testing.T) {
	u := newUser(t)
	u.write("conda.yml", "dependencies:\n- python\n- pip\n- pip:\n  - pandas\n")
	u.write("src/keys.py", `
def run(frame, context):
    key = context.partition_key_value
    assert list(frame.columns) == ["store", "brand", "sold", "note"], frame.columns
    assert set(frame["store"]) == {key["store"]} and set(frame["brand"]) == {key["brand"]}, frame
    return [f"{key['store']} {key['brand']} {frame['sold'].sum()} {len(frame)}"] * len(frame)
`)
	u.write("src/bytes.py", `
def run(frame):
    frame["many"] = len(frame)
    return frame
`)
	u.write("src/short.py", "def run(frame):\n    return frame[:-1]\n")
	u.write("sales/MLTable", "type: mltable\npaths: [{pattern: './*.csv'}]\ntransformations:\n- read_delimited: {delimiter: ';', encoding: utf8, header: all_files_same_headers}\n")
	one, two := "store;brand;sold;note\n", "store;brand;sold;note\n"
	for i := range 60 {
		one += fmt.Sprintf("%02d;tide;%d;\"several\nlines; here\"\n", i%3, i)
		two += fmt.Sprintf("%02d;%s;%d;x\n", i%2, []string{"tide", "harbour"}[i%2], i)
	}
	u.write("sales/one.csv", one)
	u.write("sales/two.csv", two)
	run := func(cut, script string) (rows []string, status, why string, items int) {
		t.Helper()
		u.write("job.yml", fmt.Sprintf(parallelStep, cut, script))
		job := u.berth("job", "create", "-f", "job.yml", "--query", "name", "-o", "tsv")
		log, _ := u.try("job", "stream", "-n", job)
		var v struct {
			Status string
		}
		if err := json.Unmarshal([]byte(u.berth("job", "show", "-n", job, "-o", "json")), &v); err != nil {
			t.Fatal(err)
		}
		why, _ = u.try("explain", job+"_each")
		if v.Status == "Completed" {
			rows = strings.Split(strings.TrimSpace(string(u.result(job, "rows", "rows"))), "\n")
		}
		return rows, v.Status, why + log, len(rows)
	}
	rows, status, why, n := run("partition_keys: [store, brand]", "keys.py")
	if status != "Completed" {
		t.Fatalf("%s: %s", status, why)
	}
	seen := map[string]int{}
	for _, r := range rows {
		seen[r]++
	}
	var got []string
	for r, times := range seen {
		got = append(got, fmt.Sprint(r, " ", times))
	}
	sort.Strings(got)
	// Sums of i over one.csv by i mod 3, and over two.csv by i mod 2.
	want := []string{"0 tide 1440 50 50", "1 harbour 900 30 30", "1 tide 590 20 20", "2 tide 610 20 20"}
	if fmt.Sprint(got) != fmt.Sprint(want) || n != 120 {
		t.Errorf("%d rows: %q, want %q", n, got, want)
	}

	rows, status, why, n = run("mini_batch_size: 1kb", "bytes.py")
	if status != "Completed" || n < 120 {
		t.Fatalf("%s: %d rows: %s", status, n, why)
	}
	if last := rows[len(rows)-1]; !strings.HasPrefix(last, "1,harbour,59,x,") || strings.HasSuffix(last, ",120") {
		t.Errorf("the last row is %q", last)
	}
	if _, status, why, _ = run("partition_keys: [shop]", "keys.py"); status != "Failed" || !strings.Contains(why, "has no column shop, only store, brand, sold, note") {
		t.Errorf("%s: %s", status, why)
	}
	if _, status, why, _ = run("mini_batch_size: 2kb", "short.py"); status != "Failed" || !strings.Contains(why, "mini_batch_error_threshold allows 0: mini-batch") {
		t.Errorf("%s: %s", status, why)
	}
}
