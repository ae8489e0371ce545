package envs

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// bases remembers the Pythons of this machine: to ask one takes as long as starting it.
type bases struct {
	mu   sync.Mutex
	seen map[string]*Base // nil for a program that is no Python
}

// probeScript prints what a layer has to know of an interpreter.
const probeScript = `import json, os, site, sys, sysconfig
user = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
json.dump({"exe": getattr(sys, "_base_executable", "") or os.path.realpath(sys.executable),
 "version": "%d.%d.%d" % sys.version_info[:3], "venv": sys.prefix != sys.base_prefix, "prefix": sys.prefix,
 "sites": site.getsitepackages() if hasattr(site, "getsitepackages") else [],
 "user": user, "scripts": sysconfig.get_path("scripts")}, sys.stdout)`

// Machine is the Python that commands on the machine itself find, nil when there is none: the first
// on path, which is a list of directories as in PATH. environ and dir are what commands have.
func (c *Cache) Machine(ctx context.Context, path string, environ []string, dir string) *Base {
	program, other := lookup(path, "python3"), lookup(path, "python")
	if program == "" {
		program = other
	}
	if program == "" {
		return nil
	}
	key := probeKey(program, environ, dir) + "\x00" + other
	c.bases.mu.Lock()
	defer c.bases.mu.Unlock()
	if b, ok := c.bases.seen[key]; ok {
		return b
	}
	b := probe(ctx, program, environ, dir)
	if ctx.Err() != nil {
		return nil
	}
	if b != nil {
		b.only3 = other != "" && filepath.Dir(other) != filepath.Dir(program)
	}
	if c.bases.seen == nil || len(c.bases.seen) > 200 {
		c.bases.seen = map[string]*Base{}
	}
	c.bases.seen[key] = b
	return b
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

// probeKey changes when the answers of an interpreter may: with the program, with the packages'
// scripts beside it, and with what pyenv chooses by.
func probeKey(program string, environ []string, dir string) string {
	key := program
	stamp := func(p string) {
		if info, err := os.Stat(p); err == nil {
			key += "\x00" + p + info.ModTime().String()
		}
	}
	stamp(program)
	stamp(filepath.Dir(program))
	if strings.HasSuffix(filepath.Dir(program), "shims") {
		for _, v := range environ {
			if strings.HasPrefix(v, "PYENV_") {
				key += "\x00" + v
			}
		}
		stamp(filepath.Join(filepath.Dir(program), "..", "version"))
		chosen, _ := os.ReadFile(filepath.Join(dir, ".python-version"))
		key += "\x00" + string(chosen)
	}
	return key
}

// probe asks an interpreter, and returns nil when it is none.
func probe(ctx context.Context, program string, environ []string, dir string) *Base {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-c", probeScript)
	cmd.Env, cmd.Dir, cmd.WaitDelay = environ, dir, time.Second
	out, err := cmd.Output()
	var is struct {
		Exe, Version, Prefix, User, Scripts string
		Venv                                bool
		Sites                               []string
	}
	if err != nil || json.Unmarshal(out, &is) != nil || is.Exe == "" {
		return nil
	}
	b := &Base{exe: is.Exe, version: is.Version, prefix: is.Prefix, system: true}
	if is.Venv {
		b.sites = is.Sites
		text, _ := os.ReadFile(filepath.Join(is.Prefix, "pyvenv.cfg"))
		b.system = systemPackages().Match(text)
	}
	if info, err := os.Stat(is.User); is.User != "" && err == nil && info.IsDir() {
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
