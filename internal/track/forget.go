package track

import (
	"context"
	"errors"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track/points"
)

const (
	// kindForgotten is a document that asks for the points of a deleted workspace to be removed.
	// Its name is the ID of what they belong to.
	kindForgotten = "forgottenTracking"
	// subjectForgotten is of the event that tells of one.
	subjectForgotten = "tracking/forgotten"
	// forgetAgain is when what could not be removed is tried again.
	forgetAgain = time.Minute
)

// Forget asks for the removal of a workspace's points, in the transaction that deletes the
// workspace. Only the process that has them open can remove them, see [Service.Run].
func Forget(tx *store.Tx, id string) error {
	if id == "" {
		return berth.Errorf(berth.Internal, "a workspace without storage has no points")
	}
	tx.Emit(berth.Event{Subject: subjectForgotten, Type: berth.EventResourceDel, Reason: "a workspace was deleted"})
	return tx.Insert(&store.Doc{Kind: kindForgotten, Name: id})
}

// Run removes the points of workspaces that were deleted, and once an hour the runs and logged
// models that were deleted long enough ago, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	collect := time.Now().Add(collectPause)
	for {
		if s.KeepDeleted > 0 && time.Now().After(collect) {
			s.collectDue(ctx)
			collect = time.Now().Add(collectPause)
		}
		from := s.DB.Rev()
		left, err := s.forgetAll(ctx)
		if err != nil {
			return err
		}
		wait, cancel := ctx, func() {}
		switch {
		case left:
			wait, cancel = context.WithTimeout(ctx, forgetAgain)
		case s.KeepDeleted > 0:
			wait, cancel = context.WithDeadline(ctx, collect)
		}
		_, err = s.DB.WatchSubject(wait, from, "", subjectForgotten).Next()
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && berth.CodeOf(err) != berth.Gone {
			return err
		}
	}
}

// forgetAll removes what is asked for. left says that something could not be.
func (s *Service) forgetAll(ctx context.Context) (left bool, err error) {
	var asked []*store.Doc
	err = s.DB.View(ctx, func(tx *store.Tx) (err error) {
		asked, err = tx.List(store.Query{Kind: kindForgotten})
		return err
	})
	for _, d := range asked {
		if err := s.forget(d.Name); err != nil {
			s.Log.Error("points of a deleted workspace are left over", "id", d.Name, "err", err)
			left = true
			continue
		}
		err := s.DB.Update(ctx, func(tx *store.Tx) error { return tx.Delete("", kindForgotten, d.Name, "") })
		if err != nil && berth.CodeOf(err) != berth.NotFound {
			return left, err
		}
	}
	return left, err
}

// forget ends the tracking of a workspace, and removes its points. Its documents and blobs went
// with it.
func (s *Service) forget(id string) error {
	s.mu.Lock()
	w := s.spaces[id]
	delete(s.spaces, id)
	s.gone[id] = true
	s.mu.Unlock()
	if w != nil {
		w.once.Do(func() { w.err = store.ErrClosed })
		if w.points != nil {
			if err := w.points.Close(); err != nil {
				return err
			}
		}
	}
	return points.Remove(pointDir(s.Dir, id))
}
