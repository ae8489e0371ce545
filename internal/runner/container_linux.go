package runner

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/berthml/berth"
)

// insight is how a container is seen from this machine: by its first process, which is above all
// others of it.
type insight struct {
	asked     bool // whether the process is one of this machine is known
	pid       int  // 0: it is not
	startTime uint64
	private   bool // it has a network of its own
}

// look samples the container's processes; false when they are not to be seen here.
func (b *box) look(ctx context.Context, now time.Time) (berth.Usage, bool) {
	in := &b.inside
	if !in.asked {
		pid, err := b.r.PID(ctx)
		if err != nil {
			return berth.Usage{}, false
		}
		in.asked = true
		// The engine's number may mean another process here, or none. Only the task's own carries
		// its mark.
		if startTime, _, ok := StartTime(pid); ok && markOf(pid) == b.t.o.Dir {
			in.pid, in.startTime, in.private = pid, startTime, ownNetwork(pid)
		}
	}
	if in.pid == 0 {
		return berth.Usage{}, false
	}
	if startTime, _, ok := StartTime(in.pid); !ok || startTime != in.startTime {
		return berth.Usage{}, false // it has just ended
	}
	u := usageOf(now, lookAround(now).below(in.pid))
	rx, tx := readNet(strconv.Itoa(in.pid))
	s := &b.sampler
	if !s.begun {
		s.begun = true
		if !in.private { // the machine's counters began long before
			s.rx0, s.tx0 = rx, tx
		}
	}
	u.NetRxBytes, u.NetTxBytes = rx-s.rx0, tx-s.tx0
	return u, true
}

// ownNetwork says whether a process has other network interfaces than this one.
func ownNetwork(pid int) bool {
	a, err1 := os.Readlink("/proc/self/ns/net")
	b, err2 := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
	return err1 == nil && err2 == nil && a != b
}
