package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// stdLog is the log a job's output goes to, and rankLog that of the first of several processes.
const (
	stdLog  = berth.StdLog
	rankLog = "user_logs/std_log_process_0.txt"
)

// logs serves the bytes of a log from ?offset=N on: what each attempt at the job wrote, one after
// the other. With follow=true the answer goes on as the file grows and ends when the job has ended
// and everything was sent; one that ends earlier, as that of a server that stops, is cut off, so
// that no client takes it for the whole. tail=N begins N lines before the end. X-Berth-Offset says
// where the answer begins. Without a name it is the log of the process that failed, which
// X-Berth-Log then names, or of the first one. Who goes on somewhere goes on in the first one's.
func (s *jobService) logs(c *call, job string, p []string) error {
	d, st, err := s.job(c, job)
	if err != nil {
		return err
	}
	own, err := s.workspaces.storage(c.ctx(), c.ws)
	if err != nil {
		return err
	}
	l := &logReader{s: s, c: c, doc: d, container: own.Artifacts, folder: locate.ArtifactPath(d.Name) + "/", name: path.Join(p...)}
	if at := c.q.Get("offset"); l.name == "" && (at == "" || at == "0") && st.Exit != nil && st.Exit.Log != "" && !st.Exit.OK() {
		l.name = st.Exit.Log
		c.w.Header().Set("X-Berth-Log", l.name)
	}
	named := l.name != "" && l.name != stdLog
	defer l.close()
	if err := l.find(); err != nil {
		return err
	}
	follow := strings.EqualFold(c.q.Get("follow"), "true") || c.q.Get("follow") == "1"
	if len(l.parts) == 0 && !follow {
		if berth.JobStatus(d.Status).Terminal() && named {
			return berth.Errorf(berth.NotFound, "job %s has no log %s; it has %s", d.Name, l.name, orElse(strings.Join(l.there, ", "), "none"))
		}
		c.w.Header().Set("X-Berth-Offset", "0")
		return c.raw(nil)
	}
	if follow {
		done, err := streamCall{c}.follower()
		if err != nil {
			return err
		}
		defer done()
	}
	return l.serve(follow)
}

// logReader sends one log to one client.
type logReader struct {
	s         *jobService
	c         *call
	doc       *store.Doc
	container string
	folder    string
	name      string   // below folder; "" until it is known which
	there     []string // the names of all logs
	parts     []string // files, one for each attempt; the last may grow
	at        int      // which of them is open
	base      int64    // where that one begins
	file      *os.File
	offset    int64
}

// find looks which files make up the log now. A log that was stored as a finished blob is served by
// the blob front and not here.
func (l *logReader) find() error {
	var parts []string
	err := l.s.db.View(l.c.ctx(), func(tx *store.Tx) error {
		blobs, err := tx.ListBlobs(store.BlobQuery{Container: l.container, Prefix: l.folder + "user_logs/"})
		if err != nil {
			return err
		}
		live := map[string]string{}
		for _, b := range blobs {
			if b.Live != "" {
				live[strings.TrimPrefix(b.Name, l.folder)] = filepath.Join(l.s.blobs.Dir(), filepath.FromSlash(b.Live))
			}
		}
		l.there = slices.Sorted(maps.Keys(live))
		for _, name := range []string{stdLog, rankLog} {
			if l.name == "" && live[name] != "" {
				l.name = name
			}
		}
		parts = attempts(live, l.name)
		return nil
	})
	if err == nil && len(parts) >= len(l.parts) {
		l.parts = parts
	}
	return err
}

// attempts are the files of a log, those of earlier attempts first.
func attempts(live map[string]string, name string) (files []string) {
	type part struct {
		attempt int
		file    string
	}
	var old []part
	for k, file := range live {
		if rest, ok := strings.CutPrefix(k, "user_logs/attempt_"); ok {
			n, base, _ := strings.Cut(rest, "/")
			if attempt, err := strconv.Atoi(n); err == nil && "user_logs/"+base == name {
				old = append(old, part{attempt, file})
			}
		}
	}
	slices.SortFunc(old, func(a, b part) int { return cmp.Compare(a.attempt, b.attempt) })
	for _, p := range old {
		files = append(files, p.file)
	}
	if live[name] != "" {
		files = append(files, live[name])
	}
	return files
}

func (l *logReader) serve(follow bool) error {
	if err := l.start(); err != nil {
		return err
	}
	h := l.c.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Berth-Offset", strconv.FormatInt(l.offset, 10))
	l.c.sent = true
	l.c.w.WriteHeader(http.StatusOK)
	if !follow {
		return l.copy()
	}
	return l.follow()
}

// start finds the offset to begin at.
func (l *logReader) start() error {
	if v := l.c.q.Get("offset"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return berth.Errorf(berth.Invalid, "offset=%s is not a number of bytes", v)
		}
		l.offset = n
	}
	v := l.c.q.Get("tail")
	if v == "" {
		return nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return berth.Errorf(berth.Invalid, "tail=%s is not a number of lines", v)
	}
	for l.at < len(l.parts)-1 {
		if err := l.next(); err != nil {
			return err
		}
	}
	if err := l.open(); err != nil || l.file == nil {
		l.offset = l.base
		return err
	}
	at, err := tailOffset(l.file, n)
	l.offset = l.base + at
	return err
}

// open opens the present part when it is there.
func (l *logReader) open() error {
	if l.file != nil || l.at >= len(l.parts) {
		return nil
	}
	rel, err := filepath.Rel(l.s.blobs.Dir(), l.parts[l.at])
	if err != nil {
		return err
	}
	f, err := l.s.blobs.OpenLive(filepath.ToSlash(rel), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l.file = f
	return nil
}

// next goes on to the part after the present one, which does not grow any more.
func (l *logReader) next() error {
	if err := l.open(); err != nil {
		return err
	}
	if l.file != nil {
		info, err := l.file.Stat()
		if err != nil {
			return err
		}
		l.base += info.Size()
	}
	l.close()
	l.at++
	return nil
}

func (l *logReader) close() {
	if l.file != nil {
		l.file.Close() // opened for reading
		l.file = nil
	}
}

// copy sends what there is now.
func (l *logReader) copy() error {
	for {
		if err := l.open(); err != nil {
			return err
		}
		if l.file != nil {
			if err := l.send(); err != nil || l.c.ctx().Err() != nil {
				return err
			}
		}
		if l.at >= len(l.parts)-1 {
			return nil
		}
		if err := l.next(); err != nil {
			return err
		}
	}
}

// send sends the rest of the present part.
func (l *logReader) send() error {
	info, err := l.file.Stat()
	if err != nil || l.base+info.Size() <= l.offset {
		return err
	}
	from := max(0, l.offset-l.base)
	if _, err := l.file.Seek(from, io.SeekStart); err != nil {
		return err
	}
	n, err := io.CopyN(l.c.w, l.file, info.Size()-from)
	l.offset = l.base + from + n
	streamCall{l.c}.flush()
	if err != nil && l.c.ctx().Err() != nil {
		return nil //nolint:nilerr // the client has gone
	}
	return err
}

// follow sends as the file grows, until the job has ended and the last byte was sent.
func (l *logReader) follow() error {
	streamCall{l.c}.flush() // the first byte may be long in coming
	ctx, cancel := streamCall{l.c}.hold()
	defer cancel()
	events := make(chan struct{}, 1)
	ended := make(chan struct{})
	go l.untilEnd(ctx, events, ended)
	var grew <-chan struct{}
	watched := ""
	stop := func() {}
	defer func() { stop() }()
	for {
		if err := l.copy(); err != nil {
			return err
		}
		if l.file != nil && watched != l.parts[l.at] { // it has just appeared: watch it, and look once more before waiting
			stop()
			w, err := l.s.watcher.Add(l.parts[l.at])
			if err != nil {
				return err
			}
			stop, grew, watched = func() { w.Close() }, w.C, l.parts[l.at]
			continue
		}
		select {
		case <-ctx.Done():
			return l.cut(ctx)
		case <-ended:
			if ctx.Err() != nil {
				return l.cut(ctx)
			}
			if err := l.find(); err != nil {
				return err
			}
			return l.copy()
		case <-grew:
		case <-events: // another attempt may have begun
			if err := l.find(); err != nil {
				return err
			}
		case <-l.missing():
			if err := l.find(); err != nil {
				return err
			}
		}
	}
}

// cut is the error of an answer that ends before the log does, as that of a server that stops; nil
// when the client has gone.
func (l *logReader) cut(ctx context.Context) error {
	if l.c.ctx().Err() != nil {
		return nil //nolint:nilerr // the client has gone
	}
	return context.Cause(ctx)
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
	rev := l.s.db.Rev()
	over := func() bool {
		d, _, err := l.s.job(l.c, l.doc.Name)
		return err != nil || berth.JobStatus(d.Status).Terminal()
	}
	if over() {
		return
	}
	w := l.s.db.WatchSubject(ctx, rev, l.doc.Workspace, subject)
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
