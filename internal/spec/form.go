package spec

import (
	"regexp"
	"sync"
)

// lazy is a value that is made when it is first used: most commands read no file. Unlike
// sync.OnceValue it takes nothing at the start of the program.
type lazy[T any] struct {
	make  func() T
	once  sync.Once
	value T
}

func (l *lazy[T]) get() T {
	l.once.Do(func() { l.value = l.make() })
	return l.value
}

// form is a regular expression that is compiled when it is first used.
type form struct {
	text     string
	once     sync.Once
	compiled *regexp.Regexp
}

func re(text string) *form { return &form{text: text} }

func (p *form) get() *regexp.Regexp {
	p.once.Do(func() { p.compiled = regexp.MustCompile(p.text) })
	return p.compiled
}

func (p *form) MatchString(s string) bool            { return p.get().MatchString(s) }
func (p *form) FindStringSubmatch(s string) []string { return p.get().FindStringSubmatch(s) }
func (p *form) ReplaceAllString(src, with string) string {
	return p.get().ReplaceAllString(src, with)
}
