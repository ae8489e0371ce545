package sdk_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berthml/berth/e2e/world"
)

// shown is what the test makes and shows: a noun, a name, and for assets a version.
var shown = []string{
	"job full_job", "job plain_job", "data numbers 1", "data folder 1", "environment conda 3", "environment build 1", "environment image 1",
	"model net 1", "component step 1", "datastore elsewhere", "datastore gen2", "workspace default", "workspace second",
}

// TestSDKLoadsWhatIsShown: what `show` and `list` print is what Azure's own client shows of the
// same things, and it reads them back.
func TestSDKLoadsWhatIsShown(t *testing.T) {
	s := world.Start(t)
	dir := t.TempDir()
	files, err := txtar.ParseFile("shown.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files.Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	berth := func(args ...string) []byte {
		t.Helper()
		cmd := s.Command(args...)
		cmd.Dir = dir
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("berth %s: %v\n%s", strings.Join(args, " "), err, errs.String())
		}
		return out
	}
	for _, f := range files.Files {
		if noun, ok := strings.CutSuffix(filepath.Base(f.Name), ".yml"); ok && filepath.Dir(f.Name) == "." {
			noun, _, _ = strings.Cut(noun, "-")
			more := []string{}
			if noun == "job" {
				more = append(more, "--stream")
			}
			berth(append([]string{noun, "create", "-f", f.Name, "-o", "none"}, more...)...)
		}
	}
	out := filepath.Join(dir, "shown")
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(out, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range shown {
		w := strings.Fields(line)
		args := []string{w[0], "show", "-n", w[1]}
		if len(w) > 2 {
			args = append(args, "-v", w[2])
		}
		file := strings.Join(w, "+")
		write(file+".yml", berth(append(args, "-o", "yaml")...))
		write(file+".json", berth(append(args, "-o", "json")...))
	}
	for file, args := range map[string][]string{
		"list+job.json": {"job", "list"}, "list+data.json": {"data", "list", "-n", "numbers"}, "list+environment.json": {"environment", "list", "-n", "conda"},
		"list+model.json": {"model", "list", "-n", "net"}, "list+component.json": {"component", "list", "-n", "step"}, "list+datastore.json": {"datastore", "list"},
	} {
		write(file, berth(append(args, "-o", "json")...))
	}
	script, err := filepath.Abs("shown.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"1.35.2", "1.34.1"} {
		t.Run(version, func(t *testing.T) {
			python := world.Python(t, "azure-ai-ml=="+version, "azure-identity==1.27.0", "six==1.17.0")
			cmd := exec.Command(python, script, out)
			cmd.Env, cmd.Dir = s.Environ(), t.TempDir()
			var errs bytes.Buffer
			cmd.Stderr = &errs
			said, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, said, errs.String())
			}
			for _, line := range shown {
				if !strings.Contains(string(said), "same and read: "+line+"\n") {
					t.Errorf("nothing is said of %s:\n%s", line, said)
				}
			}
			for _, noun := range []string{"job", "data", "environment", "model", "component", "datastore"} {
				if !strings.Contains(string(said), "read from a list: "+noun+"\n") {
					t.Errorf("nothing is said of the list of %s:\n%s", noun, said)
				}
			}
		})
	}
}
