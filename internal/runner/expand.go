package runner

import (
	"strings"

	"github.com/berthml/berth"
)

// maxExpanded bounds a command, or a variable, with its values filled in: what execve takes as one
// argument, less a name and a zero byte.
const maxExpanded = 128<<10 - 1<<10

// binding is what an expression names: the value that replaces it, or none for an optional input
// that was not given.
type binding func(expr string) (value string, given, known bool)

// expand replaces ${{inputs.x}} and ${{outputs.x}} by their values, verbatim, and resolves the
// optional parts of a command: of $[[ … ]] the text is kept when every input named in it has a
// value, and dropped, brackets included, when not. Values are not looked into again. Expressions of
// other kinds are left alone when lenient is set, as in variables that are somebody else's
// templates, and refused otherwise, because to a shell they are a mistake.
func expand(text string, lookup binding, lenient bool) (string, error) {
	if !strings.Contains(text, "${{") && !strings.Contains(text, "$[[") {
		return text, nil
	}
	var out strings.Builder
	for {
		i := strings.Index(text, "$[[")
		if i < 0 {
			s, _, err := substitute(text, lookup, lenient, false)
			out.WriteString(s)
			return out.String(), err
		}
		s, _, err := substitute(text[:i], lookup, lenient, false)
		if err != nil {
			return "", err
		}
		out.WriteString(s)
		body, rest, ok := strings.Cut(text[i+3:], "]]")
		if !ok {
			if lenient {
				s, _, err := substitute(text[i:], lookup, lenient, false)
				out.WriteString(s)
				return out.String(), err
			}
			return "", berth.Errorf(berth.Invalid, "the command opens an optional part with $[[ and never closes it with ]]: %s", shorten(text[i:]))
		}
		s, complete, err := substitute(body, lookup, lenient, true)
		if err != nil {
			return "", err
		}
		if complete {
			out.WriteString(s)
		}
		if out.Len() > maxExpanded && len(s) > 0 {
			return "", tooLong()
		}
		text = rest
	}
}

func tooLong() error {
	return berth.Errorf(berth.Invalid, "with the values of its inputs it is longer than %d KiB, which is the longest the system takes: pass long values in a file", maxExpanded>>10)
}

// substitute replaces the expressions of text. complete is false when an input without a value is
// named, which only an optional part may do.
func substitute(text string, lookup binding, lenient, optional bool) (s string, complete bool, err error) {
	var out strings.Builder
	complete = true
	for {
		before, rest, ok := strings.Cut(text, "${{")
		out.WriteString(before)
		if !ok {
			return out.String(), complete, nil
		}
		expr, after, ok := strings.Cut(rest, "}}")
		if !ok {
			if lenient {
				out.WriteString("${{" + rest)
				return out.String(), complete, nil
			}
			return "", false, berth.Errorf(berth.Invalid, "the command opens an expression with ${{ and never closes it with }}: %s", shorten("${{"+rest))
		}
		name := strings.TrimSpace(expr)
		value, given, known := lookup(name)
		switch {
		case known && given && out.Len()+len(value) > maxExpanded:
			return "", false, tooLong()
		case known && given:
			out.WriteString(value)
		case known && optional:
			complete = false
		case known:
			return "", false, berth.Errorf(berth.Invalid, "${{%s}} has no value: give the input one, or put its use between $[[ and ]]", name)
		case lenient && !ours(name):
			out.WriteString("${{" + expr + "}}")
		case optional && ours(name):
			complete = false // an optional input that was not given is not sent either
		case ours(name):
			kind, key, _ := strings.Cut(name, ".")
			return "", false, berth.Errorf(berth.Invalid, "${{%s}} is not bound: the job has no %s %q", name, strings.TrimSuffix(kind, "s"), key)
		default:
			return "", false, berth.Errorf(berth.Invalid, "${{%s}} cannot be used here: a command knows inputs and outputs", name)
		}
		text = after
	}
}

// ours says whether an expression is of a kind that runners resolve.
func ours(name string) bool {
	return strings.HasPrefix(name, "inputs.") || strings.HasPrefix(name, "outputs.")
}

func shorten(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
