package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
	"github.com/berthml/berth/internal/runner/stream"
)

// An input that is mounted read-only may be streamed: its files are fetched while the command reads
// them, and nothing of it is kept on the node. A job asks for it, or it is more than the node's
// disk has room for.

// streamed is an input that is streamed.
type streamed struct {
	name  string
	in    berth.LaunchInput
	files *stream.Tree
	count int
	bytes int64
	why   string
}

// to is the folder of an input in the task's directory.
func (t *task) to(name string) string { return filepath.Join(t.o.Dir, "inputs", name) }

// Why an input is streamed.
const (
	streamAsked  = "the job asks for it"
	streamNoRoom = "the node's disk has no room for it"
)

// errNoRoom says that an input does not fit on the disk.
var errNoRoom = errors.New("the input is larger than the room on the node's disk")

// fits refuses to bring bytes to the node for which its disk has no room, where the input can be
// streamed instead.
func (t *task) fits(in berth.LaunchInput, bytes int64) error {
	if berth.OwnsInput(in.Mode) || berth.EvaluatesInput(in.Mode) || t.streamless(t.boxed()) != "" {
		return nil
	}
	if free, ok := t.free(); ok && bytes > free {
		return errNoRoom
	}
	return nil
}

// free is the room on the node's disk.
func (t *task) free() (int64, bool) {
	if t.o.FreeDisk != nil {
		return t.o.FreeDisk(), true
	}
	return freeDisk(t.o.Dir)
}

// boxed says whether the command will run in a container.
func (t *task) boxed() bool {
	e := &t.l.Environment
	return !e.Host && (e.Image != "" || e.Build != "")
}

// streamless says why inputs cannot be streamed; empty where they can.
func (t *task) streamless(boxed bool) string {
	if t.noStreams != "" {
		return t.noStreams
	}
	if why := mountless(boxed); why != "" {
		return why
	}
	return stream.Trouble()
}

// streamOurs streams an input from the server's storage; false where it has to be brought.
func (t *task) streamOurs(ctx context.Context, c *data.Client, name string, in berth.LaunchInput, why string) (bool, error) {
	text, err := c.Manifest(ctx, in.URL, isFile(in.Type))
	switch berth.CodeOf(err) {
	case berth.Conflict, berth.Unsupported: // a file of it still grows, or the server is an older one
		t.warn(fmt.Sprintf("input %s is downloaded to the node and not streamed, since %v", name, err))
		return false, nil
	}
	if err != nil {
		return false, err
	}
	tr, err := berth.ParseTree(text)
	if err != nil || tr.Single && !isFile(in.Type) && !isModel(in.Type) {
		return false, err
	}
	files := make([]stream.File, len(tr.Files))
	for i, f := range tr.Files {
		files[i] = stream.File{Path: f.Path, Size: f.Size}
	}
	if tr.Single {
		files[0].Path = baseName(in.URL)
	}
	t.objects(t.addStream(name, in, files, c.Reader(in.URL, tr).Read, why), tr)
	return true, nil
}

// objects has the files of a tree read from the server's own disk, where this node shares it.
func (t *task) objects(x *streamed, tr *berth.Tree) {
	if t.l.Objects == "" {
		return
	}
	x.files.Local(func(i int) (*os.File, error) {
		hash := tr.Files[i].Hash
		return os.Open(filepath.Join(t.l.Objects, hash[:2], hash[2:]))
	})
}

// addStream takes a streamed input into the task.
func (t *task) addStream(name string, in berth.LaunchInput, files []stream.File, fetch stream.Fetch, why string) *streamed {
	x := &streamed{name: name, in: in, count: len(files), why: why}
	for _, f := range files {
		x.bytes += f.Size
	}
	last := time.Time{}
	x.files = stream.New(files, fetch, func(err error) {
		t.bringing.Lock()
		quiet := time.Since(last) < time.Minute
		if !quiet {
			last = time.Now()
		}
		t.bringing.Unlock()
		if !quiet {
			t.report(berth.TaskRunning, "", func(r *berth.Report) { r.Warning = fmt.Sprintf("input %s: %v", name, err) })
		}
	})
	t.bringing.Lock()
	t.streams = append(t.streams, x)
	t.bringing.Unlock()
	return x
}

// fetchStreams brings to the node what was to be streamed, and says why.
func (t *task) fetchStreams(ctx context.Context, why string) error {
	list := t.streams
	t.streams, t.noStreams = nil, why
	if len(list) == 0 {
		return nil
	}
	client, done, err := t.data()
	if err != nil {
		return err
	}
	defer done()
	for _, x := range list {
		x.files.Close()
		t.warn(fmt.Sprintf("input %s is downloaded to the node and not streamed, since %s", x.name, why))
		x.in.Stream = false
		there, err := t.bringInput(ctx, client, x.name, x.in)
		if err == nil && !there {
			to, _, e := t.input(x.name, x.in)
			if err = e; err == nil {
				err = t.fetch(ctx, client, x.in, to, new(data.Total))
			}
		}
		if err != nil {
			return fmt.Errorf("input %s: %w", x.name, err)
		}
	}
	return nil
}

// mountStreams mounts what is streamed. It is called in the room of the task.
func (t *task) mountStreams() error {
	for _, x := range t.streams {
		to := t.to(x.name)
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		if err := x.files.Mount(to); err != nil {
			return err
		}
	}
	return nil
}

// describe says for people what is streamed.
func (x *streamed) describe() string {
	files := "files"
	if x.count == 1 {
		files = "file"
	}
	return fmt.Sprintf("input %s: %d %s, %.1f MB, streamed while it is read, since %s", x.name, x.count, files, float64(x.bytes)/1e6, x.why)
}
