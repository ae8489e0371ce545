package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/spec"
)

// requirements are the lines of a requirements file and of those that it names.
type requirements struct {
	packages, constraints []string
	read                  []string // files, and whether as constraints
	dir                   string   // files outside are not read
}

// readRequirements reads a requirements file. What it names on this machine is not on the node:
// other such files are read here, and the rest is refused.
func readRequirements(path string) (*requirements, error) {
	q := &requirements{dir: filepath.Dir(path)}
	if filepath.IsLocal(path) {
		q.dir = "." // dev.txt in requirements/ may name the one beside that folder
	}
	return q, q.add(path, false)
}

// named refuses a file that a requirements file names: what it has is uploaded for everybody to
// see, so it must be what it is said to be.
func (q *requirements) named(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "there is no file " + path
	}
	dir, err := filepath.EvalSymlinks(q.dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err == nil {
		real, err = filepath.Abs(real)
	}
	rel := real
	if err == nil {
		rel, err = filepath.Rel(dir, real)
	}
	switch ext := strings.ToLower(filepath.Ext(real)); {
	case err != nil || !filepath.IsLocal(rel):
		return path + " is outside the folder; copy it there"
	case ext != ".txt" && ext != ".in" || looksSecret(filepath.Base(real)) || holdsSecrets(filepath.ToSlash(filepath.Dir(rel))):
		return path + " is not the name of a requirements file, whose lines everybody who uses the server may read; it must end with .txt or .in"
	}
	return ""
}

func (q *requirements) add(path string, constrain bool) error {
	id := fmt.Sprint(constrain, " ", filepath.Clean(path))
	if slices.Contains(q.read, id) {
		return nil
	}
	q.read = append(q.read, id)
	b, err := spec.ReadFile(path)
	if err != nil {
		return berth.Errorf(berth.Invalid, "%w", err)
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(b), "\ufeff"), "\r\n", "\n")
	line, first := "", 0
	for n, l := range strings.Split(text, "\n") {
		if l, _, _ = strings.Cut(" "+l, " #"); first == 0 {
			first = n + 1
		}
		if part, goesOn := strings.CutSuffix(strings.TrimRight(l, " \t"), `\`); goesOn {
			line += strings.TrimSpace(part) + " "
			continue
		}
		if err := q.line(path, strings.TrimSpace(line+strings.TrimSpace(l)), first, constrain); err != nil {
			return err
		}
		line, first = "", 0
	}
	return q.line(path, strings.TrimSpace(line), first, constrain)
}

// line adds a line of the file at path.
func (q *requirements) line(path, line string, n int, constrain bool) error {
	wrong := func(format string, args ...any) error {
		return berth.Errorf(berth.Invalid, "%s:%d: %s", path, n, fmt.Sprintf(format, args...))
	}
	option, value := splitOption(line)
	switch option {
	case "-r", "-c":
		if strings.Contains(value, "://") {
			return wrong("%s is not on this machine: save it beside %s and name the file", value, filepath.Base(path))
		}
		if !filepath.IsAbs(value) {
			value = filepath.Join(filepath.Dir(path), value)
		}
		if why := q.named(value); why != "" {
			return wrong("%s", why)
		}
		return q.add(value, constrain || option == "-c")
	case "-e", "":
		if isPath(filepath.Dir(path), value, option == "-e") {
			return wrong("%s is a path of this machine, and not part of an environment, which jobs share: take the line out, and have the command install it: "+
				"'pip install --no-deps %s && …'", line, line)
		}
	}
	switch {
	case line == "":
	case constrain:
		q.constraints = append(q.constraints, line)
	default:
		q.packages = append(q.packages, line)
	}
	return nil
}

// splitOption is an option of a requirements file by its short name, "" for a requirement, with
// what follows it.
func splitOption(line string) (option, value string) {
	for _, o := range []struct{ short, long string }{{"-r", "--requirement"}, {"-c", "--constraint"}, {"-e", "--editable"}} {
		rest, ok := strings.CutPrefix(line, o.long)
		if !ok {
			rest, ok = strings.CutPrefix(line, o.short)
		}
		if ok {
			return o.short, strings.Trim(strings.TrimLeft(rest, "= \t"), `"'`)
		}
	}
	if strings.HasPrefix(line, "-") {
		return line, ""
	}
	return "", line
}

// isPath says whether a requirement of a file in dir is a folder or a file of this machine. What
// only may be a path has to be there; an editable one is never a name.
func isPath(dir, value string, editable bool) bool {
	if strings.Contains(value, "://") {
		return false
	}
	if n := strings.IndexAny(value, "[; \t"); n >= 0 { // extras, or when it is wanted
		value = value[:n]
	}
	if value == "." || value == ".." || strings.HasPrefix(value, "./") || strings.HasPrefix(value, "../") || strings.HasPrefix(value, "~") || filepath.IsAbs(value) {
		return true
	}
	st, err := os.Stat(filepath.Join(dir, value))
	return value != "" && err == nil && (editable || strings.Contains(value, "/") || !st.IsDir() && slices.Contains([]string{".whl", ".gz", ".zip"}, filepath.Ext(value)))
}

// conda is the file as a conda file that has its name, for errors on the node.
func (q *requirements) conda(path string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %q\ndependencies:\n- python\n- pip\n- pip:\n", filepath.Base(path))
	for _, line := range q.packages {
		fmt.Fprintf(&b, "  - %q\n", line)
	}
	if len(q.constraints) > 0 {
		b.WriteString("constraints:\n")
	}
	for _, line := range q.constraints {
		fmt.Fprintf(&b, "- %q\n", line)
	}
	return b.String()
}
