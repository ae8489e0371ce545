package storage

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
)

// inBucket begins the story of a server whose blobs are in a bucket.
func inBucket(t *testing.T, s *s3) *story {
	t.Helper()
	home := world.Home(t)
	for name, text := range map[string]string{
		"berth.yaml": "blobs: s3://data/own/blobs\nblobs_endpoint: " + s.endpoint + "\n",
		"blobs.key":  s3Key + "\n" + s3Secret + "\n",
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &story{t: t, s: world.StartIn(t, home), dir: t.TempDir()}
}

// kill kills the server.
func (y *story) kill() {
	y.t.Helper()
	text, err := os.ReadFile(filepath.Join(y.s.Home, "run", "server.json"))
	var info struct{ PID int }
	if err == nil {
		err = json.Unmarshal(text, &info)
	}
	if err == nil {
		err = syscall.Kill(info.PID, syscall.SIGKILL)
	}
	if err != nil {
		y.t.Fatal(err)
	}
	for !world.Gone(info.PID) {
		time.Sleep(5 * time.Millisecond)
	}
}

// folder makes a folder with a file for a job to read.
func (y *story) folder(text string) string {
	y.t.Helper()
	dir := filepath.Join(y.t.TempDir(), "in")
	if err := os.Mkdir(dir, 0o755); err != nil {
		y.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte(text), 0o600); err != nil {
		y.t.Fatal(err)
	}
	return dir
}

const copying = `
command: cat ${{inputs.i}}/a.txt && cp ${{inputs.i}}/a.txt ${{outputs.o}}/b.txt
inputs:
  i: {type: uri_folder, path: "azureml:set@latest"}
outputs:
  o: {type: uri_folder}
`

// TestBlobsInABucket: a server that keeps its blobs in a bucket has everything after it was killed
// and its folder of blobs was deleted, and waits for a bucket that is away.
func TestBlobsInABucket(t *testing.T) {
	s := startS3(t)
	y := inBucket(t, s)
	y.berth("data", "create", "--name", "set", "--path", y.folder("alpha\n"), "--type", "uri_folder")
	if told := y.completed("first", copying); !strings.Contains(told, "alpha") {
		t.Errorf("the job saw\n%s", told)
	}
	y.kill()
	if err := os.RemoveAll(filepath.Join(y.s.Home, "blobs")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(y.s.Home, "host", "cache")); err != nil {
		t.Fatal(err)
	}
	y.s = world.StartIn(t, y.s.Home)
	if told := y.completed("second", copying); !strings.Contains(told, "alpha") {
		t.Errorf("after a restart on an empty disk the job saw\n%s", told)
	}
	into := t.TempDir()
	y.berth("job", "download", "-n", "first", "--output-name", "o", "--download-path", into)
	var found bool
	_ = filepath.WalkDir(into, func(p string, _ os.DirEntry, err error) error {
		text, rerr := os.ReadFile(p)
		found = found || rerr == nil && filepath.Base(p) == "b.txt" && string(text) == "alpha\n"
		return err
	})
	if !found {
		t.Error("the output of the first job is not there")
	}

	// The bucket is away while a job ends: its output arrives when it is back.
	s.answer(func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	y.berth("job", "create", "--file", y.file("third.yaml", y.yaml("third", "command: echo gamma > ${{outputs.o}}/c.txt\noutputs:\n  o: {type: uri_folder}\n")))
	y.until("third", "output o is not kept yet", "events", "third")
	s.answer(nil)
	if status, told := y.end("third"); status != "Completed" {
		t.Errorf("third: %s\n%s", status, told)
	}
}

// TestKilledWhileSending: a server that is killed in the middle of an upload has not acknowledged
// it, and takes it again.
func TestKilledWhileSending(t *testing.T) {
	s := startS3(t)
	y := inBucket(t, s)
	sending, killed := make(chan struct{}, 100), make(chan struct{})
	s.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		sending <- struct{}{}
		<-killed
		return false
	})
	dir := y.folder(strings.Repeat("beta\n", 200_000))
	upload := y.command("data", "create", "--name", "set", "--path", dir, "--type", "uri_folder")
	if err := upload.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-sending:
	case <-time.After(time.Minute):
		t.Fatal("nothing is sent")
	}
	y.kill()
	close(killed)
	if upload.Wait() == nil {
		t.Error("the upload is said to have succeeded")
	}
	s.answer(nil)
	y.s = world.StartIn(t, y.s.Home)
	y.berth("data", "create", "--name", "set", "--path", dir, "--type", "uri_folder")
	if told := y.completed("reads", strings.Replace(copying, "cat ${{inputs.i}}/a.txt", "wc -c < ${{inputs.i}}/a.txt", 1)); !strings.Contains(told, "1000000") {
		t.Errorf("the job saw\n%s", told)
	}
}
