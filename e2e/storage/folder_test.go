package storage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFolder: a folder that the server's file permits is a datastore that jobs of users read from
// and write to; no other is.
func TestFolder(t *testing.T) {
	allowed, other := t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{allowed: "alpha\n", other: "private\n"} {
		if err := os.MkdirAll(filepath.Join(dir, "in"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "in", "a.txt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(other, filepath.Join(allowed, "way-out")); err != nil {
		t.Fatal(err)
	}
	y := begin(t, "allow:\n  paths: ["+allowed+"]\n")
	bob := y.as("bob")
	refused := func(name, path string) {
		t.Helper()
		out, err := bob.command("datastore", "create", "--file", bob.file("ds.yaml", "type: folder\nname: "+name+"\npath: "+path+"\n")).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "only an administrator may use") {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
	refused("lake", other)
	refused("lake", allowed+"/../"+filepath.Base(other))
	refused("lake", "/")
	bob.berth("datastore", "create", "--file", bob.file("ds.yaml", "type: folder\nname: lake\npath: "+allowed+"\n"))
	told := bob.completed("reads", copies+"outputs:\n  o: {type: uri_folder, path: azureml://datastores/lake/paths/out}\n")
	if !strings.Contains(told, "alpha") {
		t.Errorf("the job saw\n%s", told)
	}
	bob.completed("writes", "command: echo written > ${{outputs.o}}/x\noutputs:\n  o: {type: uri_folder, path: azureml://datastores/lake/paths/out}\n")
	if b, err := os.ReadFile(filepath.Join(allowed, "out", "x")); err != nil || string(b) != "written\n" {
		t.Errorf("the output is %q, %v", b, err)
	}
	if status, told := bob.job("out", strings.ReplaceAll(copies, "/in}", "/way-out/in}")); status != "Failed" || strings.Contains(told, "private") {
		t.Errorf("a link out of the folder: %s\n%s", status, told)
	}
	// One that an administrator made of another folder does not help others around it.
	y.berth("datastore", "create", "--file", y.file("ds.yaml", "type: folder\nname: hers\npath: "+other+"\n"))
	if told := y.completed("admins", strings.ReplaceAll(copies, "lake", "hers")); !strings.Contains(told, "private") {
		t.Errorf("the administrator's job saw\n%s", told)
	}
	out, err := bob.command("job", "create", "--file", bob.file("his.yaml", bob.yaml("his", strings.ReplaceAll(copies, "lake", "hers")))).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "only an administrator may use") {
		t.Errorf("bob reads what he may not: %v\n%s", err, out)
	}
}
