package envs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/singleflight"
)

// bases remembers the Pythons of this machine: to ask one takes as long as starting it. All tasks
// of the machine share what it remembers, so whatever a task says that has a part in the answer is
// in the key.
type bases struct {
	probes singleflight.Group
	mu     sync.Mutex
	seen   map[string]*Base // nil for a program that is no Python
}

// Bounds of a probe.
const (
	probeTime    = 20 * time.Second
	probeOutput  = 64 << 10
	probeVersion = 1 << 10 // of a .python-version
)

// probeScript prints what a layer has to know of an interpreter.
const probeScript = `import json, os, site, sys, sysconfig
json.dump({"exe": getattr(sys, "_base_executable", "") or os.path.realpath(sys.executable),
 "version": "%d.%d.%d" % sys.version_info[:3], "venv": sys.prefix != sys.base_prefix, "prefix": sys.prefix,
 "sites": site.getsitepackages() if hasattr(site, "getsitepackages") else [],
 "user": site.getusersitepackages(), "scripts": sysconfig.get_path("scripts")}, sys.stdout)`

// Machine is the Python that commands on the machine itself find, nil when there is none: the first
// on PATH. host are the variables of the machine, job those of a command that are put on top of
// them, and dir is where the command runs. The interpreter is asked with the machine's variables.
func (c *Cache) Machine(ctx context.Context, host []string, job map[string]string, dir string) *Base {
	path, given := job["PATH"]
	for _, v := range host {
		if p, ok := strings.CutPrefix(v, "PATH="); ok && !given {
			path = p
		}
	}
	program, other := lookup(path, "python3"), lookup(path, "python")
	if program == "" {
		program = other
	}
	if program == "" {
		return nil
	}
	chosen := pyenvVars(program, path, job, dir)
	key := strings.Join(append([]string{probeKey(program), other}, chosen...), "\x00")
	if b, ok := c.bases.get(key); ok {
		return b
	}
	done := c.bases.probes.DoChan(key, func() (any, error) {
		if b, ok := c.bases.get(key); ok {
			return b, nil
		}
		// Not of this task alone: others may wait for the same answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
		defer cancel()
		b, certain := c.probe(ctx, key, program, slices.Concat(host, chosen))
		if b != nil {
			b.only3, b.shared = other != "" && filepath.Dir(other) != filepath.Dir(program), c.share(b)
		}
		if certain {
			c.bases.put(key, b)
		}
		return b, nil
	})
	select {
	case r := <-done:
		b, _ := r.Val.(*Base)
		return b
	case <-ctx.Done():
		return nil
	}
}

func (b *bases) get(key string) (*Base, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	base, ok := b.seen[key]
	return base, ok
}

func (b *bases) put(key string, base *Base) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil || len(b.seen) > 200 {
		b.seen = map[string]*Base{}
	}
	b.seen[key] = base
}

// lookup finds a program on path.
func lookup(path, name string) string {
	for _, d := range filepath.SplitList(path) {
		p := filepath.Join(d, name)
		if info, err := os.Stat(p); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 && filepath.IsAbs(d) {
			return p
		}
	}
	return ""
}

// probeKey changes when the answers of an interpreter may: with the program, and with the packages'
// scripts beside it.
func probeKey(program string) string {
	key := program
	stamps := []string{program, filepath.Dir(program)}
	if shim(program) {
		stamps = append(stamps, filepath.Join(filepath.Dir(program), "..", "version"))
	}
	for _, p := range stamps {
		if info, err := os.Stat(p); err == nil {
			key += "\x00" + p + info.ModTime().String()
		}
	}
	return key
}

// shim says whether a program is one of pyenv's, which choose the interpreter.
func shim(program string) bool { return strings.HasSuffix(filepath.Dir(program), "shims") }

// pyenvVars are the variables of a job by which pyenv chooses, sorted; none for other programs. The
// choice that a folder makes is made a variable, so that the interpreter need not run there.
func pyenvVars(program, path string, job map[string]string, dir string) []string {
	if !shim(program) {
		return nil
	}
	vars := []string{"PATH=" + path}
	for k, v := range job {
		if strings.HasPrefix(k, "PYENV_") && !strings.ContainsRune(k+v, 0) {
			vars = append(vars, k+"="+v)
		}
	}
	if job["PYENV_VERSION"] == "" {
		if v := strings.Join(strings.Fields(readSmall(filepath.Join(dir, ".python-version"))), ":"); v != "" {
			vars = append(vars, "PYENV_VERSION="+v)
		}
	}
	slices.Sort(vars)
	return vars
}

// readSmall is the text of a small file in a job's folder, empty when it is anything else.
func readSmall(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, probeVersion+1))
	if err != nil || len(text) > probeVersion || bytes.IndexByte(text, 0) >= 0 {
		return ""
	}
	return string(text)
}

// bounded takes so many bytes and no more. It embeds no buffer, whose ReadFrom has no bound.
type bounded struct {
	text []byte
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("too much output")
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

// probe asks an interpreter, unless another process has and its answer is kept, and returns nil
// when it is none. It is not certain of an answer that another try may change.
func (c *Cache) probe(ctx context.Context, key, program string, environ []string) (b *Base, certain bool) {
	kept := c.answerPath(key, environ)
	if text, err := keptAnswer(kept); err == nil {
		if b = readAnswer(text); b != nil {
			return b, true
		}
	}
	text, certain := ask(ctx, program, environ)
	if b = readAnswer(text); b != nil {
		c.keepAnswer(kept, text)
	}
	return b, certain
}

// ask runs an interpreter, apart from all that jobs can say and write, and returns what it said,
// nothing when it failed. It is not certain of an answer that another try may change.
func ask(ctx context.Context, program string, environ []string) (text []byte, certain bool) {
	cmd := exec.CommandContext(ctx, program, "-I", "-c", probeScript)
	out := &bounded{left: probeOutput}
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.WaitDelay = environ, "/", out, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a wrapper left behind, if anything
	}
	if err != nil {
		return nil, ctx.Err() == nil && (cmd.ProcessState != nil && cmd.ProcessState.Exited())
	}
	return out.text, true
}

// readAnswer is the Python that has given an answer, nil when it is none.
func readAnswer(text []byte) *Base {
	var is struct {
		Exe, Version, Prefix, User, Scripts string
		Venv                                bool
		Sites                               []string
	}
	if json.Unmarshal(text, &is) != nil || is.Exe == "" {
		return nil
	}
	b := &Base{exe: is.Exe, version: is.Version, prefix: is.Prefix, system: true}
	if is.Venv {
		b.sites = is.Sites
		text, _ := os.ReadFile(filepath.Join(is.Prefix, "pyvenv.cfg"))
		b.system = systemPackages().Match(text)
	}
	if info, err := os.Stat(is.User); b.system && is.User != "" && err == nil && info.IsDir() {
		b.sites = append(b.sites, is.User) // the layer has a user directory of its own
	}
	b.sites = slices.DeleteFunc(b.sites, func(s string) bool { return s == "" })
	same, _ := filepath.EvalSymlinks(is.Exe)
	ours := func(interpreter string) bool {
		real, err := filepath.EvalSymlinks(interpreter)
		return err == nil && real == same
	}
	dirs := []string{is.Scripts}
	if is.Scripts == "/usr/bin" {
		dirs = nil // programs of the system
	}
	if strings.HasPrefix(is.Exe, "/usr/") && !is.Venv {
		dirs = append(dirs, "/usr/local/bin")
	}
	slices.Sort(dirs)
	for _, d := range slices.Compact(dirs) {
		b.addPrograms(d, ours)
	}
	b.links = nil // they are on PATH
	if !is.Venv {
		b.prefix = ""
	}
	return b
}

var systemPackages = pattern(`(?im)^include-system-site-packages\s*=\s*true`)
