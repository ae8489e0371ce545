package envs

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled when it is first used: most commands of this
// program need none.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
