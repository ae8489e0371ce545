package idle

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const smaps = `00400000-01340000 r-xp 00000000 fd:00 77 /opt/berth
Rss:               11000 kB
Anonymous:             0 kB
01340000-021b1000 r--p 00f3b000 fd:00 77 /opt/berth
Rss:                9000 kB
Anonymous:             0 kB
021b1000-0225e000 rw-p 01db1000 fd:00 77 /opt/berth
Rss:                 500 kB
Anonymous:             0 kB
0225e000-02260000 r--p 01e5d000 fd:00 77 /opt/berth with spaces
Rss:                   8 kB
Anonymous:             8 kB
7f0000000000-7f0000010000 r--p 00000000 fd:00 78 /lib/other.so
Anonymous:             0 kB
7f0000020000-7f0000030000 r--s 00000000 fd:00 77 /opt/berth
Anonymous:             0 kB
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
Anonymous:            12 kB
`

func TestUnchangedMappings(t *testing.T) {
	got := unchanged([]byte(smaps), 77)
	want := []span{{0x400000, 0x1340000}, {0x1340000, 0x21b1000}}
	if !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if got := unchanged([]byte("x\n\n1-2 r\nAnonymous: 1\n"), 0); len(got) != 0 {
		t.Errorf("nonsense has mappings: %x", got)
	}
}

// resident is how much of this program's file is mapped, in kilobytes.
func resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssFile:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Skip("this kernel does not say RssFile")
	return 0
}

// TestRelease looks whether pages of the program go, and whether the program goes on.
func TestRelease(t *testing.T) {
	for _, p := range programPages() {
		if _, _, e := unix.Syscall(unix.SYS_MADVISE, p.start, p.end-p.start, unix.MADV_POPULATE_READ); e != 0 {
			t.Skipf("this kernel does not map pages ahead: %v", e)
		}
	}
	before := resident(t)
	Release()
	after := resident(t)
	if after >= before*3/4 { // what the runtime uses comes back at once, with its surroundings
		t.Errorf("%d kB of the program are resident after release, %d before", after, before)
	}
	if got := strings.ToUpper(strconv.Quote("still here")); got != `"STILL HERE"` {
		t.Errorf("got %s", got)
	}
}
