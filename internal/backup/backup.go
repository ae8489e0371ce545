// Package backup copies a home to another place while its server runs, and makes a home of such a
// copy.
//
// Below a place, which is a folder or a bucket:
//
//	berth-backup.json   says that this is one, and how it is encrypted
//	objects/ab/cdef…    contents, named by their SHA-256, each once for all backups
//	backups/ID.json     what one backup consists of; ID has its time and the hash of this file
//
// The file of a backup is written last. A backup that was cut short leaves objects that the next
// one need not copy again, and no file that names them. A home that is being restored has the file
// "restoring" until all of it is there, and no server starts in it.
package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/store"
)

const (
	format    = 1
	placeFile = "berth-backup.json"
	folder    = "backups"
	timeForm  = "20060102T150405.000Z"
	// attempts is how often a backup begins again because a content of its database was deleted
	// before it was copied.
	attempts = 3
	workers  = 8
)

// A Manifest is what one backup consists of.
type Manifest struct {
	ID       string    `json:"-"`
	Format   int       `json:"format"`
	Taken    time.Time `json:"taken"`
	Version  string    `json:"version"` // of the program
	Schema   int       `json:"schema"`  // of the database
	Host     string    `json:"host"`
	Home     string    `json:"home"`
	Database Content   `json:"database"`
	Contents Content   `json:"contents"` // a list of the contents of blobs: HASH SIZE, a line each
	Blobs    int       `json:"blobs"`    // in that list
	Bytes    int64     `json:"bytes"`    // of everything
	Files    []File    `json:"files"`
	// Damaged are contents of blobs that the home does not have, or not as they were.
	Damaged []string `json:"damaged,omitempty"`
}

// Content is a content by its hash.
type Content struct {
	Hash string `json:"hash"`
	Size int64  `json:"size"`
}

// File is a file, folder or link of a home.
type File struct {
	Path     string    `json:"path"` // below the home, with slashes
	Mode     uint32    `json:"mode"`
	Modified time.Time `json:"modified,omitzero"`
	Content
	Folder bool   `json:"folder,omitempty"`
	Link   string `json:"link,omitempty"` // where a link leads
}

// Options are the choices of Create.
type Options struct {
	// Exclude names folders at the top of the home that are left out.
	Exclude []string
	// Keep is how many backups the place has afterwards; 0 is all.
	Keep int
}

// Report says what a backup did.
type Report struct {
	Manifest
	Copied      int // objects that the place did not have
	CopiedBytes int64
	Removed     int // backups that were more than Keep
}

// left are the entries of a home that a backup leaves out: what belongs to running processes, and
// what can be made again.
var left = []string{"run", "host", "nodes", "envs", config.ServiceFile, restoring}

// blobDirs are the folders of blobs whose files are not live ones.
var blobDirs = []string{"blobs/objects", "blobs/tmp", "blobs/blocks", "blobs/trash"}

// Create makes a backup of a home at a place.
func Create(ctx context.Context, cfg config.Config, to Place, o Options) (Report, error) {
	unlock, err := to.Lock()
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	b := &run{cfg: cfg, to: to, o: o}
	if err := b.begin(ctx); err != nil {
		return Report{}, err
	}
	defer b.root.Close()
	temp, done, err := scratch(homeTemp(cfg.Home))
	if err != nil {
		return Report{}, err
	}
	defer done()
	b.temp = temp
	for try := 1; ; try++ {
		again, err := b.attempt(ctx)
		if err != nil {
			return Report{}, err
		}
		if !again || try == attempts {
			break
		}
	}
	if err := b.finish(ctx); err != nil {
		return Report{}, err
	}
	if o.Keep > 0 {
		b.report.Removed, err = prune(ctx, to, o.Keep)
	}
	return b.report, err
}

// run is one backup under way.
type run struct {
	cfg  config.Config
	to   Place
	temp string
	o    Options

	root   *os.Root // the home
	mu     sync.Mutex
	have   map[string]bool // hashes that the place has
	before map[string]File // those of the last backup
	since  time.Time       // when that was taken
	report Report
}

// begin learns what the place has already.
func (b *run) begin(ctx context.Context) (err error) {
	if _, err := os.Stat(filepath.Join(b.cfg.Home, restoring)); err == nil {
		return unfinished(b.cfg.Home)
	}
	if b.root, err = os.OpenRoot(b.cfg.Home); err != nil {
		return berth.Errorf(berth.NotFound, "there is no home to back up: %w", err)
	}
	b.have, b.before = map[string]bool{}, map[string]File{}
	err = b.to.List(ctx, "objects", func(name string, _ int64) error {
		if hash := strings.ReplaceAll(strings.TrimPrefix(name, "objects/"), "/", ""); len(hash) == 64 {
			b.have[hash] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	all, err := List(ctx, b.to)
	if err != nil || len(all) == 0 {
		return err
	}
	last, err := Read(ctx, b.to, all[len(all)-1])
	if err != nil {
		return nil //nolint:nilerr // a damaged one is no help, and no harm
	}
	b.since = last.Taken
	for _, f := range last.Files {
		b.before[f.Path] = f
	}
	return nil
}

// attempt copies everything. again says that contents were deleted meanwhile.
func (b *run) attempt(ctx context.Context) (again bool, err error) {
	host, _ := os.Hostname()
	m := Manifest{Format: format, Taken: time.Now().UTC(), Version: berth.Version, Host: host, Home: b.cfg.Home}
	db := filepath.Join(b.temp, "database")
	if err := os.RemoveAll(db); err != nil {
		return false, err
	}
	if m.Schema, err = store.Snapshot(ctx, b.cfg.DatabaseURL(), db); err != nil {
		return false, err
	}
	if m.Database, err = b.keepFile(ctx, db); err != nil {
		return false, err
	}
	// Files after the database: what it knows of them is there.
	if m.Files, err = b.files(ctx); err != nil {
		return false, err
	}
	if err := b.contents(ctx, db, &m); err != nil {
		return false, err
	}
	m.Bytes += m.Database.Size
	for _, f := range m.Files {
		m.Bytes += f.Size
	}
	b.report.Manifest = m
	return len(m.Damaged) > 0, nil
}

// contents copies the contents of blobs that a snapshot of the database names.
func (b *run) contents(ctx context.Context, db string, m *Manifest) error {
	from, closeSource, err := source(b.cfg, b.temp)
	if err != nil {
		return err
	}
	defer closeSource()
	list, err := os.Create(filepath.Join(b.temp, "contents"))
	if err != nil {
		return err
	}
	defer list.Close()
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	var mu sync.Mutex
	err = store.SnapshotBlobs(ctx, db, func(hash string, size int64, _ string) error {
		if hash == "" {
			return nil // live: its file is among the others
		}
		if !validHash(hash) {
			return berth.Errorf(berth.Internal, "the database names a content %.80q, which is not a hash", hash)
		}
		group.Go(func() error {
			good, err := b.content(inner, from, hash, size)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !good {
				m.Damaged = append(m.Damaged, hash)
			}
			return err
		})
		m.Blobs++
		m.Bytes += size
		_, err := fmt.Fprintf(list, "%s %d\n", hash, size)
		return err
	})
	if err = errors.Join(err, group.Wait()); err != nil {
		return err
	}
	slices.Sort(m.Damaged)
	m.Contents, err = b.keepFile(ctx, list.Name())
	return err
}

// content copies one content unless the place has it. It is not good when the home has it no more,
// or has another.
func (b *run) content(ctx context.Context, from contentSource, hash string, size int64) (good bool, err error) {
	if b.has(hash) {
		return true, nil
	}
	f, err := from(ctx, hash)
	if errors.Is(err, fs.ErrNotExist) || berth.CodeOf(err) == berth.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	got, err := hashOf(f)
	if err != nil || got.Hash != hash || got.Size != size {
		return false, err
	}
	return true, b.put(ctx, got, f)
}

func (b *run) has(hash string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.have[hash]
}

// put copies a content to the place.
func (b *run) put(ctx context.Context, c Content, f *os.File) error {
	if b.has(c.Hash) {
		return nil
	}
	if err := b.to.Put(ctx, object(c.Hash), f); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.have[c.Hash] {
		b.have[c.Hash] = true
		b.report.Copied++
		b.report.CopiedBytes += c.Size
	}
	return nil
}

// keepFile puts a file that does not change.
func (b *run) keepFile(ctx context.Context, path string) (Content, error) {
	f, err := os.Open(path)
	if err != nil {
		return Content{}, err
	}
	defer f.Close()
	c, err := hashOf(f)
	if err != nil {
		return c, err
	}
	return c, b.put(ctx, c, f)
}

// finish writes the file of the backup.
func (b *run) finish(ctx context.Context) error {
	text, err := json.Marshal(b.report.Manifest)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	b.report.ID = b.report.Taken.Format(timeForm) + "-" + hex.EncodeToString(sum[:16])
	path := filepath.Join(b.temp, "manifest")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return b.to.Put(ctx, folder+"/"+b.report.ID+".json", f)
}

// List is the ids of the backups at a place, oldest first.
func List(ctx context.Context, at Place) (ids []string, err error) {
	err = at.List(ctx, folder, func(name string, _ int64) error {
		if id, ok := strings.CutSuffix(strings.TrimPrefix(name, folder+"/"), ".json"); ok && validID(id) {
			ids = append(ids, id)
		}
		return nil
	})
	slices.Sort(ids)
	return ids, err
}

func validID(id string) bool {
	at, sum, ok := strings.Cut(id, "-")
	_, err := time.Parse(timeForm, at)
	_, bad := hex.DecodeString(sum)
	return ok && err == nil && bad == nil && len(sum) == 32
}

// Read reads what a backup consists of. One that is not as it was written is refused.
func Read(ctx context.Context, at Place, id string) (m Manifest, err error) {
	if !validID(id) {
		return m, berth.Errorf(berth.Invalid, "%q is not the id of a backup; `berth backup list` shows them", id)
	}
	temp, done, err := scratch(commonTemp())
	if err != nil {
		return m, err
	}
	defer done()
	path := filepath.Join(temp, "manifest")
	if err := at.Get(ctx, folder+"/"+id+".json", path); err != nil {
		if berth.CodeOf(err) == berth.NotFound || errors.Is(err, fs.ErrNotExist) {
			return m, berth.Errorf(berth.NotFound, "there is no backup %s at %s", id, at)
		}
		return m, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	sum := sha256.Sum256(text)
	if !strings.HasSuffix(id, "-"+hex.EncodeToString(sum[:16])) || json.Unmarshal(text, &m) != nil {
		return m, berth.Errorf(berth.Invalid, "the backup %s at %s is damaged: its list is not as it was written; use another one", id, at)
	}
	if m.Format != format {
		return m, berth.Errorf(berth.Unsupported, "the backup %s has format %d, and this Berth knows %d: use the version that made it, %s", id, m.Format, format, m.Version)
	}
	m.ID = id
	return m, nil
}

func object(hash string) string { return "objects/" + hash[:2] + "/" + hash[2:] }

func validHash(hash string) bool {
	_, err := hex.DecodeString(hash)
	return err == nil && len(hash) == 64 && strings.ToLower(hash) == hash
}

// hashOf reads a file to its end, and goes back to its beginning.
func hashOf(f *os.File) (Content, error) {
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return Content{Hash: hex.EncodeToString(h.Sum(nil)), Size: n}, err
}

// syncDir makes the names in a folder durable.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
