package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
)

// shipment is a folder, or a file of one, to keep. The command could write there, so it is opened
// as [data.OpenDir] does.
type shipment struct {
	output    string // as in berth.Report.Kept
	name      string // for people
	base, rel string // the folder is rel below base
	url       string
	below     string // of a file: URL, as in berth.LaunchOutput
	outside   *berth.Outside
	file      string // in the folder; empty for all of it
}

// logsFolder is the folder of logs that the command writes by itself.
const logsFolder = "./logs"

// shipments lists what there is to keep: the outputs, and ./outputs and ./logs when something is in
// them.
func (t *task) shipments() []shipment {
	var list []shipment
	for name, out := range t.l.Outputs {
		if strings.EqualFold(out.Mode, "direct") || out.URL == "" {
			continue
		}
		base, rel := t.outputPlace(name)
		s := shipment{output: name, name: berth.OutputLabel(name), base: base, rel: rel, url: out.URL, below: out.Below, outside: out.Outside}
		if isFile(out.Type) {
			s.file = baseName(out.URL)
		}
		list = append(list, s)
	}
	if t.l.Artifacts != "" {
		for _, folder := range []string{berth.OutputsFolder, logsFolder} {
			d := strings.TrimPrefix(folder, "./")
			s := shipment{output: folder, name: folder, base: t.o.Dir, rel: "wd/" + d, url: data.Join(t.l.Artifacts, d)}
			if kept := t.kept(); kept != "" {
				if to, err := os.Readlink(s.path()); err == nil && to == kept {
					s.base, s.rel = t.l.Keep, filepath.Base(kept)
				}
			}
			if t.wrote.Load() || !empty(s.path()) {
				list = append(list, s)
			}
		}
	}
	return list
}

func (s *shipment) path() string { return filepath.Join(s.base, s.rel, s.file) }

func (t *task) hasUploads() bool {
	return len(t.l.Outputs) > 0 || t.ships() || t.uprooted() || t.l.Artifacts != "" && len(t.shipments()) > 0
}

// upload keeps what the command made, also when it failed. A failure to do so fails a task that did
// not fail already.
func (t *task) upload(ctx context.Context, exit *berth.Exit) {
	t.times.Uploading = time.Now()
	was, interruptibly := t.stop, t.interruptibly
	if was != nil {
		// The request to stop comes again with the answer to each report. What the command left is
		// kept all the same.
		interruptibly = func(ctx context.Context, f func(context.Context) error) error { return f(ctx) }
	}
	err := interruptibly(ctx, t.awaitDir)
	list := t.shipments()
	if len(list) > 0 {
		names := t.noteKept(slices.DeleteFunc(slices.Clone(list), func(s shipment) bool { return empty(s.path()) })...)
		t.reportKept(names)
	}
	var partial []shipment
	err = errors.Join(err, interruptibly(ctx, func(ctx context.Context) error {
		if err := t.shipRest(ctx); err != nil {
			return err
		}
		if len(list) == 0 {
			return nil
		}
		client, done, err := t.data()
		if err != nil {
			return err
		}
		defer done()
		sent, err := openSent(t.o.Dir + SentSuffix)
		if err != nil {
			return err
		}
		defer sent.close()
		if early := sent.some(list); len(early) > 0 { // by an earlier runner, and perhaps not reported
			t.reportKept(t.noteKept(early...))
		}
		defer func() { partial = sent.some(list) }()
		for _, s := range list {
			if err := t.send(ctx, client, s, sent); err != nil {
				return fmt.Errorf("keeping %s: %w", s.name, err)
			}
			if exit.OK() {
				t.removeGone(ctx, client, s, sent)
			}
		}
		return nil
	}))
	if ctx.Err() == nil {
		t.namePartial(partial, exit.OK(), err)
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case t.stop != was: // asked to stop during the upload
		exit.Cause, exit.Reason = t.stop.cause(), t.stop.why()
	case exit.OK():
		exit.Cause, exit.Reason = "upload", err.Error()
	default:
		t.report(berth.TaskEnding, "uploading", func(r *berth.Report) { r.Warning = err.Error() })
	}
}

func (t *task) reportKept(names []string) {
	t.report(berth.TaskEnding, "uploading", func(r *berth.Report) { r.Kept = names })
}

// namePartial says which of the job's outputs that were kept may be incomplete, because the command
// did not succeed or the upload did not.
func (t *task) namePartial(list []shipment, ok bool, err error) {
	var names []string
	for _, s := range list {
		if s.output != berth.OutputsFolder && s.output != logsFolder {
			names = append(names, s.output)
		}
	}
	why := "as it was when the command ended without success"
	switch {
	case ok && err == nil || len(names) == 0:
		return
	case ok:
		why = "because not everything could be uploaded"
	}
	slices.Sort(names)
	t.report(berth.TaskEnding, "uploading", func(r *berth.Report) { r.Warning = berth.PartialOutputs(names, why) })
}

// uprooted says that not even the place of the task's directory is there: the home was moved, or
// removed.
func (t *task) uprooted() bool {
	_, err := os.Stat(filepath.Dir(t.o.Dir))
	return errors.Is(err, fs.ErrNotExist)
}

// awaitDir waits for a home that was moved to be found at its old path again: a server that is
// started at the new one sees to that.
func (t *task) awaitDir(ctx context.Context) error {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	late := time.After(cmp.Or(t.o.Patience, 10*time.Minute))
	for t.uprooted() {
		select {
		case <-tick.C:
		case <-late:
			return berth.Errorf(berth.Unavailable, "%s is gone, so nothing of what the command left there could be kept: the home was moved or removed while it ran", t.o.Dir)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// send keeps one thing. While the server is away it waits for it: what was computed is worth more
// than the time. Somebody else's server may never come.
func (t *task) send(ctx context.Context, c *data.Client, s shipment, sent *sent) error {
	begun, told := time.Now(), false
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		err := t.sendOnce(ctx, c, s, sent)
		if berth.CodeOf(err) != berth.Unavailable {
			return err
		}
		if !told {
			told = true
			t.report(berth.TaskEnding, "uploading", func(r *berth.Report) {
				r.Warning = fmt.Sprintf("%s is not kept yet: %v", s.name, err)
			})
		}
		if (s.outside != nil || !t.ours(s.url)) && time.Since(begun) > cmp.Or(t.o.Patience, 10*time.Minute) {
			return err
		}
		t.o.Log.Warn("upload waits", "task", t.l.Task, "what", s.name, "err", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// sendOnce tries to keep one thing. What is not kept because of what it is gets named in a warning.
func (t *task) sendOnce(ctx context.Context, c *data.Client, s shipment, sent *sent) error {
	warn := func(text string) {
		t.report(berth.TaskEnding, "uploading", func(r *berth.Report) { r.Warning = text })
	}
	c = c.Below(s.below)
	record := sent.below(s.name)
	var total data.Total
	var left *data.LeftOut
	dir, err := data.OpenDir(s.base, s.rel)
	switch {
	case errors.As(err, &left):
		// The command put something else in its place. What a link points to is not the command's.
		warn(s.name + " is no longer a folder, and was not kept")
		return nil
	case errors.Is(err, fs.ErrNotExist) && s.file == "":
		return nil
	case err == nil:
		defer dir.Close()
		if s.file == "" {
			list, err := t.putFolder(ctx, c, dir, s, record, &total)
			if err == nil && len(list) > 0 {
				warn(s.name + ": " + leftOut(list))
			}
			return err
		}
		if s.outside != nil {
			err = t.outside(c, s.outside).PutFile(ctx, dir, s.file, &total)
		} else {
			err = c.PutFile(ctx, dir, s.file, s.url, &total)
		}
		if err == nil {
			record.Add(s.file)
		}
	}
	switch {
	case errors.As(err, &left):
		warn(s.name + ": " + leftOut([]data.LeftOut{*left}))
	case errors.Is(err, fs.ErrNotExist):
		warn(fmt.Sprintf("%s: the command wrote no file at %s", s.name, s.path()))
	default:
		return err
	}
	return nil
}

func (t *task) putFolder(ctx context.Context, c *data.Client, dir *data.Dir, s shipment, sent data.Sent, total *data.Total) ([]data.LeftOut, error) {
	if s.outside != nil {
		return t.outside(c, s.outside).PutFolder(ctx, dir, sent, total)
	}
	return c.PutFolder(ctx, dir, s.url, sent, total)
}

// leftOut says what of a folder was not kept.
func leftOut(list []data.LeftOut) string {
	const most = 5
	var names []string
	for _, l := range list[:min(len(list), most)] {
		names = append(names, l.Error())
	}
	text := strings.Join(names, ", ")
	if more := len(list) - most; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text + ": not uploaded; put the files themselves into the output"
}

// ours says whether an address is on the server that this task belongs to, or on this machine.
func (t *task) ours(address string) bool {
	host := func(address string) string {
		if u, err := url.Parse(address); err == nil {
			return u.Host
		}
		return ""
	}
	at := host(address)
	return at == "" || at == host(t.l.Artifacts) || at == host(t.l.Home.URL)
}
