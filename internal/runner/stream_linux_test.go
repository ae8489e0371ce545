package runner_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data/blobtest"
	"github.com/berthml/berth/internal/runner/stream"
)

// streams skips a test where nothing can be streamed, and is a cache for it.
func streams(t *testing.T) *cache.Cache {
	t.Helper()
	if why := runner.MountTrouble(); why != "" {
		t.Skip(why)
	}
	if why := stream.Trouble(); why != "" {
		t.Skip(why)
	}
	c, err := cache.Open(t.TempDir(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// served counts the mounts that this process serves: it has the device open for each. They are in
// namespaces of the tasks, where this process does not see them.
func served(t *testing.T) (n int64) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Error(err)
	}
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && to == "/dev/fuse" {
			n++
		}
	}
	return n
}

// TestStreamedInput: an input that is streamed holds what the folder holds, nothing of it is kept
// on the node, and nothing is mounted afterwards.
func TestStreamedInput(t *testing.T) {
	c := streams(t)
	large := make([]byte, 3<<20+11)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(large)
	s := blobtest.New(t)
	s.Set(map[string]string{"data/a": "a\n", "data/sub/large": string(large), "one/file.txt": "one\n", "m/model.pkl": "pickle\n"})
	var during atomic.Int64 // mounts that are served
	s.Fault = func(http.ResponseWriter, *http.Request) bool {
		during.Store(max(during.Load(), served(t)))
		return false
	}
	b := newBench(t, `cat ${{inputs.folder}}/a ${{inputs.file}} ${{inputs.model}}/model.pkl; basename ${{inputs.file}}; sha256sum <${{inputs.folder}}/sub/large; echo x >${{inputs.folder}}/a; true`)
	b.options.Cache = c
	in := func(kind, at string) berth.LaunchInput {
		return berth.LaunchInput{Type: kind, Mode: "ReadOnlyMount", URL: s.At(at), Version: "v " + at, Ours: true, Stream: true}
	}
	b.launch.Inputs = map[string]berth.LaunchInput{"folder": in("uri_folder", "data"), "file": in("uri_file", "one/file.txt"), "model": in("custom_model", "m/model.pkl")}
	if exit := b.run(); !exit.OK() {
		t.Fatalf("exit %+v, log %s", exit, b.log())
	}
	want := fmt.Sprintf("a\none\npickle\nfile.txt\n%x  -\n", sha256.Sum256(large))
	if log := b.log(); !strings.HasPrefix(log, want) || !strings.Contains(strings.ToLower(log), "read-only file system") {
		t.Errorf("log %s", log)
	}
	if got := b.staged(); !strings.Contains(got, "input folder: 2 files, 3.1 MB, streamed while it is read, since the job asks for it") {
		t.Errorf("staged: %s", got)
	}
	if w := b.warnings(); w != "" {
		t.Error(w)
	}
	if during.Load() == 0 || served(t) != 0 {
		t.Errorf("%d mounts were served while it ran, %d are now", during.Load(), served(t))
	}
	if list, err := os.ReadDir(b.options.Dir + "/inputs/folder"); err != nil || len(list) > 0 {
		t.Errorf("on the disk: %v, %v", list, err)
	}
}

// TestInputLargerThanTheDisk: what the node has no room for is streamed; what it has is not.
func TestInputLargerThanTheDisk(t *testing.T) {
	c := streams(t)
	s := blobtest.New(t)
	s.Set(map[string]string{"data/a": strings.Repeat("a", 1000), "small/b": "b"})
	b := newBench(t, `cat ${{inputs.i}}/a ${{inputs.j}}/b | wc -c`)
	b.options.Cache, b.options.FreeDisk = c, func() int64 { return 999 }
	b.launch.Inputs = map[string]berth.LaunchInput{
		"i": {Type: "uri_folder", URL: s.At("data"), Version: "v", Ours: true}, "j": {Type: "uri_folder", URL: s.At("small"), Version: "w", Ours: true},
	}
	if exit := b.run(); !exit.OK() || b.log() != "1001\n" {
		t.Fatalf("exit %+v, log %s", exit, b.log())
	}
	if got := b.staged(); !strings.Contains(got, "input i: 1 file, 0.0 MB, streamed while it is read, since the node's disk has no room") || !strings.Contains(got, "input j: 1 file, 0.0 MB, brought to the node") {
		t.Errorf("staged: %s", got)
	}
}

// TestStreamWithoutMounts: where nothing can be mounted, an input that was to be streamed is
// downloaded, and the job says so.
func TestStreamWithoutMounts(t *testing.T) {
	c, err := cache.Open(t.TempDir(), cache.Options{Protect: os.Getuid() != 0})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Cleanup(runner.RefuseMounts())
	s := blobtest.New(t)
	s.Set(map[string]string{"data/a": "alpha"})
	b := newBench(t, `cat ${{inputs.i}}/a`)
	b.options.Cache = c
	b.launch.Inputs = map[string]berth.LaunchInput{"i": {Type: "uri_folder", URL: s.At("data"), Version: "v", Ours: true, Stream: true}}
	if exit := b.run(); !exit.OK() || b.log() != "alpha" {
		t.Fatalf("exit %+v, log %s", exit, b.log())
	}
	if w := b.warnings(); !strings.Contains(w, "input i is downloaded to the node and not streamed, since ") {
		t.Errorf("warnings %q", w)
	}
}

// bucket is storage elsewhere with one file, which changes when it is told to.
func bucket(t *testing.T, size int) (url string, change func()) {
	var version atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tag := fmt.Sprintf(`"v%d"`, version.Load())
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(strings.Repeat(fmt.Sprint(version.Load()), size)))
	}))
	t.Cleanup(s.Close)
	return s.URL, func() { version.Add(1) }
}

// TestStreamedSourceChanges: a file in storage elsewhere that changes while it is streamed is not
// read half and half: the command gets an error, and the job says why.
func TestStreamedSourceChanges(t *testing.T) {
	c := streams(t)
	at, change := bucket(t, 40<<20)
	dir := t.TempDir()
	b := newBench(t, `exec 3<${{inputs.i}}; head -c 1 <&3; echo; touch `+dir+`/read; until [ -e `+dir+`/changed ]; do sleep 0.01; done; tail -c 1 ${{inputs.i}} && echo was read; true`)
	b.options.Cache, b.options.Home = c, &signs{to: at}
	b.launch.Inputs = map[string]berth.LaunchInput{
		"i": {Type: "uri_file", URL: "s3://data/in.bin", Outside: &berth.Outside{Protocol: berth.OutsideS3, Datastore: "lake", At: "s3://data/in.bin", Scope: "x"}, Stream: true},
	}
	go func() {
		for _, err := os.Stat(dir + "/read"); err != nil; _, err = os.Stat(dir + "/read") {
			time.Sleep(10 * time.Millisecond)
		}
		change()
		if err := os.WriteFile(dir+"/changed", nil, 0o600); err != nil {
			t.Error(err)
		}
	}()
	if exit := b.run(); !exit.OK() {
		t.Fatalf("exit %+v, log %s", exit, b.log())
	}
	if log := b.log(); !strings.HasPrefix(log, "0\n") || strings.Contains(log, "was read") || !strings.Contains(log, "Input/output error") {
		t.Errorf("log %s", log)
	}
	if w := b.warnings(); !strings.Contains(w, "changed while it was being read") || !strings.Contains(w, "datastore lake") {
		t.Errorf("warnings %q", w)
	}
}

// TestStoppedStream: a task that waits for bytes of a streamed input which do not come is stopped
// like any other.
func TestStoppedStream(t *testing.T) {
	c := streams(t)
	s := blobtest.New(t)
	s.Set(map[string]string{"data/a": "alpha"})
	asked := make(chan struct{}, 100)
	s.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") == "" {
			return false
		}
		asked <- struct{}{}
		<-r.Context().Done()
		return true
	}
	b := newBench(t, `cat ${{inputs.i}}/a`)
	b.options.Cache = c
	b.launch.Inputs = map[string]berth.LaunchInput{"i": {Type: "uri_folder", URL: s.At("data"), Version: "v", Ours: true, Stream: true}}
	go func() {
		<-asked
		b.control.Stop(runner.Stop{Cause: "canceled"})
	}()
	if exit := b.run(); exit.Cause != "canceled" {
		t.Errorf("exit %+v", exit)
	}
}

// TestStreamFromTheServersDisk: where the node shares the server's disk, streamed files are read
// there, and those that are not there are asked for.
func TestStreamFromTheServersDisk(t *testing.T) {
	c := streams(t)
	s := blobtest.New(t)
	s.Set(map[string]string{"data/a": "alpha\n", "data/b": "beta\n"})
	objects := t.TempDir()
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte("alpha\n")))
	if err := os.MkdirAll(objects+"/"+hash[:2], 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(objects+"/"+hash[:2]+"/"+hash[2:], []byte("alpha\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, `cat ${{inputs.i}}/a ${{inputs.i}}/b; tail -c 3 ${{inputs.i}}/a`)
	b.options.Cache, b.launch.Objects = c, objects
	b.launch.Inputs = map[string]berth.LaunchInput{"i": {Type: "uri_folder", URL: s.At("data"), Version: "v", Ours: true, Stream: true}}
	if exit := b.run(); !exit.OK() || b.log() != "alpha\nbeta\nha\n" {
		t.Fatalf("exit %+v, log %s", exit, b.log())
	}
	asked := strings.Join(s.Requests(), "\n")
	if strings.Contains(asked, "data/a") || !strings.Contains(asked, "data/b") {
		t.Errorf("asked for\n%s", asked)
	}
}
