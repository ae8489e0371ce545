//go:build linux

package runner_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

const list = `cd ${{inputs.d}}; find -L . -type f | sort; cat $(find -L . -type f | sort)`

// TestTableOfFiles: the folder of an evaluated input has the files that its MLTable file selects,
// and no other file is brought to the node.
func TestTableOfFiles(t *testing.T) {
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		s.Set(map[string]string{
			"t/MLTable":   "paths: [{pattern: './img/*.jpg'}, {file: notes.csv}]\ntransformations: [{skip: 1}]",
			"t/img/1.jpg": "one", "t/img/2.jpg": "2", "t/img/3.png": "png", "t/notes.csv": "n\n", "t/other": "other",
		})
		for range 2 { // the second time from the cache
			b := newBench(t, list)
			b.options.Cache = c
			b.launch.Inputs = map[string]berth.LaunchInput{"d": {Type: "mltable", Mode: "EvalMount", URL: s.At("t"), Version: "v", Ours: true}}
			if exit := b.run(); !exit.OK() || b.log() != "./img/2.jpg\n./notes.csv\n2n\n" || b.warnings() != "" {
				t.Errorf("exit %+v, log %s, warnings %s", exit, b.log(), b.warnings())
			}
		}
		if slices.ContainsFunc(s.Requests(), func(r string) bool { return strings.Contains(r, "1.jpg") || strings.Contains(r, "other") }) {
			t.Error(s.Requests())
		}
	})
}

// TestTableOfRows: the folder of an evaluated input has the rows that its MLTable file selects.
func TestTableOfRows(t *testing.T) {
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		s.Set(map[string]string{
			"t/MLTable":    "paths: [{folder: ./rows}]\ntransformations: [read_delimited, {filter: 'col(\"n\") > 1'}]",
			"t/rows/a.csv": "n\n1\n2\n", "t/rows/b.csv": "n\n1\n",
		})
		for _, mode := range []string{"EvalMount", "EvalDownload"} {
			b := newBench(t, list+`; echo 9 >>rows/a.csv; tail -n 1 rows/a.csv`)
			b.options.Cache = c
			b.launch.Inputs = map[string]berth.LaunchInput{"d": {Type: "mltable", Mode: mode, URL: s.At("t"), Version: "v", Ours: true}}
			if exit := b.run(); !exit.OK() || !strings.HasPrefix(b.log(), "./rows/a.csv\nn\n2\n") || mode == "EvalDownload" && !strings.HasSuffix(b.log(), "\n9\n") {
				t.Errorf("%s: exit %+v, log %s", mode, exit, b.log())
			}
			if !strings.Contains(b.staged(), "with the rows that its MLTable file says") {
				t.Error(b.staged())
			}
		}
	})
}

// TestTableOfRowsOfSomeFiles: files are selected once, wherever that happens, and then their rows.
func TestTableOfRowsOfSomeFiles(t *testing.T) {
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		s.Set(map[string]string{
			"t/MLTable": "paths: [{file: b.csv}, {file: a.csv}, {file: c.csv}]\ntransformations: [{skip: 1}, read_delimited, {skip: 1}]",
			"t/a.csv":   "n\n1\n2\n", "t/b.csv": "n\n3\n", "t/c.csv": "n\n4\n",
		})
		for _, ours := range []bool{true, false} {
			b := newBench(t, list)
			b.options.Cache = c
			b.launch.Inputs = map[string]berth.LaunchInput{"d": {Type: "mltable", Mode: "EvalMount", URL: s.At("t"), Version: "v", Ours: ours}}
			if exit := b.run(); !exit.OK() || b.log() != "./a.csv\n./c.csv\nn\n2\nn\n4\n" {
				t.Errorf("ours %v: exit %+v, log %s", ours, exit, b.log())
			}
		}
	})
}

// TestTableOfParquet: rows of Parquet files are selected, and the workers of parallel jobs are not
// told to cut them by rows. A damaged file ends the task with its name.
func TestTableOfParquet(t *testing.T) {
	type row struct{ N int64 }
	var file bytes.Buffer
	if err := parquet.Write(&file, []row{{1}, {2}, {3}}); err != nil {
		t.Fatal(err)
	}
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		table := "paths: [{pattern: '*.parquet'}]\ntransformations: [read_parquet, {filter: 'col(\"N\") > 1'}]"
		s.Set(map[string]string{"t/MLTable": table, "t/a.parquet": file.String(), "t/b.parquet": file.String(), "odd/MLTable": table, "odd/a.parquet": file.String()[:50]})
		at := filepath.Join(t.TempDir(), "copy")
		b := newBench(t, `env | grep BERTH_TABLE; cd ${{inputs.d}} && ls && cp b.parquet `+at)
		b.options.Cache = c
		b.launch.Inputs = map[string]berth.LaunchInput{"d": {Type: "mltable", Mode: "EvalMount", URL: s.At("t"), Version: "v", Ours: true}}
		if exit := b.run(); !exit.OK() || b.log() != "a.parquet\nb.parquet\n" {
			t.Fatalf("exit %+v, log %s", exit, b.log())
		}
		if rows, err := parquet.ReadFile[row](at); err != nil || !slices.Equal(rows, []row{{2}, {3}}) {
			t.Error(rows, err)
		}
		b = newBench(t, "echo ran")
		b.options.Cache = c
		b.launch.Inputs = map[string]berth.LaunchInput{"d": {Type: "mltable", Mode: "EvalMount", URL: s.At("odd"), Version: "w", Ours: true}}
		if exit := b.run(); exit.Cause != "staging" || !strings.Contains(exit.Reason, "input d: a.parquet: it is not a sound Parquet file") {
			t.Errorf("exit %+v", exit)
		}
	})
}

// TestTableElsewhere: tables that the cache does not keep are evaluated as well.
func TestTableElsewhere(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"MLTable": "paths: [{pattern: '*.txt'}]", "a.txt": "a", "b.bin": "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := blobtest.New(t)
	s.Set(map[string]string{"t/MLTable": "paths: [{pattern: '*.txt'}]", "t/a.txt": "a", "t/b.bin": "b"})
	for _, url := range []string{"file://" + dir, s.At("t")} {
		b := newBench(t, list)
		b.launch.Inputs = map[string]berth.LaunchInput{"d": {Type: "mltable", Mode: "EvalMount", URL: url}}
		if exit := b.run(); !exit.OK() || b.log() != "./a.txt\na" {
			t.Errorf("exit %+v, log %s", exit, b.log())
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(text) != "a" {
		t.Error("the table itself was changed", err)
	}
}

// TestTableRefused: a table that cannot be evaluated ends the task with the reason.
func TestTableRefused(t *testing.T) {
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		s.Set(map[string]string{"odd/MLTable": "paths: [{file: a}]\ntransformations: [{read_delta_lake: {}}]", "odd/a": "", "none/a": ""})
		for _, tt := range []struct{ kind, at, want string }{
			{"mltable", "odd", "input d: the MLTable file: read_delta_lake cannot be evaluated on a node"},
			{"mltable", "none", "input d: the folder has no file named MLTable"},
			{"uri_folder", "odd", "input d: mode EvalMount is for inputs of type mltable"},
		} {
			b := newBench(t, "echo ran")
			b.options.Cache = c
			b.launch.Inputs = map[string]berth.LaunchInput{"d": {Type: tt.kind, Mode: "EvalMount", URL: s.At(tt.at), Version: tt.at, Ours: true}}
			if exit := b.run(); exit.Cause != "staging" || !strings.Contains(exit.Reason, tt.want) {
				t.Errorf("exit %+v, want %q", exit, tt.want)
			}
		}
	})
}
