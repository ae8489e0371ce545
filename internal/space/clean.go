package space

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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

// atOnce is how many jobs one transaction looks at, and filesAtOnce how many files it deletes:
// others wait for the writer meanwhile.
const (
	atOnce      = 100
	filesAtOnce = 2000
)

// Why something old stays.
const (
	keptTag    = "its job has the tag " + berth.KeepTag
	keptDays   = "a tag of its job keeps it longer"
	keptStep   = "its pipeline has not ended"
	keptUnread = "its job cannot be read"
)

// A Cleaner deletes what jobs of a workspace left.
type Cleaner struct {
	DB        *store.DB
	Blobs     *blob.Store
	Workspace string
	Space     berth.Workspace
	Locator   locate.Locator
	User      string // whose jobs; empty means everybody's
	By        string // who asks, for the events
	// Runs removes deleted runs and logged models with their points and files: kind metrics.
	Runs func(ctx context.Context, user string, q berth.CleanStorage) (berth.CleanedStorage, error)
}

// Check refuses a request that makes no sense.
func Check(q berth.CleanStorage) error {
	if len(q.Kinds) == 0 {
		return berth.Errorf(berth.Invalid, "the request does not say what to delete; kinds are %s", strings.Join(berth.StorageKinds, ", "))
	}
	for _, k := range q.Kinds {
		if !slices.Contains(berth.StorageKinds, k) {
			return berth.Errorf(berth.Invalid, "%q cannot be deleted by age; kinds are %s", k, strings.Join(berth.StorageKinds, ", "))
		}
	}
	if q.Before.IsZero() {
		return berth.Errorf(berth.Invalid, "before is required: delete what is older than this time")
	}
	return nil
}

// Clean deletes what q asks for, some jobs at a time. What it did before an error stays done.
func (c *Cleaner) Clean(ctx context.Context, q berth.CleanStorage) (berth.CleanedStorage, error) {
	sum := berth.CleanedStorage{DryRun: q.DryRun, Kept: []berth.KeptStorage{}}
	if slices.ContainsFunc(q.Kinds, isOfJobs) {
		if err := c.cleanJobs(ctx, q, askedFor(q.Before), &sum); err != nil {
			return sum, err
		}
	}
	for i, kind := range q.Kinds {
		if slices.Contains(q.Kinds[:i], kind) {
			continue // it was named twice
		}
		if kind == berth.StorageMetrics {
			got, err := c.Runs(ctx, c.User, q)
			sum.Runs, sum.Files, sum.Bytes = sum.Runs+got.Runs, sum.Files+got.Files, sum.Bytes+got.Bytes
			for _, k := range got.Kept {
				addKept(&sum, k)
			}
			if err != nil {
				return sum, err
			}
		}
		if collections[kind][0] == "" {
			continue
		}
		if err := c.cleanVersions(ctx, kind, q, &sum); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// cleanJobs deletes what jobs left of the kinds that q asks for, where they ended before a cutoff.
func (c *Cleaner) cleanJobs(ctx context.Context, q berth.CleanStorage, before cutoff, sum *berth.CleanedStorage) error {
	list := store.Query{
		Workspace: c.Workspace, Kind: "jobs", CreatedBy: c.User, Asc: true, Limit: atOnce,
		Status: berth.StatusTexts([]berth.JobStatus{berth.Completed, berth.Failed, berth.Canceled}),
	}
	look := q
	look.DryRun = true
	for half := ""; ; {
		var b batch
		step := func(q berth.CleanStorage) func(*store.Tx) error {
			return func(tx *store.Tx) error {
				b = batch{Cleaner: c, q: q, before: before, tx: tx, after: list.After, begun: half, kept: map[string]*berth.KeptStorage{}}
				return b.run(list)
			}
		}
		// Most jobs were cleaned before: looking first keeps the writer free for others.
		err := c.DB.View(ctx, step(look))
		if err == nil && b.sum.Files > 0 && !q.DryRun {
			err = c.DB.Update(ctx, step(q))
		}
		if err != nil {
			return err
		}
		for _, rel := range b.live {
			n, err := c.Blobs.LiveSize(rel)
			if err == nil && !q.DryRun {
				err = c.Blobs.RemoveLive(rel)
			}
			if err != nil {
				return err
			}
			b.sum.Bytes += n
		}
		b.addTo(sum)
		if b.end {
			return nil
		}
		list.After, half = b.after, b.half
	}
}

// A batch is what one transaction cleans.
type batch struct {
	*Cleaner
	q      berth.CleanStorage
	before cutoff
	tx     *store.Tx
	sum    berth.CleanedStorage
	kept   map[string]*berth.KeptStorage
	named  map[string]bool       // jobs that jobs which have not ended name
	above  map[string]*store.Doc // pipelines, by their names
	live   []string              // logs that belong to nobody any more
	after  int64                 // the job up to which all is done
	end    bool                  // of the list
	begun  string                // the job that the transaction before began with
	half   string                // the job that the next one goes on with
}

// full says that the transaction has deleted enough.
func (b *batch) full() bool { return !b.q.DryRun && b.sum.Files >= filesAtOnce }

func (b *batch) run(list store.Query) error {
	docs, err := b.tx.List(list)
	if err != nil {
		return err
	}
	for _, d := range docs {
		if err := b.job(d); err != nil {
			return err
		}
		if b.full() {
			b.half = d.Name
			return nil // what is left of this job comes next
		}
		b.after = d.ID
	}
	b.end = len(docs) < list.Limit
	return nil
}

// job cleans one job.
func (b *batch) job(d *store.Doc) error {
	st, ok := stateOf(d)
	if !ok {
		b.keep(keptUnread, 0)
		return nil
	}
	ended := st.Times.Ended
	if ended.IsZero() {
		ended = d.Updated
	}
	due, longer, err := b.due(d, st, ended)
	if err != nil {
		return err
	}
	if err := b.eraseOf(d, st, due); err != nil || len(longer) == 0 || b.full() {
		return err
	}
	held := 0
	err = b.each(d.Name, longer, func(*store.Blob) error {
		held++
		return nil
	})
	if held > 0 {
		b.keep(keptDays, held)
	}
	return err
}

// eraseOf deletes what a job left of some kinds, save what has to stay.
func (b *batch) eraseOf(d *store.Doc, st berth.JobState, kinds []string) error {
	if len(kinds) == 0 {
		return nil
	}
	asked, why, held, files := false, "", 0, b.sum.Files
	err := b.each(d.Name, kinds, func(x *store.Blob) (err error) {
		if !asked {
			asked = true
			if why, err = b.keeps(d, st); err != nil {
				return err
			}
		}
		if b.full() {
			return nil
		}
		erased := false
		if why == "" {
			if erased, err = b.erase(x); err != nil {
				return err
			}
		}
		if !erased {
			held++
			return nil
		}
		b.sum.Files++
		if x.Live != "" {
			b.live = append(b.live, x.Live)
		} else {
			b.sum.Bytes += x.Size
		}
		return nil
	})
	if err != nil {
		return err
	}
	if held > 0 && !b.full() { // else they are met again
		b.keep(cmp.Or(why, berth.KeptHeld), held)
	}
	if files = b.sum.Files - files; files == 0 {
		return nil
	}
	if d.Name != b.begun {
		b.sum.Jobs++
	}
	if !b.q.DryRun {
		b.tx.Emit(berth.Event{
			Workspace: b.Workspace, Subject: "jobs/" + d.Name, Type: berth.EventStorage,
			Reason: fmt.Sprintf("%s deleted by %s: %d of its files", strings.Join(kinds, ", "), b.By, files),
		})
	}
	return nil
}

// tagged is keptTag where the job has the tag.
func tagged(d *store.Doc) string {
	var doc struct {
		Properties struct{ Tags berth.Tags }
	}
	if json.Unmarshal(d.Body, &doc) != nil {
		return keptUnread
	}
	if strings.EqualFold(string(doc.Properties.Tags[berth.KeepTag]), "true") {
		return keptTag
	}
	return ""
}

// stateOf is the state of a job, if it can be read.
func stateOf(d *store.Doc) (berth.JobState, bool) {
	st, err := job.State(d)
	return st, err == nil
}

// erase deletes a blob unless a version consists of it, or says whether it would be.
func (b *batch) erase(x *store.Blob) (bool, error) {
	if !b.q.DryRun {
		return blob.EraseOne(b.tx, x)
	}
	version, err := blob.VersionAt(b.tx, x)
	return version == "", err
}

// each calls f for the blobs of a job that are of some kinds.
func (b *batch) each(name string, kinds []string, f func(*store.Blob) error) error {
	own, err := locate.StorageOf(b.tx, b.Workspace)
	if err != nil {
		return err
	}
	wants := func(kind string) bool { return slices.Contains(kinds, kind) }
	below := func(container, prefix string, take func(path string) bool) error {
		for q := (store.BlobQuery{Container: container, Prefix: prefix}); ; {
			page, err := b.tx.ListBlobs(q)
			if err != nil || len(page) == 0 {
				return err
			}
			for _, x := range page {
				if q.After = x.Name; !take(strings.TrimPrefix(x.Name, prefix)) {
					continue
				}
				if err := f(x); err != nil {
					return err
				}
			}
		}
	}
	if wants(berth.StorageOutputs) {
		if err := below(own.Blobs, locate.OutputRoot+name+"/", func(string) bool { return true }); err != nil {
			return err
		}
	}
	if !wants(berth.StorageArtifacts) && !wants(berth.StorageLogs) {
		return nil
	}
	return below(own.Artifacts, locate.ArtifactPath(name)+"/", func(path string) bool {
		if isLog(path) {
			return wants(berth.StorageLogs)
		}
		return wants(berth.StorageArtifacts)
	})
}

// keeps is why nothing of a job is deleted, "" where that may be. What is said of a pipeline holds
// for its steps.
func (b *batch) keeps(d *store.Doc, st berth.JobState) (string, error) {
	for {
		if why := tagged(d); why != "" {
			return why, nil
		}
		if err := b.readNamed(); err != nil {
			return "", err
		}
		if b.named[strings.ToLower(d.Name)] {
			return berth.KeptUse, nil
		}
		if st.Parent == "" {
			return "", nil
		}
		up, err := b.tx.Get(b.Workspace, "jobs", st.Parent, "")
		if berth.CodeOf(err) == berth.NotFound {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		var ok bool
		if st, ok = stateOf(up); !ok {
			return keptUnread, nil
		}
		if !berth.JobStatus(up.Status).Terminal() {
			return keptStep, nil
		}
		d = up
	}
}

// naming finds the names of jobs in a document: paths of their outputs and artifacts, and
// references to them.
var naming = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:azureml/|dcid\.|azureml:|jobs/|runs:/)([a-z0-9_][a-z0-9_.-]*)`)
})

// readNamed finds out which jobs the jobs that have not ended name. It is read with what is
// deleted, in one transaction: no job that names one can come in between.
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
	for _, why := range []string{keptTag, keptDays, keptStep, berth.KeptUse, berth.KeptHeld, keptUnread} {
		if k := b.kept[why]; k != nil {
			addKept(sum, *k)
		}
	}
}
