package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/filewatch"
)

// Alone carries out one task in a process that a queueing system started for it, reports to the launch's home, and returns
// when the server has taken the report of the end. What it must remember is in dir: called again with the same dir, after
// the queueing system started it a second time, it does not run the command twice.
//
// It returns how the task ended also when the server could not be told before ctx ended; then there is an error too.
func Alone(ctx context.Context, l berth.Launch, dir string, e Environments, c *Control, log *slog.Logger) (berth.Exit, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return berth.Exit{}, err
	}
	home, err := NewHTTPHome(l.Home.URL, l.Home.CA)
	if err != nil {
		return berth.Exit{}, err
	}
	defer home.Close()
	last, err := loadMark(dir)
	if err != nil {
		return berth.Exit{}, err
	}
	watch, err := filewatch.New()
	if err != nil {
		log.Warn("no file notices", "err", err)
	} else {
		defer watch.Close()
	}
	if c == nil {
		c = new(Control)
	}
	told := make(chan struct{})
	var once sync.Once
	r := NewReporter(home, ReporterOptions{
		Delivered: func(r berth.Report) {
			if r.State == berth.TaskDone {
				once.Do(func() { close(told) })
			}
		},
		Stop: func(id berth.TaskID) {
			if id == l.Task {
				c.Stop(Stop{})
			}
		},
		Log: log,
	})
	rctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() { r.Run(rctx) })
	exit, err := Run(ctx, l, Options{
		Dir: filepath.Join(dir, "task"), Report: func(rep berth.Report) { r.Send(rctx, rep) }, Keep: func(m Mark) error { return saveMark(dir, m) }, Last: last,
		Control: c, Home: home, Envs: e, Watch: watch, Log: log,
	})
	if err != nil {
		return exit, err
	}
	select {
	case <-told:
		return exit, nil
	case <-ctx.Done():
		return exit, fmt.Errorf("telling the server how the task ended: %w", context.Cause(ctx))
	}
}

func markPath(dir string) string { return filepath.Join(dir, "mark.json") }

func loadMark(dir string) (m Mark, err error) {
	b, err := os.ReadFile(markPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

// saveMark replaces the mark as a whole, and on the disk: the directory may outlive the node.
func saveMark(dir string, m Mark) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(markPath(dir)+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), markPath(dir))
	}
	return err
}
