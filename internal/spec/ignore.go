package spec

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Ignore is the list of patterns of an .amlignore or .gitignore file.
type Ignore struct {
	lines []pattern
	git   *Ignore // what .gitignore says alone, where there is no .amlignore
	own   *Ignore // what .amlignore says alone, where it takes something back
	extra *Ignore // what the folder's own file does not say
}

type pattern struct {
	form *regexp.Regexp
	need string // is in every name that matches
	keep bool   // it began with !
}

// ignoreIn reads the ignore file of a folder: .amlignore, else .gitignore, else none.
func ignoreIn(dir string, extra []string) *Ignore {
	g := &Ignore{extra: ParseIgnore(strings.Join(extra, "\n"))}
	for _, name := range []string{".amlignore", GitIgnore} {
		data, err := ReadFile(filepath.Join(dir, name))
		if err == nil && len(data) <= MaxFile {
			own := ParseIgnore(string(data))
			switch g.lines = own.lines; {
			case name == GitIgnore:
				g.git = own
			case slices.ContainsFunc(own.lines, func(p pattern) bool { return p.keep }):
				g.own = own
			}
			break
		}
	}
	g.lines = append(g.lines, g.extra.lines...)
	return g
}

// GitIgnore is the file that is believed where there is no .amlignore. It was not written for
// uploads.
const GitIgnore = ".gitignore"

// byGit says whether it is .gitignore alone that leaves a name out.
func (g *Ignore) byGit(name string) bool {
	return g.git != nil && g.git.Match(name) && !g.extra.Match(name)
}

// asks says whether .amlignore takes a name back: its last line that matches begins with !.
func (g *Ignore) asks(name string) bool {
	if g.own == nil {
		return false
	}
	for _, p := range slices.Backward(g.own.lines) {
		if strings.Contains(name, p.need) && p.form.MatchString(name) {
			return p.keep
		}
	}
	return false
}

// maxIgnored is how many names that .gitignore leaves out are told.
const maxIgnored = 1000

// ignored notes a name, rel in its folder, that is left out.
func (f *Folder) ignored(by *Ignore, name, rel string) {
	folder := strings.HasSuffix(rel, "/")
	if len(f.Ignored) == maxIgnored || by.git == nil || folder && !by.byGit(rel+"x") || !folder && !by.byGit(rel) {
		return
	}
	if folder {
		name += "/"
	}
	f.Ignored = append(f.Ignored, name)
}

// ParseIgnore reads patterns in the language of .gitignore.
func ParseIgnore(text string) *Ignore {
	g := &Ignore{}
	for _, line := range strings.Split(strings.TrimPrefix(text, "\xef\xbb\xbf"), "\n") {
		if p, ok := parsePattern(line); ok {
			g.lines = append(g.lines, p)
		}
	}
	return g
}

// Match says whether the file name (relative, with slashes) is left out. The last pattern that
// matches it, or a folder it is in, decides. Unlike Git, and like Azure's clients, a file can be
// taken back from a folder left out.
func (g *Ignore) Match(name string) bool {
	out := false
	for _, p := range g.lines {
		if strings.Contains(name, p.need) && p.form.MatchString(name) {
			out = !p.keep
		}
	}
	return out
}

// prunes says whether nothing below the folder can be part of the snapshot.
func (g *Ignore) prunes(name string) bool {
	for _, p := range g.lines {
		if p.keep {
			return false
		}
	}
	return g.Match(name+"/x") && g.Match(name+"/x/x")
}

// parsePattern turns one line into a regular expression over whole names.
func parsePattern(line string) (pattern, bool) {
	line = strings.TrimSuffix(line, "\r")
	if !strings.HasSuffix(strings.TrimRight(line, " \t"), `\`) {
		line = strings.TrimRight(line, " \t")
	}
	if line == "" || line[0] == '#' {
		return pattern{}, false
	}
	var p pattern
	if line[0] == '!' {
		p.keep, line = true, line[1:]
	}
	dir := strings.HasSuffix(line, "/") && !strings.HasSuffix(line, `\/`)
	body := strings.TrimSuffix(line, "/")
	rooted := strings.Contains(body, "/")
	body = strings.TrimPrefix(body, "/")
	if body == "" {
		return pattern{}, false
	}
	var b strings.Builder
	b.WriteString("^")
	if !rooted {
		b.WriteString("(?:.*/)?")
	}
	segs := strings.Split(body, "/")
	for i, seg := range segs {
		last := i == len(segs)-1
		switch {
		case seg == "**" && last && i == 0:
			b.WriteString(".*")
		case seg == "**" && last:
			b.WriteString(".+")
		case seg == "**" && i == 0:
			b.WriteString("(?:.*/)?")
		case seg == "**":
			b.WriteString("(?:.*/)?")
		default:
			expr, ok := glob(seg)
			if !ok {
				return pattern{}, false
			}
			b.WriteString(expr)
			if !last {
				b.WriteString("/")
			}
		}
	}
	if dir {
		b.WriteString("/.*$")
	} else if segs[len(segs)-1] != "**" {
		b.WriteString("(?:/.*)?$")
	} else {
		b.WriteString("$")
	}
	form, err := regexp.Compile("(?s)" + b.String())
	if err != nil {
		return pattern{}, false
	}
	p.form, p.need = form, needed(body)
	return p, true
}

// needed is the longest text that a name must have to match a pattern. To look for it takes a tenth
// of what the regular expression takes.
func needed(body string) (longest string) {
	if strings.Contains(body, "[") {
		return ""
	}
	for _, run := range strings.FieldsFunc(body, func(c rune) bool { return strings.ContainsRune(`*?\/`, c) }) {
		if len(run) > len(longest) {
			longest = run
		}
	}
	return longest
}

// glob turns *, ? and [set] of one segment into a regular expression; a set or an escape without an
// end matches nothing.
func glob(seg string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(seg); i++ {
		switch c := seg[i]; c {
		case '\\':
			if i++; i >= len(seg) {
				return "", false
			}
			b.WriteString(regexp.QuoteMeta(seg[i : i+1]))
		case '*':
			b.WriteString("[^/]*")
		case '?':
			b.WriteString("[^/]")
		case '[':
			set, n := bracket(seg[i:])
			if n == 0 {
				return "", false
			}
			b.WriteString(set)
			i += n - 1
		default:
			b.WriteString(regexp.QuoteMeta(seg[i : i+1]))
		}
	}
	return b.String(), true
}

// bracket reads a [set]; n is its length, 0 when it has no end.
func bracket(s string) (set string, n int) {
	i := 1
	not := i < len(s) && (s[i] == '!' || s[i] == '^')
	if not {
		i++
	}
	start := i
	if i < len(s) && s[i] == ']' {
		i++
	}
	for i < len(s) && s[i] != ']' {
		if s[i] == '\\' {
			i++
		}
		i++
	}
	if i >= len(s) {
		return "", 0
	}
	inner := s[start:i]
	var b strings.Builder
	b.WriteString("[")
	if not {
		b.WriteString("^/")
	}
	for j := 0; j < len(inner); j++ {
		switch c := inner[j]; {
		case c == '\\' && j+1 < len(inner):
			j++
			b.WriteString(regexp.QuoteMeta(inner[j : j+1]))
		case c == '-' && j > 0 && j+1 < len(inner):
			b.WriteByte('-')
		case c == '[' || c == ']' || c == '^' || c == '-' || c == '\\':
			b.WriteString(`\` + string(c))
		default:
			b.WriteByte(c)
		}
	}
	b.WriteString("]")
	return b.String(), i + 1
}
