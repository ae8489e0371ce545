//go:build linux

package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

// secretFile is a file that the runner can read and a command must not get uploaded.
func secretFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "admin.token")
	if err := os.WriteFile(path, []byte("the secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUploadFollowsNoLinkOut: a command puts links to a secret, and to its folder, in every place
// that is uploaded. None is followed, and each is named in a warning.
func TestUploadFollowsNoLinkOut(t *testing.T) {
	secret := secretFile(t)
	for _, tt := range []struct{ name, command, warning string }{
		{"a file in outputs", "ln -s $S outputs/tok", "./outputs: tok is a link to a path outside the folder"},
		{"a relative link", "ln -s ../../../../../../../../../../$S outputs/tok", "./outputs: tok is a link to a path outside"},
		{"a folder in outputs", "ln -s $(dirname $S) outputs/dir", "./outputs: dir is a link to a path outside the folder"},
		{"a link to a link", "ln -s $S outputs/a; ln -s a outputs/b", "a is a link to a path outside the folder, b is a link to a path outside"},
		{"a file next to outputs", "echo x >../../x; ln -s ../../x outputs/y", "./outputs: y is a link to a path outside the folder"},
		{"outputs itself", "rm -r outputs; ln -s $(dirname $S) outputs", "./outputs is no longer a folder, and was not kept"},
		{"logs itself", "ln -s $(dirname $S) logs", "./logs is no longer a folder, and was not kept"},
		{"the working directory", "cd ..; mv wd was; mkdir t; ln -s $(dirname $S) t/outputs; ln -s t wd", "./outputs is no longer a folder"},
		{"a named output", "rm -r ${{outputs.o}}; ln -s $(dirname $S) ${{outputs.o}}", "output o is no longer a folder"},
		{"all named outputs", "cd ../outputs/..; mv outputs was; ln -s $(dirname $S) outputs; ln -s $(dirname $S) $(dirname $S)/o", "output o is no longer a folder"},
		{"a file output", "ln -s $S ${{outputs.f}}", "output f: f.bin is a link to a path outside the folder"},
		{"the folder of a file output", "rm -r ../outputs/f; ln -s $(dirname $S) ../outputs/f", "output f is no longer a folder"},
		{"the list of what was sent", "ln -s $S ../sent; echo x >outputs/x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := blobtest.New(t)
			b := newBench(t, tt.command)
			b.launch.Env = map[string]string{"S": secret}
			b.launch.Artifacts = s.At("run")
			b.launch.Outputs = map[string]berth.LaunchOutput{
				"o": {Type: "uri_folder", URL: s.At("job/o")}, "f": {Type: "uri_file", URL: s.At("job/f.bin")},
			}
			if exit := b.run(); !exit.OK() {
				t.Errorf("exit %+v", exit)
			}
			for name, content := range s.All("") {
				if strings.Contains(content, "secret") {
					t.Errorf("%s was uploaded", name)
				}
			}
			if got, err := os.ReadFile(secret); string(got) != "the secret" {
				t.Errorf("the secret is now %q, %v", got, err)
			}
			if w := b.warnings(); !strings.Contains(w, tt.warning) {
				t.Errorf("warnings %q, want %q", w, tt.warning)
			}
		})
	}
}

// TestUploadFollowsLinkInside: a link to another file of the same output is what people make for
// "the latest"; its content is kept.
func TestUploadFollowsLinkInside(t *testing.T) {
	s := blobtest.New(t)
	b := newBench(t, `echo best >outputs/best.pt; ln -s best.pt outputs/latest.pt; ln -s "$PWD"/outputs/best.pt outputs/absolute.pt
mkdir outputs/sub; ln -s ../latest.pt outputs/sub/x; mkdir -p ${{outputs.o}}/d; echo o >${{outputs.o}}/d/f; ln -s ${{outputs.o}}/d/f ${{outputs.o}}/g`)
	b.launch.Artifacts = s.At("run")
	b.launch.Outputs = map[string]berth.LaunchOutput{"o": {Type: "uri_folder", URL: s.At("job/o")}}
	if exit := b.run(); !exit.OK() {
		t.Errorf("exit %+v", exit)
	}
	want := map[string]string{
		"run/outputs/best.pt": "best\n", "run/outputs/latest.pt": "best\n", "run/outputs/absolute.pt": "best\n", "run/outputs/sub/x": "best\n",
		"job/o/d/f": "o\n", "job/o/g": "o\n",
	}
	if diff := cmp.Diff(want, s.All("")); diff != "" {
		t.Error(diff)
	}
	if w := b.warnings(); w != "" {
		t.Errorf("warnings %q", w)
	}
}

// TestUploadOfSpecialFiles: a pipe, a socket or a device among the outputs is named, and nothing
// waits for it.
func TestUploadOfSpecialFiles(t *testing.T) {
	s := blobtest.New(t)
	b := newBench(t, "mkfifo outputs/pipe; ln -s pipe outputs/link; mkfifo ${{outputs.f}}; ln -s /dev/zero outputs/zero; echo x >outputs/x")
	b.launch.Artifacts = s.At("run")
	b.launch.Outputs = map[string]berth.LaunchOutput{"f": {Type: "uri_file", URL: s.At("job/f.bin")}}
	if exit := b.run(); !exit.OK() {
		t.Errorf("exit %+v", exit)
	}
	if diff := cmp.Diff(map[string]string{"run/outputs/x": "x\n"}, s.All("")); diff != "" {
		t.Error(diff)
	}
	w := b.warnings()
	for _, want := range []string{"pipe is not a regular file", "link is not a regular file", "output f: f.bin is not a regular file", "zero is a link to a path outside"} {
		if !strings.Contains(w, want) {
			t.Errorf("warnings %q, want %q", w, want)
		}
	}
}

// TestKeptFolderReplaced: an attempt leaves links in the folders that it shares with the next one.
func TestKeptFolderReplaced(t *testing.T) {
	secret := secretFile(t)
	for _, leave := range []string{
		"rm -r $K/named; ln -s $(dirname $S) $K/named", "mv $K/outputs $K/was; ln -s $(dirname $S) $K/outputs", "mv $K/outputs $K/was; ln -s $(dirname $S)/none $K/outputs",
	} {
		s := blobtest.New(t)
		keep := filepath.Join(t.TempDir(), "kept")
		for _, command := range []string{leave, "echo x >outputs/x"} {
			b := newBench(t, command)
			b.launch.Env = map[string]string{"S": secret, "K": keep}
			b.launch.Keep, b.launch.Artifacts = keep, s.At("run")
			b.launch.Outputs = map[string]berth.LaunchOutput{"o": {Type: "uri_folder", URL: s.At("job/o")}}
			b.run()
		}
		for name, content := range s.All("") {
			if strings.Contains(content, "secret") {
				t.Errorf("%s: %s was uploaded", leave, name)
			}
		}
		if list, _ := os.ReadDir(filepath.Dir(secret)); len(list) != 1 {
			t.Errorf("%s: the folder of the secret has now %v", leave, list)
		}
	}
}

// TestLogReplaced: a log that is sent from the task's directory is replaced by its command, with a
// link to a secret or with a pipe. The one is not sent, and nothing waits for the other.
func TestLogReplaced(t *testing.T) {
	secret := secretFile(t)
	for _, command := range []string{
		"mv ../std_log.txt ../was; ln -s $S ../std_log.txt; sleep 0.1", "rm ../std_log.txt; mkfifo ../std_log.txt; sleep 0.1", "rm ../std_log.txt; mkdir ../std_log.txt",
	} {
		b := newBench(t, command)
		home := &logHome{logs: map[string]string{}}
		b.launch.LogFile, b.launch.Env, b.options.Home = "", map[string]string{"S": secret}, home
		if exit := b.run(); !exit.OK() {
			t.Errorf("%s: exit %+v", command, exit)
		}
		if strings.Contains(fmt.Sprint(home.logs), "secret") {
			t.Errorf("%s: the secret was sent as the log", command)
		}
		if w := b.warnings(); !strings.Contains(w, "std_log.txt is not the file it was") {
			t.Errorf("%s: warnings %q", command, w)
		}
	}
}

// TestOpenLogNotRegular: what lies in the place of a log and is not a file is refused at once.
func TestOpenLogNotRegular(t *testing.T) {
	secret := secretFile(t)
	dir := t.TempDir()
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // with a reader the pipe opens at once
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, path := range []string{link, pipe, dir} {
		done := make(chan error, 1)
		go func() {
			_, err := runner.OpenLog(path)
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s was opened", path)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("opening %s hangs", path)
		}
	}
}
