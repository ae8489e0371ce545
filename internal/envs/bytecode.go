package envs

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Compiling takes longer than all the rest of a build, and most packages of a new environment are
// in an older one already: their bytecode is shared by hard links, and only what is left is
// compiled.

// hasSiblings reports whether there is any other environment with the same interpreter.
func (c *Cache) hasSiblings(version string) bool {
	for _, hash := range readDir(c.path("envs")) {
		if m, err := readMarker(c.path("envs", hash)); err == nil && m.Python == version && len(m.Packages) > 0 {
			return true
		}
	}
	return false
}

// siblings are the package directories of complete environments with the same interpreter, the ones
// that share most packages with site first.
func (c *Cache) siblings(version, site string) []string {
	own := map[string]bool{}
	for _, d := range readDir(site) {
		own[d] = strings.HasSuffix(d, ".dist-info")
	}
	type sibling struct {
		site   string
		shared int
	}
	var all []sibling
	for _, hash := range readDir(c.path("envs")) {
		m, err := readMarker(c.path("envs", hash))
		if err != nil || m.Python != version || m.Site == "" || m.Site == site {
			continue
		}
		s := sibling{site: m.Site}
		for _, d := range readDir(m.Site) {
			if own[d] {
				s.shared++
			}
		}
		if s.shared > 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b sibling) int { return cmp.Or(cmp.Compare(b.shared, a.shared), cmp.Compare(a.site, b.site)) })
	var out []string
	for _, s := range all[:min(len(all), 3)] {
		out = append(out, s.site)
	}
	return out
}

// compile makes the bytecode of site that siblings do not have. Files that are not valid Python
// stay as they are: packages have some, in tests and templates.
func (b *builder) compile(ctx context.Context, version, site string, siblings []string) error {
	v, _ := parsePyVersion(version)
	missing := shareBytecode(site, fmt.Sprintf(".cpython-%d%d.pyc", v[0], v[1]), siblings)
	if len(missing) == 0 {
		return nil
	}
	list := filepath.Join(b.dir, ".compile")
	if err := os.WriteFile(list, []byte(strings.Join(missing, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(list)
	err := b.run(ctx, filepath.Join(b.dir, "bin", "python"), os.Environ(), "-I", "-m", "compileall", "-q", "-j", "0", "-i", list)
	if ctx.Err() != nil {
		return err
	}
	return nil
}

// shareBytecode links what siblings have compiled of the same files, and returns the files that are
// left.
func shareBytecode(site, suffix string, siblings []string) (missing []string) {
	_ = filepath.WalkDir(site, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".py") {
			return nil //nolint:nilerr // what cannot be read is compiled again
		}
		rel, err := filepath.Rel(site, p)
		if err != nil {
			return nil //nolint:nilerr // likewise
		}
		pyc := filepath.Join(filepath.Dir(rel), "__pycache__", strings.TrimSuffix(filepath.Base(rel), ".py")+suffix)
		for _, s := range siblings {
			if sameSource(p, filepath.Join(s, rel)) && link(filepath.Join(s, pyc), filepath.Join(site, pyc)) == nil {
				return nil
			}
		}
		missing = append(missing, p)
		return nil
	})
	return missing
}

// sameSource reports whether bytecode of b serves for a: Python compares size and time of the
// source.
func sameSource(a, b string) bool {
	ia, err := os.Stat(a)
	if err != nil {
		return false
	}
	ib, err := os.Stat(b)
	if err != nil {
		return false
	}
	return os.SameFile(ia, ib) || ia.Size() == ib.Size() && ia.ModTime().Equal(ib.ModTime())
}

func link(old, name string) error {
	err := os.Link(old, name)
	if err != nil && os.MkdirAll(filepath.Dir(name), 0o755) == nil {
		err = os.Link(old, name)
	}
	return err
}
