package runner

import (
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

type sampler struct{}

func newSampler(p *process, cg *cgroup, l *berth.Launch) *sampler { return &sampler{} }

func (s *sampler) sample(now time.Time) berth.Usage { return berth.Usage{At: now} }

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
