package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
)

// What a command writes to its outputs is sent while it runs, so that it is not lost with the node:
// each file once it has not changed from one look to the next. At the end everything is sent again,
// and what the command removed meanwhile is deleted.

const (
	// throughEvery is how long after a look the next one comes, at least; throughPause is how many
	// times as long as a look took.
	throughEvery = 5 * time.Second
	throughPause = 4
	// throughIdle is how many times as long the pause becomes while there are no files.
	throughIdle = 6
	// throughMost is how many files of an output are looked after. Others are sent at the end.
	throughMost = 100_000
)

// through sends files while the command runs.
type through struct {
	t      *task
	ring   func() // there is something to report
	cancel context.CancelFunc

	looking sync.Mutex // held during a look
	timer   *time.Timer
	sent    *sent // nil before the first look that finds something
	folders map[string]*folder
	trouble bool // an error was reported

	telling sync.Mutex
	reports []func(*berth.Report)
}

// folder is what is known of a shipment, by path.
type folder struct {
	seen map[string]data.State // at the last look
	kept map[string]data.State // as it was sent
}

// startThrough begins to send files. It rings when report has something to do.
func (t *task) startThrough(ctx context.Context, ring func()) *through {
	if t.l.Artifacts == "" && len(t.l.Outputs) == 0 {
		return nil
	}
	x := &through{t: t, ring: ring, folders: map[string]*folder{}}
	ctx, x.cancel = context.WithCancel(ctx)
	every := cmp.Or(t.o.Through, throughEvery)
	wait := every
	x.looking.Lock()
	defer x.looking.Unlock()
	x.timer = time.AfterFunc(wait, func() {
		x.looking.Lock()
		defer x.looking.Unlock()
		if ctx.Err() != nil {
			return
		}
		begun := time.Now()
		if wait = min(2*wait, throughIdle*every); x.look(ctx) {
			wait = max(every, throughPause*time.Since(begun))
		}
		x.timer.Reset(wait)
	})
	return x
}

// close ends it, and waits for a look that is under way.
func (x *through) close() {
	if x == nil {
		return
	}
	x.cancel()
	x.looking.Lock()
	defer x.looking.Unlock()
	x.timer.Stop()
	x.sent.close()
}

// tell has something reported by whoever follows the command.
func (x *through) tell(f func(*berth.Report)) {
	x.telling.Lock()
	x.reports = append(x.reports, f)
	x.telling.Unlock()
	x.ring()
}

// report reports what there is to tell.
func (x *through) report() {
	x.telling.Lock()
	reports := x.reports
	x.reports = nil
	x.telling.Unlock()
	for _, f := range reports {
		x.t.report(berth.TaskRunning, "running", f)
	}
}

// look sends what has not changed since the last look. It says whether there is anything.
func (x *through) look(ctx context.Context) bool {
	list := slices.DeleteFunc(x.t.shipments(), func(s shipment) bool {
		// A file of a share, or of many web servers, has its name before it has its content.
		return s.outside != nil && (s.outside.Protocol == berth.OutsideShare || s.outside.Protocol == berth.OutsideHTTP)
	})
	if len(list) == 0 {
		return false
	}
	err := x.open(list)
	if err == nil {
		var client *data.Client
		var done func()
		if client, done, err = x.t.data(); err == nil {
			defer done()
			for _, s := range list {
				if serr := x.lookAt(ctx, x.t.store(client, s), s); serr != nil {
					err = errors.Join(err, fmt.Errorf("%s: %w", s.name, serr))
				}
			}
		}
	}
	if err == nil || ctx.Err() != nil {
		return true
	}
	x.t.o.Log.Warn("outputs not sent yet", "task", x.t.l.Task, "err", err)
	if !x.trouble {
		x.trouble = true
		x.tell(func(r *berth.Report) {
			r.Warning = fmt.Sprintf("what the command writes could not be uploaded while it runs, and is tried again: %v", err)
		})
	}
	return true
}

// open opens the file of what was sent, and reports what an earlier runner sent.
func (x *through) open(list []shipment) (err error) {
	if x.sent != nil {
		return nil
	}
	if x.sent, err = openSent(x.t.o.Dir + SentSuffix); err == nil {
		x.note(x.sent.some(list)...)
	}
	return err
}

// lookAt is look for one folder, or one file.
func (x *through) lookAt(ctx context.Context, to store, s shipment) error {
	dir, err := data.OpenDir(s.base, s.rel)
	if err != nil {
		return nil // the command moved it; the end of the task says so
	}
	defer dir.Close()
	before, now := x.folders[s.name], &folder{map[string]data.State{}, map[string]data.State{}}
	if before == nil {
		before = new(folder)
	}
	x.folders[s.name] = now
	var ready []string
	complete, err := dir.Scan(ctx, func(rel string, state data.State) error {
		if s.file != "" && rel != s.file || strings.ContainsRune(rel, '\n') || !berth.TreePath(rel) || len(now.seen) >= throughMost {
			return nil
		}
		now.seen[rel] = state
		if sent, ok := before.kept[rel]; ok && sent == state {
			now.kept[rel] = state
		} else if was, ok := before.seen[rel]; ok && was == state {
			ready = append(ready, rel)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(ready) > 0 {
		x.note(s)
	}
	early := x.sent.early(s.name)
	for _, rel := range ready {
		err := to.put(ctx, dir, rel, now.seen[rel])
		if changed, left := new(data.Changed), new(data.LeftOut); errors.As(err, &changed) || errors.As(err, &left) || err != nil && !dir.Has(rel) {
			continue
		}
		if err != nil {
			return err
		}
		now.kept[rel] = now.seen[rel]
		early.Add(rel)
		x.t.wrote.Store(true)
	}
	if !complete || x.t.shared() {
		return nil
	}
	return removeMissing(ctx, dir, now, to, early)
}

// removeMissing deletes what was sent and is not in the directory any more.
func removeMissing(ctx context.Context, dir *data.Dir, now *folder, to store, early sentBelow) error {
	for _, rel := range early.names() {
		if _, ok := now.seen[rel]; ok || dir.Has(rel) {
			continue
		}
		if err := to.remove(ctx, rel); err != nil {
			return err
		}
		early.forget(rel)
	}
	return nil
}

// note has it reported that something of each shipment is being sent.
func (x *through) note(list ...shipment) {
	known := len(x.t.noteKept())
	if names := x.t.noteKept(list...); len(names) > known {
		x.tell(func(r *berth.Report) { r.Kept = names })
	}
}

// noteKept adds to the outputs of which something was sent or is about to be, and returns all of
// them. They are reported before the first file is sent: what is in storage when the node is lost
// is then known to be a part.
func (t *task) noteKept(list ...shipment) []string {
	t.noting.Lock()
	defer t.noting.Unlock()
	for _, s := range list {
		if s.output != logsFolder && !slices.Contains(t.sentOf, s.output) {
			t.sentOf = append(t.sentOf, s.output)
		}
	}
	slices.Sort(t.sentOf)
	return slices.Clone(t.sentOf)
}

// shared says that other nodes of the job write to the same outputs, so that a file which is not on
// this one may be theirs.
func (t *task) shared() bool { return t.l.Group != nil && len(t.l.Group.Nodes) > 1 }

// store is where a shipment is kept.
type store struct {
	put    func(ctx context.Context, d *data.Dir, rel string, was data.State) error
	remove func(ctx context.Context, rel string) error
}

func (t *task) store(c *data.Client, s shipment) store {
	c = c.Below(s.below)
	if s.outside != nil {
		o := t.outside(c, s.outside)
		name := func(rel string) string {
			if s.file != "" {
				return ""
			}
			return rel
		}
		return store{
			func(ctx context.Context, d *data.Dir, rel string, was data.State) error {
				return o.PutSteady(ctx, d, rel, name(rel), was)
			},
			func(ctx context.Context, rel string) error { return o.Remove(ctx, name(rel)) },
		}
	}
	at := func(rel string) string {
		if s.file != "" {
			return s.url
		}
		return data.Join(s.url, rel)
	}
	return store{
		func(ctx context.Context, d *data.Dir, rel string, was data.State) error {
			return c.PutSteady(ctx, d, rel, at(rel), was)
		},
		func(ctx context.Context, rel string) error { return c.Remove(ctx, at(rel)) },
	}
}

// removeGone deletes what was sent while the command ran and is not among what it left.
func (t *task) removeGone(ctx context.Context, c *data.Client, s shipment, sent *sent) {
	early := sent.early(s.name)
	names := early.names()
	if len(names) == 0 {
		return
	}
	dir, err := data.OpenDir(s.base, s.rel)
	if err == nil {
		defer dir.Close()
	}
	to := t.store(c, s)
	var left []string
	for _, rel := range names {
		if dir != nil && dir.Has(rel) {
			continue
		}
		var why error
		if !t.shared() {
			why = to.remove(ctx, rel)
		}
		if t.shared() || why != nil {
			t.o.Log.Warn("removed by the command, and still there", "task", t.l.Task, "what", s.name, "file", rel, "err", why)
			left = append(left, rel)
			continue
		}
		early.forget(rel)
	}
	if len(left) > 0 && ctx.Err() == nil {
		const most = 5
		text := strings.Join(left[:min(len(left), most)], ", ")
		if more := len(left) - most; more > 0 {
			text += fmt.Sprintf(" (and %d more)", more)
		}
		t.report(berth.TaskEnding, "uploading", func(r *berth.Report) {
			r.Warning = s.name + ": the command removed " + text + " after it was uploaded, and it was not deleted there"
		})
	}
}
