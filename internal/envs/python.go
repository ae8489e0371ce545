package envs

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// A pyVersion is major, minor and patch; -1 is not known or not said.
type pyVersion [3]int

func parsePyVersion(s string) (pyVersion, bool) {
	v := pyVersion{-1, -1, -1}
	for i, p := range strings.Split(s, ".") {
		n, err := strconv.Atoi(p)
		if err != nil || i > 2 {
			return v, i > 2
		}
		v[i] = n
	}
	return v, true
}

func (v pyVersion) String() string {
	var parts []string
	for _, n := range v {
		if n < 0 {
			break
		}
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ".")
}

// compare compares as many parts as both have.
func (v pyVersion) compare(w pyVersion) int {
	for i := range v {
		if v[i] < 0 || w[i] < 0 {
			return 0
		}
		if c := cmp.Compare(v[i], w[i]); c != 0 {
			return c
		}
	}
	return 0
}

func (v pyVersion) minor() pyVersion { return pyVersion{v[0], v[1], -1} }

// A pySpec says which interpreters will do; an empty one takes any. Clauses hold together.
type pySpec struct{ clauses []pyClause }

type pyClause struct {
	op string
	v  pyVersion
}

// parsePySpec reads PEP 440 clauses; of alternatives (|) the last counts.
func parsePySpec(s string) (pySpec, error) {
	var p pySpec
	s, _ = alternatives(s)
	for c := range strings.SplitSeq(s, ",") {
		c = strings.TrimSuffix(strings.TrimSpace(c), ".*")
		if c == "" {
			continue
		}
		i := strings.IndexAny(c, "0123456789")
		if i < 0 {
			return p, fmt.Errorf("%q is not a Python version", c)
		}
		v, ok := parsePyVersion(c[i:])
		if !ok || v[0] < 0 {
			return p, fmt.Errorf("%q is not a Python version", c)
		}
		p.clauses = append(p.clauses, pyClause{c[:i], v})
	}
	return p, nil
}

func (p pySpec) String() string {
	parts := make([]string, len(p.clauses))
	for i, c := range p.clauses {
		parts[i] = c.op + c.v.String()
	}
	slices.Sort(parts)
	return strings.TrimPrefix(strings.Join(parts, ","), "==")
}

// minor is the version without patches, as uv and conda take it.
func (p pySpec) minor() string {
	q := pySpec{clauses: slices.Clone(p.clauses)}
	for i, c := range q.clauses {
		if c.op == "==" || c.op == "===" || c.op == "~=" {
			q.clauses[i] = pyClause{"==", c.v.minor()}
		}
	}
	return q.String()
}

// allows reports whether v will do. Where the patch was asked for, another patch of the same minor
// version will do too.
func (p pySpec) allows(v pyVersion) bool {
	for _, c := range p.clauses {
		d := v.compare(c.v)
		switch c.op {
		case "==", "===", "~=":
			if v.minor().compare(c.v) != 0 {
				return false
			}
		case "!=":
			if d == 0 && c.v[2] < 0 {
				return false
			}
		case ">=":
			if d < 0 {
				return false
			}
		case ">":
			if d < 0 || d == 0 && c.v[2] < 0 {
				return false
			}
		case "<=":
			if d > 0 {
				return false
			}
		case "<":
			if d > 0 || d == 0 {
				return false
			}
		}
	}
	return true
}

// wanted is the version the user most likely had in mind.
func (p pySpec) wanted() pyVersion {
	if len(p.clauses) == 0 {
		return pyVersion{-1, -1, -1}
	}
	return p.clauses[0].v
}

// An interpreter is a Python on this node.
type interpreter struct {
	path string
	v    pyVersion
}

var (
	pythonFile = pattern(`^python(3\.\d+)$`)
	managedDir = pattern(`^cpython-(3\.\d+\.\d+)-`)
)

// interpreters finds the Pythons of this node without running them: on PATH, of pyenv, and the ones
// uv fetched.
func (c *Cache) interpreters() []interpreter {
	var out []interpreter
	seen := map[string]bool{}
	add := func(path, version string) {
		v, ok := parsePyVersion(version)
		real, err := filepath.EvalSymlinks(path)
		if !ok || v[0] != 3 || err != nil || seen[real] {
			return
		}
		if info, err := os.Stat(real); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return
		}
		seen[real] = true
		out = append(out, interpreter{path, v})
	}
	home, _ := os.UserHomeDir()
	pyenv := os.Getenv("PYENV_ROOT")
	if pyenv == "" {
		pyenv = filepath.Join(home, ".pyenv")
	}
	for _, e := range readDir(filepath.Join(pyenv, "versions")) {
		add(filepath.Join(pyenv, "versions", e, "bin", "python3"), e)
	}
	for _, dir := range []string{c.path("python"), filepath.Join(home, ".local", "share", "uv", "python")} {
		for _, e := range readDir(dir) {
			if m := managedDir().FindStringSubmatch(e); m != nil {
				add(filepath.Join(dir, e, "bin", "python3"), m[1])
			}
		}
	}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin", "/usr/local/bin") {
		if dir == "" || dir == filepath.Join(pyenv, "shims") {
			continue // shims are scripts that fail for versions that are not selected
		}
		for _, e := range readDir(dir) {
			if m := pythonFile().FindStringSubmatch(e); m != nil {
				add(filepath.Join(dir, e), m[1])
			}
		}
	}
	return out
}

func readDir(dir string) []string {
	es, _ := os.ReadDir(dir)
	names := make([]string, len(es))
	for i, e := range es {
		names[i] = e.Name()
	}
	return names
}

// python chooses the interpreter for p. An empty path leaves the choice to uv. warning is set when
// the version is another than the one asked for.
func (c *Cache) python(ctx context.Context, uv string, p pySpec, progress func(string)) (path, warning string, err error) {
	if len(p.clauses) == 0 {
		return "", "", nil
	}
	if path := best(c.interpreters(), p); path != "" {
		return path, "", nil
	}
	want := p.wanted().minor()
	if c.downloadPython(ctx, uv, want, progress) {
		if path := best(c.interpreters(), p); path != "" {
			return path, "", nil
		}
	}
	there := c.interpreters()
	have := versions(there)
	if len(there) == 0 {
		return "", "", berth.Errorf(berth.Unsupported, "the environment wants Python %s, and there is no Python on this node: install one", p)
	}
	if c.o.StrictPython {
		return "", "", berth.Errorf(berth.Unsupported, "the environment wants Python %s; this node has %s: install it there, or change the conda file", p, have)
	}
	near := nearest(there, want)
	return near.path, fmt.Sprintf("the environment wants Python %s, which this node does not have (there are %s): Python %s is used instead",
		p, have, near.v), nil
}

// best is the newest interpreter that p allows, the exact one first.
func best(all []interpreter, p pySpec) string {
	var b *interpreter
	for i, in := range all {
		if !p.allows(in.v) {
			continue
		}
		if w := p.wanted(); w[2] >= 0 && in.v == w {
			return in.path
		}
		if b == nil || slices.Compare(in.v[:], b.v[:]) > 0 {
			b = &all[i]
		}
	}
	if b == nil {
		return ""
	}
	return b.path
}

// nearest is the interpreter closest to want, a newer one rather than an older one.
func nearest(all []interpreter, want pyVersion) interpreter {
	dist := func(in interpreter) int {
		if d := in.v[1] - want[1]; d >= 0 {
			return d
		} else {
			return 1000 - d
		}
	}
	return slices.MinFunc(all, func(a, b interpreter) int {
		return cmp.Or(cmp.Compare(dist(a), dist(b)), -slices.Compare(a.v[:], b.v[:]))
	})
}

// versions lists what is there, for people.
func versions(all []interpreter) string {
	vs := make([]pyVersion, 0, len(all))
	for _, in := range all {
		vs = append(vs, in.v.minor())
	}
	slices.SortFunc(vs, func(a, b pyVersion) int { return slices.Compare(a[:], b[:]) })
	var out []string
	for _, v := range slices.Compact(vs) {
		out = append(out, v.String())
	}
	return strings.Join(out, ", ")
}

// downloadPython lets uv fetch an interpreter into the cache, once per version and process when it
// does not succeed.
func (c *Cache) downloadPython(ctx context.Context, uv string, v pyVersion, progress func(string)) bool {
	if c.o.NoPythonDownload || v[0] != 3 || v[1] < 0 || os.Getenv("UV_PYTHON_DOWNLOADS") == "never" {
		return false
	}
	c.pyMu.Lock()
	defer c.pyMu.Unlock()
	if c.pyFailed[v.String()] {
		return false
	}
	progress("fetching Python " + v.String())
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, uv, "python", "install", "--no-bin", v.String())
	cmd.Env = append(c.uvEnv(), "UV_HTTP_RETRIES=1")
	cmd.Dir = c.dir
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		c.log.Debug("python not fetched", "version", v.String(), "err", err, "output", mask(tail(string(out), 5)))
		c.pyFailed[v.String()] = true
		return false
	}
	return true
}
