package track

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/berthml/berth/internal/track/points"
)

// Idle makes it look as if nobody had looked at a workspace for a time.
func (s *Service) Idle(ws Workspace, since time.Duration) {
	w := s.spaces[ws.ID]
	w.jobs.mu.Lock()
	defer w.jobs.mu.Unlock()
	w.jobs.at = w.jobs.at.Add(-since)
}

// Removals is how many things are remembered that are gone.
func (s *Service) Removals(ws Workspace) int {
	m := &s.spaces[ws.ID].index.removed
	return len(m.last) + len(m.past)
}

// Changes is how many changes of a workspace are before the writer of the database or with it.
func (s *Service) Changes(ws Workspace) int {
	m := &s.spaces[ws.ID].index.removed
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begun + m.left
}

// Waiting is how many changes of a user wait for a turn or have one, and how many for one of those
// of large things.
func (s *Service) Waiting(user string) (changes, large int) {
	of := func(t *turns) int {
		t.mu.Lock()
		defer t.mu.Unlock()
		if u := t.of[user]; u != nil {
			return u.calls
		}
		return 0
	}
	return of(&s.changes), of(&s.largeChanges)
}

// LargeTurn takes the turn of a user to change something large.
func (s *Service) LargeTurn(ctx context.Context, user string) (done func(), err error) {
	return s.largeChanges.take(ctx, user)
}

// Plant makes n finished runs by writing to the store many at a time, for benchmarks. Each has the
// metric acc, the parameters lr (10 values), seed (a value of its own) and group (7 values), and
// the tag team (1,000 values).
func (s *Service) Plant(ctx context.Context, ws Workspace, n int) error {
	w, err := s.open(ctx, ws)
	if err != nil {
		return err
	}
	for at := 0; at < n; at += 1000 {
		var entries []points.Entry
		err := w.update(ctx, func(c *change) error {
			entries = nil
			for i := at; i < min(at+1000, n); i++ {
				end := int64(i + 10)
				r := &run{
					ID: newID(), Experiment: "0", Name: "run-" + strconv.Itoa(i), User: "u", Status: finished, Stage: active, URI: "mlflow-artifacts:/0/x/artifacts",
					Start: int64(i), End: &end,
					Params: map[string]string{"lr": strconv.Itoa(i % 10), "seed": strconv.Itoa(i), "group": strconv.Itoa(i % 7)},
					Tags:   map[string]string{"team": fmt.Sprintf("t%d", i%1000), tagRunName: "run-" + strconv.Itoa(i)},
				}
				if err := c.save(r); err != nil {
					return err
				}
				entries = append(entries, points.Entry{Owner: r.ID, Key: "acc", Point: points.Point{Timestamp: 1, Value: float64(i*7919%n) / float64(n)}})
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := w.points.Append(entries); err != nil {
			return err
		}
	}
	return nil
}
