package envs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// The ways an environment is built.
const (
	kindVenv  = "venv"  // by uv, from requirements
	kindConda = "conda" // by a conda program, from the whole conda file
)

// A request is what an environment is made of, in normal form: equal requests have equal keys.
type request struct {
	Kind         string
	Python       pySpec
	Requirements []string // PEP 508
	Implied      []string // requirements that nobody named, see addImplied
	Constraints  []string // versions of packages, where others require them
	Overrides    []string // versions of packages whatever others require of them
	Options      []option // of the requirements files, in their order
	Conda        string   // text for the conda program; only with kindConda
	Tool         string   // path of the conda program; only with kindConda

	Pins     map[string]string // requirements that a conda file gave, by the conda package
	Foreign  []foreign         // packages that PyPI cannot give
	Warnings []string
}

// A foreign package is one that only a conda program could install.
type foreign struct{ Name, Advice string }

// parse reads the package lists of e.
func parse(e berth.LaunchEnv) (request, error) {
	r := request{Kind: kindVenv}
	if strings.TrimSpace(e.Conda) != "" {
		if err := r.addConda(e.Conda); err != nil {
			return r, err
		}
	}
	if strings.TrimSpace(e.Pip) != "" {
		if err := r.addRequirements(e.Pip, "requirements"); err != nil {
			return r, err
		}
	}
	r.addImplied(strings.TrimSpace(e.Conda) != "")
	return r, nil
}

// addImplied adds what every environment has: pip, and setuptools and wheel where a conda program
// would have brought them. Older packages import pkg_resources, which setuptools 82 dropped.
func (r *request) addImplied(conda bool) {
	for _, o := range r.Options {
		if o.Name == "--require-hashes" || o.Name == "--no-index" {
			return // they would be refused
		}
	}
	named := map[string]bool{}
	for _, q := range r.Requirements {
		if m := reqName().FindStringSubmatch(q); m != nil {
			named[project(m[1])] = true
		}
	}
	implied := []string{"pip"}
	if conda {
		implied = append(implied, "setuptools<82", "wheel")
	}
	for _, q := range implied {
		if name, _, _ := strings.Cut(q, "<"); !named[name] {
			r.Implied = append(r.Implied, q)
		}
	}
}

// refusal says which packages cannot be had and what to do.
func (r *request) refusal(env string) error {
	var names, advice []string
	for _, f := range r.Foreign {
		names = append(names, f.Name)
		if f.Advice != "" {
			advice = append(advice, f.Advice)
		}
	}
	what := "is not a Python package"
	if len(names) > 1 {
		what = "are not Python packages"
	}
	msg := strings.Join(names, ", ") + " " + what + " and cannot be installed here: put micromamba, mamba or conda on the node's PATH, " +
		"use an image that has what is needed, or take the line out of the conda file"
	if len(advice) > 0 {
		msg += " (" + strings.Join(advice, "; ") + ")"
	}
	return berth.Errorf(berth.Invalid, "environment %s: %s", env, msg)
}

// key is the hash that names the environment in the cache. It depends on the platform, not on the
// version of uv.
func (r *request) key() string {
	reqs := make([]string, len(r.Requirements))
	for i, q := range r.Requirements {
		reqs[i] = normal(q)
	}
	slices.Sort(reqs)
	b, err := json.Marshal(struct {
		V            int
		Kind         string
		Platform     string
		Python       string
		Requirements []string
		Implied      []string
		Constraints  []string `json:",omitempty"`
		Overrides    []string
		Options      []option
		Conda        string
	}{2, r.Kind, runtime.GOOS + "/" + runtime.GOARCH, r.Python.String(), slices.Compact(reqs), r.Implied, r.Constraints, r.Overrides, r.Options, r.Conda})
	if err != nil {
		panic(err) // strings only
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:20])
}

var (
	reqName = pattern(`^([A-Za-z0-9][A-Za-z0-9._-]*)(\s*\[[^\]]*\])?(.*)$`)
	dashes  = pattern(`[-_.]+`)
	blanks  = pattern(`\s+`)
)

// normal is a requirement in normal form: the name as the index spells it, no blanks where they
// mean nothing.
func normal(q string) string {
	m := reqName().FindStringSubmatch(q)
	if m == nil {
		return q
	}
	rest, marker, marked := strings.Cut(m[3], ";")
	if !strings.Contains(rest, "@") {
		rest = blanks().ReplaceAllString(rest, "")
		if strings.HasPrefix(rest, "(") && strings.HasSuffix(rest, ")") {
			rest = rest[1 : len(rest)-1]
		}
		clauses := strings.Split(rest, ",")
		slices.Sort(clauses)
		rest = strings.Join(clauses, ",")
	} else {
		rest = " " + strings.TrimSpace(rest)
	}
	if marked {
		rest += ";" + blanks().ReplaceAllString(strings.TrimSpace(marker), " ")
	}
	return project(m[1]) + strings.ToLower(blanks().ReplaceAllString(m[2], "")) + rest
}

// project is a project's name in normal form.
func project(name string) string {
	return strings.ToLower(dashes().ReplaceAllString(name, "-"))
}
