package peer

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth/bench/measure"
)

// Slurm is a cluster of four nodes on loopback in a directory of its own: munge, the controller and
// the node daemons. Its state is on disk.
type Slurm struct {
	Version string
	dir     string
	daemons daemons
	env     []string
}

const (
	slurmNodes = 4
	slurmCPUs  = 64 // claimed, so that no task waits for a slot
	// What the high throughput guide says, and what was found to help most.
	slurmTuned = "batch_sched_delay=0,sched_interval=1,default_queue_depth=10000,sched_max_job_start=0"
)

// StartSlurm installs Slurm where it is missing and possible, and starts a tuned cluster in dir.
func StartSlurm(ctx context.Context, group *measure.Group, dir string) (*Slurm, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("a cluster of our own needs root")
	}
	if err := installSlurm(ctx); err != nil {
		return nil, err
	}
	base, err := freePorts(10)
	if err != nil {
		return nil, err
	}
	s := &Slurm{dir: dir, daemons: daemons{logs: filepath.Join(dir, "log"), group: group.Sub("slurm")}}
	if err := s.start(ctx, base); err != nil {
		s.Stop()
		return nil, err
	}
	out, _ := s.command(ctx, "sinfo", "--version").Output()
	s.Version = strings.TrimPrefix(strings.TrimSpace(string(out)), "slurm-wlm ")
	return s, nil
}

func installSlurm(ctx context.Context) error {
	missing := ""
	for _, c := range []string{"slurmctld", "slurmd", "sbatch", "srun", "sinfo", "munged"} {
		if _, err := exec.LookPath(c); err != nil {
			missing = c
		}
	}
	if missing == "" {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s is not installed", missing)
	}
	cmd := exec.CommandContext(ctx, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300",
		"slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get install slurm: %w: %s", err, out[max(0, len(out)-300):])
	}
	return nil
}

func (s *Slurm) start(ctx context.Context, base int) error {
	for _, d := range []string{"", "munge", "state", "log"} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o755); err != nil {
			return err
		}
		// munge looks at every folder above its files.
		if err := os.Chmod(filepath.Join(s.dir, d), 0o755); err != nil {
			return err
		}
	}
	key := make([]byte, 1024)
	_, _ = rand.Read(key)
	if err := os.WriteFile(filepath.Join(s.dir, "munge", "key"), key, 0o400); err != nil {
		return err
	}
	socket := filepath.Join(s.dir, "munge", "socket")
	if _, err := s.daemons.start(ctx, "munged", "--foreground", "--force", "--key-file="+s.dir+"/munge/key", "--socket="+socket, "--pid-file="+s.dir+"/munge/pid",
		"--log-file="+s.dir+"/munge/log", "--seed-file="+s.dir+"/munge/seed", "--num-threads=4"); err != nil {
		return err
	}
	if err := s.daemons.wait(ctx, "slurm", func(ctx context.Context) bool {
		return exec.CommandContext(ctx, "munge", "-n", "-S", socket).Run() == nil
	}); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	host, _, _ = strings.Cut(host, ".")
	conf := filepath.Join(s.dir, "slurm.conf")
	if err := os.WriteFile(conf, []byte(s.config(host, base, socket)), 0o644); err != nil {
		return err
	}
	s.env = append(os.Environ(), "SLURM_CONF="+conf)
	if _, err := s.daemons.start(ctx, "slurmctld", "-D", "-f", conf, "-c", "-i"); err != nil {
		return err
	}
	for i := range slurmNodes {
		node := fmt.Sprintf("n%d", i+1)
		if err := os.MkdirAll(filepath.Join(s.dir, "spool-"+node), 0o755); err != nil {
			return err
		}
		if _, err := s.daemons.start(ctx, "slurmd", "-D", "-f", conf, "-N", node); err != nil {
			return err
		}
	}
	return s.daemons.wait(ctx, "slurm", func(ctx context.Context) bool {
		out, _ := s.command(ctx, "sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D").Output()
		return atoi(string(out)) == slurmNodes
	})
}

func (s *Slurm) config(host string, base int, socket string) string {
	return strings.NewReplacer("DIR", s.dir, "HOST", host, "SOCKET", socket, "CTLD", fmt.Sprint(base), "NODES", fmt.Sprint(slurmNodes),
		"PORTS", fmt.Sprintf("%d-%d", base+1, base+slurmNodes), "CPUS", fmt.Sprint(slurmCPUs), "TUNED", slurmTuned).Replace(`ClusterName=bench
SlurmctldHost=HOST(127.0.0.1)
SlurmctldPort=CTLD
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=SOCKET
CredType=cred/munge
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool-%n
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/slurmd-%n.pid
SlurmctldLogFile=DIR/log/slurmctld.out
SlurmdLogFile=DIR/log/slurmd-%n.out
SlurmctldDebug=error
SlurmdDebug=error
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=10
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=TUNED
MaxJobCount=20000
MaxArraySize=10001
MinJobAge=10
KillWait=2
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=DIR/log/jobcomp
NodeName=n[1-NODES] NodeHostname=HOST NodeAddr=127.0.0.1 Port=[PORTS] CPUs=CPUS RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=n[1-NODES] Default=YES MaxTime=INFINITE State=UP
`)
}

func (s *Slurm) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.WaitDelay = s.env, time.Second
	return cmd
}

// Conf is its configuration, for SLURM_CONF.
func (s *Slurm) Conf() string { return filepath.Join(s.dir, "slurm.conf") }

// Batch is milliseconds from calling sbatch to the first instruction.
func (s *Slurm) Batch(ctx context.Context, stamp string, pipe *Pipe) (float64, error) {
	script := filepath.Join(s.dir, "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec "+stamp+" "+pipe.Path+"\n"), 0o755); err != nil {
		return 0, err
	}
	return s.timed(ctx, pipe, "sbatch", "-Q", "-o", "/dev/null", script)
}

// Run is milliseconds from calling srun to the first instruction.
func (s *Slurm) Run(ctx context.Context, stamp string, pipe *Pipe) (float64, error) {
	return s.timed(ctx, pipe, "srun", "-Q", stamp, pipe.Path)
}

func (s *Slurm) timed(ctx context.Context, pipe *Pipe, name string, args ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	t := time.Now()
	if out, err := s.command(ctx, name, args...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w: %s", name, err, out)
	}
	first, err := pipe.Wait(time.Minute)
	return Ms(first.Sub(t)), err
}

// Array runs /bin/true n times as a job array; ends are read from the file Slurm writes of
// completed jobs.
func (s *Slurm) Array(ctx context.Context, n int) (Result, error) {
	before, cpu, t := s.completed(), s.CPU(), time.Now()
	cmd := s.command(ctx, "sbatch", "-Q", fmt.Sprintf("--array=0-%d", n-1), "-o", "/dev/null", "--wrap", "exec /bin/true")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Result{}, fmt.Errorf("sbatch: %w: %s", err, out)
	}
	if err := s.await(before+n, t); err != nil {
		return Result{}, err
	}
	return Result{PerSecond: float64(n) / time.Since(t).Seconds(), CPU: Ms(s.CPU()-cpu) / float64(n)}, nil
}

// Many runs /bin/true n times by as many calls of sbatch, 16 at a time.
func (s *Slurm) Many(ctx context.Context, n int) (Result, error) {
	before, cpu, t := s.completed(), s.CPU(), time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for range n {
		g.Go(func() error {
			if out, err := s.command(ctx, "sbatch", "-Q", "-o", "/dev/null", "--wrap", "exec /bin/true").CombinedOutput(); err != nil {
				return fmt.Errorf("sbatch: %w: %s", err, out)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Result{}, err
	}
	err := s.await(before+n, t)
	return Result{PerSecond: float64(n) / time.Since(t).Seconds(), CPU: Ms(s.CPU()-cpu) / float64(n)}, err
}

// CPU is the time of its daemons and of what runs on its nodes, where that is known.
func (s *Slurm) CPU() time.Duration {
	used, _ := s.daemons.group.Usage()
	return used
}

// await waits until so many tasks are completed.
func (s *Slurm) await(n int, since time.Time) error {
	for s.completed() < n {
		if time.Since(since) > 10*time.Minute {
			return fmt.Errorf("slurm: %d tasks are not done in 10 minutes", n-s.completed())
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func (s *Slurm) completed() int {
	b, _ := os.ReadFile(filepath.Join(s.dir, "log", "jobcomp"))
	return bytes.Count(b, []byte("\n"))
}

// Stop ends the cluster. Its directory is the caller's.
func (s *Slurm) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if s.env != nil {
		_ = s.command(ctx, "scancel", "-Q", "-u", "root").Run()
	}
	s.daemons.stopAll()
}
