package envs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// An ignoreList is a .dockerignore file: the last pattern that matches a path or a folder above it
// decides.
type ignoreList struct {
	patterns *patternmatcher.PatternMatcher
}

// readIgnore reads DOCKERFILE.dockerignore or .dockerignore of a build context; none is fine.
func readIgnore(root *os.Root, dockerfile string) (ignoreList, error) {
	for _, name := range []string{dockerfile + ".dockerignore", ".dockerignore"} {
		f, err := root.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return ignoreList{}, err
		}
		defer f.Close()
		return parseIgnore(f)
	}
	return ignoreList{}, nil
}

func parseIgnore(r io.Reader) (ignoreList, error) {
	lines, err := ignorefile.ReadAll(r)
	if err != nil {
		return ignoreList{}, fmt.Errorf(".dockerignore: %w", err)
	}
	m, err := patternmatcher.New(lines)
	if err != nil {
		return ignoreList{}, fmt.Errorf(".dockerignore: %w", err)
	}
	return ignoreList{m}, nil
}

// match reports whether a path is left out.
func (l ignoreList) match(p string) (bool, error) {
	if l.patterns == nil {
		return false, nil
	}
	out, err := l.patterns.MatchesOrParentMatches(p)
	if err != nil {
		return false, fmt.Errorf(".dockerignore: %w", err)
	}
	return out, nil
}

// mayInclude reports whether something below a folder that is left out may come in again.
func (l ignoreList) mayInclude() bool { return l.patterns != nil && l.patterns.Exclusions() }
