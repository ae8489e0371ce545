package runner

import (
	"os"
	"syscall"
	"time"

	"github.com/berthml/berth"
)

// ending is the way of a process to its end: asked first, killed when the grace is over, and again until all is quiet.
type ending struct {
	timer *time.Timer
	grace time.Duration
}

// begin asks the tree to end. Asking again with a shorter grace shortens it.
func (e *ending) begin(p *process, cg *cgroup, id berth.TaskID, grace time.Duration) {
	if e.timer != nil {
		if grace < e.grace {
			e.grace = grace
			e.timer.Reset(grace)
		}
		return
	}
	e.grace = grace
	e.timer = time.NewTimer(grace)
	_ = syscall.Kill(-p.pid, syscall.SIGTERM)
	for _, pid := range strangers(p, id) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}

func (e *ending) expired() <-chan time.Time {
	if e.timer == nil {
		return nil
	}
	return e.timer.C
}

// kill ends the tree for good. The process may need a moment to be gone, so it is done again until it is.
func (e *ending) kill(p *process, cg *cgroup, id berth.TaskID) {
	killTree(p, cg, id)
	e.timer.Reset(100 * time.Millisecond)
}

func (e *ending) close() {
	if e.timer != nil {
		e.timer.Stop()
	}
}

// killGroup ends what is left in the process group of a command that ended.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// killTree ends every process of the task. A process may fork between being listed and being killed, so the list is
// read again until it is empty, a few times at most.
func killTree(p *process, cg *cgroup, id berth.TaskID) {
	cg.kill()
	if b, ok := born(p.pid); ok && b == p.born {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	}
	for range 8 {
		list := strangers(p, id)
		for _, pid := range list {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(list) == 0 {
			return
		}
	}
}

// strangers lists the living processes of a task outside its process group: those of its session, those that carry its
// mark wherever they escaped to, and everything below any of them.
func strangers(p *process, id berth.TaskID) []int {
	all := processes()
	ours := map[int]bool{p.pid: true}
	for _, s := range all {
		if s.session == p.pid || markOf(s.pid) == id {
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

// Leftovers lists those of the processes roots that carry the mark of one of the tasks, and what is below them.
func Leftovers(roots []int, tasks map[berth.TaskID]bool) []int {
	set := map[int]bool{}
	for _, pid := range roots {
		if tasks[markOf(pid)] {
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
func findMarked(id berth.TaskID) (pid int, born uint64) {
	for _, s := range processes() {
		if s.session == s.pid && s.pgrp == s.pid && s.state != 'Z' && markOf(s.pid) == id && (pid == 0 || s.born < born) {
			pid, born = s.pid, s.born
		}
	}
	return pid, born
}
