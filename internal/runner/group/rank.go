package group

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// dial reaches the launcher of the task this process belongs to.
func dial(ctx context.Context) (*link, error) {
	if err := os.Chdir(os.Getenv(TaskDir)); err != nil {
		return nil, err
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return newLink(c), nil
}

// agent is what mpirun starts instead of ssh: it has the launcher of the named node run a command.
// args are the node and the words of the command, which a shell there puts together.
func agent(ctx context.Context, args []string) int {
	node, err := nodeNumber(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth:", err)
		return 255
	}
	l, err := dial(ctx)
	if err == nil {
		err = l.send(message{Op: opRun, Node: node, Text: strings.Join(args[1:], " "), Self: os.Getenv(programVar)})
	}
	for err == nil {
		var m message
		if m, err = l.receive(); err != nil {
			break
		}
		switch m.Op {
		case opOut:
			_, _ = os.Stdout.Write(m.Data)
		case opErr:
			_, _ = os.Stderr.Write(m.Data)
		case opExit:
			return m.Code
		}
	}
	fmt.Fprintln(os.Stderr, "berth: the launcher of the job's first node:", err)
	return 255
}

// rank is the parent of one MPI rank. It does what its launcher says, tells it how the command
// ended, and waits for leave to end itself, because mpirun acts on that at once.
func rank(ctx context.Context) int {
	runtime.LockOSThread()
	l, cmd, number, log, err := startRank(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth: a process could not be started:", err)
		return 126
	}
	said := make(chan message)
	go func() {
		defer close(said)
		for {
			m, err := l.receive()
			if err != nil {
				return
			}
			said <- m
		}
	}()
	passed := make(chan os.Signal, 8)
	signal.Notify(passed, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT)
	over := make(chan ended, 1)
	go func() { over <- wait(cmd, number, log) }()
	var end *ended
	told, asked := false, false
	hit := func(sig syscall.Signal) {
		if end == nil {
			_ = syscall.Kill(-cmd.Process.Pid, sig)
		}
	}
	for {
		select {
		case e := <-over:
			e.Told = told && !asked
			end = &e
			if l.send(message{Op: opEnded, Ended: &e}) != nil {
				return e.Code
			}
		case sig := <-passed:
			if sig == syscall.SIGTERM || sig == syscall.SIGINT {
				told = true
			}
			if !asked { // once is enough for those that save their work when asked
				hit(sig.(syscall.Signal))
			}
		case m, ok := <-said:
			switch {
			case !ok:
				hit(syscall.SIGKILL) // the task is over
				said = nil
				if end != nil {
					return end.Code
				}
			case m.Op == opStop:
				if !asked && !told {
					asked = true
					hit(syscall.SIGTERM)
				}
			case m.Op == opKill:
				hit(syscall.SIGKILL)
			case m.Op == opGo && end != nil:
				return end.Code
			}
		}
	}
}

// startRank asks the launcher what to do and starts it.
func startRank(ctx context.Context) (l *link, cmd *exec.Cmd, number int, path string, err error) {
	v := os.Getenv("OMPI_COMM_WORLD_RANK")
	if number, err = strconv.Atoi(v); err != nil {
		return nil, nil, 0, "", fmt.Errorf("mpirun says its rank is %q", v)
	}
	if l, err = dial(ctx); err != nil {
		return nil, nil, number, "", err
	}
	if err := l.send(message{Op: opRank, Rank: number}); err != nil {
		return nil, nil, number, "", err
	}
	m, err := l.receive()
	if err != nil {
		return nil, nil, number, "", err
	}
	if m.Op != opSpec || m.Spec == nil {
		return nil, nil, number, "", fmt.Errorf("the job is being stopped")
	}
	log, err := openLog(m.Spec.Log)
	if err != nil {
		return nil, nil, number, "", err
	}
	defer log.Close()
	cmd = exec.CommandContext(ctx, Shell(), "-c", m.Spec.Command)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = m.Spec.Dir, log, log, attr()
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(m.Spec.Drop, name)
	})
	cmd.Env = append(cmd.Env, m.Spec.Env...)
	return l, cmd, number, m.Spec.Log, cmd.Start()
}
