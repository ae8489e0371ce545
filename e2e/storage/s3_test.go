package storage

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

const versitygw = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// s3 is a server of S3 whose objects are files below a folder.
type s3 struct {
	*world.Daemon
	endpoint, bucket string // the address, and the folder of the bucket "data"
}

const (
	s3Key    = "testkey"
	s3Secret = "a-secret-that-nobody-else-has"
)

func startS3(t *testing.T) *s3 {
	t.Helper()
	tool, address, dir := world.Tool(t, versitygw), world.FreeAddress(t), t.TempDir()
	s := &s3{endpoint: "http://" + address, bucket: filepath.Join(dir, "data")}
	if err := os.Mkdir(s.bucket, 0o755); err != nil {
		t.Fatal(err)
	}
	s.Daemon = world.Serve(t, address, func() *exec.Cmd {
		return program(tool, []string{"ROOT_ACCESS_KEY=" + s3Key, "ROOT_SECRET_KEY=" + s3Secret}, "--port", address, "posix", dir)
	})
	return s
}

// put makes an object.
func (s *s3) put(t *testing.T, name, text string) {
	t.Helper()
	p := filepath.Join(s.bucket, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (s *s3) get(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.bucket, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (s *s3) datastore(name, secret string) string {
	return "type: s3\nname: " + name + "\nbucket: data\nendpoint: " + s.endpoint +
		"\ncredentials:\n  access_key_id: " + s3Key + "\n  secret_access_key: " + secret + "\n"
}

// TestS3: a job reads a folder and a file of a bucket and writes to it. The secret is nowhere but in the sealed part of the database.
func TestS3(t *testing.T) {
	s := startS3(t)
	s.put(t, "in/a.txt", "alpha\n")
	s.put(t, "in/deep/b c+d.txt", "beta\n")
	y := begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
	if got := y.berth("datastore", "show", "-n", "lake", "-o", "json") + y.berth("datastore", "list", "-o", "json"); strings.Contains(got, s3Secret) || !strings.Contains(got, s.endpoint) {
		t.Errorf("the datastore is shown as\n%s", got)
	}
	const reads = `
command: >-
  cat ${{inputs.folder}}/a.txt "${{inputs.folder}}/deep/b c+d.txt" ${{inputs.file}} &&
  mkdir -p ${{outputs.o}}/sub && echo written > "${{outputs.o}}/sub/o p.txt"
inputs:
  folder: {type: uri_folder, path: azureml://datastores/lake/paths/in, mode: MODE}
  file: {type: uri_file, path: "s3://data/in/a.txt", mode: MODE}
outputs:
  o: {type: uri_folder, path: azureml://datastores/lake/paths/out/MODE}
`
	for _, mode := range []string{"ro_mount", "download"} {
		told := y.completed("reads-"+strings.ReplaceAll(mode, "_", "-"), strings.ReplaceAll(reads, "MODE", mode))
		if !strings.Contains(told, "alpha\nbeta\nalpha\n") {
			t.Errorf("%s: the job saw\n%s", mode, told)
		}
		if got := s.get(t, "out/"+mode+"/sub/o p.txt"); got != "written\n" {
			t.Errorf("%s: the output is %q", mode, got)
		}
		if mode == "download" && !strings.Contains(told, "input folder: 2 files, 0.0 MB, on the node already") {
			t.Errorf("what the first job brought to the node was brought again:\n%s", told)
		}
	}
	err := filepath.WalkDir(y.s.Home, func(p string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // it went away
		}
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), s3Secret) {
			t.Errorf("%s has the secret in clear", p)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
