package spec

import (
	"strconv"
	"strings"
)

// parameterSpec is a setting of a model: its name and what it may hold.
type parameterSpec struct {
	name   string
	typ    typ
	search bool // it may be searched over
	fixed  bool // it may be given
}

// settingsOf is a mapping of a model's settings; with search, what each is searched over.
func settingsOf(ps []parameterSpec, search func(typ) typ) typ {
	var out parts
	for _, p := range ps {
		t := p.typ
		if search != nil {
			t = search(p.typ)
		}
		if search != nil && p.search || search == nil && p.fixed {
			out = append(out, f(p.name, t, to(automlName(p.name))))
		}
	}
	return obj(out)
}

// automlName is the service's spelling of a setting.
func automlName(name string) string {
	return strings.NewReplacer("CosineLr", "CosineLR", "stepLr", "stepLR").Replace(camel(name))
}

// searched is a value, or a distribution of values; it travels as text: uniform(0.1,0.5),
// choice('a','b').
func searched(t typ) typ {
	return typ{name: t.label() + " or a distribution", readFunc: func(s *scope, v *value) any {
		if v.shape != mapping {
			text, _ := searchValue(s, t, v)
			return text
		}
		m := s.mark()
		name := strings.ToLower(v.textOf("type"))
		if name == "choice" { // of values of the setting's own type
			obj(f("type", text), f("values", listOf(strictly(t)), required)).read(s, v)
		} else {
			s.draw(s, v)
			s.drawable(t, name, v)
		}
		if s.failed(m) {
			return nil
		}
		var args []string
		for _, key := range distributions.get()[name] {
			arg := v.get(key)
			if n, ok := wholeOf(arg); ok && key == "upper" {
				args = append(args, n.String())
				continue
			}
			if key != "values" {
				args = append(args, searchText(arg))
				continue
			}
			for _, it := range arg.items {
				text, quoted := searchValue(s, t, it)
				if quoted {
					text = "'" + text.(string) + "'"
				}
				args = append(args, text.(string))
			}
		}
		return name + "(" + strings.Join(args, ",") + ")"
	}}
}

// drawable refuses distributions that give no values of the setting's type.
func (s *scope) drawable(t typ, name string, v *value) {
	switch {
	case t.name == decimal.name || distributions.get()[name] == nil:
	case t.name != whole.name:
		s.in("type").fail(v.get("type"), "a setting that must be %s takes only choice, not %s", t.label(), name)
	case name != "randint" && !strings.HasPrefix(name, "q"):
		s.in("type").fail(v.get("type"), "a setting that must be %s takes choice, randint, quniform or qnormal, not %s", t.label(), name)
	case name != "randint":
		for _, key := range distributions.get()[name] {
			if n := v.get(key); n != nil && n.shape != integer && !(s.bind && bound(n.text)) {
				s.in(key).fail(n, "must be an integer, not %s", describe(n))
			}
		}
	}
}

// drawn is searched, but for nodes of a pipeline: there it is what the file says.
func drawn(t typ) typ {
	out := searched(t)
	out.yaml = func(s *scope, v *value) any {
		m := s.mark()
		if out.read(s, v); s.failed(m) {
			return nil
		}
		switch {
		case v.shape != mapping:
			return t.take(s, v)
		case strings.EqualFold(v.textOf("type"), "choice"):
			got, _ := asTree(obj(f("values", listOf(t))).read(s, v.only([]string{"values"})))
			got["type"] = "choice"
			return got
		}
		return s.draw(s, v)
	}
	return out
}

// strictly is a type that takes no number written as text.
func strictly(t typ) typ {
	if t.name != whole.name {
		return t
	}
	return typ{name: t.label(), readFunc: func(s *scope, v *value) any {
		if v.shape != integer {
			s.fail(v, "must be an integer, not %s", describe(v))
			return nil
		}
		return v.raw()
	}}
}

// searchValue is a value of a setting as text; quoted says that it is a word.
func searchValue(s *scope, t typ, v *value) (word any, quoted bool) {
	if s.binds(t, v) {
		return v.text, true
	}
	switch got := strictly(t).read(s, v).(type) {
	case bool:
		return map[bool]string{true: "True", false: "False"}[got], false
	case number:
		if f, err := strconv.ParseFloat(string(got), 64); err == nil && t.name == decimal.name {
			return searchText(&value{shape: float, real: f}), false
		}
		return searchText(v), false
	case string:
		if t.name != text.name && v.shape == str { // a word of an enum
			return snakeWords(v.text), true
		}
		return v.python(), v.shape == str
	}
	return nil, false
}

// searchText is a scalar as text, small numbers without an exponent.
func searchText(v *value) string {
	if f, err := strconv.ParseFloat(strings.TrimSpace(v.text), 64); err == nil && v.shape == str {
		v = &value{shape: float, real: f} // a number written as text
	}
	if v.shape == float {
		t := strconv.FormatFloat(v.real, 'f', -1, 64)
		if !strings.Contains(t, ".") {
			t += ".0"
		}
		return t
	}
	return v.python()
}
