package envs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A layer is a virtual environment of one task on top of another Python: packages that the task
// installs go into the layer, are found before those below, and are gone with it. What is below is
// not written to. It takes a handful of small files, and no mounts: layers on the machine's own
// Python share its programs.

// A Base is a Python that layers are put on.
type Base struct {
	exe     string // the interpreter, outside any virtual environment
	version string
	prefix  string   // the environment it belongs to; empty for the machine's own
	system  bool     // packages are found beside the interpreter as well
	sites   []string // directories of packages, beside those
	scripts []script // programs that run on it
	links   []string // programs that do not
	only3   bool     // python is another program than python3
	shared  *shared  // has the scripts for all layers; nil puts them into each
}

// A script is a program in Python: what follows its first line.
type script struct {
	name, body string
	path       string // of the program itself
	mode       fs.FileMode
}

var (
	isInterpreter = pattern(`^(python|pypy)[0-9.]*$`)
	isActivate    = pattern(`^(activate|deactivate|pydoc)`)
)

// largeScript is the size above which a program is not taken for a script.
const largeScript = 256 << 10

// Layer makes e private to a task that cannot mount anything: a layer on it, in dir, takes its
// place. It does nothing for environments that are not virtual ones.
func (e *Env) Layer(dir string) error {
	if e.Dir == "" || e.Container != nil {
		return nil
	}
	if _, conda := e.Vars["CONDA_PREFIX"]; conda {
		// R looks for packages there first, and installs them there.
		library := filepath.Join(dir, "R")
		if err := os.MkdirAll(library, 0o755); err != nil {
			return err
		}
		e.Vars["R_LIBS_USER"] = library
	}
	if e.Python == "" {
		return nil
	}
	b := &Base{version: e.Python, prefix: e.Dir}
	bin := filepath.Join(e.Dir, "bin")
	target, err := os.Readlink(filepath.Join(bin, "python"))
	if b.system = err != nil || !filepath.IsAbs(target); b.system {
		b.exe = filepath.Join(bin, "python") // of conda
	} else {
		b.exe, b.sites = target, []string{sitePackages(e.Dir)}
	}
	b.addPrograms(bin, func(interpreter string) bool { return filepath.Dir(interpreter) == bin })
	if err := b.layer(dir, ""); err != nil {
		return err
	}
	prefix := []string{filepath.Join(dir, "bin")}
	if b.system {
		prefix = append(prefix, bin)
	} else {
		e.Vars["VIRTUAL_ENV"] = dir
	}
	e.PathPrefix = prefix
	return nil
}

// Layer makes the machine's own Python private to a task.
func (b *Base) Layer(dir string) (*Env, error) {
	programs, err := b.shared.dir()
	if err != nil {
		return nil, err
	}
	if err := b.layer(dir, programs); err != nil {
		return nil, err
	}
	user := filepath.Join(dir, "user") // of pip install --user
	e := &Env{
		Vars: map[string]string{"VIRTUAL_ENV": dir, "PYTHONUSERBASE": user}, Python: b.version,
		PathPrefix: []string{filepath.Join(dir, "bin"), filepath.Join(user, "bin")},
	}
	if programs != "" {
		e.Vars[pythonVar] = filepath.Join(dir, "bin", "python3")
		e.PathPrefix = append(e.PathPrefix, programs)
	}
	return e, nil
}

// addPrograms adds the programs of a directory; ours says whether an interpreter is this Python.
func (b *Base) addPrograms(bin string, ours func(interpreter string) bool) {
	entries, _ := os.ReadDir(bin)
	for _, d := range entries {
		name := d.Name()
		if d.IsDir() || isInterpreter().MatchString(name) {
			continue
		}
		info, err := os.Stat(filepath.Join(bin, name)) // pip may be a link to pip3.11
		if err != nil || !info.Mode().IsRegular() || info.Size() > largeScript {
			b.links = append(b.links, filepath.Join(bin, name))
			continue
		}
		text, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			continue
		}
		s := script{name: name, path: filepath.Join(bin, name), mode: info.Mode().Perm()}
		switch interpreter, body := cutInterpreter(string(text)); {
		case interpreter != "" && ours(interpreter):
			s.body = body
			b.scripts = append(b.scripts, s)
		case isActivate().MatchString(name): // they name the environment in their text
		default:
			b.links = append(b.links, filepath.Join(bin, name))
		}
	}
}

var trampoline = pattern(`^#!/bin/sh\n'''exec' ['"]?([^'"\n]+?)['"]? "\$0" "\$@"\n' '''\n`)

// cutInterpreter splits a script into its interpreter and what follows the first line. Long paths
// are written as a line of the shell.
func cutInterpreter(text string) (interpreter, body string) {
	if m := trampoline().FindStringSubmatch(text); m != nil {
		return m[1], text[len(m[0]):]
	}
	line, body, _ := strings.Cut(text, "\n")
	interpreter, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return "", text
	}
	return strings.TrimSpace(interpreter), body
}

// firstLine makes a script run on an interpreter.
func firstLine(interpreter string) string {
	if len(interpreter) < 120 && !strings.Contains(interpreter, " ") {
		return "#!" + interpreter + "\n"
	}
	return "#!/bin/sh\n'''exec' '" + interpreter + "' \"$0\" \"$@\"\n' '''\n"
}

// layer makes a layer on b in dir. Its scripts are in the directory programs, or in the layer
// itself if that is empty.
func (b *Base) layer(dir, programs string) error {
	v, ok := parsePyVersion(b.version)
	if !ok || v[1] < 0 {
		return fmt.Errorf("%q is not a version of Python", b.version)
	}
	name := "python" + v.minor().String()
	bin, site := filepath.Join(dir, "bin"), filepath.Join(dir, "lib", name, "site-packages")
	for _, d := range []string{bin, site} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	config := fmt.Sprintf("home = %s\ninclude-system-site-packages = %t\nversion = %s\n", filepath.Dir(b.exe), b.system, b.version)
	if err := os.WriteFile(filepath.Join(dir, "pyvenv.cfg"), []byte(config), 0o644); err != nil {
		return err
	}
	var below strings.Builder
	for _, s := range b.sites {
		fmt.Fprintf(&below, "import site; site.addsitedir(%q)\n", s)
	}
	if below.Len() > 0 {
		if err := os.WriteFile(filepath.Join(site, "berth_below.pth"), []byte(below.String()), 0o644); err != nil {
			return err
		}
	}
	interpreter := filepath.Join(bin, "python3")
	err := errors.Join(os.Symlink(b.exe, interpreter), os.Symlink("python3", filepath.Join(bin, name)))
	if !b.only3 {
		err = errors.Join(err, os.Symlink("python3", filepath.Join(bin, "python")))
	}
	if err != nil {
		return err
	}
	first := firstLine(interpreter)
	for _, s := range b.scripts {
		if programs == "" {
			err = os.WriteFile(filepath.Join(bin, s.name), []byte(first+s.body), s.mode|0o200)
		} else if s.name == "pip" || s.name == "pip3" { // for those who call $VIRTUAL_ENV/bin/pip
			err = os.Symlink(filepath.Join(programs, s.name), filepath.Join(bin, s.name))
		}
		if err != nil {
			return err
		}
	}
	for _, l := range b.links {
		if err := os.Symlink(l, filepath.Join(bin, filepath.Base(l))); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if b.prefix == "" {
		return nil
	}
	for _, d := range []string{"share/jupyter", "etc/jupyter"} { // found below the prefix only
		if err := linkTree(filepath.Join(b.prefix, d), filepath.Join(dir, d)); err != nil {
			return err
		}
	}
	return nil
}

// linkTree makes a tree of directories with links to the files of another one, if that is there.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		return os.Symlink(p, filepath.Join(to, rel))
	})
}
