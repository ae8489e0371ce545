package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// streamCall is a call whose answer goes on: a log that is followed, or events.
type streamCall struct{ *call }

// eventService serves events, and counts who follows them or a log.
type eventService struct {
	db        *store.DB
	followers followers
}

// hold is the context of an answer that goes on: it ends with the request, with the caller's
// credentials, and when the server stops.
func (c streamCall) hold() (context.Context, func()) {
	ctx, end := c.s.gate.untilStop(c.ctx(), c.w)
	if _, ok := auth.From(ctx); ok {
		return ctx, end // the local socket's owner has no credentials to lose
	}
	ctx, release := c.s.Authority.Hold(ctx, auth.Bearer(c.r.Header.Get("Authorization")), c.who)
	return ctx, func() { release(); end() }
}

// flush pushes what was written to the client.
func (c streamCall) flush() {
	if f, ok := c.w.(http.Flusher); ok {
		f.Flush()
	}
}

// events serves a stream of events (Accept: text/event-stream) or a page of them, from ?from=REV
// on, of one subject or of a whole workspace.
func (s *eventService) events(c *call, workspace, subject string) error {
	from, err := c.rev("from")
	if err != nil {
		return err
	}
	if !strings.Contains(c.r.Header.Get("Accept"), "text/event-stream") {
		return s.page(c, store.EventQuery{Workspace: workspace, Subject: subject, From: from, Limit: 500})
	}
	if v := c.r.Header.Get("Last-Event-ID"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return berth.Errorf(berth.Invalid, "Last-Event-ID %q is not a revision", v)
		}
		from = berth.Rev(n)
	}
	return s.stream(streamCall{c}, workspace, subject, from)
}

// page answers with events that there are.
func (s *eventService) page(c *call, q store.EventQuery) (err error) {
	if v := c.q.Get("limit"); v != "" {
		if q.Limit, err = strconv.Atoi(v); err != nil || q.Limit < 1 || q.Limit > 5000 {
			return berth.Errorf(berth.Invalid, "limit=%s is not a number from 1 to 5000", v)
		}
	}
	events := []berth.Event{}
	err = s.db.View(c.ctx(), func(tx *store.Tx) error {
		some, err := tx.Events(q)
		events = append(events[:0], some...)
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"value": events, "rev": s.db.Rev()})
}

// stream sends events as they happen, until the client goes or may not see them any more.
func (s *eventService) stream(c streamCall, workspace, subject string, from berth.Rev) error {
	done, err := c.follower()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := c.hold()
	defer cancel()
	c.startSSE()
	w := s.db.Watch(ctx, from)
	if subject != "" {
		w = s.db.WatchSubject(ctx, from, workspace, subject)
	}
	for {
		batch, err := w.Next()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return c.endSSE(err)
		}
		for _, e := range batch {
			if workspace != "" && e.Workspace != workspace {
				continue
			}
			b, err := json.Marshal(e)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(c.w, "id: %d\nevent: %s\ndata: %s\n\n", e.Rev, e.Type, b); err != nil {
				return nil // the client has gone
			}
		}
		c.flush()
	}
}

// allEvents is the events of the whole server, those that belong to no workspace too.
func (s *eventService) allEvents(c *call) error {
	if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may see the events of the whole server")
	}
	return s.events(c, "", "")
}

func (c streamCall) startSSE() {
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	c.sent = true
	c.w.WriteHeader(http.StatusOK)
	c.flush()
}

// endSSE tells a reader why its stream ended, when it is still there.
func (c streamCall) endSSE(err error) error {
	if c.ctx().Err() != nil {
		return nil //nolint:nilerr // the client has gone
	}
	_, werr := fmt.Fprintf(c.w, "event: end\ndata: {\"code\":%q,\"message\":%q}\n\n", berth.CodeOf(err), err.Error())
	return werr
}

func (c *call) rev(name string) (berth.Rev, error) {
	v := c.q.Get(name)
	switch v {
	case "":
		return 0, nil
	case "now":
		return c.s.DB.Rev(), nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return 0, berth.Errorf(berth.Invalid, "%s=%s is not a revision", name, v)
	}
	return berth.Rev(n), nil
}

func (c *call) raw(b []byte) error {
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	c.sent = true
	c.w.WriteHeader(http.StatusOK)
	_, err := c.w.Write(b)
	return err
}
