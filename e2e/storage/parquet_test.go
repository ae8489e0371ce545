package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

// reading is a row of the test's Parquet file.
type reading struct {
	ID    int64    `parquet:"id"`
	Place string   `parquet:"place,dict"`
	T     *float64 `parquet:"t,optional"`
	Codes []int32  `parquet:"codes,list"`
}

// TestParquet: a table of Parquet files has the files that it selects: as they are, or with the
// columns and rows that the table says. What cannot be evaluated is refused when the job is
// submitted, with what to do instead, and a damaged file fails the job with its name.
func TestParquet(t *testing.T) {
	y := begin(t, "")
	var file bytes.Buffer
	var rows []reading
	for i := range 1000 {
		r := reading{ID: int64(i), Place: []string{"UK", "FR"}[i%2], Codes: []int32{int32(i)}}
		if i%3 != 0 {
			r.T = new(float64(i) / 2)
		}
		rows = append(rows, r)
	}
	if err := parquet.Write(&file, rows, parquet.Compression(&parquet.Zstd)); err != nil {
		t.Fatal(err)
	}
	const all = "paths: [{pattern: '*.parquet'}]\ntransformations:\n- read_parquet\n"
	for name, table := range map[string]string{
		"whole":   all,
		"chosen":  all + "- filter: col(\"t\") < 5 and col(\"place\") == \"UK\"\n- keep_columns: [id, codes]\n",
		"damaged": all + "- take: 1\n",
		"other":   all + "- convert_column_types: [{columns: id, column_type: string}]\n",
	} {
		dir := filepath.Join(y.dir, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		one := file.Bytes()
		if name == "damaged" {
			one = one[:len(one)-100]
		}
		for file, text := range map[string]string{"MLTable": table, "one.parquet": string(one), "other.txt": "x"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		y.berth("data", "create", "--name", name, "--version", "1", "--type", "mltable", "--path", dir)
	}
	const reads = "command: ls ${{inputs.i}} | wc -l && sha256sum < ${{inputs.i}}/one.parquet && echo file=$(base64 -w0 ${{inputs.i}}/one.parquet)=end\ninputs:\n  i: {type: mltable, path: \"azureml:NAME:1\", mode: MODE}\n"
	for i, mode := range []string{"eval_mount", "eval_download"} {
		of := func(name string) string { return strings.NewReplacer("NAME", name, "MODE", mode).Replace(reads) }
		told := y.completed(fmt.Sprint("reads", i), of("whole"))
		if !strings.Contains(told, fmt.Sprintf("1\n%x", sha256.Sum256(file.Bytes()))) {
			t.Errorf("%s: the job saw\n%s", mode, told)
		}
		told = y.completed(fmt.Sprint("chosen", i), of("chosen"))
		if diff := cmp.Diff("id codes: {2 [2]} {4 [4]} {8 [8]}", seen(t, told)); diff != "" {
			t.Errorf("%s: %s", mode, diff)
		}
		out, err := y.command("job", "create", "--file", y.file("job.yaml", y.yaml(fmt.Sprint("other", i), of("other")))).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "convert_column_types cannot be evaluated on a node; use mode ro_mount or direct") {
			t.Errorf("%s: %v\n%s", mode, err, out)
		}
	}
	status, told := y.job("damaged", strings.NewReplacer("NAME", "damaged", "MODE", "eval_mount").Replace(reads))
	if status != "Failed" || !strings.Contains(told, "one.parquet: it is not a sound Parquet file") {
		t.Errorf("%s:\n%s", status, told)
	}
}

// seen is the names of the columns, and the rows, of the file that a job wrote to its log.
func seen(t *testing.T, log string) string {
	t.Helper()
	found := regexp.MustCompile(`file=(\S+)=end`).FindStringSubmatch(log)
	if found == nil {
		t.Fatalf("the job wrote\n%s", log)
	}
	raw, err := base64.StdEncoding.DecodeString(found[1])
	if err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range f.Schema().Fields() {
		names = append(names, c.Name())
	}
	type row struct {
		ID    int64   `parquet:"id"`
		Codes []int32 `parquet:"codes,list"`
	}
	rows, err := parquet.Read[row](bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ") + ": " + strings.Trim(fmt.Sprint(rows), "[]")
}
