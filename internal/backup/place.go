package backup

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob/bucket"
	"github.com/berthml/berth/internal/config"
)

// Place is where backups are kept. Its methods are safe for concurrent use.
type Place interface {
	// Put keeps the content of a file. It is there whole and to stay when Put returns.
	Put(ctx context.Context, name string, f *os.File) error
	// Get brings an object to a path. It is NotFound for one that is not there.
	Get(ctx context.Context, name, path string) error
	Remove(ctx context.Context, name string) error
	// List calls f for each object in a folder, at any depth.
	List(ctx context.Context, folder string, f func(name string, size int64) error) error
	// Lock keeps other processes from changing it, where that can be done.
	Lock() (unlock func(), err error)
	String() string
}

// PlaceOptions say how a place is opened.
type PlaceOptions struct {
	At         string // a folder, or s3://BUCKET/PREFIX
	Endpoint   string // of S3; empty is Amazon
	Region     string
	KeyFile    string // a file with the access key id and the secret access key, a line each
	Passphrase string // empty: the place is not encrypted
	Create     bool   // make it where there is none
}

// header is the file that says that a place is one.
type header struct {
	Format int        `json:"format"`
	Sealed *sealParam `json:"encryption,omitempty"`
}

// Open opens a place, and makes it where that is asked for.
func Open(ctx context.Context, o PlaceOptions) (Place, error) {
	var p Place
	if strings.HasPrefix(o.At, "s3://") {
		id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
		if o.KeyFile != "" {
			var err error
			if id, secret, err = config.ReadKey(o.KeyFile); err != nil {
				return nil, err
			}
		}
		if id == "" || secret == "" {
			return nil, berth.Errorf(berth.Invalid, "%s needs a key: name a file with --key-file, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", o.At)
		}
		b, err := bucket.OpenNamed(bucket.Options{URI: o.At, Endpoint: o.Endpoint, Region: o.Region, KeyID: id, Secret: secret})
		if err != nil {
			return nil, err
		}
		p = unlocked{b}
	} else {
		dir, err := filepath.Abs(o.At)
		if err != nil {
			return nil, err
		}
		p = Folder(dir)
	}
	return prepare(ctx, p, o)
}

// unlocked is a bucket: nothing keeps two programs from using it at the same time.
type unlocked struct{ *bucket.Named }

func (unlocked) Lock() (func(), error) { return func() {}, nil }

// prepare reads, or writes, the header of a place.
func prepare(ctx context.Context, p Place, o PlaceOptions) (Place, error) {
	temp, done, err := scratch(commonTemp())
	if err != nil {
		return nil, err
	}
	defer done()
	path := filepath.Join(temp, "header")
	var h header
	err = p.Get(ctx, placeFile, path)
	switch {
	case err == nil:
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if json.Unmarshal(text, &h) != nil || h.Format != format {
			return nil, berth.Errorf(berth.Unsupported, "%s in %s is not of a format that this Berth knows", placeFile, p)
		}
	case berth.CodeOf(err) != berth.NotFound && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case !o.Create:
		return nil, berth.Errorf(berth.NotFound, "there are no backups at %s", p)
	default:
		if err := vacant(ctx, p); err != nil {
			return nil, err
		}
		h.Format = format
		if o.Passphrase != "" {
			if h.Sealed, err = newSeal(o.Passphrase); err != nil {
				return nil, err
			}
		}
		text, err := json.Marshal(h)
		if err != nil {
			return nil, err
		}
		if err := putText(ctx, p, path, placeFile, text); err != nil {
			return nil, err
		}
	}
	switch {
	case h.Sealed == nil && o.Passphrase == "":
		return p, nil
	case h.Sealed == nil:
		return nil, berth.Errorf(berth.Conflict, "the backups at %s are not encrypted; leave the passphrase out, or use another place", p)
	case o.Passphrase == "":
		return nil, berth.Errorf(berth.Invalid, "the backups at %s are encrypted; name the file of the passphrase with --passphrase-file", p)
	}
	return openSealed(p, *h.Sealed, o.Passphrase)
}

func putText(ctx context.Context, p Place, path, name string, text []byte) error {
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return p.Put(ctx, name, f)
}

// vacant refuses a folder that has something else in it.
func vacant(_ context.Context, p Place) error {
	dir, ok := p.(Folder)
	if !ok {
		return nil // a prefix of a bucket may be anything
	}
	entries, err := os.ReadDir(string(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(entries) > 0 && !(len(entries) == 1 && entries[0].Name() == "tmp") {
		return berth.Errorf(berth.Conflict, "%s is not empty, and has no backups; choose another folder", dir)
	}
	return err
}

// Folder is a place that is a folder of this machine. Only its owner can read it.
type Folder string

func (d Folder) String() string { return string(d) }

func (d Folder) path(name string) string { return filepath.Join(string(d), filepath.FromSlash(name)) }

// Put keeps the content of a file.
func (d Folder) Put(ctx context.Context, name string, f *os.File) error {
	to := d.path(name)
	for _, dir := range []string{filepath.Dir(to), d.path("tmp")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	out, err := os.CreateTemp(d.path("tmp"), "put-") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(out.Name()) // gone when it was renamed
	_, err = io.Copy(out, f)
	if err := errors.Join(err, out.Sync(), out.Close(), ctx.Err()); err != nil {
		return berth.Errorf(berth.Unavailable, "writing to %s: %w", d, err)
	}
	if err := os.Rename(out.Name(), to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// Get copies an object to a path.
func (d Folder) Get(_ context.Context, name, path string) error {
	in, err := os.Open(d.path(name))
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Remove removes an object.
func (d Folder) Remove(_ context.Context, name string) error {
	err := os.Remove(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// List lists a folder.
func (d Folder) List(ctx context.Context, folder string, f func(name string, size int64) error) error {
	return filepath.WalkDir(d.path(folder), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return errors.Join(err, ctx.Err())
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(string(d), path)
		if err != nil {
			return err
		}
		return f(filepath.ToSlash(rel), info.Size())
	})
}

// Lock takes the folder for this process, and removes what one that was killed left.
func (d Folder) Lock() (func(), error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, err
	}
	f, err := lockFile(d.path("lock"), "backup")
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(d.path("tmp")); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
