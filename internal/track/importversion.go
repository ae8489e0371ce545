package track

import (
	"slices"

	"github.com/berthml/berth"
)

// maxVersion bounds the numbers of versions that are brought over.
const maxVersion = 1_000_000_000

// A gap is numbers of versions that an import passed over: nobody has had them, and a later import
// may have the versions.
type gap struct{ From, To int }

// take reserves a number for a version that is brought over. next is the first that was not given
// out. It says whether the number was free.
func (m *registered) take(n, next int) bool {
	if n >= next {
		if n > next {
			m.Gaps = append(m.Gaps, gap{next, n - 1})
		}
		return true
	}
	i := slices.IndexFunc(m.Gaps, func(g gap) bool { return g.From <= n && n <= g.To })
	if i < 0 {
		return false
	}
	g := m.Gaps[i]
	m.Gaps = slices.Delete(m.Gaps, i, i+1)
	if n < g.To {
		m.Gaps = slices.Insert(m.Gaps, i, gap{n + 1, g.To})
	}
	if g.From < n {
		m.Gaps = slices.Insert(m.Gaps, i, gap{g.From, n - 1})
	}
	return true
}

// importVersion writes a version of another server under its number. One that was brought over from
// there before stays as it is, whatever was changed since.
func importVersion(c *call) (any, error) {
	n, stage, from := c.versionNumber(), c.text("stage"), c.need("from")
	if stage == "" {
		stage = versionStages[0]
	}
	stage, err := canonicalStage(stage)
	if err != nil {
		c.fail(err)
	}
	if err := checkLength("from", maxSource, from); err != nil {
		c.fail(err)
	}
	if n < 1 || n > maxVersion {
		c.fail(invalid("Invalid version number %d: it must be from 1 to %d.", n, maxVersion))
	}
	name, v, err := c.newVersion()
	if err != nil {
		return nil, err
	}
	setTag(&v.Tags, pair{berth.TagImportedFrom, from})
	v.Stage = stage
	var m *registered
	var got *version
	err = c.update(c.ctx, func(x *change) error {
		var err error
		if m, err = x.findRegistered(name); err != nil {
			return err
		}
		if m.Tags[berth.TagImportedFrom] != from || !c.mayImport(m.User) {
			return wasHere("Model " + name)
		}
		old, err := find[version](x, kindVersions, m.ID, itoa(n))
		switch {
		case err != nil:
			return err
		case old != nil && old.Tags[berth.TagImportedFrom] == from && c.mayImport(old.User):
			got = old
			return nil
		case old != nil:
			return wasHere("Version " + itoa(n) + " of model " + name)
		}
		got = v
		return c.addVersion(x, m, v, func(next int) (int, error) {
			if !m.take(n, next) {
				return 0, refuse(alreadyExists, "Version %d of model %s was already given out here, and deleted", n, name)
			}
			return n, nil
		})
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"model_version": versionView(m, got), "created": got == v}, nil
}
