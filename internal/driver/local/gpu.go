//go:build !windows

package local

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/runner/host"
)

// GPU is one of this machine's.
type GPU struct {
	Index  int
	Model  string
	Memory int64 // bytes
}

// GPUs lists this machine's GPUs as nvidia-smi tells; without that program there are none.
func GPUs(ctx context.Context) ([]GPU, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, nil //nolint:nilerr // a machine without GPUs has no such program
	}
	out, err := exec.CommandContext(ctx, path, "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits").Output()
	if err != nil {
		var e *exec.ExitError
		if errors.As(err, &e) {
			return nil, berth.Errorf(berth.Unavailable, "asking nvidia-smi for GPUs: %w: %s", err, strings.TrimSpace(string(out)+" "+string(e.Stderr)))
		}
		return nil, berth.Errorf(berth.Unavailable, "asking nvidia-smi for GPUs: %w", err)
	}
	return parseGPUs(string(out))
}

// parseGPUs reads lines of index, name, MiB. A name may hold commas.
func parseGPUs(text string) ([]GPU, error) {
	var all []GPU
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if l == "" {
			continue
		}
		first, last := strings.Index(l, ","), strings.LastIndex(l, ",")
		if first < 0 || first == last {
			return nil, berth.Errorf(berth.Unavailable, "nvidia-smi says %q, which is not understood", l)
		}
		i, err := strconv.Atoi(strings.TrimSpace(l[:first]))
		if err != nil || i < 0 {
			return nil, berth.Errorf(berth.Unavailable, "nvidia-smi says %q, which is not understood", l)
		}
		mib, _ := strconv.ParseInt(strings.TrimSpace(l[last+1:]), 10, 64) // some do not tell
		all = append(all, GPU{Index: i, Model: strings.TrimSpace(l[first+1 : last]), Memory: mib << 20})
	}
	return all, nil
}

// OnceGPUs is GPUs, asked until there is an answer: it takes a good part of a second, and GPUs do
// not come and go.
func OnceGPUs() func(context.Context) ([]GPU, error) {
	var mu sync.Mutex
	var known bool
	var all []GPU
	return func(ctx context.Context) ([]GPU, error) {
		mu.Lock()
		defer mu.Unlock()
		if known {
			return all, nil
		}
		list, err := GPUs(ctx)
		if err == nil {
			known, all = true, list
		}
		return list, err
	}
}

// machine is what is known of the GPUs of a machine whose tasks get those that they ask for; nil
// where somebody else gives them out.
type machine struct {
	gpus   func(context.Context) ([]GPU, error)
	giving sync.Mutex // held while a task is given some
}

// add adds the GPUs to what is known of the machine.
func (m *machine) add(ctx context.Context, info *driver.Info) {
	all, err := m.gpus(ctx)
	if err != nil {
		info.Warnings = append(info.Warnings, err.Error())
	}
	if n := &info.Nodes[0]; len(all) > 0 {
		n.GPUs, n.GPUModel = len(all), all[0].Model
	}
}

func gpus(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return strconv.Itoa(n) + " GPUs"
}

// give gives a task as many GPUs as it asks for, none of which another task has. What each has, its
// host knows: it is asked for the tasks that there are.
func (m *machine) give(ctx context.Context, l *berth.Launch, tasks []host.Status) error {
	all, err := m.gpus(ctx)
	if err != nil {
		return err
	}
	if l.GPUCount > len(all) {
		return berth.Errorf(berth.Invalid, "the job needs %s, and nvidia-smi knows of %d on its machine", gpus(l.GPUCount), len(all))
	}
	var free []int
	for _, g := range all {
		if !slices.ContainsFunc(tasks, func(s host.Status) bool { return s.State != berth.TaskDone && slices.Contains(s.GPUs, g.Index) }) {
			free = append(free, g.Index)
		}
	}
	if len(free) < l.GPUCount {
		return berth.Errorf(berth.Unavailable, "the job needs %s, and %d of %d on its machine are free", gpus(l.GPUCount), len(free), len(all))
	}
	l.GPUs = free[:l.GPUCount]
	return nil
}
