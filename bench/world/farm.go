package world

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/internal/app"
	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/host"
)

// Farm is a server in a process of its own whose nodes are real to it (directories, control groups,
// a socket that answers) but have no processes: this one is the runner host of all of them. So the
// server's part of many nodes can be measured on a machine that could not carry them.
type Farm struct {
	*Server
	ctx   context.Context
	end   context.CancelFunc
	l     *net.UnixListener
	build string

	mu    sync.Mutex
	hosts []*farmHost
	group sync.WaitGroup
	every time.Duration
	// Failed takes the first thing that went wrong.
	Failed chan error
	// started and sent count tasks that run and samples that the server took.
	started, sent int
}

// farmHost is the host of one node.
type farmHost struct {
	farm *Farm
	lock *os.File
	l    net.Listener

	mu    sync.Mutex
	tasks map[berth.TaskID]*berth.Launch
	conns []net.Conn
}

// StartFarm starts a server in home whose tasks report a sample every so often. self is the command
// line up to the hidden commands.
func StartFarm(ctx context.Context, group *measure.Group, self, home string, every time.Duration) (*Farm, error) {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(home, "farm.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	f := &Farm{Server: &Server{Home: home}, l: l, build: host.Build(self), every: every, Failed: make(chan error, 1)}
	f.ctx, f.end = context.WithCancel(ctx)
	f.group.Go(f.accept)
	if err := f.start(ctx, group, self, "_server", home, self, path); err != nil {
		f.Stop()
		return nil, err
	}
	return f, nil
}

// ServerMain is the server's process. args are its home and the first arguments of [NodeMain].
func ServerMain(ctx context.Context, args []string) error {
	debug.SetGCPercent(200) // as `berth serve` does
	cfg, err := config.Load(args[0])
	if err != nil {
		return err
	}
	cfg.Listen = "127.0.0.1:0"
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	a, err := app.Open(ctx, cfg, []string{args[1], "_node", args[2]}, log)
	if err != nil {
		return err
	}
	return errors.Join(a.Run(ctx), a.Close())
}

// NodeMain is what the server starts in place of a runner host: it has the farm answer for the
// node, and ends. args are the farm's socket and those of a runner host.
func NodeMain(args []string) error {
	const fdReady, fdLock = 4, 5
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: args[0], Net: "unix"})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, _, err := c.WriteMsgUnix([]byte(args[2]), syscall.UnixRights(fdLock), nil); err != nil { // --dir DIR
		return err
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return err
	}
	_, err = os.NewFile(fdReady, "ready").Write([]byte{'.'})
	return err
}

// Stop ends the server, and removes what its nodes had on the machine.
func (f *Farm) Stop() {
	f.end()
	f.l.Close()
	if f.cmd != nil && f.cmd.Process != nil {
		f.Server.Stop()
	}
	f.mu.Lock()
	for _, h := range f.hosts {
		h.close()
	}
	f.mu.Unlock()
	f.group.Wait()
	dirs, _ := os.ReadDir(filepath.Join(f.Home, "nodes"))
	for _, d := range dirs {
		var v struct{ Groups runner.Groups }
		b, err := os.ReadFile(filepath.Join(f.Home, "nodes", d.Name(), "node.json"))
		if err == nil {
			err = json.Unmarshal(b, &v)
		}
		if err == nil {
			err = v.Groups.Remove()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintln(os.Stderr, "bench: a node is left:", err)
		}
	}
}

func (f *Farm) fail(err error) {
	if f.ctx.Err() != nil {
		return
	}
	select {
	case f.Failed <- err:
	default:
	}
}

// accept takes nodes.
func (f *Farm) accept() {
	for {
		c, err := f.l.AcceptUnix()
		if err != nil {
			return
		}
		f.group.Go(func() {
			defer c.Close()
			dir, oob := make([]byte, 4096), make([]byte, 64)
			n, m, _, _, err := c.ReadMsgUnix(dir, oob)
			if err == nil {
				err = f.take(string(dir[:n]), oob[:m])
			}
			if err == nil {
				_, err = c.Write([]byte{'.'})
			}
			if err != nil {
				f.fail(err)
			}
		})
	}
}

// take is from now on the host of a node's directory.
func (f *Farm) take(dir string, rights []byte) error {
	lock, err := received(rights)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(f.ctx, "unix", filepath.Join(dir, "host.sock"))
	if err != nil {
		return err
	}
	h := &farmHost{farm: f, lock: lock, l: l, tasks: map[berth.TaskID]*berth.Launch{}}
	f.mu.Lock()
	f.hosts = append(f.hosts, h)
	f.mu.Unlock()
	f.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.conns = append(h.conns, c)
			h.mu.Unlock()
			f.group.Go(func() { h.talk(c) })
		}
	})
	return nil
}

// received is the lock of a directory, which says that somebody is its host.
func received(rights []byte) (*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("a node came without its lock: %w", err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("a node came without its lock: %w", err)
	}
	syscall.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "lock"), nil
}

func (h *farmHost) close() {
	h.l.Close()
	h.lock.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		c.Close()
	}
}

// talk answers the frames of package host: a length, the operation, JSON.
func (h *farmHost) talk(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:])-1)
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		answer, err := h.answer(head[4], body)
		if err != nil {
			h.farm.fail(err)
			return
		}
		out := binary.BigEndian.AppendUint32(nil, uint32(len(answer)+1))
		if _, err := c.Write(append(append(out, '+'), answer...)); err != nil {
			return
		}
	}
}

func (h *farmHost) answer(op byte, body []byte) ([]byte, error) {
	switch op {
	case 's':
		l := new(berth.Launch)
		if err := json.Unmarshal(body, l); err != nil {
			return nil, err
		}
		h.mu.Lock()
		known := h.tasks[l.Task] != nil
		h.tasks[l.Task] = l
		h.mu.Unlock()
		if !known {
			h.farm.group.Go(func() { h.farm.run(l) })
		}
		return []byte("null"), nil
	case 't':
		h.mu.Lock()
		defer h.mu.Unlock()
		all := []host.Status{}
		for id := range h.tasks {
			all = append(all, host.Status{Task: id, State: berth.TaskRunning, PID: 1})
		}
		return json.Marshal(all)
	case 'i':
		return json.Marshal(host.Info{Version: berth.Version, Build: h.farm.build})
	}
	return nil, fmt.Errorf("a simulated node was asked for %q", op)
}
