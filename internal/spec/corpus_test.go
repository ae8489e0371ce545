package spec_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/spec"
)

var (
	only = flag.String("only", "", "judge only corpus files whose path holds this")
	show = flag.Bool("show", false, "list every corpus file that does not agree")
)

// corpus is the folder of the development corpus, beside the repository. It is not part of the
// repository.
func corpus(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "corpus")
	if _, err := os.Stat(filepath.Join(dir, "rest", "RESULT.tsv")); err != nil {
		t.Skip("the corpus is not here: ", err)
	}
	return dir
}

// stubbed copies the corpus and makes the local files it refers to, empty, where they are absent.
func stubbed(t *testing.T, dir string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root = filepath.Join(root, "test_configs") // one file relies on the name
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if rel == "rest" {
			return filepath.SkipDir
		}
		to := filepath.Join(root, rel)
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	listing, err := os.ReadFile(filepath.Join(dir, "rest", "LOCAL.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(listing)), "\n") {
		rel, what, _ := strings.Cut(line, "\t")
		path := filepath.Join(root, filepath.FromSlash(rel))
		if _, err := os.Stat(path); i == 0 || err == nil || !strings.HasPrefix(path, root+string(filepath.Separator)) {
			continue
		}
		if what == "dir" {
			path = filepath.Join(path, "stub.txt")
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

type verdict struct {
	path, kind, word string
	found            []string
}

func (v verdict) agrees() bool { return v.word == "same" || v.word == "refused" }

func judgeOne(j *judge, path, rel string, g *golden) verdict {
	v := verdict{path: rel, kind: g.Kind}
	var out bytes.Buffer
	err := spec.Render(&out, path, spec.Options{Kind: g.Kind, Experiment: filepath.Base(filepath.Dir(path))})
	switch {
	case g.Error != "" && err != nil:
		v.word = "refused"
	case g.Error != "":
		v.word, v.found = "wrongly accepted", []string{g.Error}
	case err != nil:
		v.word, v.found = "wrongly rejected", strings.Split(err.Error(), "\n")
	default:
		var docs []*printed
		dec := json.NewDecoder(&out)
		dec.UseNumber()
		if err := dec.Decode(&docs); err != nil {
			v.word, v.found = "crashed", []string{err.Error()}
			return v
		}
		v.word = "same"
		if v.found = j.documents(g, docs, filepath.Dir(path)); len(v.found) > 0 {
			v.word = "differ"
		}
	}
	return v
}

// TestCorpus compares every file of the corpus with what the reference client sends for it. The
// floors in testdata/agreement.tsv may rise, never fall.
func TestCorpus(t *testing.T) {
	dir := corpus(t)
	root := stubbed(t, dir)
	j := &judge{root: root}
	var all []verdict
	err := filepath.WalkDir(filepath.Join(dir, "rest"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".json") {
			return err
		}
		rel, _ := filepath.Rel(filepath.Join(dir, "rest"), strings.TrimSuffix(path, ".json"))
		file := filepath.Join(root, rel)
		if _, err := os.Stat(file); err != nil || !strings.Contains(rel, *only) {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var g golden
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		if err := dec.Decode(&g); err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		if g.Skipped == "" && !g.Crash && !g.Missing {
			all = append(all, judgeOne(j, file, rel, &g))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	report(t, all)
}

func report(t *testing.T, all []verdict) {
	files, good := map[string]int{}, map[string]int{}
	for _, v := range all {
		for _, k := range []string{v.kind, "all"} {
			files[k]++
			if v.agrees() {
				good[k]++
			}
		}
		if *show && !v.agrees() {
			t.Logf("%s %s\n\t%s", v.word, v.path, strings.Join(v.found[:min(len(v.found), 6)], "\n\t"))
		}
	}
	var kinds []string
	for k := range files {
		kinds = append(kinds, k)
	}
	sort.Strings(kinds)
	floors := readFloors(t)
	for _, k := range kinds {
		t.Logf("%-22s %4d of %4d agree, %5.1f%%", k, good[k], files[k], 100*float64(good[k])/float64(files[k]))
		if *only == "" && good[k] < floors[k] {
			t.Errorf("%s: %d files agree, %d did before; see with -show", k, good[k], floors[k])
			for _, v := range all {
				if v.kind == k && !v.agrees() && !*show {
					t.Logf("  %s %s: %s", v.word, v.path, strings.Join(v.found[:min(len(v.found), 2)], "; "))
				}
			}
		}
	}
}

func readFloors(t *testing.T) map[string]int {
	t.Helper()
	floors := map[string]int{}
	file, err := os.Open(filepath.Join("testdata", "agreement.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for sc := bufio.NewScanner(file); sc.Scan(); {
		kind, n, ok := strings.Cut(sc.Text(), "\t")
		if strings.HasPrefix(kind, "#") || !ok {
			continue
		}
		if floors[kind], err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	return floors
}
