package cli

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// What runs is what the user's shell would have run. On this machine that is the active environment
// itself; elsewhere it is captured and built again.

// shellEnv is a Python environment of this machine.
type shellEnv struct {
	dir    string
	conda  bool
	state  string // "active " or nothing
	python string
}

func (e *shellEnv) String() string {
	if e.conda {
		return "the " + e.state + "conda environment " + e.dir
	}
	return "the " + e.state + "virtual environment " + e.dir
}

// activeEnvironment is the environment that is active, nil when none is.
func activeEnvironment() *shellEnv {
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if dir := os.Getenv(name); dir != "" {
			e := &shellEnv{dir: dir, conda: name == "CONDA_PREFIX", state: "active "}
			if e.found() {
				return e
			}
		}
	}
	return nil
}

// environmentAt is the environment in a folder, nil when there is none.
func environmentAt(dir string) *shellEnv {
	e := &shellEnv{dir: dir}
	if _, err := os.Stat(filepath.Join(dir, "conda-meta")); err == nil {
		e.conda = true
	} else if _, err := os.Stat(filepath.Join(dir, "pyvenv.cfg")); err != nil {
		return nil
	}
	if abs, err := filepath.Abs(dir); err == nil {
		e.dir = abs
	}
	if !e.found() {
		return nil
	}
	return e
}

// found looks for the environment's Python.
func (e *shellEnv) found() bool {
	e.python = filepath.Join(e.bin(), "python")
	if runtime.GOOS == "windows" {
		e.python += ".exe"
	}
	_, err := os.Stat(e.python)
	return err == nil
}

// bin is where the environment's programs are.
func (e *shellEnv) bin() string {
	switch {
	case runtime.GOOS != "windows":
		return filepath.Join(e.dir, "bin")
	case e.conda:
		return e.dir
	}
	return filepath.Join(e.dir, "Scripts")
}

// variables make a command on this machine use the environment.
func (e *shellEnv) variables() map[string]string {
	name := "VIRTUAL_ENV"
	if e.conda {
		name = "CONDA_PREFIX"
	}
	return map[string]string{name: e.dir, "PATH": e.bin() + string(os.PathListSeparator) + os.Getenv("PATH")}
}

// packagesScript prints what an environment has.
//
//go:embed packages.py
var packagesScript string

// condaFile is what the environment has, as a conda file. left are packages that cannot be had
// elsewhere.
func (e *shellEnv) condaFile(ctx context.Context) (file string, left []string, err error) {
	cmd := exec.CommandContext(ctx, e.python, "-c", packagesScript)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", nil, berth.Errorf(berth.Invalid, "%s cannot be read: %w %s; choose another with --environment", e, err, oneLine(stderr.String()))
	}
	var has struct {
		Python   string
		Packages []string
		Left     []string
	}
	if err := json.Unmarshal(out, &has); err != nil {
		return "", nil, berth.Errorf(berth.Invalid, "%s cannot be read: %w; choose another with --environment", e, err)
	}
	return condaFileOf("="+has.Python, has.Packages), has.Left, nil
}

// condaFileOf is a conda file with packages of pip. python is the version, as in =3.12 or >=3.10.
func condaFileOf(python string, packages []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "dependencies:\n- %q\n- pip\n", "python"+python)
	if len(packages) > 0 {
		b.WriteString("- pip:\n")
	}
	for _, p := range packages {
		fmt.Fprintf(&b, "  - %q\n", p)
	}
	return b.String()
}

// chooseEnvironment is what a run without --environment gets: the id of an environment, variables
// that name the active one, or nothing.
func (r *bareRun) chooseEnvironment(ctx context.Context, c *client.Client) (id string, vars map[string]string, err error) {
	if program := r.program(); bringsEnvironment[program] {
		return "", nil, nil // it makes one itself
	}
	r.hintActivate()
	switch script, conda, err := scriptPackages(r.command, r.code); {
	case err != nil:
		return "", nil, err
	case conda != "":
		r.s.say("environment: the packages that %s names; --environment none runs it without them", script)
		return r.buildEnvironment(ctx, c, conda)
	}
	active := activeEnvironment()
	if active != nil {
		return r.shellEnvironment(ctx, c, active, "--environment none runs it without")
	}
	path := ""
	if !r.noCode {
		path = projectFile(r.code)
	}
	if r.here(c) {
		r.hintEnvironment(path)
		return "", nil, nil
	}
	if path == "" {
		return "", nil, nil
	}
	r.s.say("environment: %s; --environment none runs it without", path)
	return r.fileEnvironment(ctx, c, path)
}

// here reports whether the job runs on this machine, where the user's own files are.
func (r *bareRun) here(c *client.Client) bool {
	return c.Local() && (r.on == "" || berth.IsLocal(r.on))
}

// bringsEnvironment are programs that find or make the environment of a project themselves.
var bringsEnvironment = map[string]bool{
	"uv": true, "uvx": true, "poetry": true, "pipenv": true, "pdm": true, "hatch": true, "rye": true, "pixi": true, "conda": true, "mamba": true, "micromamba": true, "pipx": true,
}

// program is the name of the program that the command runs.
func (r *bareRun) program() string {
	words := strings.Fields(r.command[0])
	if len(r.command) > 1 {
		words = r.command[:1]
	}
	if len(words) == 0 {
		return ""
	}
	return strings.TrimSuffix(words[0][strings.LastIndexAny(words[0], `/\`)+1:], ".exe")
}

// hintEnvironment says that a Python runs as it is found here although the folder has an
// environment, or names packages.
func (r *bareRun) hintEnvironment(path string) {
	if !isPython(r.program()) {
		return
	}
	if _, err := os.Stat(filepath.Join(r.code, ".venv", "pyvenv.cfg")); err == nil && !r.noCode {
		path = filepath.Join(r.code, ".venv")
	}
	if path != "" {
		r.s.say("environment: this machine as it is, because none is active; --environment %s uses %s", path, filepath.Base(path))
	}
}

// hintActivate says that an environment of the folder which the command would activate stays here.
func (r *bareRun) hintActivate() {
	for _, word := range strings.FieldsFunc(strings.Join(r.command, " "), func(c rune) bool { return strings.ContainsRune(" \t\n;&|()'\"", c) }) {
		dir, ok := strings.CutSuffix(word, "/bin/activate")
		if !ok || filepath.IsAbs(dir) || r.noCode {
			continue
		}
		if e := environmentAt(filepath.Join(r.code, dir)); e != nil {
			dir = filepath.Join(r.code, dir)
			r.s.say("environment: %s is not uploaded; --environment %s uses it, and the command need not activate it", dir, dir)
		}
	}
}

// shellEnvironment is a Python environment of this machine: itself here, its packages elsewhere.
func (r *bareRun) shellEnvironment(ctx context.Context, c *client.Client, e *shellEnv, other string) (string, map[string]string, error) {
	if r.here(c) {
		r.s.say("environment: %s; %s", e, other)
		return "", e.variables(), nil
	}
	conda, left, err := e.condaFile(ctx)
	if err != nil {
		return "", nil, err
	}
	r.s.say("environment: the packages of %s; %s", e, other)
	r.leftOut(left)
	return r.buildEnvironment(ctx, c, conda)
}

// leftOut warns of packages that cannot be had elsewhere.
func (r *bareRun) leftOut(left []string) {
	if len(left) > 0 {
		r.s.warn("not taken along, because they are not from a package index: %s", strings.Join(left, ", "))
	}
}

// fileEnvironment is the environment of a file that names packages.
func (r *bareRun) fileEnvironment(ctx context.Context, c *client.Client, path string) (string, map[string]string, error) {
	if !isProject(path) {
		if r.dryRun {
			return "local:" + path, nil, nil
		}
		id, err := r.s.environmentFile(ctx, c, path)
		return id, nil, err
	}
	p, err := readProject(path)
	if err != nil {
		return "", nil, err
	}
	r.leftOut(p.left)
	id, _, err := r.buildEnvironment(ctx, c, p.conda())
	if p.source == "" {
		return id, nil, err
	}
	return id, map[string]string{"PYTHONPATH": p.source}, err // relative to the folder of the code
}

// givenEnvironment is what --environment names, with variables that it needs.
func (r *bareRun) givenEnvironment(ctx context.Context, c *client.Client) (string, map[string]string, error) {
	if e := environmentAt(r.environment); e != nil {
		return r.shellEnvironment(ctx, c, e, "as --environment says")
	}
	if st, err := os.Stat(r.environment); err == nil && !st.IsDir() {
		return r.fileEnvironment(ctx, c, r.environment)
	} else if err == nil && strings.ContainsAny(r.environment, `/\.`) {
		return "", nil, berth.Errorf(berth.Invalid, "--environment: %s is a folder without a Python environment; name a file such as requirements.txt, or a folder with bin/python", r.environment)
	}
	if r.dryRun && r.environment == "python" {
		return "local:python", nil, nil
	}
	if r.dryRun && strings.HasPrefix(r.environment, imageScheme) {
		return "local:image", nil, nil
	}
	id, err := r.s.environment(ctx, c, r.environment)
	return id, nil, err
}

func (r *bareRun) buildEnvironment(ctx context.Context, c *client.Client, conda string) (string, map[string]string, error) {
	if r.dryRun {
		return "local:packages", nil, nil
	}
	id, err := r.s.condaEnvironment(ctx, c, conda)
	return id, nil, err
}

// isPython says whether a program of a command is a Python: python, python3, .venv/bin/python3.12.
func isPython(program string) bool {
	name := program[strings.LastIndexAny(program, `/\`)+1:]
	return strings.TrimRight(strings.TrimSuffix(name, ".exe"), "0123456789.") == "python"
}

// scriptPackages is the conda file for the packages that the script of a command names in its head
// (PEP 723), "" when it names none.
func scriptPackages(command []string, dir string) (script, conda string, err error) {
	if len(command) == 1 {
		command = strings.Fields(command[0])
	}
	if len(command) < 2 || !isPython(command[0]) || filepath.Ext(command[1]) != ".py" {
		return "", "", nil
	}
	f, err := os.Open(filepath.Join(dir, command[1]))
	if err != nil {
		return "", "", nil // python says so
	}
	defer f.Close()
	var block strings.Builder
	inside, closed := false, false
	for lines := bufio.NewScanner(f); lines.Scan() && !closed; {
		line := strings.TrimRight(lines.Text(), " \t\r")
		switch {
		case !inside:
			inside = line == "# /// script"
		case line == "# ///":
			closed = true
		case !strings.HasPrefix(line, "#"):
			return "", "", nil
		default:
			block.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ") + "\n")
		}
	}
	if !closed {
		return "", "", nil
	}
	python, packages, err := scriptMetadata(block.String())
	if err != nil {
		return "", "", berth.Errorf(berth.Invalid, "%s: %w", command[1], err)
	}
	return command[1], condaFileOf(python, packages), nil
}

// scriptMetadata reads what a script says of itself, in TOML.
func scriptMetadata(block string) (python string, packages []string, err error) {
	var v struct {
		Python       string   `toml:"requires-python"`
		Dependencies []string `toml:"dependencies"`
	}
	if err := toml.Unmarshal([]byte(block), &v); err != nil {
		return "", nil, fmt.Errorf("its head: %s", tomlReason(err))
	}
	return v.Python, v.Dependencies, nil
}
