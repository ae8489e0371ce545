package spec

import (
	"strings"
	"sync"
)

// typ is what a field may hold.
type typ struct {
	name string // for messages: "text", "a whole number"; see label
	// readFunc checks v and gives its REST form. What is wrong is reported to s; the result is of
	// no use then. Nil reads the table, or one of the forms.
	readFunc func(s *scope, v *value) any
	// yaml is readFunc for a value that stays in its YAML form: numbers are numbers, words are
	// spelled the YAML way. Nil is readFunc.
	yaml func(s *scope, v *value) any
	// showFunc is readFunc backwards, for documents that come from the server. Nil shows the table
	// or the forms, or leaves the value as it is.
	showFunc func(j any) any
	// table is set for objects.
	table *table
	// flat says that the table is read straight into the scope's own object instead of a new one.
	flat bool
	// null says that read deals with null itself.
	null bool
	// solid says that an expression cannot stand for it: a mapping or a list.
	solid bool
	// forms is set for mappings whose form a key decides.
	forms *forms
	// choice is set for one of some words.
	choice *choice
}

// take reads v in the form the scope asks for.
func (t typ) take(s *scope, v *value) any {
	switch {
	case s.yaml && t.yaml != nil:
		return t.yaml(s, v)
	case s.yaml && t.choice != nil:
		return t.choice.read(s, v, true)
	}
	return t.read(s, v)
}

// label is the name of a type in messages.
func (t typ) label() string {
	if t.choice != nil {
		return t.choice.String()
	}
	return t.name
}

// read is the REST form of v.
func (t typ) read(s *scope, v *value) any {
	switch {
	case t.readFunc != nil:
		return t.readFunc(s, v)
	case t.choice != nil:
		return t.choice.read(s, v, false)
	case t.forms != nil:
		return t.forms.read(s, v)
	case t.flat:
		t.table.fill(s, v)
		return nil
	}
	return t.table.read(s, v)
}

// shows reports whether show may change a value.
func (t typ) shows() bool {
	return t.showFunc != nil || t.choice != nil || t.forms != nil || t.table != nil
}

// show is the YAML form of a value of the server.
func (t typ) show(j any) any {
	switch {
	case t.showFunc != nil:
		return t.showFunc(j)
	case t.choice != nil:
		return t.choice.show(j)
	case t.forms != nil:
		return t.forms.show(j)
	case t.table != nil:
		return t.table.show(j)
	}
	return j
}

// table describes a mapping: its fields, its constants, and rules over several fields.
type table struct {
	once  sync.Once
	parts func() []part // until it is ready

	fields  []field
	fixed   []fixed
	after   []func(s *scope, v *value)
	before  []func(s *scope, v *value) *value
	unknown unknown
	shows   []showing
}

// part is anything a table can be made of: a field, a constant, a rule, or another table's parts.
type part interface{ add(*table) }

// field is one key of a mapping.
type field struct {
	name     string
	typ      typ
	to       string // where it goes; see to
	required bool
	nullable bool // null means absent
	readonly bool // dropped: the service's to say
	hidden   bool // checked, not sent
	def      any  // sent when absent
}

func (f field) add(t *table) { t.fields = append(t.fields, f) }

type option func(*field)

// f is a field of a table: its name, what it may hold, and options. It goes to the member of the
// same name, in camelCase, unless to says otherwise.
func f(name string, t typ, opts ...option) field {
	fd := field{name: name, typ: t}
	for _, o := range opts {
		o(&fd)
	}
	return fd
}

// to says where a field goes: a dotted path in the object of its table; "/path" counts from the top
// of the body; "@name", "@version" and "@parent" are those of the resource.
func to(path string) option { return func(f *field) { f.to = path } }

// def is the value sent when the field is absent.
func def(v any) option { return func(f *field) { f.def = v } }

func required(f *field) { f.required = true }
func nullable(f *field) { f.nullable = true }

// unsent fields are checked and not sent. With to they are still shown: a rule sends them, or the
// service says them.
func unsent(f *field) { f.hidden = true }

// readonly are fields the service fills in. Files exported with show have them; they are dropped.
func readonly(names ...string) part {
	var p parts
	for _, n := range names {
		p = append(p, field{name: n, typ: anything, readonly: true})
	}
	return p
}

// parts are several parts as one.
type parts []part

func (p parts) add(t *table) {
	for _, one := range p {
		one.add(t)
	}
}

// lazyParts are parts that are made when they are first used, as later says.
type lazyParts func() parts

func (p lazyParts) add(t *table) { p().add(t) }

type fixed struct {
	path  string
	value any
}

func (c fixed) add(t *table) { t.fixed = append(t.fixed, c) }

// is a constant member of the document.
func is(path string, v any) part { return fixed{path, v} }

type rule func(s *scope, v *value)

func (r rule) add(t *table) { t.after = append(t.after, r) }

// then is a rule over several fields, run when they have been read: s.out is the object they were
// written to.
func then(r func(s *scope, v *value)) part { return rule(r) }

type rewrite func(s *scope, v *value) *value

func (r rewrite) add(t *table) { t.before = append(t.before, r) }

// first rewrites the mapping before its fields are looked at; nil ends the reading (the rule has
// said why).
func first(r func(s *scope, v *value) *value) part { return rewrite(r) }

// unknown is what happens to keys the table does not know.
type unknown int

const (
	refuse unknown = iota // an error that names the nearest known key
	keep                  // sent as they are
	drop                  // ignored
)

func (u unknown) add(t *table) { t.unknown = u }

// obj is a mapping described by a table.
func obj(ps ...part) typ { return later(func() []part { return ps }) }

// later is obj for tables that are made when they are first used: most commands read no file, and
// all tables together take longer to make than such a command runs.
//
// Functions that make types for package-level variables consist of one return statement without
// closures where possible: the compiler then lays such a variable out in the program, and nothing
// runs at the start.
func later(ps func() []part) typ {
	return typ{name: "a mapping", table: &table{parts: ps}, solid: true}
}

// flat is later for an object read straight into the scope's own object instead of a new one.
func flat(ps func() []part) typ {
	return typ{name: "a mapping", table: &table{parts: ps}, flat: true}
}

// ready is a table with its parts in it.
func (t *table) ready() *table {
	t.once.Do(func() {
		for _, p := range t.parts() {
			p.add(t)
		}
		t.parts = nil
	})
	return t
}

// more are the parts of an object, to build another one from.
func more(o typ) part { return tableParts{o.table} }

type tableParts struct{ t *table }

func (p tableParts) add(t *table) {
	p.t.ready()
	t.fields = append(t.fields, p.t.fields...)
	t.fixed = append(t.fixed, p.t.fixed...)
	t.after = append(t.after, p.t.after...)
	t.before = append(t.before, p.t.before...)
	t.unknown = max(t.unknown, p.t.unknown)
	t.shows = append(t.shows, p.t.shows...)
}

// read checks a mapping and writes the object it becomes.
func (t *table) read(s *scope, v *value) any {
	out := tree{}
	t.fill(s.into(out), v)
	return out
}

// fill reads v into s.out.
func (t *table) fill(s *scope, v *value) {
	t.ready()
	if v.shape != mapping {
		s.fail(v, "must be a mapping, not %s", v.shape)
		return
	}
	for _, r := range t.before {
		if v = r(s, v); v == nil {
			return
		}
	}
	seen := make(map[string]bool, len(t.fields))
	for i := range t.fields {
		fd := &t.fields[i]
		if seen[fd.name] { // the table that comes first has the say
			continue
		}
		seen[fd.name] = true
		t.one(s, fd, v)
	}
	for _, c := range t.fixed {
		if s.yaml { // constants are the document's
			break
		}
		s.store(s.dest(&field{to: c.path}), clone(c.value))
	}
	for _, p := range v.pairs {
		switch {
		case seen[p.key]:
		case p.key != "$schema":
			t.stray(s, p)
		case p.val.shape == null && t.unknown == refuse:
			s.in(p.key).fail(p.val, "must not be null")
		}
	}
	for _, r := range t.after {
		r(s, v)
	}
}

func (t *table) one(s *scope, fd *field, v *value) {
	val := v.get(fd.name)
	if val == nil || val.shape == null && fd.nullable {
		switch {
		case val == nil && fd.required:
			s.in(fd.name).fail(v, "is required")
		case fd.def != nil && s.yaml:
			s.store(s.dest(fd), yamlForm(fd.def))
		case fd.def != nil && !fd.hidden:
			s.store(s.dest(fd), clone(fd.def))
		}
		return
	}
	if fd.readonly && t.unknown != refuse {
		return
	}
	if val.shape == null && (fd.readonly || !fd.typ.null) {
		s.in(fd.name).fail(val, "must not be null")
		return
	}
	if fd.readonly {
		return
	}
	var got any
	if s.binds(fd.typ, val) && !unbindable.get()[fd.name] {
		got = val.text
	} else {
		got = fd.typ.take(s.in(fd.name), val)
	}
	if got == "" && fd.required && (fd.to == "@name" || fd.to == "@parent") {
		s.in(fd.name).fail(val, "must not be empty")
	}
	if !fd.hidden || s.yaml {
		s.store(s.dest(fd), got)
	}
}

// binds says whether v is an expression that stands for a value of type t.
func (s *scope) binds(t typ, v *value) bool {
	return s.bind && !s.plain && !t.solid && v.shape == str && bound(v.text)
}

// yamlForm is a default of a document in its YAML form.
func yamlForm(v any) any {
	switch x := v.(type) {
	case string:
		return pythonSnake(x)
	case tree:
		out := tree{}
		for k, val := range x {
			out[snake(k)] = yamlForm(val)
		}
		return out
	}
	return clone(v)
}

// unbindable are the fields of a pipeline node that may not be an expression.
var unbindable = lazy[map[string]bool]{make: func() map[string]bool {
	return map[string]bool{
		"type": true, "component": true, "trial": true, "jobs": true, "inputs": true, "outputs": true, "job_tier": true, "priority": true,
	}
}}

// stray deals with a key the table does not know.
func (t *table) stray(s *scope, p pair) {
	switch t.unknown {
	case keep:
		s.out[p.key] = p.val.raw()
	case refuse:
		s.in(p.key).failWith(p.at, nearest(p.key, t.names()), "unknown field")
	}
}

// names are the keys a user may write.
func (t *table) names() []string {
	t.ready()
	var names []string
	for _, fd := range t.fields {
		if !fd.readonly {
			names = append(names, fd.name)
		}
	}
	return names
}

// dest is where a field goes.
func (s *scope) dest(fd *field) string {
	path := fd.to
	if s.yaml && fd.name != "" {
		return fd.name
	}
	if path == "" {
		if s.nodes {
			return fd.name
		}
		return camel(fd.name)
	}
	if s.nodes && !strings.ContainsAny(path[:1], "/@=") {
		return snake(path)
	}
	return strings.TrimPrefix(path, "=")
}

// store writes a member: see to for the paths.
func (s *scope) store(path string, val any) {
	switch {
	case val == nil:
	case path == "@name":
		s.draft.name, _ = val.(string)
	case path == "@version":
		s.draft.version, _ = val.(string)
	case path == "@parent":
		s.draft.parent, _ = val.(string)
	case strings.HasPrefix(path, "/"):
		s.draft.body.put(path[1:], val)
	default:
		s.out.put(path, val)
	}
}
