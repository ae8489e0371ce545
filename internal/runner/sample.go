package runner

import (
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// sampleFirst is when a task is looked at first: short tasks never are.
const sampleFirst = time.Second

// sampleAgain is how long after a sample the next one comes, for a task of this age.
func sampleAgain(age time.Duration) time.Duration {
	switch {
	case age < time.Minute:
		return 2 * time.Second
	case age < 10*time.Minute:
		return 5 * time.Second
	}
	return 10 * time.Second
}

// peaks is the most of each figure.
func peaks(a, b berth.Usage) berth.Usage {
	return berth.Usage{
		At:          b.At,
		CPUSeconds:  max(a.CPUSeconds, b.CPUSeconds),
		CPUPercent:  max(a.CPUPercent, b.CPUPercent),
		MemoryBytes: max(a.MemoryBytes, b.MemoryBytes),
		ReadBytes:   max(a.ReadBytes, b.ReadBytes),
		WriteBytes:  max(a.WriteBytes, b.WriteBytes),
		NetRxBytes:  max(a.NetRxBytes, b.NetRxBytes),
		NetTxBytes:  max(a.NetTxBytes, b.NetTxBytes),
		GPUPercent:  max(a.GPUPercent, b.GPUPercent),
		GPUMemory:   max(a.GPUMemory, b.GPUMemory),
	}
}

// sampler turns counters into samples.
type sampler struct {
	last     berth.Usage
	rx0, tx0 int64 // what the network's counters stood at before
	begun    bool
}

// note makes a sample of u, which has counters since the start and what is held now: counters never
// go back, and processor time becomes a percentage since the sample before.
func (s *sampler) note(u berth.Usage, started time.Time) berth.Usage {
	if s.last.At.IsZero() {
		s.last.At = started
	}
	// What a process used is gone with it unless its parent waited.
	u.CPUSeconds = max(u.CPUSeconds, s.last.CPUSeconds)
	u.ReadBytes, u.WriteBytes = max(u.ReadBytes, s.last.ReadBytes), max(u.WriteBytes, s.last.WriteBytes)
	if d := u.At.Sub(s.last.At).Seconds(); d > 0 {
		u.CPUPercent = 100 * (u.CPUSeconds - s.last.CPUSeconds) / d
	}
	s.last = u
	return u
}

// gpu is what one GPU is doing.
type gpu struct {
	index   int
	percent float64
	memory  int64
}

// gpus is what nvidia-smi last said. It takes a good part of a second to say it, so all tasks share
// one answer.
var gpus struct {
	sync.Mutex
	path string
	once bool
	at   time.Time
	last []gpu
}

// addGPUs fills in what the GPUs of the given indices are doing, and says whether that is known.
func addGPUs(u *berth.Usage, indices []int) (known bool) {
	if len(indices) == 0 {
		return false
	}
	gpus.Lock()
	defer gpus.Unlock()
	if !gpus.once {
		gpus.once = true
		gpus.path, _ = exec.LookPath("nvidia-smi")
	}
	if gpus.path == "" {
		return false
	}
	if time.Since(gpus.at) > 1500*time.Millisecond {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, gpus.path,
			"--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits").Output()
		if err != nil {
			gpus.last = nil
		} else {
			gpus.last = parseGPUs(string(out))
		}
		gpus.at = time.Now()
	}
	for _, g := range gpus.last {
		if slices.Contains(indices, g.index) {
			u.GPUPercent += g.percent
			u.GPUMemory += g.memory
			known = true
		}
	}
	return known
}

// parseGPUs reads lines of index, percent, MiB.
func parseGPUs(text string) []gpu {
	var all []gpu
	for l := range strings.Lines(text) {
		f := strings.Split(l, ",")
		if len(f) != 3 {
			continue
		}
		i, err := strconv.Atoi(strings.TrimSpace(f[0]))
		p, _ := strconv.ParseFloat(strings.TrimSpace(f[1]), 64)
		m, _ := strconv.ParseInt(strings.TrimSpace(f[2]), 10, 64)
		if err == nil {
			all = append(all, gpu{i, p, m << 20})
		}
	}
	return all
}
