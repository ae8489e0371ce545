package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// hold is the context of an answer that goes on: it ends with the request, and with the caller's credentials.
func (c *call) hold() (context.Context, func()) {
	if _, ok := auth.From(c.ctx()); ok {
		return c.ctx(), func() {} // the local socket's owner has none to lose
	}
	return c.s.Authority.Hold(c.ctx(), auth.Bearer(c.r.Header.Get("Authorization")), c.who)
}

// flush pushes what was written to the client.
func (c *call) flush() {
	if f, ok := c.w.(http.Flusher); ok {
		f.Flush()
	}
}

// events serves a stream of events (Accept: text/event-stream) or a page of them, from ?from=REV on, of one subject or of a whole
// workspace.
func (s *Server) events(c *call, workspace, subject string) error {
	from, err := c.rev("from")
	if err != nil {
		return err
	}
	if !strings.Contains(c.r.Header.Get("Accept"), "text/event-stream") {
		limit := 500
		if v := c.q.Get("limit"); v != "" {
			if limit, err = strconv.Atoi(v); err != nil || limit < 1 || limit > 5000 {
				return berth.Errorf(berth.Invalid, "limit=%s is not a number from 1 to 5000", v)
			}
		}
		var evs []berth.Event
		err := s.DB.View(c.ctx(), func(tx *store.Tx) (err error) {
			evs, err = tx.Events(store.EventQuery{Workspace: workspace, Subject: subject, From: from, Limit: limit})
			return err
		})
		if err != nil {
			return err
		}
		if evs == nil {
			evs = []berth.Event{}
		}
		return c.send(http.StatusOK, map[string]any{"value": evs, "rev": s.DB.Rev()})
	}
	if v := c.r.Header.Get("Last-Event-ID"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return berth.Errorf(berth.Invalid, "Last-Event-ID %q is not a revision", v)
		}
		from = berth.Rev(n)
	}
	ctx, cancel := c.hold()
	defer cancel()
	c.startSSE()
	w := s.DB.Watch(ctx, from)
	if subject != "" {
		w = s.DB.WatchSubject(ctx, from, workspace, subject)
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

func (c *call) startSSE() {
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	c.sent = true
	c.w.WriteHeader(http.StatusOK)
	c.flush()
}

// endSSE tells a reader why its stream ended, when it is still there.
func (c *call) endSSE(err error) error {
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

// stdLog is the log a job's output goes to.
const stdLog = "user_logs/std_log.txt"

// logs serves the bytes of a log from ?offset=N on. With follow=true the answer goes on as the file grows and ends when the job
// has ended and everything was sent. tail=N begins N lines before the end. X-Berth-Offset says where the answer begins.
func (s *Server) logs(c *call, job string, p []string) error {
	name := path.Join(p...)
	if name == "" {
		name = stdLog
	}
	d, _, err := s.job(c, job)
	if err != nil {
		return err
	}
	own, err := s.storage(c.ctx(), c.ws)
	if err != nil {
		return err
	}
	blobName := locate.ArtifactPath(d.Name) + "/" + name
	file, err := s.logFile(c, own.Artifacts, blobName)
	if err != nil {
		return err
	}
	follow := strings.EqualFold(c.q.Get("follow"), "true") || c.q.Get("follow") == "1"
	if file == "" && !follow {
		if berth.JobStatus(d.Status).Terminal() && name != stdLog {
			return berth.Errorf(berth.NotFound, "job %s has no log %s", d.Name, name)
		}
		c.w.Header().Set("X-Berth-Offset", "0")
		return c.raw(nil)
	}
	l := &logReader{s: s, c: c, doc: d, container: own.Artifacts, name: blobName, path: file}
	return l.serve(follow)
}

// logFile is the path of a growing log, "" when it does not exist yet. A log that was stored as a finished blob is served by
// the blob front and not here.
func (s *Server) logFile(c *call, container, name string) (string, error) {
	var rel string
	err := s.DB.View(c.ctx(), func(tx *store.Tx) error {
		b, err := tx.Blob(container, name)
		if berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		rel = b.Live
		return nil
	})
	if err != nil || rel == "" {
		return "", err
	}
	return filepath.Join(s.Blobs.Dir(), filepath.FromSlash(rel)), nil
}

func (c *call) raw(b []byte) error {
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	c.sent = true
	c.w.WriteHeader(http.StatusOK)
	_, err := c.w.Write(b)
	return err
}

// logReader sends one log to one client.
type logReader struct {
	s         *Server
	c         *call
	doc       *store.Doc
	container string
	name      string
	path      string
	file      *os.File
	offset    int64
}

func (l *logReader) serve(follow bool) error {
	defer func() {
		if l.file != nil {
			l.file.Close() // opened for reading
		}
	}()
	if err := l.start(); err != nil {
		return err
	}
	h := l.c.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Berth-Offset", strconv.FormatInt(l.offset, 10))
	l.c.sent = true
	l.c.w.WriteHeader(http.StatusOK)
	if !follow {
		_, err := l.copy()
		return err
	}
	return l.follow()
}

// start finds the offset to begin at.
func (l *logReader) start() error {
	if err := l.open(); err != nil {
		return err
	}
	if v := l.c.q.Get("offset"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return berth.Errorf(berth.Invalid, "offset=%s is not a number of bytes", v)
		}
		l.offset = n
	}
	if v := l.c.q.Get("tail"); v != "" && l.file != nil {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return berth.Errorf(berth.Invalid, "tail=%s is not a number of lines", v)
		}
		l.offset, err = tailOffset(l.file, n)
		return err
	}
	return nil
}

// open opens the file when it is there.
func (l *logReader) open() error {
	if l.file != nil {
		return nil
	}
	if l.path == "" {
		p, err := l.s.logFile(l.c, l.container, l.name)
		if err != nil || p == "" {
			return err
		}
		l.path = p
	}
	f, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l.file = f
	return err
}

// copy sends what there is now.
func (l *logReader) copy() (int64, error) {
	if err := l.open(); err != nil || l.file == nil {
		return 0, err
	}
	info, err := l.file.Stat()
	if err != nil || info.Size() <= l.offset {
		return 0, err
	}
	if _, err := l.file.Seek(l.offset, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.CopyN(l.c.w, l.file, info.Size()-l.offset)
	l.offset += n
	l.c.flush()
	if err != nil && l.c.ctx().Err() != nil {
		return n, nil //nolint:nilerr // the client has gone
	}
	return n, err
}

// follow sends as the file grows, until the job has ended and the last byte was sent.
func (l *logReader) follow() error {
	l.c.flush() // the first byte may be long in coming
	ctx, cancel := l.c.hold()
	defer cancel()
	events := make(chan struct{}, 1)
	ended := make(chan struct{})
	go l.untilEnd(ctx, events, ended)
	var grew <-chan struct{}
	for {
		if grew == nil && l.file != nil {
			w, err := l.s.Watcher.Add(l.path)
			if err != nil {
				return err
			}
			defer w.Close()
			grew = w.C
		}
		if _, err := l.copy(); err != nil {
			return err
		}
		if l.file != nil && grew == nil {
			continue // it has just appeared: watch it before waiting
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			if ctx.Err() != nil {
				return nil
			}
			_, err := l.copy()
			return err
		case <-grew:
		case <-events:
		case <-l.missing():
		}
	}
}

// missing ticks while the log file is not there yet.
func (l *logReader) missing() <-chan time.Time {
	if l.file != nil {
		return nil
	}
	return time.After(50 * time.Millisecond)
}

// untilEnd closes ended once the job is in a final status, and hints at each change before.
func (l *logReader) untilEnd(ctx context.Context, events chan<- struct{}, ended chan<- struct{}) {
	defer close(ended)
	subject := "jobs/" + l.doc.Name
	rev := l.s.DB.Rev()
	over := func() bool {
		d, _, err := l.s.job(l.c, l.doc.Name)
		return err != nil || berth.JobStatus(d.Status).Terminal()
	}
	if over() {
		return
	}
	w := l.s.DB.WatchSubject(ctx, rev, l.doc.Workspace, subject)
	for {
		if _, err := w.Next(); err != nil || over() {
			return
		}
		select {
		case events <- struct{}{}:
		default:
		}
	}
}

// tailOffset is where the last n lines begin.
func tailOffset(f *os.File, n int) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size := info.Size()
	if n == 0 || size == 0 {
		return size, nil
	}
	buf := make([]byte, 64<<10)
	lines := 0
	for end := size; end > 0; {
		start := max(0, end-int64(len(buf)))
		b := buf[:end-start]
		if _, err := f.ReadAt(b, start); err != nil {
			return 0, err
		}
		for i := len(b) - 1; i >= 0; i-- {
			// The newline that ends the file ends its last line; it does not begin another.
			if b[i] == '\n' && start+int64(i) != size-1 {
				if lines++; lines == n {
					return start + int64(i) + 1, nil
				}
			}
		}
		end = start
	}
	return 0, nil
}
