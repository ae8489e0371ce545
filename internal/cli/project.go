package cli

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/spec"
)

// project is what the files of a folder say of the packages that its programs need.
type project struct {
	python   string   // as in =3.12 or >=3.10; "" for any
	packages []string // lines of a requirements file
	left     []string // packages that are only in the folder or on this machine
	source   string   // folder of its own modules, as an editable install would add it
}

// projectFile is the file of a folder that names its packages, "" when there is none.
func projectFile(dir string) string {
	for _, name := range berth.PackageFiles {
		path := filepath.Join(dir, name)
		b, err := os.ReadFile(path)
		switch {
		case err != nil:
			continue
		case name == "pyproject.toml":
			if p, err := pyproject(b); err == nil && p == nil {
				continue // it only configures tools
			}
		case strings.Contains(filepath.Ext(name), "y") && !isConda(b):
			continue
		}
		return path
	}
	return ""
}

// isProject reports whether a file is one of those that readProject reads.
func isProject(path string) bool {
	switch base := filepath.Base(path); base {
	case "uv.lock", "poetry.lock", "pyproject.toml":
		return true
	default:
		return base == "pylock.toml" || strings.HasPrefix(base, "pylock.") && strings.HasSuffix(base, ".toml")
	}
}

// readProject reads a lock file or a pyproject.toml.
func readProject(path string) (*project, error) {
	b, err := spec.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var p *project
	switch base := filepath.Base(path); base {
	case "uv.lock":
		p, err = uvLock(b)
	case "poetry.lock":
		var main []byte
		if main, err = os.ReadFile(filepath.Join(filepath.Dir(path), "pyproject.toml")); err == nil {
			p, err = poetryLock(b, main)
		} else {
			err = berth.Errorf(berth.Invalid, "there is no pyproject.toml beside it, which says what the project needs")
		}
	case "pyproject.toml":
		if p, err = pyproject(b); err == nil && p == nil {
			err = berth.Errorf(berth.Invalid, "it names no dependencies: it has neither [project] nor [tool.poetry]")
		}
	default:
		p, err = pyLock(b)
	}
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "%s: %s", path, tomlReason(err))
	}
	dir := filepath.Dir(path)
	if pin, err := os.ReadFile(filepath.Join(dir, ".python-version")); err == nil {
		if v := strings.TrimPrefix(strings.TrimSpace(string(pin)), "cpython-"); isVersion(v) {
			p.python = "=" + v
		}
	}
	if p.source != "" {
		if st, err := os.Stat(filepath.Join(dir, p.source)); err != nil || !st.IsDir() {
			p.source = ""
		}
	}
	return p, nil
}

// conda is the project as a conda file.
func (p *project) conda() string { return condaFileOf(p.python, p.packages) }

func isVersion(v string) bool {
	return v != "" && strings.Trim(v, "0123456789.") == "" && !strings.HasPrefix(v, ".")
}

// tomlReason is an error of TOML in words for people.
func tomlReason(err error) string {
	text := strings.TrimPrefix(err.Error(), "toml: ")
	text = strings.Replace(text, "unexpected EOF", "the file ends too early", 1)
	where, types, ok := strings.Cut(text, "incompatible types: TOML value has type ")
	has, wants, _ := strings.Cut(types, "; destination has type ")
	if !ok {
		return text
	}
	word := func(kind string) string {
		return orElse(map[string]string{
			"slice": "a list", "string": "a string", "int64": "a number", "float64": "a number", "bool": "true or false", "map[string]any": "a table", "map": "a table", "struct": "a table",
		}[kind], kind)
	}
	return where + "it must be " + word(wants) + ", not " + word(has)
}

// pyproject reads a pyproject.toml; nil when it only configures tools.
func pyproject(b []byte) (*project, error) {
	var v struct {
		Project *struct {
			RequiresPython string `toml:"requires-python"`
			Dependencies   []string
		}
		Tool struct{ Poetry *poetryProject }
	}
	if err := toml.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	p := &project{source: "src"}
	switch {
	case v.Project != nil:
		p.python, p.packages = v.Project.RequiresPython, v.Project.Dependencies
	case v.Tool.Poetry != nil:
		var err error
		if p.packages, p.left, err = v.Tool.Poetry.requirements(); err != nil {
			return nil, err
		}
		p.python = caret(text(v.Tool.Poetry.Dependencies["python"]))
	default:
		return nil, nil //nolint:nilnil // it is no project
	}
	return p, nil
}

// pyLock reads a lock file of PEP 751.
func pyLock(b []byte) (*project, error) {
	var v struct {
		Version        string `toml:"lock-version"`
		RequiresPython string `toml:"requires-python"`
		Packages       []struct {
			Name, Version, Marker, Index string
			VCS                          struct {
				Type, URL string
				Commit    string `toml:"commit-id"`
			}
			Archive   struct{ URL string }
			Directory map[string]any
		}
	}
	if err := toml.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	if v.Version == "" {
		return nil, fmt.Errorf("it has no lock-version")
	}
	p := &project{python: v.RequiresPython}
	for _, k := range v.Packages {
		line := k.Name + "==" + k.Version
		switch {
		case k.VCS.URL != "":
			line = fmt.Sprintf("%s @ %s+%s@%s", k.Name, k.VCS.Type, k.VCS.URL, k.VCS.Commit)
		case k.Archive.URL != "":
			line = k.Name + " @ " + k.Archive.URL
		case k.Directory != nil || k.Version == "":
			p.left = append(p.left, k.Name)
			continue
		}
		p.index(k.Index)
		p.add(line, k.Marker)
	}
	return p, nil
}

// add adds a requirement that is needed where a marker holds, everywhere when it is empty.
func (p *project) add(line, marker string) {
	if marker != "" {
		line += " ; " + marker
	}
	p.packages = append(p.packages, line)
}

// index adds the index that a package comes from, unless it is PyPI.
func (p *project) index(address string) {
	u, err := url.Parse(address)
	if address == "" || err == nil && (u.Host == "pypi.org" || u.Host == "files.pythonhosted.org") {
		return
	}
	if line := "--extra-index-url " + address; !slices.Contains(p.packages, line) {
		p.packages = append(p.packages, line)
	}
}
