package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// inputService joins what users type with the commands that read it. Nothing of it is stored.
type inputService struct {
	front *Server

	mu    sync.Mutex
	pipes map[string]*inputPipe // by workspace and job
}

// inputPipe is the way from a user to a command. It is there while one of them is.
type inputPipe struct {
	r           *io.PipeReader
	w           *io.PipeWriter
	user, taker bool
	typed, read chan struct{} // closed when the user, and the runner, has come
}

// inputPatience is how long a command waits for the user who is to type.
const inputPatience = 2 * time.Minute

// join finds the pipe of a job, for its user or its runner; leave must be called at the end.
func (s *inputService) join(key string, user bool) (p *inputPipe, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = s.pipes[key]
	if p == nil {
		p = &inputPipe{typed: make(chan struct{}), read: make(chan struct{})}
		p.r, p.w = io.Pipe()
		if s.pipes == nil {
			s.pipes = map[string]*inputPipe{}
		}
		s.pipes[key] = p
	}
	mine, came := &p.taker, p.read
	if user {
		mine, came = &p.user, p.typed
	}
	if *mine {
		return nil, nil, berth.Errorf(berth.Conflict, "somebody is already connected to the input of this job")
	}
	*mine = true
	close(came)
	return p, func() {
		p.w.Close()
		p.r.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pipes[key] == p {
			delete(s.pipes, key) // whoever is left notices, and the next attempt has one of its own
		}
	}, nil
}

// input takes what the user of a job types, over a connection that goes on as long as the job.
func (s *inputService) input(c *call, name string) error {
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), berth.InputProtocol) {
		return berth.Errorf(berth.Invalid, "use `berth run -i`")
	}
	var d *store.Doc
	err := s.front.DB.View(c.ctx(), func(tx *store.Tx) (err error) {
		d, err = tx.Get(c.ws.Key(), "jobs", name, "")
		return err
	})
	switch {
	case err != nil:
		return c.missing(err, s.front.docs.row("jobs"), name, "")
	case c.who.Role == auth.Reader || d.CreatedBy != c.who.User && c.who.Role != auth.Admin:
		return berth.Errorf(berth.Denied, "job %s belongs to %s; only they and administrators may type into it", d.Name, d.CreatedBy)
	case berth.JobStatus(d.Status).Terminal():
		return berth.Errorf(berth.Conflict, "job %s has ended", d.Name)
	}
	ctx, cancel := s.front.gate.untilStop(c.ctx(), c.w)
	defer cancel()
	if bearer := auth.Bearer(c.r.Header.Get("Authorization")); bearer != "" {
		var release func()
		ctx, release = s.front.Authority.Hold(ctx, bearer, c.who)
		defer release()
	}
	p, leave, err := s.join(d.Workspace+"/"+d.Name, true)
	if err != nil {
		return err
	}
	defer leave()
	near, rw, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		return berth.Errorf(berth.Invalid, "an interactive job needs HTTP/1.1")
	}
	defer near.Close()
	c.sent = true
	if _, err := io.WriteString(near, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+berth.InputProtocol+"\r\n\r\n"); err != nil {
		return nil // the client has gone
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	var group sync.WaitGroup
	group.Go(func() {
		defer done()
		_, _ = io.Copy(p.w, rw)
		p.w.Close()
	})
	select {
	case <-p.read:
		if _, err := near.Write([]byte{berth.InputReady}); err == nil {
			<-ctx.Done()
		}
	case <-ctx.Done():
	}
	near.Close()
	p.r.Close()
	group.Wait()
	return nil
}

// taken sends the runner of a task what its user types, frame by frame, until the user goes.
func (s *inputService) taken(c *call) error {
	id := berth.TaskID(c.r.PathValue("id"))
	// The token itself is looked at: over the socket of the home the caller is its owner.
	of, err := s.front.Authority.Keys.CheckTask(auth.Bearer(c.r.Header.Get("Authorization")), c.now)
	if err != nil || of != id {
		return berth.Errorf(berth.Denied, "this token does not open task %s", id)
	}
	var t *berth.Task
	err = s.front.DB.View(c.ctx(), func(tx *store.Tx) (err error) {
		t, err = tx.Task(id)
		return err
	})
	if err != nil {
		return err
	}
	if t.State == berth.TaskDone {
		return berth.Errorf(berth.Gone, "task %s is over", id)
	}
	ctx, cancel := s.front.gate.untilStop(c.ctx(), c.w)
	defer cancel()
	p, leave, err := s.join(t.Workspace+"/"+t.Job, false)
	if err != nil {
		return err
	}
	defer leave()
	defer context.AfterFunc(ctx, func() { p.r.CloseWithError(ctx.Err()) })()
	out := http.NewResponseController(c.w)
	c.w.Header().Set("Content-Type", "application/octet-stream")
	c.sent = true
	c.w.WriteHeader(http.StatusOK)
	if err := out.Flush(); err != nil {
		return nil // the runner has gone
	}
	wait := time.NewTimer(inputPatience)
	defer wait.Stop()
	select {
	case <-p.typed:
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return nil
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := p.r.Read(buf)
		if n > 0 {
			if _, werr := c.w.Write(buf[:n]); werr != nil || out.Flush() != nil {
				return nil
			}
		}
		if err != nil {
			return nil // the user has gone
		}
	}
}
