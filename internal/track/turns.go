package track

import (
	"context"
	"sync"
)

// turnsOfUser is how many pieces of long histories are read for one user at a time, and how many
// runs with long datasets are sent.
const turnsOfUser = 4

// turns let each user do a few things at a time.
type turns struct {
	most int // of a user

	mu sync.Mutex
	of map[string]*userTurns
}

// userTurns are the turns of a user who waits for one or has one.
type userTurns struct {
	taken chan struct{} // has an item for each
	calls int           // that wait for a turn or have one; without any this is forgotten
}

// take waits for one of the user's turns; done gives it back.
func (t *turns) take(ctx context.Context, user string) (done func(), err error) {
	u := t.join(user)
	select {
	case u.taken <- struct{}{}:
		return func() { <-u.taken; t.leave(user, u) }, nil
	case <-ctx.Done():
		t.leave(user, u)
		return nil, interrupted()
	}
}

func (t *turns) join(user string) *userTurns {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*userTurns{}
	}
	u := t.of[user]
	if u == nil {
		u = &userTurns{taken: make(chan struct{}, t.most)}
		t.of[user] = u
	}
	u.calls++
	return u
}

func (t *turns) leave(user string, u *userTurns) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.calls--; u.calls == 0 {
		delete(t.of, user)
	}
}
