//go:build linux && engines

package attached_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/driver/kubernetes/kubetest"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
)

// torchJob is a job that adds up the ranks of four processes on two nodes with torch.
func torchJob(t *testing.T, compute, more string) string {
	t.Helper()
	python := os.Getenv("BERTH_TORCH_PYTHON")
	if python == "" {
		python = "/usr/bin/python3"
	}
	if out, err := exec.Command(python, "-c", "import torch.distributed").CombinedOutput(); err != nil {
		if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "torch") {
			t.Fatalf("torch is required (BERTH_REQUIRE_ENGINES): %v: %s", err, out)
		}
		t.Skipf("there is no torch: %v", err)
	}
	code, err := filepath.Abs("../../examples/distributed/torch_allreduce")
	if err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Join(t.TempDir(), "torch.yml"), fmt.Sprintf(`
type: command
compute: azureml:%s
code: %s
command: %s train.py
environment: {image: none}
properties: {berth.environment: host}
resources: {instance_count: 2}
distribution: {type: pytorch, process_count_per_instance: 2}
%s`, compute, code, python, more))
}

// sums runs a job of torchJob and checks that each process came to the right sum.
func sums(t *testing.T, s *world.Server, file, name string) {
	t.Helper()
	if out, err := try(s, "job", "create", "-f", file, "-n", name, "--stream"); err != nil {
		why, _ := try(s, "explain", name)
		t.Fatalf("%s: %v\n%s\n%s", name, err, out, why)
	}
	for rank := range 4 {
		log := run(t, s, "logs", name, "--file", fmt.Sprintf("user_logs/std_log_process_%d.txt", rank))
		if !strings.Contains(log, fmt.Sprintf("rank %d of 4 ", rank)) || !strings.Contains(log, "the sum is 10\n") {
			t.Errorf("process %d: %q", rank, log)
		}
	}
}

// ip runs ip, whose first word may be a namespace's.
func ip(t *testing.T, words ...string) {
	t.Helper()
	if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", words, err, out)
	}
}

// spaces makes two networks that reach each other and this machine, and returns their names and
// addresses.
func spaces(t *testing.T) (names, addresses []string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	n := os.Getpid() % 200
	bridge := fmt.Sprint("bpool", n)
	_ = exec.Command("ip", "link", "del", bridge).Run()
	ip(t, "link", "add", bridge, "type", "bridge")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", bridge).Run() })
	ip(t, "addr", "add", fmt.Sprintf("10.77.%d.1/24", n), "dev", bridge)
	ip(t, "link", "set", bridge, "up")
	for i := range 2 {
		name, address := fmt.Sprintf("bpool%d-%d", n, i), fmt.Sprintf("10.77.%d.%d", n, i+2)
		_ = exec.Command("ip", "netns", "del", name).Run()
		ip(t, "netns", "add", name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		ip(t, "link", "add", "v"+name, "type", "veth", "peer", "name", "eth0", "netns", name)
		ip(t, "link", "set", "v"+name, "master", bridge, "up")
		ip(t, "-n", name, "addr", "add", address+"/24", "dev", "eth0")
		ip(t, "-n", name, "link", "set", "eth0", "up")
		ip(t, "-n", name, "link", "set", "lo", "up")
		names, addresses = append(names, name), append(addresses, address)
	}
	return names, addresses
}

// TestSSHPoolStory runs a distributed job across two machines in networks of their own, attached as
// one compute, and one on each while the sshd and the agent of a machine are killed.
func TestSSHPoolStory(t *testing.T) {
	names, addresses := spaces(t)
	s := world.Start(t)
	a, b := startOpenSSHAt(t, names[0], addresses[0]), startOpenSSHAt(t, names[1], addresses[1])
	keys, err := os.ReadFile(a.key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	write(t, b.key+".pub", string(keys)) // one key opens both
	where := func(o *openSSH) string { return o.user + "@" + o.address + ":" + o.port }
	run(t, s, "compute", "attach", "-n", "laptop", "--ssh", where(a), "--ssh", where(b), "--ssh-private-key-file", a.key)
	until(t, s, "has been connected since", "explain", "laptop")
	file := torchJob(t, "laptop", "environment_variables: {GLOO_SOCKET_IFNAME: eth0}\n")
	sums(t, s, file, "torch")
	if out, err := try(s, "job", "create", "-f", file, "-n", "large", "--set", "resources.instance_count=3"); err == nil || !strings.Contains(out, "has 2 nodes") {
		t.Errorf("three nodes of two: %v\n%s", err, out)
	}

	// The sshd and the agent of a machine are killed while a job runs there.
	run(t, s, "run", "--no-wait", "--name", "first", "--on", "laptop", "--", "sleep 8; echo done")
	run(t, s, "run", "--no-wait", "--name", "second", "--on", "laptop", "--", "sleep 8; echo done")
	until(t, s, "Running", "job", "show", "-n", "second", "-o", "json")
	b.kill()
	for _, pid := range b.processes("_ssh\x00agent") {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	b.start()
	until(t, s, "Completed", "job", "show", "-n", "first", "-o", "json")
	until(t, s, "Completed", "job", "show", "-n", "second", "-o", "json")
	run(t, s, "compute", "detach", "-n", "laptop", "--yes")
}

// TestSlurmTorch runs a distributed job on two nodes of Slurm, and cancels another one.
func TestSlurmTorch(t *testing.T) {
	c := slurmtest.Start(t, 2, 4)
	s := slurmServer(t, c)
	run(t, s, "compute", "attach", "-n", "laptop", "--type", "slurm", "--partition", "main")
	until(t, s, "has been connected since", "explain", "laptop")
	sums(t, s, torchJob(t, "laptop", ""), "torch")
	file := write(t, filepath.Join(t.TempDir(), "fails.yml"), `
type: command
compute: azureml:laptop
command: if [ $RANK = 1 ]; then echo bad news; exit 7; fi; sleep 600
environment: {image: none}
properties: {berth.environment: host}
resources: {instance_count: 2}
`)
	run(t, s, "job", "create", "-f", file, "-n", "fails")
	until(t, s, "process 1 (node 1) ended with exit code 7", "explain", "fails")
	run(t, s, "job", "create", "-f", file, "-n", "stopped", "--set", "command=sleep 600")
	until(t, s, "Running", "job", "show", "-n", "stopped", "-o", "json")
	run(t, s, "job", "cancel", "-n", "stopped")
	until(t, s, "Canceled", "job", "show", "-n", "stopped", "-o", "json")
	run(t, s, "compute", "detach", "-n", "laptop", "--yes")
}

// TestKubernetesGang runs a job of two pods that find each other by their names, and one of which a
// pod fails.
func TestKubernetesGang(t *testing.T) {
	c := kubetest.Start(t)
	defer c.Stop(t)
	home := world.Home(t)
	write(t, filepath.Join(home, "berth.yaml"), "kubernetes: true\nlisten: "+kubetest.Gateway+":0\n")
	s := world.StartIn(t, home)
	if out, err := c.Kubectl("create", "namespace", "ml"); err != nil {
		t.Fatal(out)
	}
	run(t, s, "compute", "attach", "-n", "laptop", "--type", "kubernetes", "--kubeconfig", c.Kubeconfig, "--namespace", "ml", "--image", kubetest.Image, "--set", "image_pull_policy=Never")
	until(t, s, "has been connected since", "explain", "laptop")
	gang := func(name, command string) {
		t.Helper()
		run(t, s, "job", "create", "-n", name, "-f", write(t, filepath.Join(t.TempDir(), "gang.yml"), "type: command\ncompute: azureml:laptop\ncommand: >-\n  "+command+
			"\nenvironment: {image: "+kubetest.Image+"}\nresources: {instance_count: 2}\n"))
	}
	gang("meets", `if [ $RANK = 0 ]; then printf 'HTTP/1.0 200 OK\r\n\r\nhello of 0' | nc -l -p $MASTER_PORT;
  else until curl -fs http://$MASTER_ADDR:$MASTER_PORT/; do sleep 1; done; fi`)
	until(t, s, "Completed", "job", "show", "-n", "meets", "-o", "json")
	if log := run(t, s, "logs", "meets", "--file", "user_logs/std_log_process_1.txt"); !strings.Contains(log, "hello of 0") {
		t.Errorf("process 1: %q", log)
	}
	gang("fails", `if [ $RANK = 1 ]; then exit 7; fi; sleep 600`)
	until(t, s, "process 1 (node 1) ended with exit code 7", "explain", "fails")
	gang("stopped", `sleep 600`)
	until(t, s, "Running", "job", "show", "-n", "stopped", "-o", "json")
	run(t, s, "job", "cancel", "-n", "stopped")
	until(t, s, "Canceled", "job", "show", "-n", "stopped", "-o", "json")
	run(t, s, "compute", "detach", "-n", "laptop", "--yes")
}
