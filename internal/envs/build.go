package envs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berthml/berth"
)

// build makes the environment of r in its final place, for scripts in it name that place. lock is
// held exclusively, and the programs that build inherit it: should this process die, nobody touches
// the directory before they have ended.
func (c *Cache) build(ctx context.Context, lock *os.File, hash string, r request, progress func(string)) (marker, error) {
	start := time.Now()
	dir := c.path("envs", hash)
	if err := clearDir(dir); err != nil {
		return marker{}, fmt.Errorf("removing an incomplete environment: %w", err)
	}
	logPath := c.path("logs", hash+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return marker{}, fmt.Errorf("building environment: %w", err)
	}
	defer log.Close()
	b := &builder{cache: c, lock: lock, dir: dir, log: log, progress: progress}
	m := marker{Built: start.UTC()}
	if r.Kind == kindConda {
		err = b.conda(ctx, r)
	} else {
		m.Warnings, err = b.venv(ctx, r)
	}
	if err != nil {
		if ctx.Err() != nil {
			return m, fmt.Errorf("building environment: %w", context.Cause(ctx))
		}
		return m, explain(err, logPath)
	}
	m.Python = pythonVersion(dir)
	m.Packages = b.installed
	m.Bytes = diskUse(dir)
	m.Took = time.Since(start)
	if err := m.complete(dir); err != nil {
		return m, fmt.Errorf("completing environment: %w", err)
	}
	progress(fmt.Sprintf("environment built in %.1fs", time.Since(start).Seconds()))
	return m, nil
}

// clearDir removes dir; the marker goes first, so that a crash half way leaves nothing that looks
// complete.
func clearDir(dir string) error {
	if err := os.Remove(filepath.Join(dir, markerName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

// A builder runs the programs of one build.
type builder struct {
	cache     *Cache
	lock      *os.File
	dir       string
	log       *os.File
	progress  func(string)
	vars      []string // beside those of every build
	installed []string
}

func (b *builder) venv(ctx context.Context, r request) (warnings []string, err error) {
	uv, err := b.cache.uv(ctx, b.progress)
	if err != nil {
		return nil, err
	}
	python, warning, err := b.cache.python(ctx, uv, r.Python, b.progress)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		warnings = append(warnings, warning)
	}
	args := []string{"venv", "--no-project"}
	if python != "" {
		args = append(args, "--python", python)
	}
	if err := b.run(ctx, uv, b.cache.uvEnv(), append(args, b.dir)...); err != nil {
		return nil, err
	}
	if len(r.Requirements) == 0 { // a bare interpreter, with pip where that can be had
		if r.Implied == nil {
			r.addImplied(false)
		}
		if err := b.install(ctx, uv, r); err != nil && ctx.Err() != nil {
			return nil, err
		}
		return warnings, nil
	}
	notes, err := b.installNearest(ctx, uv, r)
	return append(warnings, notes...), err
}

// install adds r's requirements to the environment in b.dir.
func (b *builder) install(ctx context.Context, uv string, r request) error {
	list := filepath.Join(b.dir, "requirements.txt")
	if err := os.WriteFile(list, []byte(r.file()), 0o600); err != nil {
		return err
	}
	args := append([]string{"pip", "install", "--no-progress", "--python", filepath.Join(b.dir, "bin", "python"), "-r", list}, r.args()...)
	for _, more := range []struct {
		option string
		lines  []string
	}{{"--constraint", r.Constraints}, {"--override", r.Overrides}} {
		if len(more.lines) == 0 {
			continue
		}
		file := filepath.Join(b.dir, more.option[2:]+"s.txt")
		if err := os.WriteFile(file, []byte(strings.Join(more.lines, "\n")+"\n"), 0o600); err != nil {
			return err
		}
		args = append(args, more.option, file)
	}
	b.progress(fmt.Sprintf("resolving %s", count(len(r.Requirements), "requirement")))
	version := pythonVersion(b.dir)
	site := sitePackages(b.dir)
	env := append(b.cache.uvEnv(), indexEnv(&r)...)
	// Bytecode is part of the environment, or the first job pays for it at import.
	if v, _ := parsePyVersion(version); v[1] >= 7 && !b.cache.hasSiblings(version) { // uv cannot compile for 3.6
		return b.run(ctx, uv, env, append(args, "--compile-bytecode")...)
	}
	if err := b.run(ctx, uv, env, args...); err != nil {
		return err
	}
	return b.compile(ctx, version, site, b.cache.siblings(version, site))
}

func (b *builder) conda(ctx context.Context, r request) error {
	file := b.cache.path("logs", filepath.Base(b.dir)+".yml")
	if err := os.WriteFile(file, []byte(r.Conda), 0o600); err != nil {
		return err
	}
	tool := strings.TrimSuffix(filepath.Base(r.Tool), ".exe")
	b.progress("solving with " + tool)
	args := []string{"env", "create", "-p", b.dir, "-f", file}
	if tool == "micromamba" {
		args = []string{"create", "--yes", "-p", b.dir, "-f", file}
	}
	if err := b.run(ctx, r.Tool, os.Environ(), args...); err != nil {
		return err
	}
	if len(r.Requirements) == 0 {
		return nil
	}
	uv, err := b.cache.uv(ctx, b.progress)
	if err != nil {
		return err
	}
	return b.install(ctx, uv, r)
}

// run runs a program of the build, its output to the log and what people should know of it to
// progress.
func (b *builder) run(ctx context.Context, name string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(env, b.vars...)
	cmd.Dir = b.cache.dir
	cmd.ExtraFiles = []*os.File{b.lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	done := make(chan []string)
	go func() {
		var all []string
		s := bufio.NewScanner(r)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			line := mask(s.Text())
			fmt.Fprintln(b.log, line)
			b.note(line)
			if all = append(all, line); len(all) > 2000 {
				all = all[1000:]
			}
		}
		_, _ = io.Copy(io.Discard, r)
		done <- all
	}()
	fmt.Fprintf(b.log, "$ %s %s\n", name, mask(strings.Join(args, " ")))
	err := cmd.Run()
	w.Close()
	lines := <-done
	if err != nil {
		return &runError{name: filepath.Base(name), err: err, lines: lines}
	}
	return nil
}

var (
	resolvedLine = pattern(`^(?:Resolved|Prepared|Installed) (\d+) packages?`)
	addedLine    = pattern(`^ \+ (\S+==\S+)`)
)

// note tells people what a line of uv's output means for them.
func (b *builder) note(line string) {
	if m := resolvedLine().FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "Resolved") {
		b.progress("installing " + plural(m[1], "package"))
	}
	if m := addedLine().FindStringSubmatch(line); m != nil {
		b.installed = append(b.installed, m[1])
	}
}

func count(n int, what string) string { return plural(fmt.Sprint(n), what) }

func plural(n, what string) string {
	if n == "1" {
		return n + " " + what
	}
	return n + " " + what + "s"
}

// pythonVersion reads the version of a virtual environment's interpreter.
func pythonVersion(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "pyvenv.cfg"))
	if err != nil {
		if m, _ := filepath.Glob(filepath.Join(dir, "lib", "python3.*")); len(m) > 0 { // conda
			return strings.TrimPrefix(filepath.Base(m[0]), "python")
		}
		return ""
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if k, v, ok := strings.Cut(line, "="); ok && strings.HasPrefix(strings.TrimSpace(k), "version") {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// A runError is the failure of a program of a build, with the end of its output.
type runError struct {
	name  string
	err   error
	lines []string
}

func (e *runError) Error() string { return fmt.Sprintf("%s: %v", e.name, e.err) }
func (e *runError) Unwrap() error { return e.err }

// explain makes an error for people of a failed build.
func explain(err error, logPath string) error {
	var run *runError
	if !errors.As(err, &run) {
		return err
	}
	code := berth.Invalid
	if unreachable(run.lines) {
		code = berth.Unavailable
	}
	var full *exec.Error
	if errors.As(run.err, &full) { // it could not be started
		code = berth.Unsupported
	}
	return berth.Errorf(code, "building the environment: %s\n(the whole log is %s on the node)", summarizeError(run.lines, run.Error()), logPath)
}
