package runner

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// ticksPerSecond is the unit of processor times in /proc; it is 100 on every architecture Linux
// runs Go programs on.
const ticksPerSecond = 100

// table is a look at every process, shared by the samples of all tasks within a moment.
type table struct {
	at       time.Time
	children map[int][]*procStat
	sessions map[int][]*procStat
}

var processTable struct {
	sync.Mutex
	table
}

// lookAround is the present table of processes, at most half a second old.
func lookAround(now time.Time) table {
	processTable.Lock()
	defer processTable.Unlock()
	if now.Sub(processTable.at) < 500*time.Millisecond {
		return processTable.table
	}
	t := table{at: now, children: map[int][]*procStat{}, sessions: map[int][]*procStat{}}
	all := processes()
	for i := range all {
		s := &all[i]
		t.children[s.ppid] = append(t.children[s.ppid], s)
		t.sessions[s.session] = append(t.sessions[s.session], s)
	}
	processTable.table = t
	return t
}

// tree lists the processes of a command: its session and everything below.
func (t table) tree(pid int) []*procStat { return t.family(t.sessions[pid]) }

// below lists a process and everything below it.
func (t table) below(pid int) []*procStat {
	s, ok := readStat(pid)
	if !ok {
		return nil
	}
	return t.family([]*procStat{&s})
}

// family lists processes and everything below them, each once.
func (t table) family(roots []*procStat) []*procStat {
	seen := map[int]bool{}
	var list []*procStat
	var add func(s *procStat)
	add = func(s *procStat) {
		if seen[s.pid] {
			return
		}
		seen[s.pid] = true
		list = append(list, s)
		for _, c := range t.children[s.pid] {
			add(c)
		}
	}
	for _, s := range roots {
		add(s)
	}
	return list
}

func (p *process) sample(now time.Time) (berth.Usage, bool) {
	rx, tx := readNet("self")
	if !p.sampler.begun {
		p.sampler.begun, p.sampler.rx0, p.sampler.tx0 = true, rx, tx
	}
	u := usageOf(now, lookAround(now).tree(p.pid))
	u.NetRxBytes, u.NetTxBytes = rx-p.sampler.rx0, tx-p.sampler.tx0
	u = p.sampler.note(u, p.t.times.Started)
	addGPUs(&u, p.t.l.GPUs)
	return u, true
}

// usageOf is what processes used since they began, and the memory they hold.
func usageOf(now time.Time, list []*procStat) berth.Usage {
	u := berth.Usage{At: now}
	var ticks uint64
	for _, st := range list {
		ticks += st.ticks
		u.MemoryBytes += st.rss * int64(os.Getpagesize())
		r, w := readIO(st.pid)
		u.ReadBytes += r
		u.WriteBytes += w
	}
	u.CPUSeconds = float64(ticks) / ticksPerSecond
	return u
}

// readIO is what a process read from and wrote to disks, with what children it waited for did.
func readIO(pid int) (read, written int64) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	if err != nil {
		return 0, 0
	}
	for l := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(l), ": ")
		switch k {
		case "read_bytes":
			read, _ = strconv.ParseInt(v, 10, 64)
		case "write_bytes":
			written, _ = strconv.ParseInt(v, 10, 64)
		}
	}
	return read, written
}

// readNet is what the interfaces a process sees, but the loopback, received and sent: the
// machine's, or a container's own.
func readNet(pid string) (rx, tx int64) {
	b, err := os.ReadFile("/proc/" + pid + "/net/dev")
	if err != nil {
		return 0, 0
	}
	for l := range strings.Lines(string(b)) {
		name, rest, ok := strings.Cut(l, ":")
		f := strings.Fields(rest)
		if !ok || strings.TrimSpace(name) == "lo" || len(f) < 9 {
			continue
		}
		r, _ := strconv.ParseInt(f[0], 10, 64)
		t, _ := strconv.ParseInt(f[8], 10, 64)
		rx, tx = rx+r, tx+t
	}
	return rx, tx
}
