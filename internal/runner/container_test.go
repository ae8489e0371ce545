//go:build engines && linux

package runner_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
	"github.com/berthml/berth/internal/runner"
)

const image = "localhost/berth-busybox:1"

// docker starts a dockerd of the test's own with an image of busybox, and returns its address. One
// that is apart lives in another world of processes, as in a virtual machine.
func docker(t *testing.T, apart bool) string {
	t.Helper()
	missing := t.Skipf
	if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "docker") {
		missing = t.Fatalf
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		missing("no busybox: %v", err)
	}
	dir, err := os.MkdirTemp("", "brd")
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	host := "unix://" + dir + "/s"
	args := []string{
		"dockerd", "-H", host, "--data-root", dir + "/data", "--exec-root", dir + "/x", "--pidfile", dir + "/pid",
		"--bridge=none", "--iptables=false", "--ip-forward=false", "--exec-opt", "native.cgroupdriver=cgroupfs",
	}
	attr := &syscall.SysProcAttr{Setpgid: true}
	if apart {
		args = append([]string{"sh", "-c", `mount -t proc proc /proc && exec "$@"`, "sh"}, args...)
		attr.Cloneflags, attr.Unshareflags = syscall.CLONE_NEWPID, syscall.CLONE_NEWNS
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		missing("no dockerd: %v", err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		mounts, _ := os.ReadFile("/proc/mounts")
		for l := range strings.Lines(string(mounts)) {
			if f := strings.Fields(l); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
				_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
			}
		}
		os.RemoveAll(dir)
	})
	ctl := func(in *bytes.Buffer, args ...string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		c := exec.CommandContext(ctx, "docker", append([]string{"-H", host}, args...)...)
		if in != nil {
			c.Stdin = in
		}
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("docker %v: %w: %s", args, err, out)
		}
		return nil
	}
	for end := time.Now().Add(60 * time.Second); ctl(nil, "version") != nil; {
		select {
		case <-ended:
			b, _ := os.ReadFile(log.Name())
			missing("dockerd ended: %s", b)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatal("dockerd does not answer")
		}
	}
	if err := ctl(busyboxTar(t, busybox), "import", "-", image); err != nil {
		t.Fatal(err)
	}
	return host
}

// busyboxTar is a root file system.
func busyboxTar(t *testing.T, busybox string) *bytes.Buffer {
	prog, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, body []byte) {
		h.Size = int64(len(body))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(body)
	}
	add(tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o777}, nil)
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, prog)
	for _, n := range []string{"sh", "cat", "echo", "env", "sleep", "tail", "touch", "kill", "mkdir", "true", "dd"} {
		add(tar.Header{Name: "bin/" + n, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestContainer(t *testing.T) {
	cache, err := envs.Open(t.TempDir(), envs.Options{DockerHost: docker(t, false)})
	if err != nil {
		t.Fatal(err)
	}
	boxed := func(t *testing.T, command string) *bench {
		b := newBench(t, command)
		b.launch.Environment = berth.LaunchEnv{Name: "bb", Image: image}
		b.options.Envs = cache
		return b
	}

	t.Run("run", func(t *testing.T) {
		data := t.TempDir()
		if err := os.WriteFile(filepath.Join(data, "f"), []byte("data\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		b := boxed(t, `echo in; cat ${{inputs.d}}/f; echo $AZUREML_RUN_ID; echo made >${{outputs.o}}/f; touch ${{inputs.d}}/x || echo read-only; exit 7`)
		b.launch.Inputs = map[string]berth.LaunchInput{"d": {Type: "uri_folder", Mode: "ReadOnlyMount", URL: "file://" + data}}
		b.launch.Outputs = map[string]berth.LaunchOutput{"o": {Type: "uri_folder", URL: "file://" + out}}
		if exit := b.run(); exit.Code != 7 || exit.Cause != "" {
			t.Errorf("exit %+v", exit)
		}
		if log := b.log(); !strings.HasPrefix(log, "in\ndata\njob\n") || !strings.HasSuffix(log, "read-only\n") {
			t.Errorf("log %q", log)
		}
		if got, _ := os.ReadFile(filepath.Join(out, "f")); string(got) != "made\n" {
			t.Errorf("output %q", got)
		}
	})
	t.Run("stop", func(t *testing.T) {
		b := boxed(t, "trap '' TERM; echo up; sleep 600; sleep 600")
		go func() {
			<-b.running
			b.control.Stop(runner.Stop{Grace: 200 * time.Millisecond})
		}()
		if exit := b.run(); exit.Cause != "canceled" {
			t.Errorf("exit %+v", exit)
		}
	})
	t.Run("group", func(t *testing.T) {
		b := newGroup(t, `trap 'echo asked; exit 3' TERM; echo $RANK of $WORLD_SIZE; while ! test -e go; do sleep 0.05; done; test $RANK = 2 || exit 4`)
		b.launch.Environment, b.options.Envs = berth.LaunchEnv{Name: "bb", Image: image}, cache
		b.launch.Keep = filepath.Join(t.TempDir(), "keep")
		stopped := newGroup(t, b.launch.Command)
		stopped.launch.Environment, stopped.options.Envs = b.launch.Environment, cache
		said := func(b *bench) {
			<-b.running
			for b.second() == "" || readLog(b.launch.LogFile) == "" {
				time.Sleep(5 * time.Millisecond)
			}
		}
		go func() {
			said(b)
			_ = os.WriteFile(filepath.Join(b.options.Dir, "wd", "go"), nil, 0o600)
		}()
		exit := b.run()
		if exit.Cause == "command" && strings.Contains(exit.Reason, "not a static") {
			t.Skip("this test was built with cgo: " + exit.Reason)
		}
		want := berth.Exit{Code: 4, Process: 3, Log: "user_logs/std_log_process_3.txt", Reason: "process 3 (node 1) ended with exit code 4"}
		if exit != want || !strings.HasPrefix(b.log(), "2 of 4\n") || b.second() != "3 of 4\n" {
			t.Errorf("exit %+v, logs %q, %q", exit, b.log(), b.second())
		}
		go func() {
			said(stopped)
			stopped.control.Stop(runner.Stop{Grace: 30 * time.Second, Cause: "evicted"})
		}()
		if exit := stopped.run(); exit.Cause != "evicted" || exit.Code != 3 || strings.Count(stopped.log(), "asked") != 1 || strings.Count(stopped.second(), "asked") != 1 {
			t.Errorf("stopped: exit %+v, logs %q, %q", exit, stopped.log(), stopped.second())
		}
	})
	t.Run("mpi", func(t *testing.T) {
		if _, err := exec.LookPath("mpirun"); err != nil {
			t.Skip("mpirun is not installed")
		}
		nodes := []*bench{boxed(t, "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on node $NODE_RANK"), nil}
		nodes[1] = boxed(t, nodes[0].launch.Command)
		port := freePort(t)
		for i, b := range nodes {
			// The machine's own Open MPI, seen in a container.
			b.launch.Inputs = map[string]berth.LaunchInput{}
			for _, dir := range []string{"usr", "lib", "lib64", "etc"} {
				b.launch.Inputs[dir] = berth.LaunchInput{Type: "uri_folder", Mode: "ReadOnlyMount", URL: "file:///" + dir}
			}
			peer := berth.Peer{Address: "127.0.0.1", Slots: 1}
			b.launch.Group = &berth.Group{
				Type: "mpi", Node: i, Nodes: []berth.Peer{peer, peer}, Port: port, Secret: "s", World: 2,
				Processes: []berth.Process{{Rank: i, Log: fmt.Sprintf("user_logs/std_log_process_%d.txt", i), LogFile: b.launch.LogFile}},
			}
		}
		ends := make(chan berth.Exit)
		go func() { ends <- nodes[1].run() }()
		exit, other := nodes[0].run(), <-ends
		if exit.Cause == "command" && strings.Contains(exit.Reason, "not a static") {
			t.Skip("this test was built with cgo: " + exit.Reason)
		}
		if !exit.OK() || !other.OK() || nodes[0].log() != "rank 0 of 2 on node 0\n" || nodes[1].log() != "rank 1 of 2 on node 1\n" {
			t.Errorf("exits %+v, %+v, logs %q, %q", exit, other, nodes[0].log(), nodes[1].log())
		}
	})
	t.Run("memory", func(t *testing.T) {
		b := boxed(t, "tail /dev/zero")
		b.launch.Memory = 32 << 20
		if exit := b.run(); !exit.OOM || exit.Code == 0 {
			t.Errorf("exit %+v", exit)
		}
	})
	t.Run("adopt", func(t *testing.T) {
		b := boxed(t, "echo one; while ! test -e go; do sleep 0.05; done; echo two; exit 5")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-b.running
			cancel()
		}()
		if _, err := runner.Run(ctx, b.launch, b.options); err == nil {
			t.Fatal("an abandoned task ended")
		}
		b.options.Last = b.marks[len(b.marks)-1]
		if b.options.Last.Box == "" {
			t.Errorf("last mark %+v", b.options.Last)
		}
		if err := os.WriteFile(filepath.Join(b.options.Dir, "wd", "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if exit, err := runner.Run(t.Context(), b.launch, b.options); err != nil || exit.Code != 5 || b.log() != "one\ntwo\n" {
			t.Errorf("exit %+v, %v, log %q", exit, err, b.log())
		}
	})
}

// freePort is a port that nobody listens on, and neither on the next, below those that the kernel
// hands out.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 10000 + rand.IntN(9000)
		a, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			continue
		}
		b, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port+1))
		a.Close()
		if err == nil {
			b.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}
