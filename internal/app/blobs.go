package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/bucket"
)

// openBlobs opens the storage of blobs: the folder in the home, or a bucket of which it is a cache.
func (a *App) openBlobs() (err error) {
	dir := filepath.Join(a.cfg.Home, "blobs")
	if a.cfg.Blobs == "" {
		if a.blobs, err = blob.Open(dir, a.db); err == nil {
			a.closers = append(a.closers, a.blobs.Close)
		}
		return err
	}
	id, secret, err := readBlobsKey(filepath.Join(a.cfg.Home, "blobs.key"))
	if err != nil {
		return err
	}
	b, err := bucket.Open(bucket.Options{URI: a.cfg.Blobs, Endpoint: a.cfg.BlobsEndpoint, Region: a.cfg.BlobsRegion, KeyID: id, Secret: secret})
	if err != nil {
		return fmt.Errorf("blobs in berth.yaml: %w", err)
	}
	a.closers = append(a.closers, b.Close)
	if a.blobs, err = blob.OpenRemote(dir, a.db, b, a.cfg.BlobsCache); err == nil {
		a.closers = append(a.closers, a.blobs.Close)
	}
	return err
}

// readBlobsKey reads the key of the bucket: its id and its secret, a line each.
func readBlobsKey(path string) (id, secret string, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", berth.Errorf(berth.Invalid, "blobs in berth.yaml names a bucket: write the access key id and the secret access key to %s, a line each", path)
	}
	if err != nil {
		return "", "", err
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = berth.Errorf(berth.Invalid, "%s can be read by others: run chmod 600 %s", path, path)
	}
	lines := strings.Fields(string(text))
	if err == nil && len(lines) != 2 {
		err = berth.Errorf(berth.Invalid, "%s must have two lines, the access key id and the secret access key", path)
	}
	if err != nil {
		return "", "", err
	}
	return lines[0], lines[1], nil
}
