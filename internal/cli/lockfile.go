package cli

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/BurntSushi/toml"
)

// lockGraph is the packages of a lock file and what each of them needs. A package is needed where
// somebody needs it who is needed there.
type lockGraph struct {
	nodes map[string]*lockNode
	order []string
}

type lockNode struct {
	line  string // of a requirements file; "" for what is not installed
	index string
	needs []lockEdge
	when  []clause
}

type lockEdge struct{ to, marker string }

// clause is markers that hold together, sorted. The empty one always holds.
type clause []string

// mostClauses bounds how exactly it is said where a package is needed; beyond, it is installed
// everywhere.
const mostClauses = 16

func (g *lockGraph) add(key string, n *lockNode) {
	if g.nodes == nil {
		g.nodes = map[string]*lockNode{}
	}
	if _, ok := g.nodes[key]; !ok {
		g.order = append(g.order, key)
	}
	g.nodes[key] = n
}

// walk follows what is needed from a package on.
func (g *lockGraph) walk(edges []lockEdge, from clause) {
	for _, e := range edges {
		n := g.nodes[e.to]
		if n == nil {
			continue // of another platform, and not in the file
		}
		c := from
		if e.marker != "" && !slices.Contains(c, e.marker) {
			c = append(slices.Clone(c), e.marker)
			sort.Strings(c)
		}
		if len(n.when) >= mostClauses {
			c = clause{}
		}
		if n.covers(c) {
			continue
		}
		n.when = append(slices.DeleteFunc(n.when, func(old clause) bool { return implied(c, old) }), c)
		g.walk(n.needs, c)
	}
}

// covers reports whether the package is known to be needed where c holds.
func (n *lockNode) covers(c clause) bool {
	return slices.ContainsFunc(n.when, func(old clause) bool { return implied(old, c) })
}

// implied reports whether all of a is in b.
func implied(a, b clause) bool {
	return !slices.ContainsFunc(a, func(m string) bool { return !slices.Contains(b, m) })
}

// marker is the condition as one text.
func (n *lockNode) marker() string {
	var all []string
	for _, c := range n.when {
		var parts []string
		for _, m := range c {
			if strings.Contains(m, " or ") && len(c) > 1 {
				m = "(" + m + ")"
			}
			parts = append(parts, m)
		}
		if len(parts) == 0 {
			return ""
		}
		all = append(all, strings.Join(parts, " and "))
	}
	sort.Strings(all)
	return strings.Join(all, " or ")
}

// fill adds what is needed to a project.
func (g *lockGraph) fill(p *project, roots []lockEdge) {
	g.walk(roots, clause{})
	for _, key := range g.order {
		if n := g.nodes[key]; len(n.when) > 0 && n.line != "" {
			p.index(n.index)
			p.add(n.line, n.marker())
		}
	}
}

// uvNeed is a dependency in a uv.lock.
type uvNeed struct {
	Name, Version, Marker string
	Extra                 []string
}

type uvPackage struct {
	Name, Version string
	Source        struct {
		Registry, Git, URL, Path, Directory, Editable, Virtual string
	}
	Dependencies []uvNeed
	Optional     map[string][]uvNeed `toml:"optional-dependencies"`
	Dev          map[string][]uvNeed `toml:"dev-dependencies"`
}

// uvLock reads the lock file of uv: what `uv sync` would install, the group dev with it.
func uvLock(b []byte) (*project, error) {
	var v struct {
		Version        int
		RequiresPython string      `toml:"requires-python"`
		Package        []uvPackage `toml:"package"`
	}
	if err := toml.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	if v.Version != 1 {
		return nil, fmt.Errorf("its version is %d; only version 1 can be read: give a requirements file made with `uv export`", v.Version)
	}
	p := &project{python: v.RequiresPython}
	versions := map[string]int{}
	for _, k := range v.Package {
		versions[k.Name]++
	}
	key := func(name, version string) string {
		if versions[name] > 1 {
			return name + "==" + version
		}
		return name
	}
	edges := func(needs []uvNeed) (out []lockEdge) {
		for _, d := range needs {
			to := key(d.Name, d.Version)
			out = append(out, lockEdge{to, d.Marker})
			for _, extra := range d.Extra {
				out = append(out, lockEdge{to + "[" + extra + "]", d.Marker})
			}
		}
		return out
	}
	var g lockGraph
	var roots []lockEdge
	for _, k := range v.Package {
		own := key(k.Name, k.Version)
		n := &lockNode{line: k.Name + "==" + k.Version, index: k.Source.Registry, needs: edges(k.Dependencies)}
		s := k.Source
		switch {
		case s.Git != "":
			address, commit, _ := strings.Cut(s.Git, "#")
			address, _, _ = strings.Cut(address, "?")
			n.line = fmt.Sprintf("%s @ git+%s@%s", k.Name, address, commit)
		case s.URL != "":
			n.line = k.Name + " @ " + s.URL
		case s.Editable == "." || s.Virtual == ".":
			n.line = ""
			roots = append(append(roots, n.needs...), edges(k.Dev["dev"])...)
			if s.Editable == "." {
				p.source = "src"
			}
		case s.Registry == "":
			n.line = ""
			p.left = append(p.left, k.Name)
		}
		g.add(own, n)
		for extra, needs := range k.Optional {
			g.add(own+"["+extra+"]", &lockNode{needs: edges(needs)})
		}
	}
	if roots == nil && len(v.Package) > 0 && !slices.ContainsFunc(v.Package, func(k uvPackage) bool { return k.Source.Virtual == "." || k.Source.Editable == "." }) {
		return nil, fmt.Errorf("it has no package of the folder itself: give the folder of the project with --code")
	}
	g.fill(p, roots)
	return p, nil
}
