//go:build linux

package ssh_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/ssh"
)

// TestPoolWithoutFiles: a machine that can make no more files is drained as one without room, and
// is not sent a task. So is one that refused a task for a quota, of which its disk says nothing; a
// task that it has all the same is its own.
func TestPoolWithoutFiles(t *testing.T) {
	var home string
	p := openWith(t, func(t *testing.T) *far {
		var err error
		if home, err = os.MkdirTemp("", "bf"); err != nil {
			t.Fatal(err)
		}
		drivertest.SmallDisk(t, home, "40m,nr_inodes=300")
		f := openIn(t, home)
		withPrograms(t, home)
		return f
	})
	p.connect(t)
	p.until(t, "both", both)
	l := p.a.launch(1, "sleep 600")
	l.Node = "b"
	if _, err := p.d.Start(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	quota := berth.Errorf(berth.Unavailable, "writing the journal: %w", syscall.EDQUOT)
	for id, want := range map[berth.TaskID]bool{l.Task: false, "other.1": true} {
		if got := ssh.RefusedFor(t.Context(), p.d, "b", id, quota); got != want {
			t.Errorf("task %s: %v", id, got)
		}
	}
	next := p.a.launch(2, "true")
	next.Node = "b"
	if _, err := p.d.Start(t.Context(), next); !isUnsent(err) || !strings.Contains(err.Error(), "within the quota") {
		t.Errorf("after the quota was used up: %v", err)
	}
	for i := range 300 {
		if err := os.Mkdir(filepath.Join(home, strconv.Itoa(i)), 0o700); err != nil {
			break
		}
	}
	if _, err := p.d.Start(t.Context(), next); !isUnsent(err) || !strings.Contains(err.Error(), "its disk is full") {
		t.Errorf("without room for a file: %v", err)
	}
	if _, err := p.d.Start(t.Context(), l); err != nil {
		t.Errorf("the task that it has: %v", err)
	}
}
