package idle

import (
	"bytes"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Release returns free memory of the heap and unmaps the pages of the program file.
func Release() {
	debug.FreeOSMemory()
	unmap()
}

// unmap unmaps the pages of the program file.
func unmap() {
	for _, p := range programPages() {
		// An error leaves the pages where they are.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, p.start, p.end-p.start, unix.MADV_DONTNEED)
	}
}

type span struct{ start, end uintptr }

// programPages are the mappings of the program file that cannot differ from it.
func programPages() []span {
	var exe unix.Stat_t
	if err := unix.Stat("/proc/self/exe", &exe); err != nil {
		return nil
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return nil
	}
	return unchanged(smaps, exe.Ino)
}

// unchanged finds the mappings of a file in what smaps says: those that are private and cannot be
// written to. One with pages of its own is left out: a loader may have changed it before it was
// protected.
func unchanged(smaps []byte, inode uint64) (found []span) {
	ours := false
	for line := range bytes.Lines(smaps) {
		words := strings.Fields(string(line))
		if len(words) >= 5 && !strings.HasSuffix(words[0], ":") {
			from, to, _ := strings.Cut(words[0], "-")
			start, err1 := strconv.ParseUint(from, 16, 64)
			end, err2 := strconv.ParseUint(to, 16, 64)
			number, err3 := strconv.ParseUint(words[4], 10, 64)
			ours = err1 == nil && err2 == nil && err3 == nil && number == inode && words[1][1] == '-' && strings.HasSuffix(words[1], "p")
			if ours {
				found = append(found, span{uintptr(start), uintptr(end)})
			}
			continue
		}
		if ours && len(words) >= 2 && words[0] == "Anonymous:" && words[1] != "0" {
			ours, found = false, found[:len(found)-1]
		}
	}
	return found
}
