package cli

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// poetryProject is what [tool.poetry] of a pyproject.toml says of dependencies. Each is a version,
// a table with one, or a list of such tables.
type poetryProject struct {
	Dependencies map[string]any
}

// poetryNeed is one dependency as Poetry writes it.
type poetryNeed struct {
	version, markers, git, url, path string
	rev                              string
	extras                           []string
	optional                         bool
}

func poetryNeeds(v any) (out []poetryNeed) {
	switch v := v.(type) {
	case string:
		return []poetryNeed{{version: v}}
	case []any:
		for _, one := range v {
			out = append(out, poetryNeeds(one)...)
		}
	case []map[string]any:
		for _, one := range v {
			out = append(out, poetryNeeds(one)...)
		}
	case map[string]any:
		n := poetryNeed{version: text(v["version"]), markers: text(v["markers"]), git: text(v["git"]), url: text(v["url"]), path: text(v["path"])}
		for _, key := range []string{"rev", "tag", "branch"} {
			if n.rev == "" {
				n.rev = text(v[key])
			}
		}
		n.optional, _ = v["optional"].(bool)
		if extras, ok := v["extras"].([]any); ok {
			for _, e := range extras {
				n.extras = append(n.extras, text(e))
			}
		}
		return []poetryNeed{n}
	}
	return out
}

func text(v any) string { s, _ := v.(string); return s }

// requirements are the dependencies as lines of a requirements file.
func (p *poetryProject) requirements() (lines, left []string, err error) {
	for _, name := range sortedKeys(p.Dependencies) {
		if name == "python" {
			continue
		}
		for _, n := range poetryNeeds(p.Dependencies[name]) {
			line := name
			if len(n.extras) > 0 {
				line += "[" + strings.Join(n.extras, ",") + "]"
			}
			switch {
			case n.optional:
				continue
			case n.path != "":
				left = append(left, name)
				continue
			case n.git != "":
				line += " @ git+" + n.git
				if n.rev != "" {
					line += "@" + n.rev
				}
			case n.url != "":
				line += " @ " + n.url
			default:
				line += caret(n.version)
			}
			if n.markers != "" {
				line += " ; " + n.markers
			}
			lines = append(lines, line)
		}
	}
	return lines, left, nil
}

// caret is a version of Poetry's in the form of pip: ^1.2 is >=1.2,<2, ~1.2 is >=1.2,<1.3, 1.2 is
// ==1.2, * is anything.
func caret(version string) string {
	var out []string
	for _, part := range strings.Split(version, ",") {
		part = strings.TrimSpace(part)
		switch {
		case part == "" || part == "*":
		case strings.HasPrefix(part, "^"), strings.HasPrefix(part, "~") && !strings.HasPrefix(part, "~="):
			low := part[1:]
			out = append(out, ">="+low, "<"+above(low, part[0] == '^'))
		case strings.Trim(part[:1], "0123456789") == "":
			out = append(out, "=="+part)
		default:
			out = append(out, strings.ReplaceAll(part, " ", ""))
		}
	}
	return strings.Join(out, ",")
}

// above is the first version that is not meant by ^version, or ~version.
func above(version string, first bool) string {
	parts := strings.Split(version, ".")
	at := min(1, len(parts)-1)
	if first { // the first number that is not 0
		at = slices.IndexFunc(parts, func(p string) bool { return p != "0" })
		if at < 0 {
			at = len(parts) - 1
		}
	}
	n, err := strconv.Atoi(parts[at])
	if err != nil {
		return version + ".999"
	}
	return strings.Join(append(slices.Clone(parts[:at]), strconv.Itoa(n+1)), ".")
}

type poetryPackage struct {
	Name, Version string
	Groups        []string
	Markers       any // a text, or one for each group
	Dependencies  map[string]any
	Extras        map[string][]string
	Source        struct {
		Type, URL string
		Resolved  string `toml:"resolved_reference"`
	}
}

// poetryLock reads the lock file of Poetry; main is the pyproject.toml beside it.
func poetryLock(b, main []byte) (*project, error) {
	var v struct {
		Package  []poetryPackage `toml:"package"`
		Metadata struct {
			Python string `toml:"python-versions"`
		}
	}
	if err := toml.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	p := &project{python: caret(v.Metadata.Python), source: "src"}
	whole := !slices.ContainsFunc(v.Package, func(k poetryPackage) bool { return len(k.Groups) == 0 })
	var g lockGraph
	var roots []lockEdge
	for _, k := range v.Package {
		name := normal(k.Name)
		if whole {
			name += "==" + k.Version // it may be there in several
		}
		n := &lockNode{line: k.Name + "==" + k.Version, needs: poetryEdges(k.Dependencies)}
		switch k.Source.Type {
		case "git":
			n.line = fmt.Sprintf("%s @ git+%s@%s", k.Name, k.Source.URL, k.Source.Resolved)
		case "url":
			n.line = k.Name + " @ " + k.Source.URL
		case "file", "directory":
			n.line = ""
			p.left = append(p.left, k.Name)
		case "legacy":
			n.index = k.Source.URL
		}
		g.add(name, n)
		if whole && slices.Contains(k.Groups, "main") { // it says itself where it is needed
			n.needs = nil
			marker := text(k.Markers)
			if by, ok := k.Markers.(map[string]any); ok {
				marker = text(by["main"])
			}
			roots = append(roots, lockEdge{name, marker})
		}
	}
	if !whole {
		needs, err := mainNeeds(main)
		if err != nil {
			return nil, fmt.Errorf("pyproject.toml: %w", err)
		}
		roots = needs
	}
	g.fill(p, roots)
	return p, nil
}

// poetryEdges are the dependencies of a package. Those of extras are taken too: the file does not
// say which extras were asked for.
func poetryEdges(needs map[string]any) (out []lockEdge) {
	for _, name := range sortedKeys(needs) {
		for _, n := range poetryNeeds(needs[name]) {
			if m, _, _ := strings.Cut(n.markers, " == "); strings.TrimSpace(m) == "extra" {
				n.markers = ""
			}
			out = append(out, lockEdge{normal(name), n.markers})
		}
	}
	return out
}

// mainNeeds are the packages that a pyproject.toml names.
func mainNeeds(b []byte) (out []lockEdge, err error) {
	p, err := pyproject(b)
	if err != nil || p == nil {
		return nil, err
	}
	for _, line := range p.packages {
		line, marker, _ := strings.Cut(line, ";")
		name := strings.TrimSpace(line)
		if i := strings.IndexAny(name, " [<>=!~@("); i >= 0 {
			name = name[:i]
		}
		out = append(out, lockEdge{normal(name), strings.TrimSpace(marker)})
	}
	sort.Slice(out, func(i, k int) bool { return out[i].to < out[k].to })
	return out, nil
}

// normal is the name of a package as indexes compare it.
func normal(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(name))
}
