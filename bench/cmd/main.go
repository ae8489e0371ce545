// Command bench measures Berth beside real peers: interleaved rounds in one run, CPU per operation,
// the physical floor beside each result. It appends one line per comparison to
// bench/out/results.jsonl.
//
//	bench [idle start list short cancel place cluster burst nodes watch log track track.push
//	       tree.code tree.data snapshot sweep.data batch big fuse fuse.datastore flat attached
//	       endpoints gateway flips score wake]
//	              run all, or those named
//	bench report  write the table of docs/performance.md from the results
//
// BENCH_FORCE=1 runs on a busy machine and marks the rows as not scored; BENCH_QUICK=1 runs small,
// to try the harness, and writes no results; BENCH_ROUNDS sets the number of rounds (5); BENCH_DIR
// is where homes are made (/var/tmp); BERTH_BIN is the program under test (bin/berth); BENCH_K8S is
// a folder with etcd, kube-apiserver, kube-scheduler and kwok (berth-engines/k8s in the user's
// cache); BENCH_MLFLOW is a Python that has mlflow and psycopg2,
// for the peer of track (python3). gateway needs haproxy and nginx; the packages of score and wake
// are installed into the user's cache.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
	"github.com/berthml/berth/internal/app"
)

// benchmarks in the order they run: the idle server first, the one that writes gigabytes last.
var benchmarks = []struct {
	name string
	run  func(*bench) error
}{
	{"idle", idle},
	{"start", start},
	{"list", list},
	{"short", short},
	{"cancel", cancel},
	{"place", place},
	{"cluster", cluster},
	{"burst", burst},
	{"nodes", nodes},
	{"watch", watch},
	{"log", logs},
	{"track", track},
	{"track.push", trackPush},
	{"tree.code", treeCode},
	{"tree.data", treeData},
	{"snapshot", snapshot},
	{"sweep.data", sweepData},
	{"batch", batch},
	{"big", big},
	{"fuse", fuse},
	{"fuse.datastore", fuseDatastore},
	{"flat", flat},
	{"attached", attached},
	{"endpoints", endpoints},
	{"gateway", gateway},
	{"flips", flips},
	{"score", inNamespace("score", score)},
	{"wake", inNamespace("wake", wake)},
}

const results = "bench/out/results.jsonl"

func main() {
	args := os.Args[1:]
	var err error
	switch {
	case len(args) == 2 && args[0] == "spew":
		err = spew(args[1])
	case len(args) == 3 && args[0] == "_plant", len(args) == 4 && args[0] == "_server":
		app.Tune()
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if args[0] == "_plant" {
			err = world.PlantMain(ctx, args[1:])
		} else {
			err = world.ServerMain(ctx, args[1:])
		}
	case len(args) > 3 && args[0] == "_node":
		err = world.NodeMain(args[1:])
	case len(args) == 1 && args[0] == "report":
		err = report(results, "docs/performance.md")
	default:
		err = run(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		if errors.Is(err, errUnscored) {
			os.Exit(exitUnscored)
		}
		os.Exit(1)
	}
}

// errUnscored ends a run on a machine that was too busy, and is exitUnscored for who started it.
var errUnscored = errors.New("not scored")

const exitUnscored = 3

// bench is one run of the harness.
type bench struct {
	ctx    context.Context
	bin    string
	dir    string // of everything this run makes
	cache  string // of what is installed once
	rounds int
	quick  bool
	scored bool
	run    string
	group  *measure.Group
	load   float64
	others *measure.Neighbours
	held   bool
	// hostCPU is the runner host's part of the own CPU per job in the last round of short jobs.
	hostCPU float64

	stamp, stampHow string
	pipe            *peer.Pipe
	slurm           *peer.Slurm
	slurmErr        error
	queue           *peer.HyperQueue
	queueErr        error
}

func run(names []string) error {
	for _, n := range names {
		if !slices.ContainsFunc(benchmarks, func(b struct {
			name string
			run  func(*bench) error
		},
		) bool {
			return b.name == n
		}) {
			return fmt.Errorf("there is no benchmark %q", n)
		}
	}
	b := &bench{rounds: 5, scored: true, held: true, run: time.Now().UTC().Format(time.RFC3339), quick: os.Getenv("BENCH_QUICK") != ""}
	if err := quiet(os.Getenv("BENCH_FORCE") != ""); err != nil {
		return err
	}
	if load := measure.Load(); load > measure.MaxLoad || b.quick {
		b.scored = false
		fmt.Printf("not scored: load average %.2f, quick %v\n", load, b.quick)
	}
	if n, err := strconv.Atoi(os.Getenv("BENCH_ROUNDS")); err == nil && n > 0 {
		b.rounds = n
	}
	// A reader of our output that goes away must not end us before everything we started has ended.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	b.ctx = ctx
	if err := b.prepare(); err != nil {
		return err
	}
	defer b.close()
	for _, m := range benchmarks {
		if len(names) > 0 && !slices.Contains(names, m.name) {
			continue
		}
		b.load, b.others = measure.Load(), measure.WatchNeighbours(b.group)
		if err := m.run(b); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if !b.held {
		return fmt.Errorf("not every floor held")
	}
	if !b.scored {
		return errUnscored
	}
	return nil
}

// quiet refuses a busy machine. It waits a little first: the build just before leaves a load
// average behind that fades.
func quiet(force bool) error {
	const patience = 2 * time.Minute
	for begin := time.Now(); !force; time.Sleep(5 * time.Second) {
		load := measure.Load()
		if load <= measure.MaxLoad {
			break
		}
		if load > 4 || time.Since(begin) > patience {
			return fmt.Errorf("not scored: load average %.2f is above %.1f (BENCH_FORCE=1 runs anyway)", load, measure.MaxLoad)
		}
		fmt.Printf("load average %.2f: waiting for it to fade\n", load)
	}
	return nil
}

func (b *bench) prepare() error {
	b.bin = os.Getenv("BERTH_BIN")
	if b.bin == "" {
		b.bin = "bin/berth"
	}
	var err error
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return err
	}
	if _, err := os.Stat(b.bin); err != nil {
		return fmt.Errorf("%w: run `make build`", err)
	}
	base := os.Getenv("BENCH_DIR")
	if base == "" {
		base = "/var/tmp"
	}
	if b.dir, err = os.MkdirTemp(base, "bb"); err != nil {
		return err
	}
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	b.cache = filepath.Join(cache, "berth-bench")
	b.group = measure.NewGroup("berth-bench-" + strconv.Itoa(os.Getpid()))
	b.group.Enter()
	if b.stamp, b.stampHow, err = peer.BuildStamp(b.ctx, b.dir); err != nil {
		return err
	}
	b.pipe, err = peer.NewPipe(filepath.Join(b.dir, "pipe"))
	return err
}

func (b *bench) close() {
	if b.slurm != nil {
		b.slurm.Stop()
	}
	if b.queue != nil {
		b.queue.Stop()
	}
	b.pipe.Close()
	b.group.Close()
	if os.Getenv("BENCH_KEEP") == "" {
		_ = os.RemoveAll(b.dir)
	}
}

// slurmPeer is the cluster, started when it is first needed.
func (b *bench) slurmPeer() (*peer.Slurm, error) {
	if b.slurm == nil && b.slurmErr == nil {
		b.slurm, b.slurmErr = peer.StartSlurm(b.ctx, b.group, filepath.Join(b.dir, "slurm"))
	}
	return b.slurm, b.slurmErr
}

func (b *bench) queuePeer() (*peer.HyperQueue, error) {
	if b.queue == nil && b.queueErr == nil {
		b.queue, b.queueErr = peer.StartHyperQueue(b.ctx, b.cache, b.dir)
	}
	return b.queue, b.queueErr
}

// size is n, or less in a quick run.
func (b *bench) size(n, quick int) int {
	if b.quick {
		return quick
	}
	return n
}

// write completes a row, prints it and appends it to the results.
func (b *bench) write(r measure.Row) error {
	r.Value, r.Load, r.Other, r.At, r.Run = measure.Round(r.Value), b.load, b.others.Cores(), time.Now().UTC().Truncate(time.Second), b.run
	r.Scored = b.scored && (r.Other == nil || *r.Other <= measure.MaxOther)
	if r.Held != nil && !*r.Held {
		b.held = false
	}
	fmt.Println(line(r))
	if b.quick {
		return nil // it tried the harness, not Berth
	}
	return measure.Append(results, r)
}

// line is a row for people.
func line(r measure.Row) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%-24s %9.4g %s", r.Name, r.Value, r.Unit)
	if r.CPUPerOp != nil {
		fmt.Fprintf(&s, ", %.3g ms CPU", *r.CPUPerOp)
	}
	if r.Peer != "" {
		fmt.Fprintf(&s, " | %s", strings.TrimSpace(r.Peer+" "+r.PeerVersion))
	}
	if r.PeerValue != nil {
		fmt.Fprintf(&s, " %.4g", *r.PeerValue)
	}
	if r.Ratio != nil {
		fmt.Fprintf(&s, " | %.3gx [%.3g-%.3g]", *r.Ratio, r.RatioRange[0], r.RatioRange[1])
	}
	if r.Held != nil {
		fmt.Fprintf(&s, " | %s: %s", r.Floor, map[bool]string{true: "held", false: "NOT HELD"}[*r.Held])
	}
	if r.Physical != "" {
		fmt.Fprintf(&s, " | floor %s", r.Physical)
	}
	fmt.Fprintf(&s, " | load %.2f", r.Load)
	if r.Other != nil {
		fmt.Fprintf(&s, ", others %.2g cores", *r.Other)
	}
	if !r.Scored {
		s.WriteString(" | not scored")
	}
	if r.Note != "" {
		s.WriteString(" | " + r.Note)
	}
	return s.String()
}
