package migrate

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// TestWalkEnds: a server whose folders are in themselves, or elsewhere, is refused.
func TestWalkEnds(t *testing.T) {
	for name, list := range map[string]func(string) []client.RunFile{
		"the same": func(string) []client.RunFile { return []client.RunFile{{Path: "a", Dir: true}} },
		"deeper": func(folder string) []client.RunFile {
			return []client.RunFile{{Path: filepath.Join(folder, "a"), Dir: true}}
		},
		"above": func(string) []client.RunFile {
			return []client.RunFile{{Path: "a/b", Dir: true}, {Path: "c", Dir: true}}
		},
	} {
		_, err := walk(func(folder string) ([]client.RunFile, error) { return list(folder), nil })
		if berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSourcesOfVersions: a version's files are in a run that was brought over, or in storage.
func TestSourcesOfVersions(t *testing.T) {
	c := &copier{
		uris:   map[string]string{"r": "mlflow-artifacts:/1/r/artifacts", "m-1": "mlflow-artifacts:/1/models/m-1/artifacts"},
		logged: map[string]bool{"m-1": true},
	}
	for source, want := range map[string]string{
		"s3://b/x": "s3://b/x", "http://old/x/r/artifacts/m": "mlflow-artifacts:/1/r/artifacts/m", "http://evil/m": "", "HTTPS://evil/m": "",
		"ftp://evil/m": "", "mlflow-artifacts://old/5/x": "", "file:///x": "",
		"runs:/r/m": "mlflow-artifacts:/1/r/artifacts/m", "runs:/other/m": "", "runs://r/m": "",
		"models:/m-2": "models:/m-2", "file:///5/models/m-1/artifacts": "models:/m-1", "/5/models/m-1/artifacts/x": "mlflow-artifacts:/1/models/m-1/artifacts/x",
		"azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/workspaceartifactstore/paths/ExperimentRun/dcid.r/out/m": "mlflow-artifacts:/1/r/artifacts/out/m",
		"azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/workspaceblobstore/paths/LocalUpload/0/m":                "",
		"azureml://datastores/d/paths/ExperimentRun/dcid.other/m":                                                                    "", "azureml://jobs/ours/outputs/m": "",
		"models:/ours/1": "", "models://ours/1": "", "models:/m-ours/1": "", "models:/ours@best": "",
	} {
		got, ok := c.source(Version{Source: source, Run: "r"})
		if !ok {
			got = ""
		}
		if got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

// TestFolderOfOddFiles: a pipe in the place of a file does not hang the import, and points before a
// torn line are read.
func TestFolderOfOddFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"0/meta.yaml": "experiment_id: '0'\nname: a\n", "0/r/metrics/m": "1 0.5 1\n2 0.25 2\n3",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source, err := Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	run := &Run{folder: "0/r/artifacts"}
	err = source.History(t.Context(), run, "m", func(m []Metric) error { n += len(m); return nil })
	if n != 2 || berth.CodeOf(err) != berth.Invalid {
		t.Errorf("%d points: %v", n, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "1", "meta.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := source.Experiments(t.Context())
	if err != nil || len(list) != 2 || list[0].Err != nil || berth.CodeOf(list[1].Err) != berth.Invalid {
		t.Errorf("a pipe: %v, %v", list, err)
	}
}
