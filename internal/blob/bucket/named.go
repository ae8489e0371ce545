package bucket

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Named is a bucket whose objects have names instead of hashes: for backups.
type Named struct{ b *Bucket }

// OpenNamed opens a bucket. It sends no request.
func OpenNamed(o Options) (*Named, error) {
	b, err := Open(o)
	return &Named{b}, err
}

// Close lets idle connections go.
func (n *Named) Close() error { return n.b.Close() }

func (n *Named) String() string { return n.b.uri }

func (n *Named) describe(doing string, err error) error {
	if code := berth.CodeOf(err); err == nil || code == berth.NotFound {
		return err
	}
	return berth.Errorf(berth.CodeOf(err), "%s in %s: %w", doing, n.b.uri, err)
}

// Put keeps the content of a file. It is there to stay when Put returns.
func (n *Named) Put(ctx context.Context, name string, f *os.File) error {
	return n.describe("storing "+name, n.b.at.PutObject(ctx, f, name))
}

// Get brings an object to a path. One that is not there is NotFound.
func (n *Named) Get(ctx context.Context, name, path string) error {
	return n.describe("fetching "+name, n.b.at.FetchObject(ctx, name, path))
}

// Remove removes an object. One that is not there is no error.
func (n *Named) Remove(ctx context.Context, name string) error { return n.b.remove(ctx, name) }

// List calls f for each object in a folder.
func (n *Named) List(ctx context.Context, folder string, f func(name string, size int64) error) error {
	return n.b.listFolder(ctx, folder, func(key string, size int64, _ time.Time) error {
		name := strings.TrimPrefix(key, n.b.prefix)
		return f(strings.TrimPrefix(name, "/"), size)
	})
}
