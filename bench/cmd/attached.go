package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// attached measures what Berth adds to the engines that it hands jobs to: a job on a machine over
// SSH beside a command over ssh, a job on Slurm beside sbatch, and many jobs beside as many calls
// of sbatch, and as many Jobs of Kubernetes.
func attached(b *bench) error {
	slurm, slurmErr := b.slurmPeer()
	ssh, sshErr := peer.StartSSH(b.ctx, filepath.Join(b.dir, "ssh"))
	if sshErr == nil {
		defer ssh.Stop()
	}
	home := filepath.Join(b.dir, "attached")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	// Its nodes are this machine, and see the server's home.
	if err := os.WriteFile(filepath.Join(home, "berth.yaml"), []byte("slurm: trusted\nkubernetes: true\n"), 0o600); err != nil {
		return err
	}
	if slurmErr == nil {
		if err := os.Setenv("SLURM_CONF", slurm.Conf()); err != nil { // for the server
			return err
		}
		defer os.Unsetenv("SLURM_CONF")
	}
	s, err := world.Start(b.ctx, b.group, b.bin, home)
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := b.attachedOne(s, "box", "attached.ssh", "ssh", "", sshErr, func() []string {
		return []string{"--ssh", "root@127.0.0.1:" + ssh.Port, "--ssh-private-key-file", ssh.Key}
	}, func() (float64, error) { return ssh.Exec(b.ctx, b.stamp, b.pipe) }); err != nil {
		return err
	}
	version := ""
	if slurmErr == nil {
		version = slurm.Version
	}
	if err := b.attachedOne(s, "site", "attached.slurm", "Slurm sbatch, tuned", version, slurmErr, func() []string {
		return []string{"--type", "slurm", "--partition", "main"}
	}, func() (float64, error) {
		time.Sleep(time.Duration(300+rand.IntN(1000)) * time.Millisecond) // its scheduler has a beat
		return slurm.Batch(b.ctx, b.stamp, b.pipe)
	}); err != nil {
		return err
	}
	if slurmErr == nil {
		if err := b.attachedMany(s, slurm); err != nil {
			return err
		}
	}
	return b.attachedKube(s)
}

// attachedKube runs many jobs on a Kubernetes cluster of simulated nodes, whose pods succeed at
// once, each submitted by itself, to the end of the last.
func (b *bench) attachedKube(s *world.Server) error {
	n := b.size(1000, 40)
	row := measure.Row{Name: "attached.kubernetes.many", Unit: "jobs/s", Durable: "both: etcd on the same disk"}
	const name = "plain Jobs, KWOK"
	k, err := peer.StartKubeJobs(b.ctx, b.group, filepath.Join(b.dir, "kubejobs"), b.size(1000, 100))
	if err != nil {
		row.Absent(name, err.Error())
		return b.write(row)
	}
	defer k.Stop()
	out, err := s.CLI(b.ctx, "compute", "attach", "-n", "k8s", "--type", "kubernetes", "--kubeconfig", k.Kubeconfig(), "--namespace", "default", "--image", "none").CombinedOutput()
	if err != nil {
		return fmt.Errorf("attach k8s: %w: %s", err, out)
	}
	var ours, theirs, cpus, engine, bare []float64
	for round := range b.rounds {
		before, used := s.Own(), k.CPU()
		wall, err := b.jobsOn(s, "k8s", fmt.Sprintf("pods%d", round), n)
		if err != nil {
			return err
		}
		ours = append(ours, float64(n)/wall.Seconds())
		cpus = append(cpus, peer.Ms(s.Own().Since(before))/float64(n))
		engine = append(engine, peer.Ms(k.CPU()-used)/float64(n))
		if err := k.Empty(b.ctx); err != nil {
			return err
		}
		r, err := k.Jobs(b.ctx, n)
		if err != nil {
			return err
		}
		theirs, bare = append(theirs, r.PerSecond), append(bare, r.CPU)
		if err := k.Empty(b.ctx); err != nil {
			return err
		}
	}
	row.Value, row.CPUPerOp = measure.Median(ours), measure.Number(measure.Median(cpus))
	row.Note = fmt.Sprintf("%d jobs from 16 connections, and as many Jobs, 16 at a time, to the end of the last; simulated nodes, so the ends are observed and not reported; "+
		"controllers with 100 requests/s; CPU of the control plane %.3g ms a job, peer %.3g ms", n, measure.Median(engine), measure.Median(bare))
	row.Against(name, k.Version, ours, theirs, true)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 0.9})
	return b.write(row)
}

// attachedOne measures one job at a time on a compute, submit to first instruction.
func (b *bench) attachedOne(s *world.Server, compute, row, name, version string, absent error, attach func() []string, bare func() (float64, error)) error {
	r := measure.Row{Name: row, Unit: "ms", Rounds: b.rounds, Durable: "ours yes"}
	if absent != nil {
		r.Absent(name, absent.Error())
		return b.write(r)
	}
	if out, err := s.CLI(b.ctx, append([]string{"compute", "attach", "-n", compute}, attach()...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("attach %s: %w: %s", compute, err, out)
	}
	w, err := s.Watch(b.ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	c, err := s.Dial(b.ctx, false)
	if err != nil {
		return err
	}
	defer c.Close()
	n, count, job := b.size(8, 2), 0, world.JobOn(compute, b.stamp+" "+b.pipe.Path)
	ours := &way{n: n, sample: func() (float64, error) {
		count++
		time.Sleep(time.Duration(300+rand.IntN(1000)) * time.Millisecond)
		t := time.Now()
		if err := c.Submit(s.WS, fmt.Sprintf("%s-%d", compute, count), job); err != nil {
			return 0, err
		}
		return b.first(w, t)
	}}
	theirs := &way{n: n, sample: bare}
	if _, err := ours.sample(); err != nil { // the first job takes the program there
		return err
	}
	for range b.rounds {
		before := s.Own()
		if err := ours.round(b); err != nil {
			return err
		}
		ours.cpu += s.Own().Since(before)
		if err := theirs.round(b); err != nil {
			return err
		}
	}
	r.Value, r.CPUPerOp = measure.Median(ours.all), measure.Number(peer.Ms(ours.cpu)/float64(len(ours.all)))
	r.Note = fmt.Sprintf("one job at a time, submit to first instruction, p50 of %d; p90 %.3g ms, peer %.3g ms", len(ours.all), measure.Quantile(ours.all, 0.9), measure.Quantile(theirs.all, 0.9))
	r.Against(name, version, ours.rounds, theirs.rounds, false)
	r.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 1 / 1.5})
	return b.write(r)
}

// attachedMany runs many jobs on Slurm, each submitted by itself, to the end of the last.
func (b *bench) attachedMany(s *world.Server, slurm *peer.Slurm) error {
	n := b.size(1000, 40)
	var ours, theirs, cpus, engine, bare []float64
	for round := range b.rounds {
		before, used := s.Own(), slurm.CPU()
		wall, err := b.jobsOn(s, "site", fmt.Sprintf("many%d", round), n)
		if err != nil {
			return err
		}
		ours = append(ours, float64(n)/wall.Seconds())
		cpus = append(cpus, peer.Ms(s.Own().Since(before))/float64(n))
		engine = append(engine, peer.Ms(slurm.CPU()-used)/float64(n))
		r, err := slurm.Many(b.ctx, n)
		if err != nil {
			return err
		}
		theirs, bare = append(theirs, r.PerSecond), append(bare, r.CPU)
	}
	r := measure.Row{
		Name: "attached.slurm.many", Unit: "jobs/s", Value: measure.Median(ours), CPUPerOp: measure.Number(measure.Median(cpus)), Durable: "both: state on the same disk",
		Note: fmt.Sprintf("%d jobs of /bin/true from 16 connections, and as many calls of sbatch, 16 at a time, to the end of the last; CPU of the daemons and on the nodes %.3g ms a job, peer %.3g ms", n, measure.Median(engine), measure.Median(bare)),
	}
	r.Against("Slurm sbatch, tuned", slurm.Version, ours, theirs, true)
	r.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 1})
	return b.write(r)
}

// jobsOn submits n jobs to a compute over 16 connections, and returns how long it took until the
// last of them had ended.
func (b *bench) jobsOn(s *world.Server, compute, prefix string, n int) (time.Duration, error) {
	w, err := s.Watch(b.ctx)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	conns := make([]*world.Conn, 16)
	for i := range conns {
		if conns[i], err = s.Dial(b.ctx, false); err != nil {
			return 0, err
		}
		defer conns[i].Close()
	}
	return submitAll(s, w, conns, prefix, n, world.JobOn(compute, "/bin/true"), 10*time.Minute)
}
