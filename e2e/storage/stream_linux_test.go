package storage

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/runner/stream"
)

// TestS3Streamed: a job reads a bucket without bringing it to the node: a whole file, the first and
// last byte of one of 50 GB, and one whose credentials are revoked while it reads.
func TestS3Streamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	if why := stream.Trouble(); why != "" {
		t.Skip(why)
	}
	s := startS3(t)
	large := make([]byte, 40<<20+17)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(large)
	if err := os.MkdirAll(filepath.Join(s.bucket, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"large": large, "other": large[1:], "huge": []byte("a")} {
		if err := os.WriteFile(filepath.Join(s.bucket, "in", name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(s.bucket, "in", "huge"), 50<<30); err != nil {
		t.Fatal(err)
	}
	y := begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
	job := func(name, command string) string {
		return "name: " + name + "\nenvironment: {image: none}\nproperties: {berth.environment: host, berth.stream: i}\ncommand: " + command +
			"\ninputs:\n  i: {type: uri_folder, path: azureml://datastores/lake/paths/in, mode: ro_mount}\n"
	}
	y.berth("job", "create", "--file", y.file("reads.yaml", job("reads", `sha256sum <${{inputs.i}}/large && head -c 1 ${{inputs.i}}/huge && tail -c 1 ${{inputs.i}}/huge | wc -c`)))
	status, told := y.end("reads")
	if status != "Completed" || !strings.Contains(told, fmt.Sprintf("%x", sha256.Sum256(large))) || !strings.Contains(told, "a1\n") || !strings.Contains(told, "stream") {
		t.Errorf("%s:\n%s", status, told)
	}
	if n := s.read("/in/huge"); n == 0 || n > 8 {
		t.Errorf("the file of 50 GB was read %d times", n)
	}
	goOn := filepath.Join(y.dir, "go")
	y.berth("job", "create", "--file", y.file("revoked.yaml", job("revoked", `head -c 1 ${{inputs.i}}/other >/dev/null && echo begun && while [ ! -e `+goOn+` ]; do sleep 0.05; done; cat ${{inputs.i}}/other >/dev/null`)))
	y.until("revoked", "begun", "logs", "revoked")
	s.answer(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	y.file("go", "")
	status, told = y.end("revoked")
	if status != "Failed" || !strings.Contains(told, "Input/output error") || !strings.Contains(told, "rejects the credentials") {
		t.Errorf("%s:\n%s", status, told)
	}
}
