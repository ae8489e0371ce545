package agent

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes processes whose parent ended children of this one.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// tick is the unit of /proc/PID/stat, the same on every architecture Linux has.
const tick = 10 * time.Millisecond

// processes lists every process of the machine.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var out []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// The name is in parentheses and may hold any byte.
		i := bytes.LastIndexByte(b, ')')
		if i < 0 {
			continue
		}
		f := bytes.Fields(b[i+1:])
		if len(f) < 15 {
			continue
		}
		p := process{pid: pid, zombie: f[0][0] == 'Z'}
		p.parent, _ = strconv.Atoi(string(f[1]))
		for _, v := range f[11:15] {
			n, _ := strconv.ParseInt(string(v), 10, 64)
			p.cpu += time.Duration(n) * tick
		}
		out = append(out, p)
	}
	return out
}
