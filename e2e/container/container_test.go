//go:build engines

// Package container runs jobs in images, on a real dockerd and a real Podman.
package container_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

const engines = "../engines"

// image makes localhost/python:1 from this machine's Python, once.
func image(t *testing.T) string {
	t.Helper()
	tar := filepath.Join(t.TempDir(), "python.tar")
	if out, err := exec.Command(engines+"/k8s/node/mkpython.sh", tar).CombinedOutput(); err != nil {
		t.Fatalf("making the image: %v\n%s", err, out)
	}
	return tar
}

// start brings an engine up with the image loaded, and is its address.
func start(t *testing.T, name, tar string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bg")
	if err != nil {
		t.Fatal(err)
	}
	up, down, sock := engines+"/k8s/dockerd.sh", engines+"/k8s/dockerd-down.sh", "docker.sock"
	if name == "podman" {
		up, down, sock = engines+"/podman/podman-up.sh", engines+"/podman/podman-down.sh", "podman.sock"
	}
	t.Cleanup(func() {
		if out, err := exec.Command(down, dir).CombinedOutput(); err != nil {
			t.Logf("%s: %v\n%s", down, err, out)
		}
		os.RemoveAll(dir)
	})
	log := filepath.Join(dir, "up.log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(up, dir)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Run(); err != nil {
		b, _ := os.ReadFile(log)
		if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), name) {
			t.Fatalf("%s: %v\n%s", name, err, b)
		}
		t.Skipf("%s cannot be started: %v", name, err)
	}
	host := "unix://" + filepath.Join(dir, sock)
	load := exec.Command("docker", "-H", host, "load", "-i", tar)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("loading the image: %v\n%s", err, out)
	}
	return host
}

type job struct {
	Status string `json:"status"`
}

func TestJobsInContainers(t *testing.T) {
	tar := image(t)
	for _, engine := range []string{"docker", "podman"} {
		t.Run(engine, func(t *testing.T) {
			host := start(t, engine, tar)
			t.Setenv("DOCKER_HOST", host)
			s := world.Start(t)
			dir := t.TempDir()
			write := func(name, text string) string {
				t.Helper()
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				return path
			}
			write("src/main.py", `
import os, pathlib, sys
print("inside", os.path.exists("/etc/debian_version") or "image", flush=True)
print("read", pathlib.Path(sys.argv[1]).read_text())
pathlib.Path(sys.argv[2], "made.txt").write_text("made inside")
sys.stderr.write("to stderr\n")
sys.exit(int(sys.argv[3]))
`)
			write("data.txt", "from outside")
			yml := func(name, command string) string {
				return write(name+".yml", fmt.Sprintf(`
command: %s
code: src
environment:
  image: localhost/python:1
inputs:
  data:
    type: uri_file
    path: data.txt
outputs:
  out:
    type: uri_folder
resources:
  docker_args: --env FROM_ARGS=yes --privileged
compute: azureml:local
`, command))
			}
			run := func(name, command string, want int) string {
				t.Helper()
				cmd := s.Command("job", "create", "-f", yml(name, command), "--name", name, "--stream")
				out, err := cmd.CombinedOutput()
				if got := cmd.ProcessState.ExitCode(); got != want {
					t.Fatalf("%s: exit %d, want %d (%v)\n%s", name, got, want, err, out)
				}
				return string(out)
			}
			out := run("good", `python3 main.py ${{inputs.data}} ${{outputs.out}} 0`, 0)
			for _, want := range []string{"inside", "read from outside", "to stderr"} {
				if !strings.Contains(out, want) {
					t.Errorf("the log does not say %q:\n%s", want, out)
				}
			}
			got := filepath.Join(dir, "got")
			if out, err := s.Command("job", "download", "-n", "good", "--output-name", "out", "-p", got).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			made, err := os.ReadFile(filepath.Join(got, "named-outputs", "out", "made.txt"))
			if err != nil || string(made) != "made inside" {
				t.Errorf("%q, %v", made, err)
			}
			run("bad", `python3 main.py ${{inputs.data}} ${{outputs.out}} 5`, 5)

			// What docker_args may say is done, and what they may not is told.
			out = run("args", `test "$FROM_ARGS" = yes && echo told ${{inputs.data}} ${{outputs.out}}`, 0)
			if !strings.Contains(out, "docker_args without effect here: --privileged") {
				t.Errorf("no warning of --privileged:\n%s", out)
			}

			// The image really was used: its file system is not this machine's.
			mark := write("mark", "x")
			run("apart", `test ! -e `+mark+` && test -n "${{inputs.data}}${{outputs.out}}"`, 0)

			write("src/hog.py", hogProgram)
			cmd := s.Command("job", "create", "-f", yml("hog", `python3 hog.py ${{inputs.data}} ${{outputs.out}}`), "--name", "hog", "-o", "none")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			checkUsage(t, s, "hog")

			// Cancel ends the container.
			cmd = s.Command("job", "create", "-f", yml("long", `sleep 600 ${{inputs.data}} ${{outputs.out}} || sleep 600`), "--name", "long", "-o", "none")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if out, err := s.Command("job", "cancel", "-n", "long").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if out, err := s.Command("logs", "-f", "long").CombinedOutput(); err != nil {
				t.Logf("logs: %v\n%s", err, out)
			}
			raw, err := s.Command("job", "show", "-n", "long", "-o", "json").Output()
			var j job
			if err != nil || json.Unmarshal(raw, &j) != nil || j.Status != "Canceled" {
				t.Errorf("after cancel: %v %s", err, raw)
			}
			left, err := exec.Command("docker", "-H", host, "ps", "-q").Output()
			if err != nil || len(left) > 0 {
				t.Errorf("containers are left: %s %v", left, err)
			}
		})
	}
}
