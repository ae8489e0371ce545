package spec_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berthml/berth/internal/spec"
)

// workspace is the id of the workspace that stands for the user's.
const workspace = "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.MachineLearningServices/workspaces/ws"

var update = flag.Bool("update", false, "write what comes out into testdata; read the diff before you commit it")

// TestFixtures runs the cases of testdata/*.txtar. A case is a folder of the archive: in.yaml is
// read, with the kind and the overrides its leading comments name; want.json is what Render prints,
// errors what it refuses the file for. Files elsewhere in the archive are there to be referred to.
func TestFixtures(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { runArchive(t, file) })
	}
}

func runArchive(t *testing.T, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	root := unpack(t, a)
	var out []txtar.File
	for _, f := range a.Files {
		name, rest, _ := strings.Cut(f.Name, "/")
		switch rest {
		case "in.yaml":
			out = append(out, f)
			t.Run(name, func(t *testing.T) {
				got := runCase(t, root, name, string(f.Data))
				out = append(out, got)
				if *update {
					return
				}
				if diff := cmp.Diff(find(a, got.Name), string(got.Data)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", got.Name, diff)
				}
			})
		case "want.json", "errors":
		default:
			out = append(out, f)
		}
	}
	if *update {
		a.Files = out
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func unpack(t *testing.T, a *txtar.Archive) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		path := filepath.Join(root, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func find(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// runCase gives want.json or errors of a case, with the temporary folder taken out.
func runCase(t *testing.T, root, name, text string) txtar.File {
	o := spec.Options{File: "in.yaml", Experiment: "here"}
	for _, line := range strings.Split(text, "\n") {
		key, val, ok := strings.Cut(strings.TrimPrefix(line, "# "), ": ")
		if !strings.HasPrefix(line, "# ") || !ok {
			break
		}
		switch key {
		case "kind":
			o.Kind = val
		case "set":
			o.Set = append(o.Set, val)
		}
	}
	var buf bytes.Buffer
	err := spec.Render(&buf, filepath.Join(root, name, "in.yaml"), o)
	clean := func(s string) []byte {
		s = strings.NewReplacer(root, "ROOT", workspace, "WS").Replace(s)
		return []byte(strings.TrimRight(s, "\n") + "\n")
	}
	if err != nil {
		return txtar.File{Name: name + "/errors", Data: clean(err.Error())}
	}
	if !json.Valid(buf.Bytes()) {
		t.Errorf("output is not JSON: %s", buf.String())
	}
	return txtar.File{Name: name + "/want.json", Data: clean(buf.String())}
}
