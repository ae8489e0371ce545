package envs

import "github.com/berthml/berth"

// A Translation says what the package lists of an environment come to on a node without a container
// engine.
type Translation struct {
	Python       string   // which interpreters will do; empty means any
	Requirements []string // as pip takes them
	Options      []string // --extra-index-url and the like
	Foreign      []string // packages that need a conda program
	Warnings     []string // what is left out, and why
	Hash         string   // the key in the cache
}

// KnownImage is for tests of the pure part.
var KnownImage = knownImage

// Translate reads the package lists of e without building anything.
func Translate(e berth.LaunchEnv) (Translation, error) {
	r, err := parse(e)
	if err != nil {
		return Translation{}, err
	}
	t := Translation{Python: r.Python.String(), Requirements: r.Requirements, Warnings: r.Warnings, Hash: r.key()}
	for _, o := range r.Options {
		t.Options = append(t.Options, o.Name+" "+mask(o.Value))
	}
	for _, f := range r.Foreign {
		t.Foreign = append(t.Foreign, f.Name)
	}
	return t, nil
}
