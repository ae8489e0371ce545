package track

import (
	"context"
	"errors"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// A change is a transaction on the entities of a workspace: it reads and writes documents, and the
// index follows once they are committed.
type change struct {
	w    *workspace
	tx   *store.Tx
	put  []entity
	gone []entity
	// state says that only the state of things changes: that can be done however large they are.
	state bool
	// small says that a large entity is neither read nor written, but is errLarge.
	small bool
	full  error // why nothing may grow
}

// What one user has the database's writer do at a time. It makes one change after the other, of
// everybody: those of a user wait before it, and each that reads and writes much for the one
// before.
const (
	changesOfUser      = 8
	largeChangesOfUser = 1
	largeEntity        = 64 << 10 // bytes
)

// errLarge ends a change of something large that has no turn to do so.
var errLarge = errors.New("the entity is large")

// update is workspace.update in a turn of the user's. What turns out to be large begins again in
// another.
func (c *call) update(ctx context.Context, fn func(*change) error) error {
	err := c.updateIn(&c.s.changes, ctx, fn)
	if errors.Is(err, errLarge) {
		err = c.updateIn(&c.s.largeChanges, ctx, fn)
	}
	return err
}

func (c *call) updateIn(t *turns, ctx context.Context, fn func(*change) error) error {
	full := c.mayGrow()
	done, err := t.take(ctx, c.who.User)
	if err != nil {
		return err
	}
	defer done()
	return c.updateOf(ctx, t == &c.s.changes, func(x *change) error {
		x.full = full
		return fn(x)
	})
}

// update runs fn in a transaction and brings the index up to date with it. fn may run more than
// once.
func (w *workspace) update(ctx context.Context, fn func(*change) error) error {
	return w.updateOf(ctx, false, fn)
}

func (w *workspace) updateOf(ctx context.Context, small bool, fn func(*change) error) error {
	defer w.index.removed.begin()()
	var c *change
	err := w.s.DB.Update(ctx, func(tx *store.Tx) error {
		if d, err := tx.Get("", kindWorkspaces, w.Key, ""); err != nil {
			return err
		} else if d.ID != w.Doc {
			return berth.Errorf(berth.NotFound, "the workspace was deleted")
		}
		c = &change{w: w, tx: tx, small: small}
		return fn(c)
	})
	if err != nil {
		return err
	}
	defer w.measure()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range c.put {
		w.index.put(e)
	}
	for _, e := range c.gone {
		w.index.remove(e)
	}
	return nil
}

// find reads an entity by its document's name; nil when there is none.
func find[T any, P interface {
	*T
	entity
}](c *change, kind, name, number string) (P, error) {
	d, err := c.tx.Get(c.w.Key, kind, name, number)
	if berth.CodeOf(err) == berth.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return read[T, P](c, d)
}

func read[T any, P interface {
	*T
	entity
}](c *change, d *store.Doc) (P, error) {
	if c.small && len(d.Own) >= largeEntity {
		return nil, errLarge
	}
	return decode[T, P](d)
}

// findNamed reads an entity by the hash of its name.
func findNamed[T any, P interface {
	*T
	entity
}](c *change, kind, name string) (P, error) {
	docs, err := c.tx.List(store.Query{Workspace: c.w.Key, Kind: kind, Hash: store.HashOfName(name), Limit: 1})
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	return read[T, P](c, docs[0])
}

// save writes an entity.
func (c *change) save(e entity) error {
	if r, ok := e.(*run); ok {
		if err := c.setApart(r); err != nil {
			return err
		}
	}
	body, err := encode(e)
	if err != nil {
		return err
	}
	kind, name, number, hash, parent := e.place()
	if c.full != nil && len(body) > e.document().size && !c.state {
		return c.full
	}
	if len(body) > maxEntity && len(body) > e.document().size && !c.state {
		return invalid("%s has more than %d MiB of tags, parameters and datasets with this request. Log large values as artifacts.",
			c.title(e), maxEntity>>20)
	}
	if c.small && len(body) >= largeEntity {
		return errLarge
	}
	d := &store.Doc{Workspace: c.w.Key, Kind: kind, Name: name, Version: number}
	old := e.document().doc
	if old != nil {
		*d = *old
	}
	d.Own, d.Hash, d.Parent = body, hash, parent
	if m, ok := e.(mortal); ok {
		d.Status = ""
		if m.isDeleted() {
			d.Status = deleted // by which it is found when it is due
		}
	}
	if old == nil {
		err = c.tx.Insert(d)
	} else {
		err = c.tx.Save(d)
	}
	if err != nil {
		return err
	}
	d.Own = nil
	e.document().doc, e.document().size = d, len(body)
	c.put = append(c.put, e)
	return nil
}

// title is what people call an entity.
func (c *change) title(e entity) string {
	switch e := e.(type) {
	case *experiment:
		return "experiment " + e.Name
	case *run:
		return "run " + e.ID
	case *loggedModel:
		return "logged model " + e.ID
	case *registered:
		return "model " + e.Name
	case *version:
		if m, err := find[registered](c, kindRegistered, e.Model, ""); err == nil && m != nil {
			return "version " + itoa(e.Number) + " of model " + m.Name
		}
		return "version " + itoa(e.Number)
	}
	return "the workspace"
}

// remove deletes an entity.
func (c *change) remove(e entity) error {
	if r, ok := e.(*run); ok {
		if err := c.removeApart(r); err != nil {
			return err
		}
	}
	kind, name, number, _, _ := e.place()
	if err := c.tx.Delete(c.w.Key, kind, name, number); err != nil {
		return err
	}
	rev, err := c.tx.Rev()
	if err != nil {
		return err
	}
	d := *e.document().doc
	d.Rev = rev
	e.document().doc = &d
	c.gone = append(c.gone, e)
	return nil
}

// now is the time of the change in milliseconds.
func (c *change) now() int64 { return c.tx.Now().UnixMilli() }
