package runner

import (
	"bufio"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// OfTask says whether a process belongs to a task of a host below home: by its mark, or because a
// host is above it. The host's own processes do not: they are in the session of the host's first
// process, which no process of a task can enter. What cannot be looked at any more may have been a
// task's.
func OfTask(pid int, home string) bool {
	self, ok := readStat(pid)
	if !ok {
		// It is gone, or it is one of another PID namespace, which has the number 0 here. A
		// container beside ours may well be a task's.
		return true
	}
	ours := func(dir string) bool { return isBelow(home, dir) }
	if ours(markOf(pid)) {
		return true
	}
	var host procStat // the uppermost above it
	for at, n := self, 0; at.ppid > 1 && n < 256; n++ {
		if at, ok = readStat(at.ppid); !ok {
			break
		}
		if ours(hostOf(at.pid)) {
			host = at
		} else if ours(markOf(at.pid)) {
			return true
		}
	}
	return host.pid != 0 && !(ours(hostOf(pid)) && self.session == host.session)
}

// OfHost says whether a process is one of a host of tasks.
func OfHost(pid int) bool { return hostOf(pid) != "" }

// TaskConnected says whether a process of a task of a host below home has the other end of a TCP
// connection of this machine: local is our end of it, remote the other.
func TaskConnected(local, remote netip.AddrPort, home string) bool {
	for _, pid := range ends(local, remote) {
		if OfTask(pid, home) {
			return true
		}
	}
	return false
}

// NodeConnected says whether only processes of the host in a directory, and such as are in no task
// of a host below home, have the other end of a TCP connection of this machine.
func NodeConnected(local, remote netip.AddrPort, home, dir string) bool {
	pids := ends(local, remote)
	for _, pid := range pids {
		if OfTask(pid, home) && taskHost(pid, home) != dir {
			return false
		}
	}
	return len(pids) > 0
}

// taskHost is the directory of the host whose task a process belongs to: of the uppermost host
// above it, which no process can choose; of its mark where that host has ended.
func taskHost(pid int, home string) string {
	host := ""
	at, ok := readStat(pid)
	for n := 0; ok && at.ppid > 1 && n < 256; n++ {
		if at, ok = readStat(at.ppid); !ok {
			break
		}
		if dir := hostOf(at.pid); isBelow(home, dir) {
			host = dir
		}
	}
	if host != "" {
		return host
	}
	for dir := markOf(pid); isBelow(home, dir) && dir != home; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "settings.json")); err == nil {
			return dir
		}
	}
	return ""
}

func isBelow(home, dir string) bool {
	rel, err := filepath.Rel(home, dir)
	return dir != "" && err == nil && filepath.IsLocal(rel)
}

// ends are the processes that have the other end of a TCP connection of this machine.
func ends(local, remote netip.AddrPort) (pids []int) {
	inode := connection(remote, local)
	if inode == "" {
		return nil // of another machine, or another network namespace
	}
	link := "socket:[" + inode + "]"
	for _, s := range processes() {
		dir := "/proc/" + strconv.Itoa(s.pid) + "/fd"
		list, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		holds := slices.ContainsFunc(list, func(e os.DirEntry) bool {
			to, err := os.Readlink(dir + "/" + e.Name())
			return err == nil && to == link
		})
		if holds {
			pids = append(pids, s.pid)
		}
	}
	return pids
}

// connection is the inode of the socket at the end of a TCP connection that is called local there,
// empty when it is not on this machine.
func connection(local, remote netip.AddrPort) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			col := strings.Fields(s.Text())
			if len(col) > 9 && procAddr(col[1]) == local && procAddr(col[2]) == remote && col[9] != "0" {
				f.Close()
				return col[9]
			}
		}
		f.Close()
	}
	return ""
}

// procAddr reads an address as /proc/net/tcp has it: words of four bytes in the machine's order,
// and a port.
func procAddr(text string) netip.AddrPort {
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	n, perr := strconv.ParseUint(port, 16, 16)
	if err != nil || perr != nil || len(b)%4 != 0 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(b); i += 4 { // little-endian on everything this is built for
		slices.Reverse(b[i : i+4])
	}
	addr, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n))
}
