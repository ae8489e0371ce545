package spec

import (
	"regexp"
	"sync"
)

// form is a regular expression that is compiled when it is first used: most commands need none of
// them, and compiling them all would take longer than such a command runs.
type form struct{ get func() *regexp.Regexp }

func re(text string) form {
	return form{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

func (p form) MatchString(s string) bool            { return p.get().MatchString(s) }
func (p form) FindStringSubmatch(s string) []string { return p.get().FindStringSubmatch(s) }
func (p form) ReplaceAllString(src, with string) string {
	return p.get().ReplaceAllString(src, with)
}
