package kind

import (
	"fmt"
	"strings"

	"github.com/berthml/berth"
)

// bound is what an expression stands for: a value, or data at a URI.
type bound struct {
	value, typ, uri, mode string
	part                  bool // it is something below the data that was named
}

// bind evaluates an input of a step; nil when it names an input that was not given.
func (m Maker) bind(text string) (*bound, error) {
	var b bound
	missing := false
	rest, err := berth.Expand(text, func(where, path string) (string, error) {
		r, ok := parentRef(where, path)
		switch {
		case !ok:
			return "", fmt.Errorf("is bound to ${{%s.%s}}, which is not defined", where, path)
		case r.node != "":
			o, ok := m.Output(r.node, r.name)
			if !ok {
				return "", fmt.Errorf("is bound to ${{%s.%s}}, and step %s has no output %s", where, path, r.node, r.name)
			}
			return "", b.data(text, o.Type, o.URI, "")
		case r.name == "":
			return m.Name, nil
		}
		in := m.Graph.Inputs[r.name]
		switch {
		case in == nil || in.Value == nil && in.URI == "":
			missing = true
			return "", nil
		case in.Literal():
			if in.Value == nil {
				return "", nil
			}
			return string(*in.Value), nil
		}
		return "", b.data(text, in.Type, in.URI, in.Mode)
	})
	if err != nil || missing {
		return nil, err
	}
	if b.uri == "" {
		b.value = rest
		return &b, nil
	}
	if rest = strings.TrimSpace(rest); rest != "" {
		b.part = true
		b.uri = strings.TrimSuffix(b.uri, "/") + "/" + strings.TrimPrefix(rest, "/")
	}
	return &b, nil
}

// data notes that an expression names data, which can only stand at the beginning.
func (b *bound) data(text, typ, uri, mode string) error {
	if b.uri != "" || !strings.HasPrefix(strings.TrimSpace(text), "${{") {
		return fmt.Errorf("is %q; a data reference must come first", text)
	}
	b.typ, b.uri, b.mode = typ, uri, mode
	return nil
}

// text evaluates an expression that must be a value.
func (m Maker) text(text string) (string, error) {
	if !strings.Contains(text, "${{") {
		return text, nil
	}
	b, err := m.bind(text)
	if err != nil {
		return "", berth.Errorf(berth.Invalid, "%q %w", text, err)
	}
	if b == nil {
		return "", nil
	}
	if b.uri != "" {
		return "", berth.Errorf(berth.Invalid, "%q is data where a value is needed", text)
	}
	return b.value, nil
}

// value evaluates the texts of a setting; those that speak of the step itself stay.
func (m Maker) value(v any) (any, error) {
	if s, ok := v.(string); ok && strings.Contains(s, "${{parent.") {
		return m.text(s)
	}
	return v, nil
}

// optionalBlocks keeps what stands between $[[ and ]] where every input named there was given, and
// drops it otherwise.
func optionalBlocks(command string, given func(name string) bool) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(command, "$[[")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		block, after, closed := strings.Cut(rest, "]]")
		if !closed {
			b.WriteString("$[[" + rest)
			return b.String()
		}
		keep := true
		_ = berth.Bindings(block, func(where, name string) error { // the job's own check says what is wrong with it
			keep = keep && (where != "inputs" || given(name))
			return nil
		})
		if keep {
			b.WriteString(block)
		}
		command = after
	}
}
