package runner

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/group"
)

// The services of a job run beside its command, with its environment, in its directory and within
// its limits. They listen on the loopback interface and ask everybody for a secret that the server
// has. What is known of one is in a directory of its own, so that a later runner finds it there.

// serviceScript runs a service, and boardScript TensorBoard, which has no secrets of its own.
var (
	//go:embed service.sh
	serviceScript string
	//go:embed board.py
	boardScript []byte
)

const (
	// servicePatience is how long a service may take until it answers.
	servicePatience = 4 * time.Minute
	// servicePace and serviceCheck are how often one that starts, and one that runs, is looked at.
	servicePace  = 200 * time.Millisecond
	serviceCheck = 2 * time.Second
)

// besides is a command that other programs can be started beside: in its container, or as a process
// like its own.
type besides interface {
	beside(ctx context.Context, s *Spec, args []string) error
}

// serviceDir is the directory of a service: its number among all, because names are anybody's.
func (t *task) serviceDir(name string) string {
	names := slices.Sorted(maps.Keys(t.l.Services))
	return filepath.Join(t.o.Dir, "services", strconv.Itoa(slices.Index(names, name)))
}

// startServices starts the services of the launch beside the command r. What is wrong with one is
// its own state; the command runs on.
func (t *task) startServices(ctx context.Context, s *Spec, r running) {
	for name, v := range t.l.Services {
		if err := t.startService(ctx, s, r, t.serviceDir(name), v); err != nil {
			_ = os.WriteFile(filepath.Join(t.serviceDir(name), "error"), []byte(err.Error()), 0o600) // else it does not answer
		}
	}
}

func (t *task) startService(ctx context.Context, s *Spec, r running, dir string, v berth.LaunchService) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	logs, err := expand(v.LogDir, t.lookup, false)
	if err != nil {
		return fmt.Errorf("log_dir: %w", err)
	}
	port := v.Port
	if port == 0 {
		if port, err = freePort(ctx); err != nil {
			return err
		}
	}
	for file, text := range map[string]string{"secret": v.Secret, "port": strconv.Itoa(port), "board.py": string(boardScript)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if logs == "" {
		logs = "."
	}
	b, ok := r.(besides)
	if !ok {
		return errors.New("nothing can be started beside the command here")
	}
	return b.beside(ctx, s, []string{"/bin/sh", "-c", serviceScript, "berth-service", dir, v.Type, strconv.Itoa(port), v.Base, logs})
}

// freePort is a port of this machine that nobody uses now.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// beside starts a program as a process of the task, which ends with it.
func (p *process) beside(_ context.Context, s *Spec, args []string) error {
	one := *s
	one.stdin, one.terminal = nil, false
	return forkBeside(&one, args[0], args)
}

// reap lets the system forget a child once it has ended.
func reap(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}

// beside starts a program in the container, which ends with it.
func (b *box) beside(ctx context.Context, _ *Spec, args []string) error {
	return b.r.Exec(ctx, args...)
}

// services is what is known of the services of a task that runs.
type services struct {
	mu     sync.Mutex
	states map[string]berth.ServiceState
	cancel context.CancelFunc
	group  sync.WaitGroup
}

// watchServices looks at the services until close; changed is called when the state of one is
// another. It is nil where there are none.
func (t *task) watchServices(ctx context.Context, changed func()) *services {
	if len(t.l.Services) == 0 {
		return nil
	}
	s := &services{states: map[string]berth.ServiceState{}}
	ctx, s.cancel = context.WithCancel(ctx)
	for name := range t.l.Services {
		s.states[name] = berth.ServiceState{Status: berth.ServiceStarting}
	}
	for name, v := range t.l.Services {
		s.group.Go(func() {
			t.watchService(ctx, t.serviceDir(name), v, func(state berth.ServiceState) {
				s.mu.Lock()
				s.states[name] = state
				s.mu.Unlock()
				changed()
			})
		})
	}
	return s
}

// all is the state of all services.
func (s *services) all() map[string]berth.ServiceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.states)
}

// close ends the watch.
func (s *services) close() {
	if s != nil {
		s.cancel()
		s.group.Wait()
	}
}

// watchService looks at a service until it has failed, or the command has ended.
func (t *task) watchService(ctx context.Context, dir string, v berth.LaunchService, set func(berth.ServiceState)) {
	fail := func(why string) { set(berth.ServiceState{Status: berth.ServiceFailed, Error: why}) }
	port, err := strconv.Atoi(readShort(filepath.Join(dir, "port")))
	deadline := time.Now().Add(servicePatience)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ready := false; ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if why := serviceEnd(dir, v.Type); why != "" {
			fail(why)
			return
		}
		pace := serviceCheck
		if !ready {
			pace = servicePace
			switch {
			case err != nil:
				fail("its port is not known")
				return
			case answers(ctx, v, port):
				ready, pace = true, serviceCheck
				set(berth.ServiceState{Status: berth.ServiceRunning, Port: port})
			case time.Now().After(deadline):
				fail(fmt.Sprintf("it did not answer within %v", servicePatience))
				return
			}
		}
		timer.Reset(pace)
	}
}

// servicePrograms are what services are called in an environment, and what is to be done for them
// to be there.
var servicePrograms = map[string][2]string{
	berth.ServiceJupyterLab:  {"jupyterlab", "add it to its packages"},
	berth.ServiceTensorBoard: {"tensorboard", "add it to its packages"},
	berth.ServiceVSCode:      {"code-server", "add the program to its image"},
}

// serviceEnd says why a service does not run any more, empty when it may.
func serviceEnd(dir, kind string) string {
	if why := readShort(filepath.Join(dir, "error")); why != "" {
		return why
	}
	code := readShort(filepath.Join(dir, "exit"))
	switch code {
	case "":
		return ""
	case "127":
		p := servicePrograms[kind]
		return p[0] + " is not in the environment: " + p[1]
	}
	why := "it ended with exit code " + code
	n, _ := strconv.Atoi(code) // what is no number is no code that is known
	if line := group.LastError(filepath.Join(dir, "log"), n); line != "" {
		why += ": " + line
	}
	return why
}

// readShort reads a small file that we wrote, empty when it is not there.
func readShort(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return err.Error()
		}
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 4<<10)) // the part that can be read is what there is
	return strings.TrimSpace(string(b))
}

// serviceProbe is where a service answers at once.
var serviceProbe = map[string]string{berth.ServiceVSCode: "/healthz", berth.ServiceTensorBoard: "/data/environment"}

// answers reports whether a service takes requests.
func answers(ctx context.Context, v berth.LaunchService, port int) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	path := serviceProbe[v.Type]
	if path == "" {
		path = v.Base + "/api/status"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+strconv.Itoa(port)+path, http.NoBody)
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "token "+v.Secret)
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode < http.StatusMultipleChoices
}
