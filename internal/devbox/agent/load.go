//go:build !windows

package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth/internal/devbox"
)

// From this load on somebody works here: idle services take a fraction of it.
const (
	busyCPU = 0.10 // of one core
	busyGPU = 5    // percent
)

// load measures how busy the instance's processors are.
type load struct {
	mu        sync.Mutex
	processes *processGroup
	at        time.Time
	cpu       time.Duration
	busy      time.Time // when it was last
	used      float64   // how much of a core it was then
	share     float64
}

func (l *load) start(f *processGroup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processes, l.at, l.cpu = f, time.Now(), total(f)
}

func total(f *processGroup) (sum time.Duration) {
	for _, p := range f.members() {
		sum += p.cpu
	}
	for _, p := range processes() {
		if p.pid == os.Getpid() {
			sum += p.cpu // with it, that of children that are gone
		}
	}
	return sum
}

// signal says how much of a core was used since it was asked last.
func (l *load) signal(now time.Time) devbox.Signal {
	s := devbox.Signal{Name: "cpu"}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case runtime.GOOS != "linux":
		return s // jobs, kernels and sessions have to tell
	case l.processes == nil:
		s.Error = "not measured yet"
		return s
	}
	if span := now.Sub(l.at); span >= time.Second {
		cpu := total(l.processes)
		l.share = (cpu - l.cpu).Seconds() / span.Seconds()
		l.at, l.cpu = now, cpu
	}
	s.Busy = l.share > busyCPU
	s.Why = fmt.Sprintf("its processes used %.0f %% of a core", 100*l.used)
	if s.Busy {
		l.busy, l.used = now, l.share
		s.Why = fmt.Sprintf("its processes use %.0f %% of a core", 100*l.share)
	}
	s.Last = l.busy
	return s
}

// gpuSignal asks the driver how busy the instance's GPUs are.
func gpuSignal(ctx context.Context, gpus []int) devbox.Signal {
	s := devbox.Signal{Name: "gpu"}
	ids := make([]string, len(gpus))
	for i, g := range gpus {
		ids[i] = strconv.Itoa(g)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-i", strings.Join(ids, ",")).Output()
	if err != nil {
		s.Error = "nvidia-smi: " + err.Error()
		return s
	}
	for line := range strings.Lines(string(out)) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			s.Error = "nvidia-smi says " + strconv.Quote(strings.TrimSpace(line))
			return s
		}
		if n > busyGPU {
			s.Busy, s.Why = true, fmt.Sprintf("a GPU is %d %% busy", n)
		}
	}
	return s
}

// signals is everything the agent knows about the use of the instance.
func (a *agent) signals(ctx context.Context) []devbox.Signal {
	now := time.Now()
	out := []devbox.Signal{a.ssh.signal(now)}
	jupyter, apps := a.services()
	if jupyter != nil {
		out = append(out, jupyter.signals(ctx)...)
	}
	for _, x := range apps {
		out = append(out, x.signal())
	}
	if jupyter != nil { // before that it is being set up
		out = append(out, a.load.signal(now))
	}
	if len(a.c.GPUs) > 0 {
		out = append(out, gpuSignal(ctx, a.c.GPUs))
	}
	return out
}
