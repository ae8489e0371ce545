// Package space says what takes room in the storage of a workspace, and deletes what jobs left that
// is old enough.
package space

import (
	"cmp"
	"context"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// keys are what use can be grouped by.
var keys = []string{"kind", "user", "job", "age", ByWorkspace}

// ByWorkspace is the key that groups the use of several workspaces.
const ByWorkspace = "workspace"

// CheckKeys refuses what use cannot be grouped by.
func CheckKeys(by []string) error {
	for _, k := range by {
		if !slices.Contains(keys, k) {
			return berth.Errorf(berth.Invalid, "cannot group by %q; use %s", k, strings.Join(keys, ", "))
		}
	}
	return nil
}

// Points lists the files of the points of metrics in the storage with an ID. There are none where
// it is nil.
type Points func(id string) ([]fs.FileInfo, error)

// Sources are where what workspaces store is found.
type Sources struct {
	DB     *store.DB
	Blobs  *blob.Store
	Points Points
	// Tracked are the kinds of documents that are counted: those of tracking.
	Tracked []string
}

func (p Points) of(own locate.Storage) ([]fs.FileInfo, error) {
	if p == nil || own.ID == "" {
		return nil, nil
	}
	return p(own.ID)
}

// Use is what takes space in workspaces, given by their keys. It reads the index page by page: it
// is true of no single moment while there are writes.
func Use(ctx context.Context, s Sources, workspaces, by []string, now time.Time) (berth.StorageUse, error) {
	t := tally{Sources: s, now: now, by: by, lines: map[berth.StorageLine]int{}, content: map[string]*content{}}
	for _, key := range workspaces {
		if err := t.addWorkspace(ctx, key); err != nil && (len(workspaces) == 1 || berth.CodeOf(err) != berth.NotFound) {
			return berth.StorageUse{}, err
		}
	}
	return t.use(), nil
}

// addWorkspace adds what a workspace stores.
func (t *tally) addWorkspace(ctx context.Context, key string) error {
	t.workspace, t.users, t.kinds = key, map[string]string{}, map[string]string{}
	var own locate.Storage
	err := t.DB.View(ctx, func(tx *store.Tx) error {
		d, err := tx.Get("", "workspaces", key, "")
		if err != nil {
			return err
		}
		ws, err := locate.WorkspaceOf(d)
		if err != nil {
			return err
		}
		t.title = ws.Group + "/" + ws.Name
		if own, err = store.State[locate.Storage](d); err != nil {
			return err
		}
		_, bytes, err := tx.StateBytes(key, t.Tracked...)
		if err == nil && bytes > 0 {
			t.addOther("tracking/"+own.ID, berth.StorageRuns, 0, bytes)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, container := range []string{own.Artifacts, own.Blobs} {
		for after := ""; ; {
			page, _, next, err := t.Blobs.List(ctx, container, blob.ListOptions{After: after})
			if err == nil {
				err = t.DB.View(ctx, func(tx *store.Tx) error { return t.add(tx, page, container == own.Artifacts) })
			}
			if err != nil {
				return err
			}
			if after = next; next == "" {
				break
			}
		}
		uploads, bytes, err := t.Blobs.Staged(container)
		if err != nil {
			return err
		}
		if uploads > 0 {
			t.addOther("staged/"+container, berth.StorageUploads, int64(uploads), bytes)
		}
	}
	files, err := t.Points.of(own)
	if err != nil {
		return err
	}
	t.addPoints(own, files)
	return nil
}

// content is what has been seen of one content: its size, and the group that it belongs to, -1 for
// several.
type content struct {
	size int64
	line int
}

type tally struct {
	Sources
	workspace string // its key
	title     string // of the workspace, for people
	now       time.Time
	by        []string
	users     map[string]string // of jobs
	kinds     map[string]string // of folders that were uploaded
	lines     map[berth.StorageLine]int
	sums      []berth.StorageLine
	content   map[string]*content
}

func (t *tally) add(tx *store.Tx, page []*store.Blob, artifacts bool) error {
	for _, b := range page {
		kind, job, err := t.classify(tx, b, artifacts)
		if err != nil {
			return err
		}
		var key berth.StorageLine
		for _, k := range t.by {
			switch k {
			case "kind":
				key.Kind = kind
			case "job":
				key.Job = job
			case "age":
				key.Age = age(t.now.Sub(b.Created))
			case ByWorkspace:
				key.Workspace = t.title
			case "user":
				if key.User, err = t.user(tx, job, b); err != nil {
					return err
				}
			}
		}
		at := t.line(key, 1, b.Size)
		hash := b.Hash
		if hash == "" {
			hash = b.Container + "/" + b.Name
		}
		switch c := t.content[hash]; {
		case c == nil:
			t.content[hash] = &content{b.Size, at}
		case c.line != at:
			c.line = -1
		}
	}
	return nil
}

// line counts files in the line that they belong to.
func (t *tally) line(key berth.StorageLine, files, size int64) int {
	at, ok := t.lines[key]
	if !ok {
		at = len(t.sums)
		t.lines[key], t.sums = at, append(t.sums, key)
	}
	t.sums[at].Files += files
	t.sums[at].Bytes += size
	return at
}

// addPoints adds the files of points, which runs share.
func (t *tally) addPoints(own locate.Storage, files []fs.FileInfo) {
	for _, f := range files {
		var key berth.StorageLine
		for _, k := range t.by {
			switch k {
			case "kind":
				key.Kind = berth.StorageMetrics
			case "age":
				key.Age = age(t.now.Sub(f.ModTime()))
			case ByWorkspace:
				key.Workspace = t.title
			}
		}
		t.content["points/"+own.ID+"/"+f.Name()] = &content{f.Size(), t.line(key, 1, f.Size())}
	}
}

// addOther adds what has no user, no job and no age: that of many.
func (t *tally) addOther(name, kind string, files, bytes int64) {
	var key berth.StorageLine
	for _, k := range t.by {
		switch k {
		case "kind":
			key.Kind = kind
		case ByWorkspace:
			key.Workspace = t.title
		}
	}
	t.content[name] = &content{bytes, t.line(key, files, bytes)}
}

// classify says what a blob is, and of which job.
func (t *tally) classify(tx *store.Tx, b *store.Blob, artifacts bool) (kind, job string, err error) {
	if artifacts {
		rest, ok := strings.CutPrefix(b.Name, locate.ArtifactPath(""))
		job, path, _ := strings.Cut(rest, "/")
		switch {
		case strings.HasPrefix(b.Name, locate.LoggedRoot):
			return berth.StorageArtifacts, "", nil
		case !ok:
			return berth.StorageOther, "", nil
		case isLog(path):
			return berth.StorageLogs, job, nil
		}
		return berth.StorageArtifacts, job, nil
	}
	if rest, ok := strings.CutPrefix(b.Name, locate.OutputRoot); ok {
		if job, _, _ := strings.Cut(rest, "/"); job != "versions" {
			return berth.StorageOutputs, job, nil
		}
		return berth.StorageCode, "", nil
	}
	parts := strings.SplitN(b.Name, "/", 3)
	folder := strings.Join(parts[:min(2, len(parts))], "/")
	kind, ok := t.kinds[folder]
	if ok {
		return kind, "", nil
	}
	version, err := blob.VersionAt(tx, b)
	if err != nil {
		return "", "", err
	}
	noun, _, _ := strings.Cut(version, " ")
	kind, ok = map[string]string{
		"": berth.StorageUploads, "code": berth.StorageCode, "data": berth.StorageData, "model": berth.StorageModels, "environment": berth.StorageEnvironments,
	}[noun]
	if !ok {
		kind = berth.StorageOther
	}
	if strings.HasPrefix(b.Name, "LocalUpload/") || strings.HasPrefix(b.Name, "az-ml-artifacts/") { // registered as a whole
		t.kinds[folder] = kind
	}
	return kind, "", nil
}

// isLog says whether a path below a run is one of the job's logs.
func isLog(path string) bool {
	return strings.HasPrefix(path, "user_logs/") || strings.HasPrefix(path, "system_logs/")
}

// user is who a blob belongs to: whose job left it, else who wrote it.
func (t *tally) user(tx *store.Tx, job string, b *store.Blob) (string, error) {
	if job == "" {
		return b.Writer, nil
	}
	if u, ok := t.users[job]; ok {
		return u, nil
	}
	d, err := tx.Get(t.workspace, "jobs", job, "")
	if berth.CodeOf(err) == berth.NotFound {
		return b.Writer, nil
	}
	if err != nil {
		return "", err
	}
	t.users[job] = d.CreatedBy
	return d.CreatedBy, nil
}

const day = 24 * time.Hour

func age(d time.Duration) string {
	switch {
	case d <= day:
		return "day"
	case d <= 7*day:
		return "week"
	case d <= 30*day:
		return "month"
	case d <= 90*day:
		return "quarter"
	}
	return "older"
}

func (t *tally) use() berth.StorageUse {
	out := berth.StorageUse{By: t.by, Groups: t.sums}
	if out.By == nil {
		out.By = []string{}
	}
	for _, c := range t.content {
		out.Total.OwnBytes += c.size
		if c.line >= 0 {
			out.Groups[c.line].OwnBytes += c.size
		}
	}
	for _, g := range out.Groups {
		out.Total.Files += g.Files
		out.Total.Bytes += g.Bytes
	}
	slices.SortFunc(out.Groups, func(a, b berth.StorageLine) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Files, a.Files), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.User, b.User), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Age, b.Age),
			cmp.Compare(a.Workspace, b.Workspace))
	})
	if out.Groups == nil {
		out.Groups = []berth.StorageLine{}
	}
	return out
}
