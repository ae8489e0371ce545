package envs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// An ignoreList is a .dockerignore file: the last pattern that matches a path or a folder above it decides.
type ignoreList []ignorePattern

type ignorePattern struct {
	re  *regexp.Regexp
	not bool
}

// readIgnore reads DOCKERFILE.dockerignore or .dockerignore of a build context; none is fine.
func readIgnore(root, dockerfile string) (ignoreList, error) {
	for _, f := range []string{dockerfile + ".dockerignore", ".dockerignore"} {
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return parseIgnore(string(b))
	}
	return nil, nil
}

func parseIgnore(text string) (ignoreList, error) {
	var out ignoreList
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSpace(line)
		not := strings.HasPrefix(line, "!")
		line = strings.Trim(path.Clean("/"+strings.TrimSpace(strings.TrimPrefix(line, "!"))), "/")
		if line == "" {
			continue
		}
		re, err := ignoreRegexp(line)
		if err != nil {
			return nil, fmt.Errorf(".dockerignore: %q: %w", line, err)
		}
		out = append(out, ignorePattern{re, not})
	}
	return out, nil
}

// ignoreRegexp is a pattern that matches a path and everything below it.
func ignoreRegexp(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString("^")
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case strings.HasPrefix(pattern[i:], "**/"):
			b.WriteString("(?:.*/)?")
			i += 2
		case strings.HasPrefix(pattern[i:], "**"):
			b.WriteString(".*")
			i++
		case c == '*':
			b.WriteString("[^/]*")
		case c == '?':
			b.WriteString("[^/]")
		case c == '[':
			end := strings.IndexByte(pattern[i:], ']')
			if end < 0 {
				return nil, errors.New("[ without ]")
			}
			b.WriteString(pattern[i : i+end+1])
			i += end
		case c == '\\' && i+1 < len(pattern):
			i++
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	b.WriteString("(?:/.*)?$")
	return regexp.Compile(b.String())
}

// match reports whether a path is left out.
func (l ignoreList) match(p string) bool {
	out := false
	for _, i := range l {
		if i.not == out && i.re.MatchString(p) {
			out = !i.not
		}
	}
	return out
}

// mayInclude reports whether something below a folder that is left out may come in again.
func (l ignoreList) mayInclude(string) bool {
	for _, i := range l {
		if i.not {
			return true
		}
	}
	return false
}
