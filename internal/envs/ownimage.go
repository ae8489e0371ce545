package envs

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/docker"
)

// The names of images that the cache made of somebody's packages, or of their build context.
const (
	ownDerived = "localhost/berth-env"
	ownBuilt   = "localhost/berth-build"
)

// isOwnImage says whether a reference names an image that the cache made. Podman completes short
// names with localhost/.
func isOwnImage(ref string) bool {
	r, err := docker.ParseReference(ref)
	name := "localhost/" + strings.TrimPrefix(strings.ToLower(r.Name), "localhost/")
	return err == nil && (name == ownDerived || name == ownBuilt)
}

// ownImageError refuses an image of the cache to who names it: it is for those who have the
// packages, or the files, that it was made of.
func ownImageError(ref string) error {
	return berth.Errorf(berth.Denied, "image %s was made by this server for an environment and cannot be used by its name: "+
		"use that environment, or the image that it is based on", ref)
}

// An imageNote is what the cache remembers of an image it made: the time of the file is that of its
// last use.
type imageNote struct {
	Ref    string `json:"ref"`
	Engine string `json:"engine"`
	Bytes  int64  `json:"bytes"`
}

// noteImage notes a use of an image; bytes is what it added, or 0 when that is known already.
func (c *Cache) noteImage(eng *engine, ref, hash string, bytes int64) {
	file := c.path("images", hash+".json")
	now := time.Now()
	if bytes == 0 && os.Chtimes(file, now, now) == nil {
		return
	}
	b, err := json.Marshal(imageNote{Ref: ref, Engine: eng.host, Bytes: bytes})
	if err != nil {
		return
	}
	if err := os.WriteFile(file, b, 0o644); err != nil {
		c.log.Warn("use of an image not noted", "image", ref, "err", err)
	}
}

// evictImages removes the least recently used images that the cache made until the rest fits its
// limit. The engine keeps those that a container uses.
func (c *Cache) evictImages(ctx context.Context, eng *engine) {
	if c.o.MaxBytes < 0 {
		return
	}
	type entry struct {
		imageNote
		file string
		used time.Time
	}
	var all []entry
	var total int64
	for _, f := range readDir(c.path("images")) {
		e := entry{file: c.path("images", f)}
		b, err := os.ReadFile(e.file)
		if err != nil || !strings.HasSuffix(f, ".json") || json.Unmarshal(b, &e.imageNote) != nil || e.Engine != eng.host {
			continue
		}
		if info, err := os.Stat(e.file); err == nil {
			e.used = info.ModTime()
		}
		all = append(all, e)
		total += e.Bytes
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.Ref, b.Ref)) })
	for i, e := range all {
		if total <= c.o.MaxBytes || i == len(all)-1 { // the newest is the one that was just asked for
			return
		}
		if err := eng.cli.RemoveImage(ctx, e.Ref); err != nil && docker.Status(err) != http.StatusNotFound {
			continue
		}
		os.Remove(e.file)
		total -= e.Bytes
		c.log.Info("image evicted", "image", e.Ref, "bytes", e.Bytes)
	}
}
