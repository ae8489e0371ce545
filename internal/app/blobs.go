package app

import (
	"fmt"
	"path/filepath"

	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/bucket"
	"github.com/berthml/berth/internal/config"
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
	id, secret, err := config.ReadKey(filepath.Join(a.cfg.Home, "blobs.key"))
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
