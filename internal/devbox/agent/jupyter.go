//go:build !windows

package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth/internal/devbox"
)

// jupyter is the instance's JupyterLab, which is started again when it ends.
type jupyter struct {
	a      *agent
	sock   string
	base   string
	token  string // what it asks of everybody
	client *http.Client

	mu    sync.Mutex
	cmd   *exec.Cmd
	why   string // it does not run; empty when it does
	ended bool   // on purpose
}

func newJupyter(a *agent) *jupyter {
	j := &jupyter{a: a, sock: filepath.Join(runDir(a.dir), "jupyter.sock"), base: a.c.Prefix + "/jupyter/", token: newToken(), why: "it is starting"}
	j.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		MaxIdleConns: 2,
		DialContext:  func(ctx context.Context, _, _ string) (net.Conn, error) { return j.connect(ctx) },
	}}
	return j
}

func (j *jupyter) connect(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", j.sock)
}

// dial is a connection for a user's request.
func (j *jupyter) dial(ctx context.Context) (net.Conn, error) {
	c, err := j.connect(ctx)
	if err != nil {
		if why := j.problem(); why != "" {
			err = errors.New(why)
		}
		return nil, fmt.Errorf("JupyterLab does not answer: %w", err)
	}
	return &headed{Conn: c, header: []byte("Authorization: token " + j.token + "\r\n")}, nil
}

func (j *jupyter) problem() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.why
}

func (j *jupyter) setProblem(why string) {
	j.mu.Lock()
	j.why = why
	j.mu.Unlock()
}

// firstStart is how long JupyterLab may take to answer the first time: it may have to compile
// itself on a busy machine.
const firstStart = 4 * time.Minute

// start starts JupyterLab, returns when it answers, and sees to it that it stays.
func (j *jupyter) start(ctx context.Context) error {
	exited, err := j.launch()
	if err != nil {
		return &failure{"JupyterLab could not be started: " + err.Error(), j.a.tail("jupyter")}
	}
	if err := j.ready(ctx, exited, firstStart); err != nil {
		j.end()
		return &failure{"JupyterLab did not start: " + err.Error(), j.a.tail("jupyter")}
	}
	go j.keep(ctx, exited)
	return nil
}

// keep starts JupyterLab again whenever it ends.
func (j *jupyter) keep(ctx context.Context, exited chan error) {
	for n := 0; ; n++ {
		var err error
		select {
		case err = <-exited:
		case <-ctx.Done():
			return
		}
		j.mu.Lock()
		over := j.ended
		j.why = "it ended and is being started again"
		j.mu.Unlock()
		if over || ctx.Err() != nil {
			return
		}
		j.a.warn(fmt.Sprintf("JupyterLab ended (%v) and was restarted; running kernels were lost", err))
		j.a.show()
		for wait := 100 * time.Millisecond; ; wait = min(2*wait, 30*time.Second) {
			if exited, err = j.launch(); err == nil {
				if err = j.ready(ctx, exited, firstStart); err == nil {
					break
				}
			}
			if ctx.Err() != nil || errors.Is(err, errEnding) {
				return
			}
			j.setProblem("it did not start: " + err.Error())
			j.a.show()
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return
			}
		}
		j.a.show()
	}
}

// launch starts the process.
func (j *jupyter) launch() (chan error, error) {
	a := j.a
	if err := os.MkdirAll(filepath.Join(a.scratch, "jupyter"), 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(j.sock); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// Jobs of others run as the same user and reach the socket too, so it wants a token, which the
	// agent adds to what comes from the server. That one checks who comes, and refuses cross-site
	// requests.
	cmd := a.command(filepath.Join(a.env(), "bin", "python"), "-m", "jupyterlab", "--no-browser", "--allow-root",
		"--ServerApp.sock="+j.sock, "--ServerApp.sock_mode=0600", "--ServerApp.base_url="+j.base, "--ServerApp.root_dir="+a.home(),
		"--PasswordIdentityProvider.hashed_password=", "--ServerApp.disable_check_xsrf=True", "--ServerApp.allow_remote_access=True",
		"--ServerApp.trust_xheaders=True", "--ServerApp.quit_button=False", "--FileContentsManager.delete_to_trash=False", // which frees nothing
		"--ServerApp.allow_unauthenticated_access=False",
		"--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None",
	)
	cmd.Env = append(slices.Clone(cmd.Env), "JUPYTER_TOKEN="+j.token)
	log := a.logFile("jupyter")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = time.Second
	err := a.processes.start(cmd)
	log.Close()
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	j.cmd = cmd
	j.mu.Unlock()
	exited := make(chan error, 1)
	go func() {
		err := a.processes.wait(cmd)
		if err == nil {
			err = errors.New("it exited")
		}
		exited <- err
	}()
	return exited, nil
}

// ready waits until JupyterLab answers.
func (j *jupyter) ready(ctx context.Context, exited chan error, limit time.Duration) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		var s struct{}
		err := j.get(ctx, "api/status", &s)
		if err == nil {
			j.setProblem("")
			return nil
		}
		t := time.NewTimer(100 * time.Millisecond)
		select {
		case <-t.C:
		case err := <-exited:
			t.Stop()
			exited <- err
			return err
		case <-deadline.C:
			t.Stop()
			return fmt.Errorf("no answer within %s: %w", limit, err)
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// get asks JupyterLab something, without that counting as use.
func (j *jupyter) get(ctx context.Context, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+j.base+path+"?no_track_activity=1", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "token "+j.token)
	res, err := j.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("JupyterLab answered %s", res.Status)
	}
	return json.NewDecoder(res.Body).Decode(out)
}

// end stops JupyterLab for good, its kernels first.
func (j *jupyter) end() {
	j.mu.Lock()
	j.ended = true
	cmd := j.cmd
	j.mu.Unlock()
	if cmd != nil {
		killGroup(cmd, syscall.SIGTERM)
	}
}

// signals says whether notebooks and terminals are used. An open page without anything happening on
// it is no use.
func (j *jupyter) signals(ctx context.Context) []devbox.Signal {
	var status struct {
		Last time.Time `json:"last_activity"`
	}
	var kernels []struct {
		Name  string    `json:"name"`
		State string    `json:"execution_state"`
		Last  time.Time `json:"last_activity"`
	}
	var terminals []struct {
		Last time.Time `json:"last_activity"`
	}
	out := []devbox.Signal{
		{Name: "kernels", Why: "a notebook kernel was used"}, {Name: "terminals", Why: "a terminal was used"}, {Name: "notebook", Why: "JupyterLab was used"},
	}
	var group sync.WaitGroup
	for i, q := range []struct {
		path string
		to   any
	}{{"api/kernels", &kernels}, {"api/terminals", &terminals}, {"api/status", &status}} {
		group.Go(func() {
			if err := j.get(ctx, q.path, q.to); err != nil {
				out[i].Error = err.Error()
			}
		})
	}
	group.Wait()
	for _, x := range kernels {
		if x.State == "busy" || x.State == "starting" || x.State == "restarting" {
			out[0].Busy, out[0].Why = true, "a notebook kernel is busy ("+x.Name+")"
		}
		if x.Last.After(out[0].Last) {
			out[0].Last = x.Last
		}
	}
	for _, x := range terminals {
		if x.Last.After(out[1].Last) {
			out[1].Last = x.Last
		}
	}
	out[2].Last = status.Last
	return out
}

func newToken() string {
	var b [24]byte
	rand.Read(b[:]) // crypto/rand.Read never fails
	return hex.EncodeToString(b[:])
}

// headed is a connection with one request, to which it adds a line of the header.
type headed struct {
	net.Conn
	header []byte
}

func (h *headed) Write(p []byte) (int, error) {
	i := bytes.IndexByte(p, '\n') + 1 // the end of the request line
	if i == 0 || h.header == nil {
		return h.Conn.Write(p)
	}
	whole := slices.Concat(p[:i], h.header, p[i:])
	added := len(h.header)
	h.header = nil
	n, err := h.Conn.Write(whole)
	if n > i {
		n = max(i, n-added)
	}
	return n, err
}

func (h *headed) CloseWrite() error {
	if w, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}
