//go:build linux

package attached_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// valve passes connections on to an address. While it is locked nothing passes, not even the end
// of a connection, and nobody is told: the link is dead.
type valve struct {
	sync.RWMutex
	port string
}

func startValve(t *testing.T, to string) *valve {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{}
	_, v.port, _ = net.SplitHostPort(l.Addr().String())
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go v.connect(in, to)
		}
	}()
	return v
}

func (v *valve) connect(in net.Conn, to string) {
	v.RLock()
	out, err := net.Dial("tcp", to)
	v.RUnlock()
	if err != nil {
		in.Close()
		return
	}
	go v.pass(in, out)
	v.pass(out, in)
}

func (v *valve) pass(from, to net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		v.RLock()
		if n > 0 && err == nil {
			_, err = to.Write(b[:n])
		}
		if err != nil {
			from.Close()
			to.Close()
			v.RUnlock()
			return
		}
		v.RUnlock()
	}
}

// TestSSHDeadLinkStory lets the link to one machine of a pool die without a word while a job runs
// on each. The machine is drained, the other one takes the next job, and when the link is back the
// job there is reported.
func TestSSHDeadLinkStory(t *testing.T) {
	s := world.Start(t)
	a, b := startOpenSSH(t), startOpenSSH(t)
	keys, err := os.ReadFile(a.key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	write(t, b.key+".pub", string(keys)) // one key opens both
	link := startValve(t, "127.0.0.1:"+a.port)
	run(t, s, "compute", "attach", "-n", "laptop", "--ssh", a.user+"@127.0.0.1:"+link.port, "--ssh", b.user+"@127.0.0.1:"+b.port, "--ssh-private-key-file", a.key)
	until(t, s, "has been connected since", "explain", "laptop")
	dir := t.TempDir()
	start := func(name string) {
		t.Helper()
		run(t, s, "run", "--no-wait", "--name", name, "--on", "laptop", "--", fmt.Sprintf("echo $HOME >%s/%s; while ! test -e %s/gate-$(basename $(dirname $HOME)); do sleep 0.1; done", dir, name, dir))
		until(t, s, "Running", "job", "show", "-n", name, "-o", "json")
	}
	start("first")
	start("second")
	onDead, onOther := "first", "second"
	if where, err := os.ReadFile(filepath.Join(dir, "first")); err != nil {
		t.Fatal(err)
	} else if string(where) != a.home+"\n" {
		onDead, onOther = onOther, onDead
	}

	link.Lock()
	until(t, s, "machine 127.0.0.1:"+link.port+" is drained: ", "explain", "laptop")
	write(t, filepath.Join(dir, "gate-"+filepath.Base(b.dir)), "")
	until(t, s, "Completed", "job", "show", "-n", onOther, "-o", "json")
	run(t, s, "run", "--on", "laptop", "--name", "third", "--", "echo $HOME >"+dir+"/third")
	if where := find(t, dir, "third"); where != b.home+"\n" {
		t.Errorf("the third job ran in %q, want %q", where, b.home)
	}
	write(t, filepath.Join(dir, "gate-"+filepath.Base(a.dir)), "") // it ends while nobody hears of it

	link.Unlock()
	until(t, s, "Completed", "job", "show", "-n", onDead, "-o", "json")
	run(t, s, "compute", "detach", "-n", "laptop", "--yes")
}
