package envs

import (
	"fmt"
	"os/exec"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/berthml/berth"
)

// condaFile is what is read of a conda file. Channels are for a conda program only; a prefix is
// always ours.
type condaFile struct {
	Name         string         `yaml:"name"`
	Channels     []string       `yaml:"channels"`
	Dependencies []any          `yaml:"dependencies"`
	Variables    map[string]any `yaml:"variables"`
	Constraints  []string       `yaml:"constraints"` // ours: versions of packages that others require
	Overrides    []string       `yaml:"overrides"`   // ours: versions whatever other packages require
}

// addConda adds what a conda file lists, translated to what PyPI calls it.
func (r *request) addConda(text string) error {
	var f condaFile
	if err := yaml.Unmarshal([]byte(text), &f); err != nil {
		return berth.Errorf(berth.Invalid, "conda file: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	for _, c := range f.Channels {
		if strings.ContainsAny(c[:min(len(c), 1)], "./~") || strings.HasPrefix(strings.ToLower(c), "file:") {
			return berth.Errorf(berth.Invalid, "conda file: channel %q is a folder, and files of the machine the job was sent from are not on the node", c)
		}
	}
	where := "conda file"
	if strings.HasSuffix(strings.ToLower(f.Name), ".txt") { // made of a requirements file
		where = f.Name
	}
	for _, line := range f.Constraints {
		var only request
		if err := only.addRequirements(line, where+", constraints"); err != nil {
			return err
		}
		r.Constraints = append(r.Constraints, only.Requirements...)
	}
	for _, line := range f.Overrides {
		var over request
		if err := over.addRequirements(line, "conda file, overrides"); err != nil {
			return err
		}
		r.Overrides = append(r.Overrides, over.Requirements...)
	}
	pip := where
	if where != f.Name {
		pip += ", pip"
	}
	for _, d := range f.Dependencies {
		switch d := d.(type) {
		case string:
			if err := r.addCondaPackage(d); err != nil {
				return err
			}
		case map[string]any:
			for k, v := range d {
				list, ok := v.([]any)
				if k != "pip" || !ok && v != nil {
					return berth.Errorf(berth.Invalid, "conda file: only a list under pip: is understood among the dependencies, not %q", k)
				}
				for _, line := range list {
					if err := r.addRequirements(fmt.Sprint(line), pip); err != nil {
						return err
					}
				}
			}
		case nil:
		default:
			return berth.Errorf(berth.Invalid, "conda file: %v is not a package: write name=version", d)
		}
	}
	return nil
}

var (
	// condaSpec is [channel::]name, then a version after blanks or an operator, then a build
	// string.
	condaSpec    = pattern(`^(?:[^:\s]+::)?([A-Za-z0-9_][A-Za-z0-9_.-]*)\s*(.*)$`)
	condaBracket = pattern(`\[(.*)\]\s*$`)
	condaVersion = pattern(`version\s*=\s*['"]?([^'"\]]+)['"]?`)
)

func (r *request) addCondaPackage(spec string) error {
	spec = strings.TrimSpace(comment().ReplaceAllString(spec, ""))
	if spec == "" {
		return nil
	}
	bracket := ""
	if m := condaBracket().FindStringSubmatch(spec); m != nil {
		spec = strings.TrimSpace(strings.TrimSuffix(spec, m[0]))
		if v := condaVersion().FindStringSubmatch(m[1]); v != nil {
			bracket = v[1]
		}
	}
	m := condaSpec().FindStringSubmatch(spec)
	if m == nil {
		return berth.Errorf(berth.Invalid, "conda file: %q is not a package: write name=version", spec)
	}
	name, version := strings.ToLower(m[1]), m[2]
	if bracket != "" {
		version = bracket
	}
	clauses, err := condaClauses(version)
	if err != nil {
		return berth.Errorf(berth.Invalid, "conda file: %q: %w", spec, err)
	}
	if name == "python" {
		p, err := parsePySpec(clauses)
		if err != nil {
			return berth.Errorf(berth.Invalid, "conda file: %q: %w", spec, err)
		}
		r.Python = p
		return nil
	}
	if strings.HasPrefix(name, "__") { // virtual packages describe the machine
		return nil
	}
	if f, ok := notPython(name); ok {
		if f.program == rscript && condaTool() != "" {
			f.program = "" // which has the version that is asked for
		}
		if f.program != "" {
			if _, err := exec.LookPath(f.program); err == nil {
				r.Warnings = append(r.Warnings, fmt.Sprintf("conda package %s was left out: the node's own %s is used", name, f.program))
				return nil
			}
		}
		if library, ok := strings.CutPrefix(name, "r-"); ok && condaTool() == "" && hasLibrary(library) {
			r.Warnings = append(r.Warnings, fmt.Sprintf("conda package %s was left out: the node's own R has it", name))
			return nil
		}
		r.Foreign = append(r.Foreign, foreign{Name: name, Advice: f.advice})
		return nil
	}
	if why, ok := bundled(name); ok {
		r.Warnings = append(r.Warnings, fmt.Sprintf("conda package %s was left out: %s", name, why))
		return nil
	}
	clauses, dropped := alternatives(clauses)
	if dropped {
		r.Warnings = append(r.Warnings, fmt.Sprintf("conda package %s lists alternative versions; the last, %s, was taken", name, clauses))
	}
	q := pypiName(name) + clauses
	r.Requirements = append(r.Requirements, q)
	if r.Pins == nil {
		r.Pins = map[string]string{}
	}
	r.Pins[project(pypiName(name))] = q
	return nil
}

// condaClauses turns a conda version into PEP 440 clauses: "=1.2" becomes "==1.2.*", a build string
// is dropped. Alternatives stay separated by |.
func condaClauses(v string) (string, error) {
	var alts []string
	for alt := range strings.SplitSeq(v, "|") {
		var out []string
		for clause := range strings.SplitSeq(alt, ",") {
			c, err := condaClause(strings.TrimSpace(clause))
			if err != nil {
				return "", err
			}
			if c != "" {
				out = append(out, c)
			}
		}
		alts = append(alts, strings.Join(out, ","))
	}
	return strings.Join(alts, "|"), nil
}

var condaOp = pattern(`^(==|!=|>=|<=|~=|=|>|<)?\s*([^=<>!~\s]*)(.*)$`)

func condaClause(c string) (string, error) {
	m := condaOp().FindStringSubmatch(c)
	if c == "" || m[2] == "*" {
		return "", nil
	}
	op, version, rest := m[1], m[2], strings.TrimSpace(m[3])
	prefix := op == "=" // numpy=1.26 is a prefix; "numpy 1.26" and numpy=1.26=BUILD are one version
	if build, ok := strings.CutPrefix(rest, "="); ok && (op == "" || op == "=") && build != "" {
		op, prefix, rest = "==", false, ""
	}
	if op == "" && !strings.ContainsAny(rest, "=<>!~") {
		rest = "" // a build after a blank
	}
	star := strings.HasSuffix(version, "*")
	version = strings.TrimRight(version, ".*")
	if version == "" || rest != "" {
		return "", fmt.Errorf("%q is not a version", c)
	}
	switch {
	case star && (op == "!=" || op == "=="):
		return op + version + ".*", nil
	case prefix || star && op == "":
		return "==" + version + ".*", nil
	case op == "":
		return "==" + version, nil
	}
	return op + version, nil
}

// alternatives takes the last of several alternatives: the newest, as people write them.
func alternatives(clauses string) (last string, dropped bool) {
	i := strings.LastIndex(clauses, "|")
	return clauses[i+1:], i >= 0
}

// condaTool is the conda program on PATH, if any.
func condaTool() string {
	for _, t := range []string{"micromamba", "mamba", "conda"} {
		if p, err := exec.LookPath(t); err == nil {
			return p
		}
	}
	return ""
}

// solved is the request for a real conda solve of e.
func (r *request) solved(e berth.LaunchEnv, tool string) request {
	extra := request{}
	if strings.TrimSpace(e.Pip) != "" {
		_ = extra.addRequirements(e.Pip, "requirements") // it was read without an error before
	}
	return request{Kind: kindConda, Conda: e.Conda, Tool: tool, Python: r.Python, Requirements: extra.Requirements, Options: extra.Options}
}
