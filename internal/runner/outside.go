package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data"
	"github.com/berthml/berth/internal/runner/stream"
)

// outside is a place in storage elsewhere, to which the server signs the requests.
func (t *task) outside(c *data.Client, at *berth.Outside) *data.Outside {
	return c.Outside(at, func(ctx context.Context, grant string, rs []berth.OutsideRequest) ([]string, error) {
		if t.o.Home == nil {
			return nil, berth.Errorf(berth.Unsupported, "this runner has no server that signs requests to datastore %s", at.Datastore)
		}
		return t.o.Home.SignStorage(ctx, Task{t.l.Task, t.l.Home.Token}, grant, rs)
	})
}

// bringOutside brings an input from storage elsewhere to the cache. Storage that does not answer is
// waited for, and it says so.
func (t *task) bringOutside(ctx context.Context, c *data.Client, name string, in berth.LaunchInput) error {
	if t.o.Cache == nil {
		return berth.Errorf(berth.Unsupported, "this runner has no cache, which inputs from datastores outside of the server need")
	}
	begun, changed, told := time.Now(), 0, false
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		use, err := t.getOutside(ctx, c, name, in)
		if err == nil {
			if use != nil {
				x := t.brought("input "+name, use)
				x.to, x.write = t.to(name), berth.OwnsInput(in.Mode)
				return t.evaluateTree(ctx, x, name, in)
			}
			return nil
		}
		switch code := berth.CodeOf(err); {
		case code == berth.Conflict && changed < 5: // it is being written to
			changed++
		case code != berth.Unavailable || time.Since(begun) > cmp.Or(t.o.Patience, 10*time.Minute):
			return err
		}
		t.report(berth.TaskStarting, "staging", func(r *berth.Report) {
			r.Detail = fmt.Sprintf("input %s is waited for: %v", name, err)
			if !told {
				r.Warning = r.Detail
			}
		})
		told = true
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// getOutside looks at what is there now, and has the cache bring what it does not have. It returns
// nil where the input is streamed.
func (t *task) getOutside(ctx context.Context, c *data.Client, name string, in berth.LaunchInput) (*cache.Use, error) {
	o := t.outside(c, in.Outside)
	p := cache.Place{Scope: in.Outside.Scope}
	var list []data.Object
	var err error
	if isFile(in.Type) {
		p.Single = true
	} else {
		list, p.Skipped, err = o.List(ctx)
		if berth.CodeOf(err) == berth.NotFound && isModel(in.Type) {
			p.Single = true // a model may be a single file
		} else if err != nil {
			return nil, err
		}
	}
	if p.Single {
		x, err := o.Stat(ctx)
		if err != nil {
			return nil, err
		}
		list = []data.Object{x}
	}
	if berth.EvaluatesInput(in.Mode) {
		if list, err = t.tableObjects(ctx, o, list); err != nil {
			return nil, err
		}
	}
	p.Files = make([]cache.PlaceFile, len(list))
	for i, x := range list {
		p.Files[i] = cache.PlaceFile{Path: x.Path, Size: x.Size, Tag: x.Tag}
	}
	if p.Single {
		p.Files[0].Path = baseName(in.URL)
	}
	if len(list) == 0 {
		return nil, berth.Errorf(berth.Invalid, "no name at %s of datastore %s can be that of a file", in.Outside.At, in.Outside.Datastore)
	}
	if in.Stream {
		why := o.SendsParts(ctx, list)
		if why == nil {
			t.streamOutside(name, in, o, list, p, streamAsked)
			return nil, nil
		}
		if berth.CodeOf(why) != berth.Unsupported {
			return nil, why
		}
		t.warn(fmt.Sprintf("input %s is downloaded to the node and not streamed, since %v", name, why))
	}
	p.Room = func(want []int) error {
		var bytes int64
		for _, i := range want {
			bytes += list[i].Size
		}
		return t.fits(in, bytes)
	}
	p.Fetch = func(ctx context.Context, want []int, to func(int) string) error {
		if err := p.Room(want); err != nil {
			return err
		}
		return o.Fetch(ctx, list, want, to)
	}
	use, err := t.o.Cache.GetPlace(ctx, p)
	if errors.Is(err, errNoRoom) {
		t.streamOutside(name, in, o, list, p, streamNoRoom)
		return nil, nil
	}
	return use, err
}

// tableObjects are those of the objects in a table's folder that are brought.
func (t *task) tableObjects(ctx context.Context, o *data.Outside, list []data.Object) ([]data.Object, error) {
	names := make([]string, len(list))
	for i, x := range list {
		names[i] = x.Path
	}
	want, err := t.selectFiles(ctx, names, func(i int, to string) error {
		return o.Fetch(ctx, list, []int{i}, func(int) string { return to })
	})
	out := make([]data.Object, len(want))
	for i, at := range want {
		out[i] = list[at]
	}
	return out, err
}

// streamOutside streams an input from storage elsewhere.
func (t *task) streamOutside(name string, in berth.LaunchInput, o *data.Outside, list []data.Object, p cache.Place, why string) {
	files := make([]stream.File, len(list))
	for i, f := range p.Files {
		files[i] = stream.File{Path: f.Path, Size: f.Size}
	}
	t.addStream(name, in, files, o.Reader(list).Read, why)
}
