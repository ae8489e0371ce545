package track

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"golang.org/x/sync/semaphore"
)

// turnsOfUser is how many pieces of long histories are read for one user at a time, and how many
// large answers are sent.
const turnsOfUser = 4

// largeAnswer is how many bytes an answer has, or a thing in a list, to be sent in a turn of the
// user's: they are in memory for as long as the client takes to read them.
const largeAnswer = 128 << 10

// turnFor waits for a turn to send so many bytes, if they are many. A call has one turn at a time.
func (c *call) turnFor(size int) (done func(), err error) {
	if size < largeAnswer || c.turn {
		return func() {}, nil
	}
	give, err := c.s.answers.take(c.ctx, c.who.User)
	if err != nil {
		return nil, err
	}
	c.turn = true
	return func() { c.turn = false; give() }, nil
}

// patternsOfUser is how many searches with patterns run for one user at a time: they take the CPU.
const patternsOfUser = 2

// turnToCompare waits for a turn to find what a search looks for, if that is compared with
// patterns.
func (c *call) turnToCompare(s *search) (done func(), err error) {
	for i := range s.clauses {
		if s.clauses[i].hasPattern() {
			return c.s.patterns.take(c.ctx, c.who.User)
		}
	}
	return func() {}, nil
}

// An encoder makes JSON of an answer or its parts.
type encoder struct {
	c   *call
	buf bytes.Buffer
	to  *json.Encoder // to buf
}

// encode is v as JSON, good until the next is encoded. What turns out to be large is in memory in a
// turn only, which done gives back.
func (e *encoder) encode(v any) (b []byte, done func(), err error) {
	if b, err = e.marshal(v); err != nil {
		return nil, nil, err
	}
	if len(b) < largeAnswer || e.c.turn {
		return b, func() {}, nil
	}
	size := len(b)
	e.buf = bytes.Buffer{}
	if done, err = e.c.turnFor(size); err != nil {
		return nil, nil, err
	}
	if b, err = e.marshal(v); err != nil {
		done()
		return nil, nil, err
	}
	return b, done, nil
}

func (e *encoder) marshal(v any) ([]byte, error) {
	if e.to == nil {
		e.to = json.NewEncoder(&e.buf)
		e.to.SetEscapeHTML(false)
	}
	if e.buf.Cap() > largeAnswer {
		e.buf = bytes.Buffer{}
	}
	e.buf.Reset()
	if err := e.to.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(e.buf.Bytes(), []byte("\n")), nil
}

// turns let each user do a few things at a time.
type turns struct {
	most int64 // of a user

	mu sync.Mutex
	of map[string]*userTurns
}

// userTurns are the turns of a user who waits for one or has one.
type userTurns struct {
	*semaphore.Weighted
	calls int // that wait for a turn or have one; without any this is forgotten
}

// take waits for one of the user's turns; done gives it back.
func (t *turns) take(ctx context.Context, user string) (done func(), err error) {
	return t.takeSome(ctx, user, 1)
}

// takeSome waits for several turns at once, of which there have to be so many.
func (t *turns) takeSome(ctx context.Context, user string, n int64) (done func(), err error) {
	u := t.join(user)
	if u.Acquire(ctx, n) != nil {
		t.leave(user, u)
		return nil, interrupted()
	}
	return func() { u.Release(n); t.leave(user, u) }, nil
}

// try takes one of the user's turns if there is one.
func (t *turns) try(user string) (done func(), ok bool) {
	u := t.join(user)
	if !u.TryAcquire(1) {
		t.leave(user, u)
		return nil, false
	}
	return func() { u.Release(1); t.leave(user, u) }, true
}

func (t *turns) join(user string) *userTurns {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*userTurns{}
	}
	u := t.of[user]
	if u == nil {
		u = &userTurns{Weighted: semaphore.NewWeighted(t.most)}
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
