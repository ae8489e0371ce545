//go:build unix

package ssh_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/ssh"
	"github.com/berthml/berth/internal/driver/ssh/sshtest"
)

// pool is two machines as one compute; both have the account and the key of the first.
type pool struct {
	a, b *far
	dir  string
	d    driver.Driver
	now  *driver.Connection
	more map[string]any // in its document
}

func openTwo(t *testing.T) *pool { return openWith(t, open) }

// openWith is openTwo with a second machine that is made otherwise.
func openWith(t *testing.T, second func(*testing.T) *far) *pool {
	t.Helper()
	p := &pool{dir: t.TempDir()} // removed after the agents are gone
	p.a, p.b = open(t), second(t)
	p.a.dir, p.b.dir = filepath.Join(p.dir, driver.Key("a")), filepath.Join(p.dir, driver.Key("b"))
	p.b.sshd.Trust(p.a.sshd.Client())
	p.reopen(t)
	return p
}

func (p *pool) document(more map[string]any) []byte {
	var list []any
	for name, f := range map[string]*far{"a": p.a, "b": p.b} {
		h, port := f.sshd.HostPort()
		list = append(list, map[string]any{"name": name, "address": h, "sshPort": json.Number(port), "peerAddress": "10.0.0." + name})
	}
	slices.SortFunc(list, func(x, y any) int {
		return strings.Compare(x.(map[string]any)["name"].(string), y.(map[string]any)["name"].(string))
	})
	inner := map[string]any{"administratorAccount": map[string]any{"username": "me"}, "machines": list}
	for k, v := range more {
		inner[k] = v
	}
	b, _ := json.Marshal(map[string]any{"properties": map[string]any{"computeType": "VirtualMachine", "properties": inner}})
	return b
}

func (p *pool) reopen(t *testing.T) driver.Driver {
	t.Helper()
	d, err := ssh.Open(p.a.config(p.dir, p.document(p.more)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(io.Closer).Close() })
	p.d = d
	return d
}

func (p *pool) access() driver.Access {
	return driver.Access{Properties: p.document(p.more), Secrets: map[string]string{"properties.administratorAccount.privateKeyData": p.a.key}}
}

func (p *pool) connect(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var err error
	if p.now, err = p.d.(driver.Connector).Connect(ctx, p.access()); err != nil {
		t.Fatal(err)
	}
}

// until waits for a state of the machines, by the reasons why they are away.
func (p *pool) until(t *testing.T, what string, ok func(a, b string) bool) {
	t.Helper()
	for end := time.After(2 * time.Minute); ; {
		info, err := p.d.Probe(t.Context())
		if err == nil && ok(info.Nodes[0].Away, info.Nodes[1].Away) {
			return
		}
		select {
		case <-p.now.Changed:
		case <-end:
			t.Fatalf("%s: %+v, %v", what, info.Nodes, err)
		}
	}
}

func both(a, b string) bool { return a == "" && b == "" }

// TestPool: a pool is what every target is, wherever its tasks are.
func TestPool(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Fixture {
		p, n := openTwo(t), 0
		p.connect(t)
		p.until(t, "both", both)
		return drivertest.Fixture{
			Driver: p.d,
			Launch: func(command string) berth.Launch {
				n++
				l := p.a.launch(n, command)
				l.Node = []string{"a", "b"}[n%2]
				return l
			},
			Log: func(l berth.Launch) string { return p.a.log(l) + p.b.log(l) },
			Reopen: func(t *testing.T) driver.Driver {
				p.d.(io.Closer).Close()
				d := p.reopen(t)
				p.connect(t)
				p.until(t, "both again", both)
				return d
			},
		}
	})
}

// TestPoolLosesMachines: a machine that is away takes nothing, says why, and is not sent what it
// was to run; the others go on. It comes back with the task that it had. One that shows another
// host key is refused.
func TestPoolLosesMachines(t *testing.T) {
	p := openTwo(t)
	p.connect(t)
	p.until(t, "both", both)
	info, err := p.d.Probe(t.Context())
	if err != nil || !info.Places || info.MaxNodes != 2 || info.Nodes[1].Address != "10.0.0.b" || info.Nodes[0].Slots != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	l := p.a.launch(1, "sleep 600")
	l.Node = "b"
	h, err := p.d.Start(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if n := p.b.sshd.Count(); n != 1 {
		t.Errorf("%d connections to one machine", n)
	}
	p.b.sshd.Stop()
	p.until(t, "b is away", func(a, b string) bool { return a == "" && b != "" })
	next := p.a.launch(2, "true")
	next.Node = "b"
	if _, err := p.d.Start(t.Context(), next); !isUnsent(err) {
		t.Errorf("started on a machine that is away: %v", err)
	}
	seen, err := p.d.Observe(t.Context())
	if unseen, ok := errors.AsType[*driver.Unseen](err); !ok || !slices.Equal(unseen.Nodes, []string{"b"}) {
		t.Errorf("observed %+v, %v", seen, err)
	}
	if err := p.d.Stop(t.Context(), h, driver.Stop{}); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("stopped on a machine that is away: %v", err)
	}
	next.Node = "a"
	if _, err := p.d.Start(t.Context(), next); err != nil {
		t.Error(err)
	}

	p.b.sshd.Again(t)
	p.until(t, "b is back", both)
	seen, err = p.d.Observe(t.Context())
	if err != nil || !slices.ContainsFunc(seen, func(o driver.Observed) bool { return o.Task == l.Task && o.Node == "b" && o.Handle == h }) {
		t.Errorf("observed %+v, %v", seen, err)
	}
	if err := p.d.Stop(t.Context(), h, driver.Stop{Grace: time.Second}); err != nil {
		t.Error(err)
	}
	drivertest.Wait(t.Context(), t, p.d, l.Task)

	p.b.sshd.NewHostKey(t)
	p.b.sshd.Cut()
	p.until(t, "another host key", func(a, b string) bool { return a == "" && strings.Contains(b, "HOST KEY") })
	p.a.sshd.Stop()
	select {
	case err := <-p.now.Ended:
		if !strings.Contains(err.Error(), "none of its machines") {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the connection of a pool without machines stands")
	}
}

// TestPoolDiskFull: a machine without any room on its disk does not take a task, which may go to
// another, and is drained with the reason, also where nothing is sent to it; the others go on, and
// so does it once there is room, with the same task.
func TestPoolDiskFull(t *testing.T) {
	var fill, free func()
	p := openWith(t, func(t *testing.T) *far {
		home, err := os.MkdirTemp("", "bf")
		if err != nil {
			t.Fatal(err)
		}
		fill, free = drivertest.SmallDisk(t, home, "4m")
		f := openIn(t, home)
		withPrograms(t, home)
		return f
	})
	p.connect(t)
	p.until(t, "both", both)
	run := func(n int, node, command string) (*berth.Exit, error) {
		l := p.a.launch(n, command)
		l.Node = node
		if _, err := p.d.Start(t.Context(), l); err != nil {
			return nil, err
		}
		return drivertest.Wait(t.Context(), t, p.d, l.Task).Exit, nil
	}
	drained := func(word string) {
		t.Helper()
		for end := time.After(2 * time.Minute); ; {
			info, err := p.d.Probe(t.Context())
			if err == nil && both(info.Nodes[0].Away, info.Nodes[1].Away) && info.Nodes[0].Drained == "" && (info.Nodes[1].Drained != "") == (word != "") &&
				strings.Contains(info.Nodes[1].Drained, word) {
				return
			}
			select {
			case <-p.now.Changed:
			case <-end:
				t.Fatalf("%q: %+v, %v", word, info.Nodes, err)
			}
		}
	}
	fill()
	if exit, err := run(1, "b", "echo x"); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "its disk is full") || !isUnsent(err) {
		t.Errorf("on a full disk: %+v, %v", exit, err)
	}
	drained("its disk is full")
	if all, err := p.d.Observe(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after the task was not taken: %+v, %v", all, err)
	}
	if exit, err := run(2, "a", "true"); err != nil || !exit.OK() {
		t.Errorf("on the other machine: %+v, %v", exit, err)
	}
	free()
	if _, err := run(3, "b", "true"); err != nil {
		t.Errorf("a task that is sent to a machine with room: %v", err)
	}
	drained("")
	for {
		exit, err := run(1, "b", "echo x")
		if err == nil && exit.OK() {
			break
		}
		if err == nil || berth.CodeOf(err) != berth.Unavailable {
			t.Fatalf("with room on the disk: %+v, %v", exit, err)
		}
	}
}

// TestPoolGPUs: a machine with GPUs runs as many jobs as it has, each with one of its own. A
// program in the place of nvidia-smi tells of two.
func TestPoolGPUs(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte("#!/bin/sh\nfor i in 0 1; do echo $i, NVIDIA H200, 143771; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	p := openTwo(t)
	p.more = map[string]any{"jobsPerNode": "auto"}
	p.reopen(t)
	p.connect(t)
	p.until(t, "both", both)
	info, err := p.d.Probe(t.Context())
	if err != nil || info.Nodes[0].GPUs != 2 || info.Nodes[0].Slots != 2 {
		t.Fatalf("%+v, %v", info, err)
	}
	var seen []string
	for n := range 2 {
		l := p.a.launch(n+1, `echo "GPU $CUDA_VISIBLE_DEVICES"; sleep 600`)
		l.Node = "a"
		if _, err := p.d.Start(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		for p.a.log(l) == "" && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		seen = append(seen, strings.TrimSpace(p.a.log(l)))
	}
	if !slices.Equal(seen, []string{"GPU 0", "GPU 1"}) {
		t.Errorf("the jobs see %q", seen)
	}
}

func isUnsent(err error) bool {
	_, ok := errors.AsType[*driver.Unsent](err)
	return ok
}

// TestPoolRefused: a pool of which no machine lets the server in says so of each, and documents
// that could never work are refused.
func TestPoolRefused(t *testing.T) {
	p := openTwo(t)
	_, p.a.key = sshtest.NewKey(t)
	_, err := p.d.(driver.Connector).Connect(t.Context(), p.access())
	if err == nil || strings.Count(err.Error(), "rejected the login") != 2 {
		t.Errorf("a wrong key: %v", err)
	}
	for want, machines := range map[string]any{
		"must be a list":           "a",
		"address is required":      []any{map[string]any{"name": "a"}},
		"there are two machines":   []any{map[string]any{"address": "x"}, map[string]any{"address": "x"}},
		"is not a property":        []any{map[string]any{"address": "x", "color": "red"}},
		"must have no spaces":      []any{map[string]any{"address": "x", "peerAddress": "a,b"}},
		"must be an object":        []any{"x"},
		"must be a port from 1 to": []any{map[string]any{"address": "x", "sshPort": 70000}},
	} {
		if err := ssh.Check(nil, p.document(map[string]any{"machines": machines})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := ssh.Check(nil, p.document(map[string]any{"jobsPerNode": "many"})); err == nil {
		t.Error("jobsPerNode is taken as it is")
	}
	if err := ssh.Check(p.document(nil), p.document(map[string]any{"jobsPerNode": "auto"})); err != nil {
		t.Error(err)
	}
	if err := ssh.Check(p.document(nil), p.document(map[string]any{"machines": []any{map[string]any{"address": "elsewhere"}}})); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("other machines: %v", err)
	}
}

// TestPoolDropped: once a pool was dropped none of its machines is there or connected to any more,
// not even one that never answered, and another connection takes the new document.
func TestPoolDropped(t *testing.T) {
	p := openTwo(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	a := p.access()
	h, port, _ := net.SplitHostPort(silent.Addr().String())
	ah, aport := p.a.sshd.HostPort()
	a.Properties = p.document(map[string]any{"machines": []any{
		map[string]any{"name": "a", "address": ah, "sshPort": json.Number(aport)},
		map[string]any{"name": "b", "address": h, "sshPort": json.Number(port)},
	}})
	c := p.d.(driver.Connector)
	if p.now, err = c.Connect(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	none := func(after string) {
		t.Helper()
		all := make([]byte, 1<<20)
		if all = all[:runtime.Stack(all, true)]; strings.Contains(string(all), "(*Pool).keep(") {
			t.Errorf("%s: machines are still being connected to", after)
		}
	}
	c.Drop(errors.New("settings changed"))
	none("dropped")
	if info, err := p.d.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "a: settings changed") {
		t.Errorf("after Drop: %+v, %v", info.Nodes, err)
	}
	p.connect(t)
	p.until(t, "both", both)
	p.d.(io.Closer).Close()
	none("closed")
}
