package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/runner/data"
)

// logName is the name the server knows a log by that has none of its own.
const logName = berth.StdLog

// ships says whether the log has to be sent.
func (t *task) ships() bool { return t.l.LogFile == "" && t.o.Home != nil }

// startShipping sends the log while the command runs; the returned function ends that.
func (t *task) startShipping(ctx context.Context) (end func()) {
	if !t.ships() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTimer(0)
		defer tick.Stop()
		var w *filewatch.Watch // of the first log; the others are looked at with it
		if t.o.Watch != nil {
			w, _ = t.o.Watch.Add(t.logPath())
		}
		defer w.Close()
		for {
			// Without notices the log is looked at once a second; with them a burst is sent as one.
			select {
			case <-w.Chan():
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := t.ship(ctx); err != nil && ctx.Err() == nil {
				t.o.Log.Debug("log waits", "task", t.l.Task, "err", err)
			}
			tick.Reset(time.Second)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// ship sends what the logs have and the server has not.
func (t *task) ship(ctx context.Context) error {
	if t.shipped == nil {
		t.shipped = t.logs()
	}
	var errs []error
	for i := range t.shipped {
		if err := t.shipOne(ctx, &t.shipped[i]); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	// One that may be had later is worth more trouble than one that is refused.
	for _, err := range errs {
		if left := new(data.LeftOut); errors.As(err, &left) {
			continue
		}
		if c := berth.CodeOf(err); c == berth.Unavailable || c == berth.Internal {
			return err
		}
	}
	return errs[0]
}

func (t *task) shipOne(ctx context.Context, o *output) error {
	f, err := data.OpenFile(o.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for stuck := 0; ; {
		n, err := f.ReadAt(buf, o.size)
		if n == 0 {
			if err == io.EOF {
				err = nil
			}
			return err
		}
		size, err := t.o.Home.AppendLog(ctx, Task{t.l.Task, t.l.Home.Token}, o.name, o.size, buf[:n])
		if err != nil {
			return err
		}
		if size <= o.size {
			if stuck++; stuck > 3 {
				return berth.Errorf(berth.Unavailable, "the server has %d bytes of the log and takes no more", size)
			}
		} else {
			stuck = 0
		}
		o.size = size
	}
}

// shipRest sends the rest of the log after the command ended, and waits for a server that is away.
func (t *task) shipRest(ctx context.Context) error {
	if !t.ships() {
		return nil
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		err := t.ship(ctx)
		code := berth.CodeOf(err)
		if left := new(data.LeftOut); errors.As(err, &left) {
			code = berth.Invalid // it stays what it is
		}
		switch code {
		case berth.Unavailable, berth.Internal:
		case "":
			return nil
		default:
			// The server does not want it. The command's end is not worth less for that.
			t.o.Log.Warn("the rest of the log was refused", "task", t.l.Task, "err", err)
			if left := new(data.LeftOut); errors.As(err, &left) {
				t.report(berth.TaskEnding, "uploading", func(r *berth.Report) {
					r.Warning = fmt.Sprintf("its log was replaced: %s is not the file it was, and what was not sent before is lost", filepath.Base(left.Name))
				})
			}
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}
