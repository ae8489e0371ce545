package peer

import (
	"context"
	"strings"
	"syscall"
	"testing"
)

// A peer's daemon that dies says so with the end of its log, and stopping leaves nothing behind.
func TestDaemons(t *testing.T) {
	d := daemons{logs: t.TempDir()}
	stays, err := d.start(t.Context(), "sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	defer d.stopAll()
	if err := d.check(); err != nil {
		t.Errorf("all run: %v", err)
	}
	if _, err := d.start(t.Context(), "sh", "-c", "echo no room; exit 1"); err != nil {
		t.Fatal(err)
	}
	err = d.wait(t.Context(), "the peer", func(context.Context) bool { return false })
	if err == nil || !strings.Contains(err.Error(), "sh ended: no room") {
		t.Errorf("waiting for a peer that died: %v", err)
	}
	d.stop(stays)
	if err := syscall.Kill(stays.cmd.Process.Pid, 0); err != syscall.ESRCH {
		t.Errorf("a stopped daemon: %v", err)
	}
	if len(d.all) != 1 {
		t.Errorf("%d daemons are known, want 1", len(d.all))
	}
}

// A kit that is not there is told by what is missing and how to name one.
func TestKubeKit(t *testing.T) {
	t.Setenv("BENCH_K8S", t.TempDir())
	if _, err := KubeKit(); err == nil || !strings.Contains(err.Error(), "no etcd") || !strings.Contains(err.Error(), "BENCH_K8S") {
		t.Errorf("an empty folder: %v", err)
	}
}
