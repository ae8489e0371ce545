package cli

import (
	"path"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// maxNamed is how many of the files that stay here are named.
const maxNamed = 4

// sayIgnored says what of a folder stays here because of its .gitignore, which was not written for
// jobs: data is often in it. Nobody misses caches.
func (s *session) sayIgnored(f *spec.Folder) {
	left := slices.DeleteFunc(slices.Clone(f.Ignored), madeByTools)
	s.left = append(s.left, left...)
	if len(left) == 0 {
		return
	}
	them, named, more := "them", min(len(left), maxNamed), ""
	switch n := len(left) - named; {
	case len(left) == 1:
		them = "it"
	case n == 1: // its name is as short
		named++
	case n > 0:
		more = " and others"
	}
	s.say("not uploaded, because %s names %s: %s%s; with an .amlignore, even an empty one, it is not read", spec.GitIgnore, them, strings.Join(left[:named], ", "), more)
}

// madeByTools says whether a file or folder is one that tools make, and make again.
func madeByTools(name string) bool {
	base := path.Base(name)
	switch path.Ext(base) {
	case ".egg-info", ".swp", ".log":
		return true
	}
	return strings.HasPrefix(base, ".") && !looksSecret(base) || berth.IsKept(base) || berth.IsByTools(base) || slices.Contains([]string{
		"mlruns", "lightning_logs", "build", "dist", "venv", "env", "htmlcov", "Thumbs.db",
	}, base)
}

// hintLeft says of a job that missed a file that the file stayed here.
func (s *session) hintLeft(j *client.Job) {
	if j.Status() != berth.Failed {
		return
	}
	words := strings.FieldsFunc(j.State().Reason, func(c rune) bool { return strings.ContainsRune(" '\"‘’`:,()[]", c) })
	for _, name := range s.left {
		for _, w := range words {
			if _, below, ok := strings.Cut(w, "/wd/"); ok { // the job's folder
				w = below
			}
			w = path.Clean(w)
			if w == strings.TrimSuffix(name, "/") || strings.HasSuffix(name, "/") && strings.HasPrefix(w, name) {
				s.say("the job lacked %s, which was not uploaded (see above)", name)
				return
			}
		}
	}
}
