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
	mu sync.Mutex
	of map[string]chan struct{} // by user
}

// take waits for one of the user's turns; done gives it back. Each user has most of them.
func (t *turns) take(ctx context.Context, user string, most int) (done func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[string]chan struct{}{}
	}
	c := t.of[user]
	if c == nil {
		c = make(chan struct{}, most)
		t.of[user] = c
	}
	t.mu.Unlock()
	select {
	case c <- struct{}{}:
		return func() { <-c }, nil
	case <-ctx.Done():
		return nil, interrupted()
	}
}
