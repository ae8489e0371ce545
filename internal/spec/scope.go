package spec

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
)

// scope is where a value is read: which resource it belongs to, under which field, and what has
// been found so far.
type scope struct {
	*load
	draft *draft // the resource the value becomes part of
	out   tree   // the object the table being read writes into
	field string // dotted path of the value, for messages
	// nodes says that member names stay snake_case, as inside the nodes of a pipeline.
	nodes bool
	// bind says that any field may be an expression instead, as inside the nodes of a pipeline.
	bind bool
	// plain says that of the fields only text may be an expression after all, as in a node that has
	// no component.
	plain bool
	// yaml says that values stay in their YAML form, as inside an AutoML node.
	yaml bool
	// scheduled says that the job being read is what a schedule starts: it has no name of its own
	// yet.
	scheduled bool
}

// load is one call of Load: what all files of it share.
type load struct {
	options  Options
	errs     Errors
	warnings Errors
	made     []*draft          // finished resources, dependencies first
	known    map[string]*draft // anonymous resources by collection and hash
	depth    int               // files referring to files
	within   []*value          // components that are being read, outermost first
	// components and draw are tables that refer to themselves; through here they can.
	components map[string]typ
	draw       func(s *scope, v *value) any
	files      map[string]*value // YAML files read so far, by path
	parts      map[used]string   // ids of the anonymous components read so far
	strays     map[string]bool   // links out of the folders to upload that were complained of
}

// used is a component as a step uses it.
type used struct {
	v      *value
	source string
	bind   bool
}

// draft is a Resource under construction.
type draft struct {
	collection string
	parent     string
	name       string
	version    string
	body       tree
	anonymous  bool
	uploads    []Upload
}

func (l *load) workspace() berth.Workspace { return l.options.Workspace }

// in is the scope of the field name below s.
func (s *scope) in(name string) *scope {
	t := *s
	if t.field != "" && !strings.HasPrefix(name, "[") {
		name = "." + name
	}
	t.field += name
	return &t
}

// into is s writing to another object.
func (s *scope) into(out tree) *scope {
	t := *s
	t.out = out
	return &t
}

// fail reports what is wrong with v.
func (s *scope) fail(v *value, format string, args ...any) {
	s.failWith(v, "", format, args...)
}

func (s *scope) failWith(v *value, suggest, format string, args ...any) {
	e := Error{Field: s.field, Msg: fmt.Sprintf(format, args...), Suggest: suggest}
	if v != nil && v.doc != nil {
		e.File = v.doc.name
		if e.Line, e.Col = v.line, v.col; v.derived && e.Line == 0 {
			e.Col = 0
		}
	}
	s.errs = append(s.errs, e)
}

// warn notes something that is allowed but probably not meant.
func (s *scope) warn(v *value, format string, args ...any) {
	e := Error{Field: s.field, Msg: fmt.Sprintf(format, args...), File: v.doc.name, Line: v.line, Col: v.col}
	s.warnings = append(s.warnings, e)
}

// mark is a point to go back to.
type mark struct{ errs, warnings, made, uploads int }

func (s *scope) mark() mark {
	return mark{len(s.errs), len(s.warnings), len(s.made), len(s.draft.uploads)}
}

// back forgets everything since m and returns the errors found meanwhile.
func (s *scope) back(m mark) Errors {
	errs := append(Errors(nil), s.errs[m.errs:]...)
	for _, d := range s.made[m.made:] {
		for k, known := range s.known {
			if known == d {
				delete(s.known, k)
			}
		}
		clear(s.parts) // one of them may have been this
	}
	s.errs, s.warnings, s.made = s.errs[:m.errs], s.warnings[:m.warnings], s.made[:m.made]
	s.draft.uploads = s.draft.uploads[:m.uploads]
	return errs
}

// failed says whether something went wrong since m.
func (s *scope) failed(m mark) bool { return len(s.errs) > m.errs }

// resolve makes a path written in v absolute: relative paths start at the folder of the file v is
// written in.
func (s *scope) resolve(v *value, path string) string {
	path = filepath.FromSlash(path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(v.doc.dir, path)
	}
	return filepath.Clean(path)
}

// follow opens the YAML file that v refers to by path.
func (s *scope) follow(v *value, path string) *value {
	if s.depth >= maxDepth {
		s.fail(v, "files refer to one another more than %d levels deep", maxDepth)
		return nil
	}
	abs := s.resolve(v, path)
	if got := s.files[abs]; got != nil {
		return got
	}
	name := abs
	if rel, err := filepath.Rel(v.doc.dir, abs); err == nil {
		name = filepath.Join(filepath.Dir(v.doc.name), rel)
	}
	got, err := open(abs, name)
	if err != nil {
		if errs, ok := err.(Errors); ok {
			if errs[0].Line == 0 {
				s.fail(v, "%s: %s", path, errs[0].Msg)
				return nil
			}
			s.errs = append(s.errs, errs...)
		}
		return nil
	}
	s.files[abs] = got
	return got
}
