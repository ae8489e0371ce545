package runner

import "os"

// strangers lists the living processes of a task outside its process group: those of its session,
// those that carry its mark wherever they escaped to, and everything below any of them.
func (p *process) strangers() []int {
	all := processes()
	ours := map[int]bool{p.pid: true}
	for _, s := range all {
		if s.session == p.pid || markOf(s.pid) == p.t.o.Dir {
			ours[s.pid] = true
		}
	}
	descend(all, ours)
	var list []int
	for _, s := range all {
		if ours[s.pid] && s.pid != p.pid && s.pgrp != p.pid && alive(s) {
			list = append(list, s.pid)
		}
	}
	return list
}

// descend adds to a set of processes everything below them.
func descend(all []procStat, set map[int]bool) {
	for grew := true; grew; {
		grew = false
		for _, s := range all {
			if !set[s.pid] && set[s.ppid] {
				set[s.pid], grew = true, true
			}
		}
	}
}

// alive says whether a process can be ended: it has not ended, and is not the system's own.
func alive(s procStat) bool {
	return s.state != 'Z' && s.state != 'X' && s.pid > 1 && s.pid != os.Getpid()
}

// Leftovers lists those of the processes roots that carry the mark of a task with one of the
// directories, and what is below them.
func Leftovers(roots []int, dirs map[string]bool) []int {
	set := map[int]bool{}
	for _, pid := range roots {
		if dirs[markOf(pid)] {
			set[pid] = true
		}
	}
	if len(set) == 0 {
		return nil
	}
	all := processes()
	descend(all, set)
	var list []int
	for _, s := range all {
		if set[s.pid] && alive(s) {
			list = append(list, s.pid)
		}
	}
	return list
}

// ChildrenOf lists the children of a process.
func ChildrenOf(pid int) []int {
	var list []int
	for _, s := range processes() {
		if s.ppid == pid {
			list = append(list, s.pid)
		}
	}
	return list
}

// findMarked finds the first process of a task by its mark: the leader of its session.
func findMarked(dir string) (pid int, startTime uint64) {
	for _, s := range processes() {
		if s.session == s.pid && s.pgrp == s.pid && alive(s) && markOf(s.pid) == dir && (pid == 0 || s.startTime < startTime) {
			pid, startTime = s.pid, s.startTime
		}
	}
	return pid, startTime
}
