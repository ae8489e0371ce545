package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Belonging lists the living processes of the hosts of some directories: their own, those of their
// tasks by their marks, and everything below any of them. One pass over the machine's processes
// serves all directories.
func Belonging(dirs ...string) map[string][]int { return belonging(processes(), hostOf, dirs...) }

// Origin is a moment, to tell processes that began later.
type Origin struct{ startTime uint64 }

// NewOrigin is when this process began.
func NewOrigin() Origin {
	startTime, _, _ := StartTime(os.Getpid())
	return Origin{startTime}
}

// Belonging is [Belonging] for a directory that is no host's, and whose processes have all begun
// since: of others nothing but that is read.
func (o Origin) Belonging(dir string) []int {
	all := slices.DeleteFunc(processes(), func(s procStat) bool { return s.startTime < o.startTime })
	return belonging(all, func(int) string { return "" }, dir)[dir]
}

// belonging is [Belonging] among some processes. hostOf says whose host a process is.
func belonging(all []procStat, hostOf func(pid int) string, dirs ...string) map[string][]int {
	hosts := make(map[string]bool, len(dirs))
	for _, d := range dirs {
		hosts[d] = true
	}
	owner := map[int]string{}
	for _, s := range all {
		if !alive(s) {
			continue
		}
		if d := hostOf(s.pid); hosts[d] {
			owner[s.pid] = d
			continue
		}
		for d := markOf(s.pid); len(d) > 1; d = filepath.Dir(d) {
			if hosts[d] {
				owner[s.pid] = d
				break
			}
		}
	}
	for grew := len(owner) > 0; grew; {
		grew = false
		for _, s := range all {
			if d, ok := owner[s.ppid]; ok && owner[s.pid] == "" {
				owner[s.pid], grew = d, true
			}
		}
	}
	list := map[string][]int{}
	for _, s := range all {
		if d, ok := owner[s.pid]; ok && alive(s) {
			list[d] = append(list[d], s.pid)
		}
	}
	return list
}

// hostOf is the directory whose host a process is, by its command line; empty when it is none.
func hostOf(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	args := strings.Split(string(bytes.TrimSuffix(b, []byte{0})), "\x00")
	for i := range len(args) - 3 {
		if args[i] == "--dir" && args[i+2] == "--role" {
			return args[i+1]
		}
	}
	return ""
}
