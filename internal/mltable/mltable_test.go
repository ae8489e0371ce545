package mltable_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/mltable"
)

func TestSelect(t *testing.T) {
	files := []string{"MLTable", "a.csv", "b.csv", "x.txt", "img/1.jpg", "img/2.jpg", "img/deep/3.jpg"}
	for _, tt := range []struct{ table, want string }{
		{"paths: [{file: ./b.csv}, {file: a.csv}, {file: b.csv}]", "b.csv a.csv"},
		{"paths: [{folder: ./img}]", "img/1.jpg img/2.jpg img/deep/3.jpg"},
		{"paths: [{folder: .}]", "a.csv b.csv img/1.jpg img/2.jpg img/deep/3.jpg x.txt"},
		{"paths: [{pattern: ./*.csv}]", "a.csv b.csv"},
		{"paths: [{pattern: '**/*.jpg'}]", "img/1.jpg img/2.jpg img/deep/3.jpg"},
		{"paths: [{pattern: 'img/[12].jpg'}]\ntransformations: [{skip: 1}]", "img/2.jpg"},
		{"paths: [{folder: img}]\ntransformations: [{skip: 1}, {take: 1}]", "img/2.jpg"},
		{"paths: [{pattern: '*.csv'}]\ntransformations: [read_parquet]", "a.csv b.csv"},
		{"paths: [{pattern: '**/**/deep/**/*.jpg'}]", "img/deep/3.jpg"},
		{"paths: [{pattern: 'img/**'}]", "img/1.jpg img/2.jpg img/deep/3.jpg"},
		{"paths: [{folder: .}]\ntransformations: [take_random_sample: {probability: 0}]", ""},
		{"paths: [{folder: .}]\ntransformations: [take_random_sample: {probability: 1, seed: 7}]", "a.csv b.csv img/1.jpg img/2.jpg img/deep/3.jpg x.txt"},
	} {
		table, err := mltable.Parse([]byte(tt.table))
		if err != nil {
			t.Errorf("%s: %v", tt.table, err)
			continue
		}
		got, err := table.Select(t.Context(), files)
		if s := strings.Join(got, " "); err != nil || s != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.table, s, err, tt.want)
		}
	}
	table, err := mltable.Parse([]byte("paths: [{file: none.csv}]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Select(t.Context(), files); berth.CodeOf(err) != berth.NotFound || !strings.Contains(err.Error(), "file none.csv matches no file") {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	for table, want := range map[string]string{
		"paths: {":                                          "not YAML",
		"{}":                                                "paths must be a list",
		"paths: [{file: a, folder: b}]":                     "one of file, folder and pattern",
		"paths: [{file: ../a}]":                             "below its folder",
		"paths: [{file: /etc/passwd}]":                      "below its folder",
		"paths: [{file: a/../../b}]":                        "below its folder",
		"paths: [{pattern: '[a'}]":                          "syntax error in pattern",
		"type: table\npaths: [{file: a}]":                   "type must be mltable",
		"query: x\npaths: [{file: a}]":                      "query cannot be evaluated",
		"paths: [{file: 'azureml://datastores/d/paths/a'}]": "an address cannot be evaluated",
		"paths: [{file: a}]\ntransformations: [{read_delta_lake: {}}]":                                           "read_delta_lake cannot be evaluated on a node",
		"paths: [{file: a}]\ntransformations: [{take: -1}]":                                                      "take must be a whole number",
		"paths: [{file: a}]\ntransformations: [{filter: 'col(\"x\")'}]":                                          "filter col(\"x\") cannot be evaluated",
		"paths: [{file: a}]\ntransformations: [{keep_columns: [x]}]":                                             "keep_columns of a table that reads no rows",
		"paths: [{file: a}]\ntransformations: [read_parquet, {convert_column_types: x}]":                         "convert_column_types cannot be evaluated",
		"paths: [{file: a}]\ntransformations: [read_parquet: {encoding: utf8}]":                                  "read_parquet with encoding cannot be evaluated",
		"paths: [{file: a}]\ntransformations: [read_parquet, {filter: 'col(\"x\") > datetime(2024, 2, 30)'}]":    "cannot be evaluated",
		"paths: [{file: a}]\ntransformations: [read_delimited, {filter: 'col(\"x\") > datetime(2024, 2, 3)'}]":   "filter with datetime of a table without read_parquet",
		"paths: [{file: a}]\ntransformations: [read_delimited: {encoding: utf32}]":                               "encoding utf32 cannot be evaluated",
		"paths: [{file: a}]\ntransformations: [read_delimited: {header: odd}]":                                   "header cannot be odd",
		"paths: [{file: a}]\ntransformations: [read_json_lines, {extract_columns_from_partition_format: x}]":     "extract_columns_from_partition_format cannot be evaluated",
		"paths: [{file: a}]\ntransformations: [take_random_sample: {probability: 2}]":                            "between 0 and 1",
		"paths: [{file: a}]\ntransformations: [read_delimited, {filter: '((((col(\"x\") > 1'}]":                  "cannot be evaluated",
		"paths: [{file: a}]\ntransformations: [read_delimited, {filter: '" + strings.Repeat("(", 100000) + "'}]": "cannot be evaluated",
		strings.Repeat("#", mltable.MaxSize+1):                                                                   "larger than",
	} {
		_, err := mltable.Parse([]byte(table))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "the MLTable file: ") {
			t.Errorf("%.100s: %v, want %s", table, err, want)
		}
		if code := berth.CodeOf(err); code != berth.Invalid {
			t.Errorf("%.100s: code %v", table, code)
		}
	}
}

// evaluate writes files and a table, and returns what Write makes of them.
func evaluate(t *testing.T, table string, files map[string]string) (map[string]string, error) {
	t.Helper()
	x, err := mltable.Parse([]byte(table))
	if err != nil {
		t.Fatal(err)
	}
	from, to := t.TempDir(), t.TempDir()
	var names []string
	for name, text := range files {
		names = append(names, name)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	names, err = x.Select(t.Context(), names)
	if err != nil || !x.Rows() {
		t.Fatal(err)
	}
	a, err := os.OpenRoot(from)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := os.OpenRoot(to)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	err = x.Write(t.Context(), a, names, b)
	out := map[string]string{}
	for _, n := range names {
		if text, rerr := os.ReadFile(filepath.Join(to, n)); rerr == nil {
			out[n] = string(text)
		}
	}
	return out, err
}

func TestRows(t *testing.T) {
	three := map[string]string{"a.csv": "id,t,place\n1,10,UK\n2,40,UK\n", "d/b.csv": "id,t,place\n3,50,\"F, R\"\n4,60,UK\n", "e.csv": "id,t,place\n"}
	all := "paths: [{file: a.csv}, {folder: d}, {file: e.csv}]\ntransformations:\n- read_delimited\n"
	for _, tt := range []struct {
		name, table string
		files, want map[string]string
	}{
		{"as it is", all, three, map[string]string{"a.csv": three["a.csv"], "d/b.csv": three["d/b.csv"]}},
		{"filter", all + `- filter: col("t") > 32 and (col("place") == "UK" or col("id") == 3)`, three, map[string]string{"a.csv": "id,t,place\n2,40,UK\n", "d/b.csv": three["d/b.csv"]}},
		{"skip and take over files", all + "- skip: 1\n- take: 2\n", three, map[string]string{"a.csv": "id,t,place\n2,40,UK\n", "d/b.csv": "id,t,place\n3,50,\"F, R\"\n"}},
		{"take before filter", all + "- take: 1\n- filter: col(\"t\") > 32\n", three, map[string]string{}},
		{"keep", all + "- keep_columns: [place, id]\n- take: 1\n", three, map[string]string{"a.csv": "id,place\n1,UK\n"}},
		{"drop", all + "- drop_columns: place\n- filter: col(\"id\") <= 1\n", three, map[string]string{"a.csv": "id,t\n1,10\n"}},
		{"sample of all", all + "- take_random_sample: {probability: 1.0, seed: 3}\n- take: 1", three, map[string]string{"a.csv": "id,t,place\n1,10,UK\n"}},
		{
			"no header", "paths: [{file: x.tsv}]\ntransformations:\n- read_delimited: {delimiter: \"\\t\", header: no_header}\n- keep_columns: [Column2]",
			map[string]string{"x.tsv": "a\tb\nc\td\n"},
			map[string]string{"x.tsv": "b\nd\n"},
		},
		{
			"header of the first file", "paths: [{pattern: '*.csv'}]\ntransformations:\n- read_delimited: {header: from_first_file}\n- filter: col(\"n\") >= 2",
			map[string]string{"a.csv": "n\n1\n2\n", "b.csv": "3\n"},
			map[string]string{"a.csv": "n\n2\n", "b.csv": "n\n3\n"},
		},
		{
			"different headers", "paths: [{pattern: '*.csv'}]\ntransformations:\n- read_delimited: {header: all_files_different_headers, include_path_column: true}",
			map[string]string{"a.csv": "n\n1\n", "b.csv": "m,k\n3,4\n"},
			map[string]string{"a.csv": "Path,n\na.csv,1\n", "b.csv": "Path,m,k\nb.csv,3,4\n"},
		},
		{
			"windows-1252", "paths: [{file: a}]\ntransformations: [read_delimited: {encoding: windows1252}]",
			map[string]string{"a": "x\n\x80\xe9\n"},
			map[string]string{"a": "x\n€é\n"},
		},
		{
			"utf-16", "paths: [{file: a}]\ntransformations: [read_delimited: {encoding: utf16}]",
			map[string]string{"a": "\xff\xfex\x00\n\x00\x3d\xd8\x00\xde\n\x00"},
			map[string]string{"a": "x\n😀\n"},
		},
		{
			"byte order mark", "paths: [{file: a}]\ntransformations: [read_delimited, {keep_columns: x}]",
			map[string]string{"a": "\ufeffx,y\n1,2\n"},
			map[string]string{"a": "x\n1\n"},
		},
		{
			"a number that is none", "paths: [{file: a}]\ntransformations: [read_delimited, {filter: 'col(\"x\") >= 1'}]",
			map[string]string{"a": "x\nNaN\n2\n"},
			map[string]string{"a": "x\n2\n"},
		},
		{
			"booleans and large numbers", "paths: [{file: a}]\ntransformations: [read_delimited, {filter: 'col(\"x\") == True and col(\"y\") != 9007199254740993'}]",
			map[string]string{"a": "x,y\ntrue,9007199254740992\nTrue,9007199254740993\nfalse,1\n"},
			map[string]string{"a": "x,y\ntrue,9007199254740992\n"},
		},
		{
			"an empty value alone", "paths: [{file: a}]\ntransformations: [read_delimited, {keep_columns: x}]",
			map[string]string{"a": "x,y\n,1\n2,3\n"},
			map[string]string{"a": "x\n\"\"\n2\n"},
		},
		{
			"JSON lines", "paths: [{file: a}]\ntransformations: [read_json_lines: {invalid_lines: drop}, {filter: 'col(\"n\") > 1'}, {drop_columns: n}]",
			map[string]string{"a": "{\"n\": 1}\n\nodd\n{\"n\":2,\"s\":\"é\",\"deep\":{\"z\":1.50}}\n{\"n\":3}"},
			map[string]string{"a": "{\"s\":\"é\",\"deep\":{\"z\":1.50}}\n{}\n"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := evaluate(t, tt.table, tt.files)
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRowErrors(t *testing.T) {
	for _, tt := range []struct{ table, text, want string }{
		{"read_json_lines", "{\"a\":1}\n[1]\n", "a: line 2 is not a JSON object"},
		{"read_json_lines", "{\"a\":1} {\"a\":2}\n", "a: line 1 is not a JSON object: there is more after the object"},
		{"read_delimited", "x\n1\n1,2\n", "a: line 3 has 2 fields, more than there are columns (1)"},
		{"read_delimited, {keep_columns: y}", "x\n1\n", "a: keep_columns: there is no column y"},
		{"read_delimited", "x\n\"" + strings.Repeat("line\n", 4<<20), "a row is larger than 16 MB"},
		{"read_delimited: {encoding: utf16}", "x", "its length is odd"},
		{"read_delimited, {filter: 'col(\"y\") > 1'}", "x\n1\n", "a: filter: there is no column y"},
		{"read_delimited", strings.Repeat(",", 10_000) + "\n1\n", "10001 columns; 10000 are allowed"},
	} {
		_, err := evaluate(t, fmt.Sprintf("paths: [{file: a}]\ntransformations: [%s]", tt.table), map[string]string{"a": tt.text})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.table, err, tt.want)
		}
	}
}

// TestGlobEnds: a pattern that could be matched in very many ways is matched at once.
func TestGlobEnds(t *testing.T) {
	table, err := mltable.Parse([]byte("paths: [{pattern: '" + strings.Repeat("**/a/", 200) + "x'}]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Select(t.Context(), []string{strings.Repeat("a/", 1000) + "y"}); berth.CodeOf(err) != berth.NotFound {
		t.Error(err)
	}
}
