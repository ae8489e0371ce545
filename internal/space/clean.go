package space

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// atOnce is how many jobs one transaction cleans: others wait for the writer meanwhile.
const atOnce = 100

// Why something old stays.
const (
	keptTag  = "its job has the tag " + berth.KeepTag
	keptUse  = "a job that has not ended names it"
	keptHeld = "registered data or a model consists of it"
	keptStep = "its pipeline has not ended"
)

// A Cleaner deletes what jobs of a workspace left.
type Cleaner struct {
	DB        *store.DB
	Blobs     *blob.Store
	Workspace string
	User      string // whose jobs; empty means everybody's
	By        string // who asks, for the events
}

// Check refuses a request that makes no sense.
func Check(q berth.CleanStorage) error {
	if len(q.Kinds) == 0 {
		return berth.Errorf(berth.Invalid, "it does not say what to delete; kinds are %s", strings.Join(berth.StorageKinds, ", "))
	}
	for _, k := range q.Kinds {
		if !slices.Contains(berth.StorageKinds, k) {
			return berth.Errorf(berth.Invalid, "%q cannot be deleted by age; kinds are %s", k, strings.Join(berth.StorageKinds, ", "))
		}
	}
	if q.Before.IsZero() {
		return berth.Errorf(berth.Invalid, "it does not say how old: give before, a time")
	}
	return nil
}

// Clean deletes what q asks for, some jobs at a time. What it did before an error stays done.
func (c *Cleaner) Clean(ctx context.Context, q berth.CleanStorage) (berth.CleanedStorage, error) {
	sum := berth.CleanedStorage{DryRun: q.DryRun, Kept: []berth.KeptStorage{}}
	list := store.Query{
		Workspace: c.Workspace, Kind: "jobs", CreatedBy: c.User, Asc: true, Limit: atOnce,
		Status: berth.StatusTexts([]berth.JobStatus{berth.Completed, berth.Failed, berth.Canceled}),
	}
	look := q
	look.DryRun = true
	for {
		var b batch
		step := func(q berth.CleanStorage) func(*store.Tx) error {
			return func(tx *store.Tx) error {
				b = batch{Cleaner: c, q: q, tx: tx}
				return b.run(list)
			}
		}
		// Most jobs were cleaned before: looking first keeps the writer free for others.
		err := c.DB.View(ctx, step(look))
		if err == nil && b.sum.Files > 0 && !q.DryRun {
			err = c.DB.Update(ctx, step(q))
		}
		if err != nil {
			return sum, err
		}
		if !q.DryRun {
			if err := c.remove(b.files); err != nil {
				return sum, err
			}
		}
		b.addTo(&sum)
		if b.last == 0 {
			return sum, nil
		}
		list.After = b.last
	}
}

// remove deletes logs whose names are gone.
func (c *Cleaner) remove(files []string) error {
	for _, rel := range files {
		if err := os.Remove(c.path(rel)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (c *Cleaner) path(rel string) string {
	return filepath.Join(c.Blobs.Dir(), filepath.FromSlash(rel))
}

// A batch is what one transaction cleans.
type batch struct {
	*Cleaner
	q     berth.CleanStorage
	tx    *store.Tx
	sum   berth.CleanedStorage
	kept  map[string]*berth.KeptStorage
	named map[string]bool // jobs that jobs which have not ended name
	files []string        // logs that belong to nobody any more
	last  int64           // of the list; 0 when there is no more
}

func (b *batch) run(list store.Query) error {
	docs, err := b.tx.List(list)
	if err != nil {
		return err
	}
	b.kept = map[string]*berth.KeptStorage{}
	for _, d := range docs {
		if err := b.job(d); err != nil {
			return err
		}
		b.last = d.ID
	}
	return nil
}

func (b *batch) job(d *store.Doc) error {
	st, err := job.State(d)
	if err != nil {
		return err
	}
	ended := st.Times.Ended
	if ended.IsZero() {
		ended = d.Updated
	}
	if !ended.Before(b.q.Before) {
		return nil
	}
	found, err := b.found(d.Name)
	if err != nil || len(found) == 0 {
		return err
	}
	why, err := b.keeps(d, st)
	if err != nil {
		return err
	}
	if why != "" {
		b.keep(why, len(found))
		return nil
	}
	return b.erase(d.Name, found)
}

// found are the blobs of a job that are of the kinds asked for.
func (b *batch) found(name string) (out []*store.Blob, err error) {
	own, err := locate.StorageOf(b.tx, b.Workspace)
	if err != nil {
		return nil, err
	}
	wants := func(kind string) bool { return slices.Contains(b.q.Kinds, kind) }
	collect := func(container, prefix string, take func(path string) bool) error {
		for q := (store.BlobQuery{Container: container, Prefix: prefix}); ; {
			page, err := b.tx.ListBlobs(q)
			if err != nil || len(page) == 0 {
				return err
			}
			for _, x := range page {
				if q.After = x.Name; !take(strings.TrimPrefix(x.Name, prefix)) {
					continue
				}
				if info, err := os.Stat(b.path(x.Live)); x.Live != "" && err == nil {
					x.Size = info.Size()
				}
				out = append(out, x)
			}
		}
	}
	if wants(berth.StorageOutputs) {
		if err := collect(own.Blobs, locate.OutputRoot+name+"/", func(string) bool { return true }); err != nil {
			return nil, err
		}
	}
	if wants(berth.StorageArtifacts) || wants(berth.StorageLogs) {
		err = collect(own.Artifacts, locate.ArtifactPath(name)+"/", func(path string) bool {
			if isLog(path) {
				return wants(berth.StorageLogs)
			}
			return wants(berth.StorageArtifacts)
		})
	}
	return out, err
}

// keeps is why nothing of a job is deleted, "" where that may be.
func (b *batch) keeps(d *store.Doc, st berth.JobState) (string, error) {
	var doc struct {
		Properties struct{ Tags map[string]string }
	}
	if err := json.Unmarshal(d.Body, &doc); err != nil {
		return "", err
	}
	if strings.EqualFold(doc.Properties.Tags[berth.KeepTag], "true") {
		return keptTag, nil
	}
	for parent := st.Parent; parent != ""; {
		up, err := b.tx.Get(b.Workspace, "jobs", parent, "")
		if berth.CodeOf(err) == berth.NotFound {
			break
		}
		if err != nil {
			return "", err
		}
		if !berth.JobStatus(up.Status).Terminal() {
			return keptStep, nil
		}
		ust, err := job.State(up)
		if err != nil {
			return "", err
		}
		parent = ust.Parent
	}
	if err := b.readNamed(); err != nil {
		return "", err
	}
	if b.named[strings.ToLower(d.Name)] {
		return keptUse, nil
	}
	return "", nil
}

// naming finds the names of jobs in a document: paths of their outputs and artifacts, and references to them.
var naming = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:azureml/|dcid\.|azureml:|jobs/|runs:/)([a-z0-9][a-z0-9_-]*)`)
})

// readNamed finds out which jobs the jobs that have not ended name. It is read with what is deleted, in one transaction: no job that names
// one can come in between.
func (b *batch) readNamed() error {
	if b.named != nil {
		return nil
	}
	b.named = map[string]bool{}
	docs, err := b.tx.All(store.Query{Workspace: b.Workspace, Kind: "jobs", Status: berth.StatusTexts(berth.ActiveStatuses)})
	if err != nil {
		return err
	}
	for _, d := range docs {
		for _, m := range naming().FindAllSubmatch(d.Body, -1) {
			b.named[strings.ToLower(string(m[1]))] = true
		}
	}
	return nil
}

// erase deletes what was found of a job, but for what versions consist of.
func (b *batch) erase(name string, found []*store.Blob) error {
	var files, size int64
	held := 0
	for _, x := range found {
		goes, err := b.eraseOne(x)
		if err != nil {
			return err
		}
		if !goes {
			held++
			continue
		}
		files, size = files+1, size+x.Size
		if x.Live != "" {
			b.files = append(b.files, x.Live)
		}
	}
	if held > 0 {
		b.keep(keptHeld, held)
	}
	if files == 0 {
		return nil
	}
	b.sum.Jobs, b.sum.Files, b.sum.Bytes = b.sum.Jobs+1, b.sum.Files+files, b.sum.Bytes+size
	if !b.q.DryRun {
		b.tx.Emit(berth.Event{
			Workspace: b.Workspace, Subject: "jobs/" + name, Type: berth.EventStorage,
			Reason: fmt.Sprintf("%s deleted by %s: %d of its files", strings.Join(b.q.Kinds, ", "), b.By, files),
		})
	}
	return nil
}

// eraseOne deletes a blob, or says whether it would be.
func (b *batch) eraseOne(x *store.Blob) (bool, error) {
	if !b.q.DryRun {
		return blob.EraseOne(b.tx, x)
	}
	version, err := blob.VersionAt(b.tx, x)
	return version == "", err
}

func (b *batch) keep(why string, files int) {
	k := b.kept[why]
	if k == nil {
		k = &berth.KeptStorage{Reason: why}
		b.kept[why] = k
	}
	k.Jobs, k.Files = k.Jobs+1, k.Files+int64(files)
}

func (b *batch) addTo(sum *berth.CleanedStorage) {
	sum.Jobs, sum.Files, sum.Bytes = sum.Jobs+b.sum.Jobs, sum.Files+b.sum.Files, sum.Bytes+b.sum.Bytes
	for _, why := range []string{keptTag, keptStep, keptUse, keptHeld} {
		k := b.kept[why]
		if k == nil {
			continue
		}
		i := slices.IndexFunc(sum.Kept, func(s berth.KeptStorage) bool { return s.Reason == why })
		if i < 0 {
			sum.Kept = append(sum.Kept, *k)
			continue
		}
		sum.Kept[i].Jobs += k.Jobs
		sum.Kept[i].Files += k.Files
	}
}
