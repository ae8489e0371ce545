//go:build linux && engines

package attached_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/driver/drivertest"
)

// TestSSHPoolDiskFull fills the disk of one of two machines: the job there fails with the reason,
// the one on the other goes on, and jobs that come are not sent to the full machine, until there is
// room again.
func TestSSHPoolDiskFull(t *testing.T) {
	names, addresses := spaces(t)
	s := world.Start(t)
	a, b := startOpenSSHAt(t, names[0], addresses[0]), startOpenSSHAt(t, names[1], addresses[1])
	keys, err := os.ReadFile(a.key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	write(t, b.key+".pub", string(keys)) // one key opens both
	if err := os.Mkdir(filepath.Join(b.home, ".berth"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.kill() // what is mounted later is not mounted in its namespace
	fill, free := drivertest.SmallDisk(t, filepath.Join(b.home, ".berth"), "300m")
	b.start()
	where := func(o *openSSH) string { return o.user + "@" + o.address + ":" + o.port }
	run(t, s, "compute", "attach", "-n", "pool", "--ssh", where(a), "--ssh", where(b), "--ssh-private-key-file", a.key)
	until(t, s, "has been connected since", "explain", "pool")
	dir := t.TempDir()
	gate := func(name string) string { return filepath.Join(dir, name) }
	start := func(name, command string) {
		t.Helper()
		run(t, s, "run", "--no-wait", "--name", name, "--on", "pool", "--", "until [ -e "+gate(name)+" ]; do sleep 0.1; done; "+command)
	}
	status := func(name, want string) { t.Helper(); until(t, s, want, "job", "show", "-n", name, "-o", "json") }
	start("goes", "echo done")
	status("goes", "Running")
	start("fails", "head -c 1M /dev/zero > big")
	status("fails", "Running")
	fill()
	write(t, gate("fails"), "")
	status("fails", "Failed")
	until(t, s, "its log may lack what it wrote then", "events", "fails")
	until(t, s, "is drained: its disk is full", "events", "computes/pool")
	start("waits", "echo done")
	until(t, s, b.address+":"+b.port+" is drained: ", "explain", "waits")
	status("goes", "Running")
	write(t, gate("waits"), "")
	write(t, gate("goes"), "")
	status("goes", "Completed")
	status("waits", "Completed") // on the other machine
	for _, name := range []string{"then", "and"} {
		write(t, gate(name), "")
		start(name, "echo done")
		status(name, "Completed")
	}
	free()
	until(t, s, "takes jobs again", "events", "computes/pool")
	for _, name := range []string{"one", "two"} { // one on each
		start(name, "echo done")
	}
	for _, name := range []string{"one", "two"} {
		status(name, "Running")
	}
	for _, name := range []string{"one", "two"} {
		write(t, gate(name), "")
		status(name, "Completed")
	}
	run(t, s, "compute", "detach", "-n", "pool", "--yes")
}
