package runner

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// procStat is what is read of /proc/PID/stat.
type procStat struct {
	pid, ppid, pgrp, session int
	state                    byte
	startTime                uint64             // clock ticks since boot
	ticks                    uint64             // of processor time, with that of children it waited for
	rss                      int64              // pages
	exit                     syscall.WaitStatus // of a process that has ended and was not reaped
}

// readStat reads /proc/PID/stat; false when there is no such process. It is on the way of every
// task, so it goes without the runtime's poller.
func readStat(pid int) (s procStat, ok bool) {
	fd, err := syscall.Open("/proc/"+strconv.Itoa(pid)+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return s, false
	}
	defer syscall.Close(fd)
	var buf [1024]byte
	n, err := syscall.Read(fd, buf[:])
	if err != nil {
		return s, false
	}
	return parseStat(buf[:n])
}

func parseStat(b []byte) (s procStat, ok bool) {
	// The name in parentheses may hold anything, so the fields are counted from the last
	// parenthesis.
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || shut < open {
		return s, false
	}
	s.pid, _ = strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	f := bytes.Fields(b[shut+1:])
	if len(f) < 22 || len(f[0]) != 1 {
		return s, false
	}
	num := func(i int) int64 { n, _ := strconv.ParseInt(string(f[i-3]), 10, 64); return n }
	s.state = f[0][0]
	s.ppid, s.pgrp, s.session = int(num(4)), int(num(5)), int(num(6))
	s.ticks = uint64(num(14) + num(15) + num(16) + num(17))
	s.startTime, s.rss = uint64(num(22)), num(24)
	if len(f) >= 50 && s.state == 'Z' {
		s.exit = syscall.WaitStatus(num(52))
	}
	return s, true
}

// StartTime is when the process began, in clock ticks since boot: with the pid and the boot it
// names a process for ever. Parent is the process that will be told how it ends.
func StartTime(pid int) (startTime uint64, parent int, ok bool) {
	s, ok := readStat(pid)
	return s.startTime, s.ppid, ok
}

// clockTicks is the time since boot as StartTime counts it.
func clockTicks() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	const perSecond = 100 // USER_HZ, on everything Go runs on
	return uint64(ts.Nano() / (1e9 / perSecond))
}

// startTimeSince is StartTime of a process that was just forked, and not before the given time.
// Where the clock has not moved on since, that is when it began, and /proc need not be asked.
func startTimeSince(before uint64, pid int) uint64 {
	if before != 0 && clockTicks() == before {
		return before
	}
	startTime, _, _ := StartTime(pid)
	return startTime
}

// markOf is the directory of the task a process belongs to by its mark, empty when it has none.
func markOf(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for len(b) > 0 {
		var v []byte
		v, b, _ = bytes.Cut(b, []byte{0})
		if dir, ok := bytes.CutPrefix(v, []byte(environMark+"=")); ok {
			return string(dir)
		}
	}
	return ""
}

// processes lists /proc.
func processes() []procStat {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	all := make([]procStat, 0, len(names))
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if s, ok := readStat(pid); ok {
			all = append(all, s)
		}
	}
	return all
}

// LeaderStartTime is StartTime for a process that may have ended already; leader says that it leads
// its session, as the first process of every task does.
func LeaderStartTime(pid int) (startTime uint64, leader, ok bool) {
	s, ok := readStat(pid)
	return s.startTime, s.session == pid, ok
}
