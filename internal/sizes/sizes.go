// Package sizes is the catalogue of VM sizes: what each has, which series need an approval, what an
// hour costs. The facts are in sizes.txt with their sources; what is not known there is not known
// here. An administrator's own sizes and prices lie over it.
package sizes

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"github.com/berthml/berth"
)

//go:embed sizes.txt
var text string

// builtin is the catalogue without anybody's own sizes. The file is ours: that it can be read is
// tested.
var builtin = sync.OnceValue(func() Catalogue {
	all, err := parse(text)
	if err != nil {
		panic(err)
	}
	return newCatalogue(all)
})

// Find is the size of a name, in any case.
func Find(name string) (berth.Size, bool) { return builtin().Find(name) }

// Catalogue is the sizes of a server: Berth's, with those of the administrator laid over them. The
// zero value is empty.
type Catalogue struct {
	sizes []berth.Size
	index map[string]int // by lower-case name
}

func newCatalogue(all []berth.Size) Catalogue {
	c := Catalogue{sizes: all, index: make(map[string]int, len(all))}
	for i, s := range all {
		c.index[strings.ToLower(s.Name)] = i
	}
	return c
}

// All is every size, Berth's own order first and then those that were added.
func (c Catalogue) All() []berth.Size { return slices.Clone(c.sizes) }

// Find is the size of a name, in any case.
func (c Catalogue) Find(name string) (berth.Size, bool) {
	i, ok := c.index[strings.ToLower(name)]
	if !ok {
		return berth.Size{}, false
	}
	return c.sizes[i], true
}

// In is the sizes that a location has.
func (c Catalogue) In(location string) []berth.Size {
	var out []berth.Size
	for _, s := range c.sizes {
		if Available(s, location) {
			out = append(out, s)
		}
	}
	return out
}

// Available reports whether a location has a size. A location nobody spoke of has everything.
func Available(s berth.Size, location string) bool {
	is := func(l string) bool { return strings.EqualFold(l, location) }
	if slices.ContainsFunc(s.Absent, is) {
		return false
	}
	return len(s.Locations) == 0 || slices.ContainsFunc(s.Locations, is)
}

// Supports reports whether computes of a type (AmlCompute, ComputeInstance) can have the size.
func Supports(s berth.Size, computeType string) bool {
	return slices.ContainsFunc(s.Computes, func(t string) bool { return strings.EqualFold(t, computeType) })
}

// Family is the sizes of a family, in any case.
func (c Catalogue) Family(family string) []berth.Size {
	var out []berth.Size
	for _, s := range c.sizes {
		if SameFamily(s.Family, family) {
			out = append(out, s)
		}
	}
	return out
}

// Families is the names of all families, in the order of their first size.
func (c Catalogue) Families() []string {
	var out []string
	for _, s := range c.sizes {
		if !slices.Contains(out, s.Family) {
			out = append(out, s.Family)
		}
	}
	return out
}

// FindFamily is a family's name as the catalogue has it.
func (c Catalogue) FindFamily(name string) (string, bool) {
	for _, s := range c.sizes {
		if SameFamily(s.Family, name) {
			return s.Family, true
		}
	}
	return "", false
}

// SameFamily compares the names of two families as Azure does: its services do not agree on case,
// spaces and underscores. It is asked for every node and limit, so it makes nothing.
func SameFamily(a, b string) bool {
	for {
		x, i := letter(a)
		y, j := letter(b)
		if x != y || i < 0 || j < 0 {
			return x == y && i == j
		}
		a, b = a[i:], b[j:]
	}
}

// letter is the first letter of a family's name that counts, in lower case, and where what follows
// begins: -1 at the end.
func letter(s string) (byte, int) {
	for i := range len(s) {
		switch c := s[i]; {
		case c == ' ' || c == '_':
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A', i + 1
		default:
			return c, i + 1
		}
	}
	return 0, -1
}

// FamilyKey is a family's name in the form in which two that are the same are equal.
func FamilyKey(name string) string {
	b := make([]byte, 0, len(name))
	for {
		c, i := letter(name)
		if i < 0 {
			return string(b)
		}
		b, name = append(b, c), name[i:]
	}
}

// Smaller is the next size of the same family with less memory, or the same memory and fewer vCPUs.
func (c Catalogue) Smaller(name string) (berth.Size, bool) { return c.step(name, -1) }

// Larger is the next size of the same family with more memory, or the same memory and more vCPUs.
func (c Catalogue) Larger(name string) (berth.Size, bool) { return c.step(name, 1) }

func (c Catalogue) step(name string, by int) (berth.Size, bool) {
	s, ok := c.Find(name)
	if !ok {
		return berth.Size{}, false
	}
	var best berth.Size
	found := false
	for _, o := range c.sizes {
		if o.Family != s.Family || compare(o, s)*by <= 0 {
			continue
		}
		if !found || compare(o, best)*by < 0 {
			best, found = o, true
		}
	}
	return best, found
}

// compare orders sizes of one family by memory, then GPUs and vCPUs.
func compare(a, b berth.Size) int {
	switch {
	case a.MemoryGB != b.MemoryGB:
		return sign(a.MemoryGB - b.MemoryGB)
	case a.GPUs != b.GPUs:
		return sign(float64(a.GPUs - b.GPUs))
	}
	return sign(float64(a.VCPUs - b.VCPUs))
}

func sign(f float64) int {
	switch {
	case f < 0:
		return -1
	case f > 0:
		return 1
	}
	return 0
}

// near is how many names an error offers.
const near = 3

// Nearest is the names that somebody who wrote name may have meant, at most three, the likeliest
// first. A name nothing is like has none.
func (c Catalogue) Nearest(name string) []string {
	type candidate struct {
		name     string
		distance int
	}
	want := bare(name)
	var found []candidate
	for _, s := range c.sizes {
		have := bare(s.Name)
		d := berth.Distance(want, have)
		switch {
		case want == have:
			d = 0
		case len(want) >= 3 && (strings.HasPrefix(have, want) || strings.Contains(have, want)):
			d = min(d, 1)
		}
		if d <= max(1, len(want)/3) {
			found = append(found, candidate{s.Name, d})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return a.distance - b.distance })
	var out []string
	for _, f := range found[:min(near, len(found))] {
		out = append(out, f.name)
	}
	return out
}

// bare is a name as people mix it up: without case, prefix and the marks between its parts.
func bare(name string) string {
	s := strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(name))
	return strings.TrimPrefix(s, "standard")
}
