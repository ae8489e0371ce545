package envs

import (
	"context"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Stats is what a container used since it was started, and the memory it holds, as its engine
// counts.
type Stats struct {
	CPU           time.Duration
	Memory        int64 // bytes, without the part of the page cache that the kernel would give up first
	Read, Written int64 // bytes from and to disks
	NetRx, NetTx  int64 // bytes; 0 for a container in the machine's own network
}

// PID is the number of the container's first process in the world of processes the engine lives in,
// which need not be the caller's. A container that does not run is NotFound.
func (r *Running) PID(ctx context.Context) (int, error) {
	res, err := r.eng.cli.Inspect(ctx, r.ID)
	if err != nil {
		return 0, engineError("looking at the container", err)
	}
	if s := res.State; !s.Running || s.Pid <= 0 {
		return 0, berth.Errorf(berth.NotFound, "the container does not run")
	}
	return res.State.Pid, nil
}

// Stats asks the engine. Where it has nothing to say, of a container that has just ended for
// example, it is NotFound.
func (r *Running) Stats(ctx context.Context) (Stats, error) {
	v, err := r.eng.cli.Stats(ctx, r.ID)
	if err != nil {
		return Stats{}, engineError("measuring the container", err)
	}
	if v.Memory.Usage == 0 && v.CPU.Usage.Total == 0 {
		return Stats{}, berth.Errorf(berth.NotFound, "the engine does not say what the container uses")
	}
	s := Stats{CPU: time.Duration(v.CPU.Usage.Total), Memory: int64(v.Memory.Usage)}
	for _, key := range []string{"total_inactive_file", "inactive_file"} { // control groups of version 1, and 2
		if n := int64(v.Memory.Stats[key]); n > 0 && n < s.Memory {
			s.Memory -= n
			break
		}
	}
	for _, e := range v.Disk.Bytes {
		switch strings.ToLower(e.Op) {
		case "read":
			s.Read += int64(e.Value)
		case "write":
			s.Written += int64(e.Value)
		}
	}
	for _, n := range v.Networks {
		s.NetRx += int64(n.Received)
		s.NetTx += int64(n.Sent)
	}
	return s, nil
}
