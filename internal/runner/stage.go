package runner

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data"
)

// MakeDir creates the directory of a task: the working directory wd in it, and outputs in that.
func MakeDir(dir string) error {
	wd := filepath.Join(dir, "wd")
	for _, d := range []string{dir, wd, filepath.Join(wd, "outputs")} {
		if err := os.Mkdir(d, 0o700); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

// stage makes the task's directories and brings code and inputs there.
func (t *task) stage(ctx context.Context) error {
	if err := t.o.MakeDir(t.o.Dir); err != nil {
		return err
	}
	if t.l.Code == "" && len(t.l.Inputs) == 0 && len(t.l.Outputs) == 0 {
		return nil
	}
	t.report(berth.TaskStarting, "staging", nil)
	t.values = make(map[string]string, len(t.l.Inputs)+len(t.l.Outputs))
	t.paths = map[string]string{}
	client, done, err := t.data()
	if err != nil {
		return err
	}
	defer done()
	return t.interruptibly(ctx, func(ctx context.Context) error {
		var total data.Total
		var fetches []func(context.Context) error // begun when all names are known to be good
		if t.l.Code != "" {
			fetches = append(fetches, func(ctx context.Context) error {
				there, err := t.bringCode(ctx, client)
				if err == nil && !there {
					err = t.roomy(ctx, func() error { return client.Below(t.l.CodeBelow).Folder(ctx, t.l.Code, t.workdir(), &total) })
					if err == nil {
						err = cache.Programs(t.workdir())
					}
				}
				if err != nil {
					return fmt.Errorf("code: %w", err)
				}
				return nil
			})
		}
		for name, in := range t.l.Inputs {
			value, fetch, err := t.input(name, in)
			if err != nil {
				return err
			}
			t.values["inputs."+name] = value
			if in.URL != "" || in.URI != "" {
				t.paths[name] = value
			}
			if fetch && berth.WritesInput(in.Mode) {
				t.warn("input " + name + ": mode rw_mount gives the command a copy of its own; what it changes there is not written back. Write to an output")
			}
			if fetch {
				fetches = append(fetches, func(ctx context.Context) error {
					there, err := t.bringInput(ctx, client, name, in)
					if err == nil && !there {
						err = t.roomy(ctx, func() error { return t.fetch(ctx, client, in, value, &total) })
					}
					if berth.CodeOf(err) == berth.NotFound && in.Outside == nil && in.URI != "" { // as its user knows it
						err = berth.Errorf(berth.NotFound, "there is nothing at %s", berth.CleanURL(in.URI))
					}
					if err != nil {
						return fmt.Errorf("input %s: %w", name, err)
					}
					return nil
				})
			}
		}
		for name, out := range t.l.Outputs {
			value, err := t.output(name, out)
			if err != nil {
				return err
			}
			t.values["outputs."+name] = value
			t.paths[name] = value
		}
		g, gctx := errgroup.WithContext(ctx)
		for _, f := range fetches {
			g.Go(func() error { return f(gctx) })
		}
		return g.Wait()
	})
}

// roomy brings something to the task's directory, once more where the disk was full and the cache
// has made room.
func (t *task) roomy(ctx context.Context, bring func() error) error {
	err := bring()
	if err != nil && ctx.Err() == nil && t.o.Cache != nil && t.o.Cache.MakeRoom(err) {
		err = bring()
	}
	return err
}

// input is what ${{inputs.name}} becomes, and whether data has to be brought there.
func (t *task) input(name string, in berth.LaunchInput) (value string, fetch bool, err error) {
	if in.URL == "" && in.URI == "" {
		return in.Value, false, nil
	}
	if err := berth.CheckName("input", name); err != nil {
		return "", false, err
	}
	mode := strings.ToLower(in.Mode)
	if mode == "direct" {
		if in.URI != "" {
			return in.URI, false, nil
		}
		return in.URL, false, nil
	}
	local, isLocal := data.LocalPath(in.URL)
	switch mode {
	case "", "readonlymount", "readwritemount", "ro_mount", "rw_mount", "mount":
		if isLocal { // the data is on this machine: mounting it is naming it
			if _, err := data.Within(in.Below, local); err != nil {
				return "", false, fmt.Errorf("input %s: %w", name, err)
			}
			return local, false, nil
		}
	case "download":
	case "evaldownload", "evalmount", "eval_download", "eval_mount":
		if !strings.EqualFold(in.Type, "mltable") {
			return "", false, berth.Errorf(berth.Invalid, "input %s: mode %s is for inputs of type mltable", name, in.Mode)
		}
	default:
		return "", false, berth.Errorf(berth.Invalid, "input %s: mode %q is not known", name, in.Mode)
	}
	dir := filepath.Join(t.o.Dir, "inputs", name)
	if isFile(in.Type) {
		return filepath.Join(dir, baseName(in.URL)), true, nil
	}
	return dir, true, nil
}

// isFile says whether data of this type is one file. Models are folders unless they are not, see
// fetch.
func isFile(kind string) bool { return strings.EqualFold(kind, "uri_file") }

func isModel(kind string) bool { return strings.HasSuffix(strings.ToLower(kind), "_model") }

// baseName is the last part of a URL's path.
func baseName(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "file"
	}
	n := path.Base(u.Path)
	if n == "." || n == "/" || n == ".." {
		return "file"
	}
	return n
}

// fetch brings an input to its path and write-protects it.
func (t *task) fetch(ctx context.Context, c *data.Client, in berth.LaunchInput, to string, total *data.Total) error {
	c = c.Below(in.Below)
	if berth.EvaluatesInput(in.Mode) {
		return t.fetchTable(ctx, c, in, to, total)
	}
	root := to
	var err error
	if isFile(in.Type) {
		root = filepath.Dir(to)
		if err = os.MkdirAll(root, 0o700); err == nil {
			err = c.File(ctx, in.URL, to, total)
		}
	} else {
		if err = os.MkdirAll(to, 0o700); err == nil {
			err = c.Folder(ctx, in.URL, to, total)
		}
		if berth.CodeOf(err) == berth.NotFound && isModel(in.Type) {
			// A model may be a single file. Its path is then the folder it is put in.
			err = c.File(ctx, in.URL, filepath.Join(to, baseName(in.URL)), total)
		}
	}
	if err != nil || berth.OwnsInput(in.Mode) {
		return err
	}
	return readOnly(root)
}

// readOnly write-protects a folder by its permissions.
func readOnly(root string) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(p, 0o500)
		}
		return os.Chmod(p, 0o400)
	})
}

// output is what ${{outputs.name}} becomes: a folder that exists, or the path of a file that does
// not yet.
func (t *task) output(name string, out berth.LaunchOutput) (string, error) {
	if err := berth.CheckName("output", name); err != nil {
		return "", err
	}
	if strings.EqualFold(out.Mode, "direct") {
		return out.URI, nil
	}
	base, rel := t.outputPlace(name)
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", err
	}
	// An earlier attempt may have left links in what it shares with this one.
	root, err := os.OpenRoot(base)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if err := root.MkdirAll(rel, 0o700); err != nil {
		return "", err
	}
	dir := filepath.Join(base, rel)
	if isFile(out.Type) {
		return filepath.Join(dir, baseName(out.URL)), nil
	}
	return dir, nil
}

// outputPlace is where the command writes a named output: rel below base.
func (t *task) outputPlace(name string) (base, rel string) {
	if t.l.Keep != "" {
		return t.l.Keep, filepath.Join("named", name)
	}
	return t.o.Dir, filepath.Join("outputs", name)
}

// interruptibly runs f with a context that also ends when the task is asked to stop.
func (t *task) interruptibly(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.o.Control.OnStop(cancel)
	err := f(ctx)
	t.o.Control.OnStop(nil)
	if s := t.o.Control.take(); s != nil {
		t.stop = s
		if err == nil {
			err = context.Canceled
		}
	}
	return err
}

// warn tells the user something about the task.
func (t *task) warn(text string) {
	t.report(berth.TaskStarting, "staging", func(r *berth.Report) { r.Warning = text })
}

// lookup resolves the expressions of a command.
func (t *task) lookup(expr string) (value string, given, known bool) {
	value, known = t.values[expr]
	return value, known, known
}

// spec is the command with its inputs and outputs filled in. env is nil for the machine as it is.
func (t *task) spec(env *envs.Env) (*Spec, error) {
	command, err := expand(t.l.Command, t.lookup, false)
	if err != nil {
		return nil, err
	}
	more := make(map[string]string, len(t.l.Env))
	for k, v := range t.l.Env {
		if more[k], err = expand(v, t.lookup, true); err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", k, err)
		}
	}
	if env != nil && env.Dir == "" && env.Container == nil { // a layer on the active environment takes its place
		for k, v := range env.Vars {
			if _, given := more[k]; given {
				more[k] = v
			}
		}
	}
	return &Spec{Command: command, Env: t.environ(env, more), Dir: t.workdir(), env: env, room: t.room, holds: t.holds()}, nil
}
