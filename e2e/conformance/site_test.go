//go:build linux && engines

package conformance_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/driver/kubernetes/kubetest"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
	"github.com/berthml/berth/internal/driver/ssh/sshtest"
)

// site is a server with a compute of every kind.
type site struct {
	*world.Server
	targets []target
	kube    *kubetest.Cluster
}

// target is a compute, and what jobs for it need.
type target struct {
	name, title string
	environment string // what a job says of its environment where it does not matter
}

// onHost is the environment of jobs whose machine has no container engine.
const onHost = "environment: {image: \"python:3.12\"}\nproperties: {berth.environment: host}\n"

// startSite starts a server and all targets on this machine.
func startSite(t *testing.T) *site {
	t.Helper()
	s := new(site)
	s.kube = kubetest.Start(t)
	t.Cleanup(func() { s.kube.Stop(t) })
	cluster := slurmtest.Start(t, 2, 8)
	home := world.Home(t)
	text := "container_engine: none\nkubernetes: true\nlisten: " + kubetest.Gateway + ":0\n"
	if err := os.WriteFile(filepath.Join(home, "berth.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", "/nowhere") // only the login node has it
	t.Setenv("DOCKER_HOST", "none")
	s.Server = world.StartIn(t, home)
	s.targets = []target{
		{"local", "this machine", onHost},
		{"nodes", "cluster", onHost},
		{"machine", "SSH", onHost},
		{"laptop", "agent", onHost},
		{"queue", "Slurm", onHost},
		{"k8s", "Kubernetes", "environment: {image: \"" + kubetest.Image + "\"}\n"},
	}
	s.must(t, "compute", "create", "--type", "amlcompute", "-n", "nodes", "--size", "Standard_DS1_v2", "--min-instances", "2", "--max-instances", "2", "-o", "none")
	s.attachSSH(t, "machine", "")
	s.attachAgent(t)
	s.attachSSH(t, "queue", "export SLURM_CONF="+cluster.Conf+"; ", "--type", "slurm", "--partition", "main")
	s.attachKubernetes(t)
	for _, x := range s.targets[2:] {
		s.until(t, "has been connected since", "explain", x.name)
	}
	return s
}

// attachSSH attaches a machine of its own with an SSH server, whose account's shell does something
// first.
func (s *site) attachSSH(t *testing.T, name, startup string, more ...string) {
	t.Helper()
	home, err := os.MkdirTemp("", "bs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endBelow(home); os.RemoveAll(home) })
	signer, key := sshtest.NewKey(t)
	sshd := sshtest.Start(t, home, signer.PublicKey())
	sshd.Startup(startup)
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must(t, append([]string{"compute", "attach", "-n", name, "--ssh", "me@" + sshd.Addr, "--ssh-private-key-file", path}, more...)...)
}

func (s *site) attachAgent(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ba")
	if err != nil {
		t.Fatal(err)
	}
	join := filepath.Join(t.TempDir(), "join.json")
	s.must(t, "compute", "attach", "-n", "laptop", "--type", "agent")
	s.must(t, "agent", "join", "laptop", "-f", join)
	cmd := exec.Command(s.Bin, "agent", "run", "--dir", filepath.Join(dir, "agent"), "--slots", "4", "--join", join)
	cmd.Env = append(os.Environ(), "BERTH_HOME="+filepath.Join(dir, "home"), "HOME="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		endBelow(dir)
		os.RemoveAll(dir)
	})
}

func (s *site) attachKubernetes(t *testing.T) {
	t.Helper()
	if out, err := s.kube.Kubectl("create", "namespace", "ml"); err != nil {
		t.Fatal(out)
	}
	s.kube.Apply(t, s.must(t, "compute", "attach", "--print-rbac", "--namespace", "ml"))
	file := filepath.Join(t.TempDir(), "k8s.yml")
	text := "name: k8s\ntype: kubernetes\nnamespace: ml\nkubeconfig: " + s.kube.Kubeconfig + "\nimage: " + kubetest.Image + "\nimage_pull_policy: Never\n" +
		"properties:\n  defaultInstanceType: cpu\n  instanceTypes:\n    cpu: {}\n    gpu: {resources: {limits: {nvidia.com/gpu: 1}}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must(t, "compute", "attach", "-f", file)
}

// endBelow kills the processes whose command line names a directory.
func endBelow(dir string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		b, err := os.ReadFile(f)
		pid, perr := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err == nil && perr == nil && pid != os.Getpid() && bytes.Contains(b, []byte(dir)) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (s *site) try(args ...string) (string, error) {
	out, err := s.Command(args...).CombinedOutput()
	return string(out), err
}

func (s *site) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.try(args...)
	if err != nil {
		t.Fatalf("berth %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// until waits for a command to say something.
func (s *site) until(t *testing.T, want string, args ...string) {
	t.Helper()
	limit := time.After(3 * time.Minute)
	for {
		out, err := s.try(args...)
		if err == nil && strings.Contains(out, want) {
			return
		}
		select {
		case <-limit:
			t.Fatalf("berth %s does not say %q: %v\n%s", strings.Join(args, " "), want, err, out)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
