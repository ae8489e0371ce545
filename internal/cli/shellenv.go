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

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// What runs is what the user's shell would have run. On this machine that is the active environment
// itself; elsewhere it is captured and built again.

// shellEnv is the Python environment that is active in the user's shell.
type shellEnv struct {
	dir    string
	conda  bool
	python string
}

func (e *shellEnv) String() string {
	if e.conda {
		return "the active conda environment " + e.dir
	}
	return "the active virtual environment " + e.dir
}

// activeEnvironment is the environment that is active, nil when none is.
func activeEnvironment() *shellEnv {
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		dir := os.Getenv(name)
		if dir == "" {
			continue
		}
		e := &shellEnv{dir: dir, conda: name == "CONDA_PREFIX"}
		e.python = filepath.Join(e.bin(), "python")
		if runtime.GOOS == "windows" {
			e.python += ".exe"
		}
		if _, err := os.Stat(e.python); err == nil {
			return e
		}
	}
	return nil
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
	switch script, conda, err := scriptPackages(r.command, r.code); {
	case err != nil:
		return "", nil, err
	case conda != "":
		r.s.say("environment: the packages that %s names; --environment none runs it without them", script)
		return r.buildEnvironment(ctx, c, conda)
	}
	active := activeEnvironment()
	if c.Local() && (r.on == "" || berth.IsLocal(r.on)) {
		if active == nil {
			return "", nil, nil
		}
		r.s.say("environment: %s; --environment none runs it without", active)
		return "", active.variables(), nil
	}
	if active != nil {
		conda, left, err := active.condaFile(ctx)
		if err != nil {
			return "", nil, err
		}
		r.s.say("environment: the packages of %s; --environment none runs it without them", active)
		if len(left) > 0 {
			r.s.warn("not taken along, because they are not from a package index: %s", strings.Join(left, ", "))
		}
		return r.buildEnvironment(ctx, c, conda)
	}
	for _, name := range []string{"requirements.txt", "environment.yml", "environment.yaml", "conda.yml", "conda.yaml"} {
		path := filepath.Join(r.code, name)
		if b, err := os.ReadFile(path); err != nil || filepath.Ext(name) != ".txt" && !isConda(b) {
			continue
		}
		r.s.say("environment: %s; --environment none runs it without", path)
		if r.dryRun {
			return "local:" + path, nil, nil
		}
		id, err := r.s.environmentFile(ctx, c, path)
		return id, nil, err
	}
	return "", nil, nil
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

// scriptMetadata reads what a script says of itself: the version of Python, and its dependencies, a
// list of strings in TOML.
func scriptMetadata(block string) (python string, packages []string, err error) {
	for _, line := range strings.Split(block, "\n") {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == "requires-python" {
			python = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	_, list, ok := strings.Cut("\n"+block, "\ndependencies")
	if !ok {
		return python, nil, nil
	}
	list = strings.TrimLeft(list, " \t")
	if list, ok = strings.CutPrefix(list, "="); !ok {
		return "", nil, fmt.Errorf("the dependencies in its head must be a list")
	}
	if list, ok = strings.CutPrefix(strings.TrimSpace(list), "["); !ok {
		return "", nil, fmt.Errorf("the dependencies in its head must be a list")
	}
	for {
		list = strings.TrimLeft(list, " \t\r\n,")
		switch {
		case strings.HasPrefix(list, "]"):
			return python, packages, nil
		case strings.HasPrefix(list, "#"):
			_, list, _ = strings.Cut(list, "\n")
		case strings.HasPrefix(list, `"`), strings.HasPrefix(list, "'"):
			item, rest, ok := strings.Cut(list[1:], list[:1])
			if !ok || strings.Contains(item, "\n") {
				return "", nil, fmt.Errorf("a dependency in its head is not closed by %s", list[:1])
			}
			packages, list = append(packages, item), rest
		default:
			return "", nil, fmt.Errorf("the dependencies in its head must be a list of strings")
		}
	}
}
