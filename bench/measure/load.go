package measure

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// MaxLoad is the load average above which nothing is scored.
const MaxLoad = 0.5

// MaxOther is how many cores others may use during a benchmark before it is not scored.
const MaxOther = 0.5

// Load is the load average of the last minute; -1 where it is not known.
func Load() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return v
}

// busy is the CPU time all processes of the machine have used since it started.
func busy() (time.Duration, bool) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line)
	if len(f) < 4 {
		return 0, false
	}
	var sum int64
	for _, s := range f[1:4] { // user, nice, system
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, false
		}
		sum += n
	}
	return time.Duration(sum) * tick, true
}

// Neighbours tells how many cores were used by processes outside a group.
type Neighbours struct {
	group      *Group
	at         time.Time
	busy, ours time.Duration
	ok         bool
}

// WatchNeighbours begins counting.
func WatchNeighbours(g *Group) *Neighbours {
	n := &Neighbours{group: g, at: time.Now()}
	var a, b bool
	n.busy, a = busy()
	n.ours, b = g.Usage()
	n.ok = a && b
	return n
}

// Cores is the mean number of cores others used since the beginning; nil when it is not known.
func (n *Neighbours) Cores() *float64 {
	all, a := busy()
	ours, b := n.group.Usage()
	wall := time.Since(n.at)
	if !n.ok || !a || !b || wall <= 0 {
		return nil
	}
	return number(max(0, ((all-n.busy)-(ours-n.ours)).Seconds()/wall.Seconds()))
}
