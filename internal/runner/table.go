package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/mltable"
	"github.com/berthml/berth/internal/runner/data"
)

// An input in mode eval_mount or eval_download is what its MLTable file says. Where the files are
// listed before they are brought, only those of the table are; MLTable is one of them if rows have
// to be read.

// errNoTable says that a folder has no MLTable file.
var errNoTable = berth.Errorf(berth.Invalid, "the folder has no file named %s, which modes eval_mount and eval_download evaluate", mltable.Name)

// selectFiles is which of the files of a table's folder are brought to the node; read brings one of
// them to a path.
func (t *task) selectFiles(ctx context.Context, files []string, read func(i int, to string) error) ([]int, error) {
	at := slices.Index(files, mltable.Name)
	if at < 0 {
		return nil, errNoTable
	}
	dir, err := os.MkdirTemp(t.o.Dir, "table")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, mltable.Name)
	if err := read(at, path); err != nil {
		return nil, err
	}
	table, err := readTable(dir)
	if err != nil {
		return nil, err
	}
	names, err := table.Select(ctx, files)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, berth.Errorf(berth.Invalid, "no file is left of the table")
	}
	place := make(map[string]int, len(files))
	for i, f := range files {
		place[f] = i
	}
	var out []int
	if table.Rows() {
		out = append(out, at)
	}
	for _, n := range names {
		out = append(out, place[n])
	}
	slices.Sort(out)
	return out, nil
}

// readTable reads the MLTable file in a folder.
func readTable(dir string) (*mltable.Table, error) {
	f, err := os.Open(filepath.Join(dir, mltable.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoTable
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mltable.MaxSize+1))
	if err != nil {
		return nil, err
	}
	return mltable.Parse(text)
}

// tableManifest is the manifest of the files of a table.
func (t *task) tableManifest(ctx context.Context, c *data.Client, in berth.LaunchInput) ([]byte, error) {
	text, err := c.Manifest(ctx, in.URL, false)
	if err != nil {
		return nil, err
	}
	tree, err := berth.ParseTree(text)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(tree.Files))
	for i, f := range tree.Files {
		names[i] = f.Path
	}
	want, err := t.selectFiles(ctx, names, func(i int, to string) error {
		return c.Contents(ctx, in.URL, tree, []int{i}, func(int) string { return to })
	})
	if err != nil {
		return nil, err
	}
	out := tree.AppendHead(nil)
	for _, i := range want {
		out = tree.Files[i].AppendFile(out)
	}
	return tree.AppendEnd(out, len(want)), nil
}

// evaluateTree writes the rows of a table whose files are in the cache. It does nothing for one
// that has only files.
func (t *task) evaluateTree(ctx context.Context, x *tree, name string, in berth.LaunchInput) error {
	if !berth.EvaluatesInput(in.Mode) || !slices.ContainsFunc(x.use.Tree.Files, func(f berth.TreeFile) bool { return f.Path == mltable.Name }) {
		return nil
	}
	x.to, x.how = "", "with the rows that its MLTable file says"
	return t.evaluate(ctx, x.use.Dir, (*mltable.Table).Sort, t.to(name), in)
}

// fetchTable brings the whole folder of a table, and evaluates it.
func (t *task) fetchTable(ctx context.Context, c *data.Client, in berth.LaunchInput, to string, total *data.Total) error {
	dir, err := os.MkdirTemp(t.o.Dir, "table")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := c.Folder(ctx, in.URL, dir, total); err != nil {
		return err
	}
	return t.evaluate(ctx, dir, (*mltable.Table).Select, to, in)
}

// tableVars are the variables that say how the rows of evaluated tables of text are to be read.
// They are for our own worker (package parallel).
func (t *task) tableVars() (vars []string) {
	for name := range t.l.Inputs {
		if f, ok := t.forms[t.to(name)]; ok {
			raw, err := json.Marshal(f)
			if err == nil {
				vars = append(vars, "BERTH_TABLE_"+name+"="+string(raw))
			}
		}
	}
	return vars
}

// evaluate makes in the folder to what the table in dir says; choose is how the files are chosen
// of those that are there. Files of a table without rows are moved.
func (t *task) evaluate(ctx context.Context, dir string, choose func(*mltable.Table, context.Context, []string) ([]string, error), to string, in berth.LaunchInput) error {
	table, err := readTable(dir)
	if err != nil {
		return err
	}
	files, err := filesBelow(dir)
	if err == nil {
		files, err = choose(table, ctx, files)
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	if table.Rows() {
		if form, ok := table.Form(); ok {
			t.bringing.Lock()
			if t.forms == nil {
				t.forms = map[string]mltable.Form{}
			}
			t.forms[to] = form
			t.bringing.Unlock()
		}
		err = writeRows(ctx, table, dir, files, to)
	} else {
		err = move(dir, files, to)
	}
	if err != nil || berth.OwnsInput(in.Mode) {
		return err
	}
	return readOnly(to)
}

func writeRows(ctx context.Context, table *mltable.Table, dir string, files []string, to string) error {
	from, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer from.Close()
	target, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer target.Close()
	return table.Write(ctx, from, files, target)
}

func move(dir string, files []string, to string) error {
	for _, f := range files {
		target := filepath.Join(to, filepath.FromSlash(f))
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(dir, filepath.FromSlash(f)), target); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

// filesBelow are the files below a folder, with slashes.
func filesBelow(dir string) (out []string, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		out = append(out, filepath.ToSlash(strings.TrimPrefix(p, dir+string(filepath.Separator))))
		return nil
	})
	return out, err
}
