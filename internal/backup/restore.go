package backup

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/store"
)

// restoring is the file of a home that is not whole.
const restoring = "restoring"

// unfinished is the error of a home whose restore was cut short.
func unfinished(home string) error {
	return berth.Errorf(berth.Conflict, "%s was not restored completely: run `berth restore` again, or remove the folder", home)
}

// CheckHome refuses a home whose restore was cut short.
func CheckHome(home string) error {
	if _, err := os.Lstat(filepath.Join(home, restoring)); err == nil {
		return unfinished(home)
	}
	return nil
}

// mark is the contents of that file.
type mark struct {
	Backup string `json:"backup"`
}

// Restore makes a home of a backup. The home must be empty, or one whose restore from the same
// backup was cut short. configuration replaces berth.yaml of the backup; empty keeps that.
func Restore(ctx context.Context, from Place, id, home string, configuration []byte) (Manifest, error) {
	m, err := Read(ctx, from, id)
	if err != nil {
		return m, err
	}
	r := &restore{from: from, m: m, home: home, damaged: map[string]bool{}}
	for _, hash := range m.Damaged {
		r.damaged[hash] = true
	}
	lock, err := r.begin()
	if err != nil {
		return m, err
	}
	defer lock.Close()
	defer r.root.Close()
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return r.configure(ctx, configuration) },
		r.files, r.contents, r.database, r.finish,
	} {
		if err := step(ctx); err != nil {
			return m, err
		}
	}
	return m, nil
}

type restore struct {
	from    Place
	m       Manifest
	home    string
	root    *os.Root
	cfg     config.Config
	damaged map[string]bool
	temps   atomic.Int64
}

// begin marks the home as one that is not whole, before anything else is in it.
func (r *restore) begin() (*os.File, error) {
	if err := os.MkdirAll(r.home, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(r.home)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(r.home, restoring)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(entries) > 0:
		return nil, berth.Errorf(berth.Conflict, "%s is not empty; restore into an empty folder", r.home)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	lock, err := lockFile(path, "restore")
	if err != nil {
		return nil, err
	}
	var was mark
	if len(text) > 0 && (json.Unmarshal(text, &was) != nil || was.Backup != r.m.ID) {
		lock.Close()
		return nil, berth.Errorf(berth.Conflict, "%s is half restored from backup %s; restore that one, or remove the folder", r.home, was.Backup)
	}
	b, err := json.Marshal(mark{r.m.ID})
	if err == nil {
		_, err = lock.WriteAt(b, 0)
	}
	if err == nil {
		err = errors.Join(lock.Sync(), os.Chmod(r.home, 0o700), syncDir(r.home), syncDir(filepath.Dir(r.home)))
	}
	if err == nil {
		r.root, err = os.OpenRoot(r.home)
	}
	if err == nil {
		err = r.root.RemoveAll("restore.tmp")
	}
	if err == nil {
		err = r.root.Mkdir("restore.tmp", 0o700)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// fetch brings a content to a file in restore.tmp, and checks it.
func (r *restore) fetch(ctx context.Context, c Content) (name string, err error) {
	if !validHash(c.Hash) {
		return "", berth.Errorf(berth.Invalid, "the backup %s names a content %.80q, which is not a hash", r.m.ID, c.Hash)
	}
	name = "restore.tmp/" + strconv.FormatInt(r.temps.Add(1), 10)
	path := filepath.Join(r.home, filepath.FromSlash(name))
	if err := fetchChecked(ctx, r.from, c, path); err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	return name, errors.Join(f.Sync(), f.Close())
}

// fetchChecked brings a content to a path. One that is not what its name says is an error.
func fetchChecked(ctx context.Context, from Place, c Content, path string) error {
	err := from.Get(ctx, object(c.Hash), path)
	if berth.CodeOf(err) == berth.NotFound || errors.Is(err, fs.ErrNotExist) {
		return berth.Errorf(berth.NotFound, "the content %s is missing at %s", c.Hash, from)
	}
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := hashOf(f)
	if err == nil && got != c {
		err = berth.Errorf(berth.Invalid, "the content %s at %s is damaged: it has %d bytes with hash %s", c.Hash, from, got.Size, got.Hash)
	}
	return err
}

// is says whether a file has a content already.
func (r *restore) is(name string, c Content) bool {
	info, err := r.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != c.Size {
		return false
	}
	f, err := r.root.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	got, err := hashOf(f)
	return err == nil && got == c
}

// place makes a content the file of a name.
func (r *restore) place(ctx context.Context, name string, c Content) error {
	if r.is(name, c) {
		return nil
	}
	temp, err := r.fetch(ctx, c)
	if err != nil {
		return err
	}
	if err := r.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	return r.root.Rename(temp, name)
}

// configure writes the configuration, which says where the rest goes.
func (r *restore) configure(ctx context.Context, text []byte) error {
	if len(text) > 0 {
		if err := r.write(config.FileName, text); err != nil {
			return err
		}
	}
	for _, f := range r.m.Files {
		if f.Path == "blobs.key" || f.Path == config.FileName && len(text) == 0 {
			if err := r.place(ctx, f.Path, f.Content); err != nil {
				return err
			}
		}
	}
	var err error
	r.cfg, err = config.Load(r.home)
	return err
}

// write writes a file of the home to stay.
func (r *restore) write(name string, text []byte) error {
	f, err := r.root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// files brings the files, then the links: nothing is written through one.
func (r *restore) files(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, f := range r.m.Files {
		if err := r.check(f); err != nil {
			return err
		}
		if f.Folder {
			if err := r.root.MkdirAll(f.Path, 0o700); err != nil {
				return err
			}
		}
	}
	for _, f := range r.m.Files {
		if f.Folder || f.Link != "" || f.Path == config.FileName {
			continue
		}
		group.Go(func() error {
			err := r.place(ctx, f.Path, f.Content)
			if err == nil {
				err = errors.Join(r.root.Chmod(f.Path, fs.FileMode(f.Mode)&fs.ModePerm), r.root.Chtimes(f.Path, f.Modified, f.Modified))
			}
			if err != nil {
				return fmt.Errorf("restore %s: %w", f.Path, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, f := range r.m.Files {
		if f.Link == "" {
			continue
		}
		if to, err := r.root.Readlink(f.Path); err == nil && to == f.Link {
			continue
		}
		if err := r.root.MkdirAll(path.Dir(f.Path), 0o700); err != nil {
			return err
		}
		if err := r.root.Symlink(f.Link, f.Path); err != nil {
			return err
		}
	}
	for i := len(r.m.Files) - 1; i >= 0; i-- { // one that may not be written to comes after what is in it
		if f := r.m.Files[i]; f.Folder {
			if err := r.root.Chmod(f.Path, fs.FileMode(f.Mode)&fs.ModePerm); err != nil {
				return err
			}
		}
	}
	return nil
}

// check refuses a path that no backup of a home has.
func (r *restore) check(f File) error {
	if first, _, _ := strings.Cut(f.Path, "/"); !filepath.IsLocal(f.Path) || first == restoring || first == "restore.tmp" || first == "run" {
		return berth.Errorf(berth.Invalid, "the backup %s has a file %.200q, which is not allowed", r.m.ID, f.Path)
	}
	return nil
}

// contents brings the contents of blobs to the folder of the home, or to its bucket.
func (r *restore) contents(ctx context.Context) error {
	temp, err := r.fetch(ctx, r.m.Contents)
	if err != nil {
		return err
	}
	list, err := r.root.Open(temp)
	if err != nil {
		return err
	}
	defer list.Close()
	put := func(ctx context.Context, c Content) error { return r.place(ctx, "blobs/"+object(c.Hash), c) }
	if r.cfg.Blobs != "" {
		b, err := openBucket(r.cfg)
		if err != nil {
			return err
		}
		defer b.Close()
		put = func(ctx context.Context, c Content) error {
			if _, err := b.Modified(ctx, c.Hash); err == nil {
				return nil // a whole one: it appears when all of it is there
			}
			temp, err := r.fetch(ctx, c)
			if err != nil {
				return err
			}
			f, err := r.root.Open(temp)
			if err != nil {
				return err
			}
			defer f.Close()
			return errors.Join(b.Put(ctx, c.Hash, f), r.root.Remove(temp))
		}
	}
	return eachContent(ctx, list, r.damaged, put)
}

// eachContent calls f for each content of a list that is not damaged, several at a time.
func eachContent(ctx context.Context, list io.Reader, damaged map[string]bool, f func(context.Context, Content) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	lines := bufio.NewScanner(list)
	for lines.Scan() && ctx.Err() == nil {
		hash, size, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil || !validHash(hash) {
			return errors.Join(group.Wait(), berth.Errorf(berth.Invalid, "the list of contents is damaged at %.80q", lines.Text()))
		}
		if !damaged[hash] {
			group.Go(func() error { return f(ctx, Content{hash, n}) })
		}
	}
	return errors.Join(group.Wait(), lines.Err())
}

// database brings the database.
func (r *restore) database(ctx context.Context) error {
	temp, err := r.fetch(ctx, r.m.Database)
	if err != nil {
		return err
	}
	url := r.cfg.DatabaseURL()
	if url == config.Default(r.home).DatabaseURL() { // one of a restore that was cut short: no server starts in this home
		for _, name := range []string{"berth.db", "berth.db-wal", "berth.db-shm"} {
			if err := os.Remove(filepath.Join(r.home, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return store.Restore(ctx, filepath.Join(r.home, filepath.FromSlash(temp)), url, r.m.ID)
}

// finish makes everything durable, and the home whole.
func (r *restore) finish(context.Context) error {
	if err := r.root.RemoveAll("restore.tmp"); err != nil {
		return err
	}
	err := filepath.WalkDir(r.home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = syncDir(path)
		}
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(r.home, restoring)), syncDir(r.home))
}
