package runner

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Belonging lists the living processes of the host of dir: its own, those of its tasks by their marks, and everything below any of them.
func Belonging(dir string) []int {
	all := processes()
	ours := map[int]bool{}
	for _, s := range all {
		if alive(s) && (strings.HasPrefix(markOf(s.pid), dir+"/") || hostOf(s.pid) == dir) {
			ours[s.pid] = true
		}
	}
	if len(ours) == 0 {
		return nil
	}
	descend(all, ours)
	var list []int
	for _, s := range all {
		if ours[s.pid] && alive(s) {
			list = append(list, s.pid)
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
