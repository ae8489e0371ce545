//go:build !windows

package cluster

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/berthml/berth"
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

// onceGPUs is GPUs, asked until there is an answer: it takes a good part of a second, and GPUs do
// not come and go.
func onceGPUs() func(context.Context) ([]GPU, error) {
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

func find(all []GPU, index int) (GPU, bool) {
	for _, g := range all {
		if g.Index == index {
			return g, true
		}
	}
	return GPU{}, false
}

func modelOf(all []GPU, index int) string {
	g, _ := find(all, index)
	return g.Model
}
