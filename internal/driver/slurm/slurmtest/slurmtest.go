// Package slurmtest runs a Slurm cluster of its own for a test, which may kill parts of it.
package slurmtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Cluster is a controller and nodes on this machine.
type Cluster struct {
	Conf  string // SLURM_CONF of its clients
	dir   string
	nodes int
	procs map[string]*process
	dbd   string // port of slurmdbd
	db    string // port of its database
	rest  string // where slurmrestd listens
}

type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a cluster of so many nodes with so many CPUs each, and lets the commands of Slurm
// find it for the length of the test. extra are more lines of slurm.conf.
func Start(t testing.TB, nodes, cpus int, extra ...string) *Cluster {
	t.Helper()
	need := []string{"munged", "slurmctld", "slurmd", "sbatch"}
	if slices.Contains(extra, Accounts) {
		need = append(need, "slurmdbd", "mariadbd", "mariadb-install-db")
	}
	if slices.Contains(extra, Rest) {
		need = append(need, "slurmrestd")
	}
	for _, name := range need {
		if _, err := exec.LookPath(name); err != nil {
			if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "slurm") {
				t.Fatal(err)
			}
			t.Skipf("Slurm is not installed: %v", err)
		}
	}
	dir, err := os.MkdirTemp("", "bslurm") // not t.TempDir: munge wants a path that others cannot write to
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Conf: filepath.Join(dir, "slurm.conf"), dir: dir, nodes: nodes, procs: map[string]*process{}}
	t.Cleanup(func() { c.stop(t) })
	if err := c.configure(nodes, cpus, extra); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", c.Conf)
	m := filepath.Join(dir, "munge")
	c.run(t, "munged", "--foreground", "--force", "--key-file="+m+"/key", "--socket="+m+"/sock", "--pid-file="+m+"/pid", "--log-file="+m+"/log", "--seed-file="+m+"/seed")
	c.until(t, "munge", func() bool { return c.ok("munge", "-n", "-S", m+"/sock") })
	if slices.Contains(extra, Accounts) {
		c.Accounting(t)
	}
	c.Controller(t)
	for i := range nodes {
		c.Node(t, i+1)
	}
	c.until(t, "all nodes", func() bool {
		return c.says(fmt.Sprint(nodes), "sinfo", "--noheader", "--partition=main", "--states=idle", "--format=%D")
	})
	return c
}

func (c *Cluster) configure(nodes, cpus int, extra []string) error {
	who, err := user.Current()
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	key := make([]byte, 1024)
	rand.Read(key) // never fails
	m := filepath.Join(c.dir, "munge")
	err = errors.Join(os.Chmod(c.dir, 0o755), os.Mkdir(m, 0o755), os.WriteFile(m+"/key", key, 0o400), os.Mkdir(filepath.Join(c.dir, "state"), 0o755))
	if err != nil {
		return err
	}
	ports, err := freePorts(nodes + 1 + clouds)
	if err != nil {
		return err
	}
	extra, err = c.clouds(extra, host, ports[nodes+1:], cpus)
	if err != nil {
		return err
	}
	lines := []string{
		"ClusterName=berthtest", "SlurmctldHost=" + host + "(127.0.0.1)", fmt.Sprint("SlurmctldPort=", ports[0]),
		"CommunicationParameters=NoInAddrAny,NoCtldInAddrAny", "SlurmUser=" + who.Username, "SlurmdUser=" + who.Username,
		"AuthType=auth/munge", "AuthInfo=socket=" + m + "/sock", "CredType=cred/munge", "StateSaveLocation=" + c.dir + "/state",
		"SlurmdSpoolDir=" + c.dir + "/spool-%n", "SlurmctldPidFile=" + c.dir + "/slurmctld.pid", "SlurmdPidFile=" + c.dir + "/slurmd-%n.pid",
		"MpiDefault=none", "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none",
		"SwitchType=switch/none", "ReturnToService=2", "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=50",
		"SlurmdParameters=config_overrides", "SchedulerType=sched/backfill", "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1",
		"MinJobAge=300", "KillWait=5", "MessageTimeout=20", "SlurmctldTimeout=60", "SlurmdTimeout=60", "AccountingStorageType=accounting_storage/none",
	}
	if lines, err = c.cgroups(append(lines, extra...)); err != nil {
		return err
	}
	if lines, err = c.tokens(lines); err != nil {
		return err
	}
	if lines, err = c.accounts(lines); err != nil {
		return err
	}
	for i := range nodes {
		lines = append(lines, fmt.Sprintf("NodeName=n%d NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=%d RealMemory=4000 State=UNKNOWN", i+1, host, ports[i+1], cpus))
	}
	lines = append(lines, fmt.Sprintf("PartitionName=main Nodes=n[1-%d] Default=YES MaxTime=INFINITE State=UP", nodes))
	return os.WriteFile(c.Conf, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// Cloud is a line for Start: it adds two nodes, c1 and c2, in a partition called cloud, that are
// started when a job needs them and ended when they have been idle for some seconds.
const Cloud = "#cloud"

// clouds is how many nodes Cloud adds.
const clouds = 2

// clouds replaces Cloud by what it means.
func (c *Cluster) clouds(extra []string, host string, ports []int, cpus int) ([]string, error) {
	i := slices.Index(extra, Cloud)
	if i < 0 {
		return extra, nil
	}
	const head = "#!/bin/sh\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin SLURM_CONF=%[1]s/slurm.conf\nexec </dev/null >>%[1]s/power.log 2>&1\n" +
		"for n in $(timeout 10 scontrol show hostnames \"$1\"); do\n"
	resume := fmt.Sprintf(head+"mkdir -p %[1]s/spool-$n; setsid slurmd -b -f %[1]s/slurm.conf -N $n\ndone\n", c.dir)
	suspend := fmt.Sprintf(head+"kill -KILL $(cat %[1]s/slurmd-$n.pid)\ndone\n", c.dir) // SIGTERM is blocked in it
	err := errors.Join(os.WriteFile(c.dir+"/resume", []byte(resume), 0o755), os.WriteFile(c.dir+"/suspend", []byte(suspend), 0o755))
	lines := []string{
		"ResumeProgram=" + c.dir + "/resume", "SuspendProgram=" + c.dir + "/suspend", "SuspendTime=4", "SuspendTimeout=4", "ResumeTimeout=60",
		"SuspendExcParts=main", "SlurmctldParameters=idle_on_node_suspend,power_save_interval=1,power_save_min_interval=0",
	}
	for k := range clouds {
		lines = append(lines, fmt.Sprintf("NodeName=c%d NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=%d RealMemory=4000 State=CLOUD", k+1, host, ports[k], cpus))
	}
	lines = append(lines, fmt.Sprintf("PartitionName=cloud Nodes=c[1-%d] MaxTime=INFINITE State=UP", clouds))
	return slices.Concat(extra[:i], lines, extra[i+1:]), err
}

// Cgroup is a line for Start: the memory of jobs is limited, and their processes are found, by
// control groups.
const Cgroup = "#cgroup"

// cgroups replaces Cgroup by what it means.
func (c *Cluster) cgroups(lines []string) ([]string, error) {
	i := slices.Index(lines, Cgroup)
	if i < 0 {
		return lines, nil
	}
	version := "cgroup/v1"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		version = "cgroup/v2"
	}
	lines = slices.DeleteFunc(slices.Delete(lines, i, i+1), func(l string) bool {
		return strings.HasPrefix(l, "ProctrackType=") || strings.HasPrefix(l, "TaskPlugin=")
	})
	err := os.WriteFile(filepath.Join(c.dir, "cgroup.conf"), []byte("CgroupPlugin="+version+"\nConstrainRAMSpace=yes\n"), 0o644)
	return append(lines, "ProctrackType=proctrack/cgroup", "TaskPlugin=task/cgroup"), err
}

// freePorts are ports that nobody listens at.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, lerr := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if lerr != nil {
			return nil, lerr
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// Controller starts the controller, as it was when it ended.
func (c *Cluster) Controller(t testing.TB) {
	t.Helper()
	c.run(t, "slurmctld", "-D", "-f", c.Conf)
	c.until(t, "the controller", func() bool { return c.ok("scontrol", "ping") && c.ok("squeue") })
}

// Node starts node i, the first of which is 1.
func (c *Cluster) Node(t testing.TB, i int) {
	t.Helper()
	name := fmt.Sprint("n", i)
	if err := os.MkdirAll(filepath.Join(c.dir, "spool-"+name), 0o755); err != nil {
		t.Fatal(err)
	}
	c.runAs(t, "slurmd-"+name, "slurmd", "-D", "-f", c.Conf, "-N", name)
}

// Kill kills the controller ("slurmctld") or a node ("slurmd-n1").
func (c *Cluster) Kill(name string) {
	p := c.procs[name]
	_ = p.cmd.Process.Kill()
	<-p.ended
	delete(c.procs, name)
}

// Freeze has a daemon, named as for Kill, do nothing until thaw is called.
func (c *Cluster) Freeze(t testing.TB, name string) (thaw func()) {
	t.Helper()
	p := c.procs[name].cmd.Process
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() { _ = p.Signal(syscall.SIGCONT) })
	t.Cleanup(thaw)
	return thaw
}

func (c *Cluster) run(t testing.TB, name string, args ...string) {
	t.Helper()
	c.runAs(t, name, name, args...)
}

func (c *Cluster) runAs(t testing.TB, as, name string, args ...string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, as+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p := &process{cmd: exec.Command(name, args...), ended: make(chan struct{})} //nolint:noctx // it is stopped at the end of the test
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its log says why
		close(p.ended)
	}()
	c.procs[as] = p
}

// limited is a command that ends after a while: clients of Slurm wait for a controller for ever.
func (c *Cluster) limited(name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+c.Conf)
	return cmd.Output()
}

func (c *Cluster) ok(name string, args ...string) bool {
	_, err := c.limited(name, args...)
	return err == nil
}

func (c *Cluster) says(want, name string, args ...string) bool {
	out, err := c.limited(name, args...)
	return err == nil && strings.TrimSpace(string(out)) == want
}

func (c *Cluster) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			logs, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
			for _, l := range logs {
				b, _ := os.ReadFile(l)
				t.Logf("%s:\n%s", filepath.Base(l), b[max(0, len(b)-2000):])
			}
			t.Fatalf("%s: not ready", what)
		}
	}
}

// Saved waits until the controller has written down the jobs that there are now, the one with a
// text among them.
func (c *Cluster) Saved(t testing.TB, text string) {
	t.Helper()
	since := time.Now()
	c.until(t, "the state of the jobs", func() bool {
		path := filepath.Join(c.dir, "state", "job_state")
		info, err := os.Stat(path)
		if err != nil || info.ModTime().Before(since) {
			return false
		}
		b, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(b), text)
	})
}

// Cancel ends all jobs.
func (c *Cluster) Cancel() {
	_, _ = c.limited("scancel", "--user="+fmt.Sprint(os.Getuid()))
	deadline := time.Now().Add(30 * time.Second)
	for !c.says("", "squeue", "--noheader") && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
}

// isSlurmd says whether a process still is what its file says.
func isSlurmd(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.TrimSpace(string(b)) == "slurmd"
}

// stop ends all jobs and then everything else.
func (c *Cluster) stop(t testing.TB) {
	if c.procs["slurmctld"] != nil {
		c.Cancel()
	}
	for name := range c.procs {
		if name != "munged" && name != "mariadbd" {
			c.Kill(name)
		}
	}
	pids, _ := filepath.Glob(c.dir + "/slurmd-c*.pid")
	for _, path := range pids { // those were started by the controller
		b, _ := os.ReadFile(path)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && pid > 1 && isSlurmd(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, name := range []string{"mariadbd", "munged"} {
		if c.procs[name] != nil {
			c.Kill(name)
		}
	}
	if t.Failed() {
		t.Logf("kept: %s", c.dir)
		return
	}
	os.RemoveAll(c.dir)
}
