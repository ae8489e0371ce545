package space

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// Versions of code, models and environments that nothing refers to can be deleted by age, with the
// files that were uploaded for them. A reference of a job counts until the job has ended and is as
// old as what is deleted.

// collections of the kinds of versions, and what one is called.
var collections = map[string][2]string{
	berth.StorageCode: {"codes", "code"}, berth.StorageModels: {"models", "model"}, berth.StorageEnvironments: {"environments", "environment"},
}

// Why an old version stays.
const (
	keptNamed  = "something refers to it"
	keptNewest = "it is the newest version"
	keptAlias  = "its model has aliases"
)

// referrers are the documents that may refer to versions, beside jobs.
var referrers = []string{
	"components/versions", "schedules", "onlineEndpoints", "onlineEndpoints/deployments", "batchEndpoints", "batchEndpoints/deployments",
	"models/versions", "environments/versions", "indexes/versions", "featuresets/versions", "computes",
}

// references are the versions that documents name, whatever they are versions of: "name:version",
// or "name" where all of them are meant. Folders that were uploaded to are among them too.
type references map[string]bool

var referring = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`(?i)/(?:codes|models|environments)/([^/"\\]+)(?:/versions/([^/"?\\]+)|/labels/)`),
		regexp.MustCompile(`(?i)azureml:([a-z0-9_][a-z0-9_.-]*)(?::([^"/@\\]+)|@)`),
		regexp.MustCompile(`(?i)models:/([^/"@\\]+)(?:/([0-9]+)|[/@])`),
	}
})

var uploading = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:LocalUpload|az-ml-artifacts)/[^/"\\]+|(?:codes|models|environments)-[0-9a-f]{8}`)
})

// add adds what a document names, but not itself.
func (r references) add(d *store.Doc) {
	texts, self := [][]byte{d.Body}, ""
	switch {
	case strings.HasSuffix(d.Kind, "/versions"):
		self = strings.ToLower(d.Name + ":" + d.Version)
	case strings.HasSuffix(d.Kind, "/deployments"): // the forms that it serves and can go back to
		texts = append(texts, d.Own)
	}
	for _, text := range texts {
		if self == "" || strings.HasPrefix(d.Kind, "components/") { // what lies in its own folder is no reference
			for _, folder := range uploading().FindAll(text, -1) {
				r[string(folder)] = true
			}
		}
		for _, re := range referring() {
			for _, m := range re.FindAllSubmatch(text, -1) {
				name := strings.ToLower(string(m[1]))
				if len(m[2]) > 0 {
					name += ":" + strings.ToLower(string(m[2]))
				}
				if name != self {
					r[name] = true
				}
			}
		}
	}
}

func (r references) has(d *store.Doc) bool {
	name := strings.ToLower(d.Name)
	return r[name] || r[name+":"+strings.ToLower(d.Version)]
}

// cleanVersions deletes old versions of a kind.
func (c *Cleaner) cleanVersions(ctx context.Context, kind string, q berth.CleanStorage, sum *berth.CleanedStorage) error {
	collection := collections[kind][0]
	refs := references{}
	// Jobs that have ended name nothing new; what came after the last one is read with what is
	// deleted.
	last, err := c.readEnded(ctx, q, refs)
	if err != nil {
		return err
	}
	aliased := map[string]bool{}
	list := store.Query{Workspace: c.Workspace, Kind: collection + "/versions", CreatedBy: c.User, Asc: true, Limit: atOnce}
	for end := false; !end; {
		var got berth.CleanedStorage
		after := list.After
		step := func(tx *store.Tx) error {
			got = berth.CleanedStorage{}
			v := versions{Cleaner: c, q: q, tx: tx, kind: kind, refs: references{}, sum: &got}
			if err := v.readReferences(last); err != nil {
				return err
			}
			if err := v.readAliases(aliased); err != nil {
				return err
			}
			docs, err := tx.List(list)
			if err != nil {
				return err
			}
			for _, d := range docs {
				if err := v.clean(d, refs, aliased); err != nil {
					return err
				}
				after = d.ID
			}
			end = len(docs) < atOnce
			return nil
		}
		if q.DryRun {
			err = c.DB.View(ctx, step)
		} else {
			err = c.DB.Update(ctx, step)
		}
		if err != nil {
			return err
		}
		list.After = after
		sum.Versions, sum.Files, sum.Bytes = sum.Versions+got.Versions, sum.Files+got.Files, sum.Bytes+got.Bytes
		for _, k := range got.Kept {
			addKept(sum, k)
		}
	}
	return nil
}

// addKept adds what stays for a reason.
func addKept(sum *berth.CleanedStorage, k berth.KeptStorage) {
	i := slices.IndexFunc(sum.Kept, func(s berth.KeptStorage) bool { return s.Reason == k.Reason })
	if i < 0 {
		sum.Kept = append(sum.Kept, berth.KeptStorage{Reason: k.Reason})
		i = len(sum.Kept) - 1
	}
	s := &sum.Kept[i]
	s.Jobs, s.Files, s.Versions, s.Runs = s.Jobs+k.Jobs, s.Files+k.Files, s.Versions+k.Versions, s.Runs+k.Runs
}

// readEnded reads what jobs name that ended lately, or whose files are kept. It returns the last
// job there is.
func (c *Cleaner) readEnded(ctx context.Context, q berth.CleanStorage, refs references) (last int64, err error) {
	list := store.Query{Workspace: c.Workspace, Kind: "jobs", Asc: true, Limit: 1000}
	for {
		var docs []*store.Doc
		err := c.DB.View(ctx, func(tx *store.Tx) (err error) {
			docs, err = tx.List(list)
			return err
		})
		if err != nil {
			return 0, err
		}
		for _, d := range docs {
			list.After = d.ID
			st, ok := stateOf(d)
			ended := st.Times.Ended
			if ended.IsZero() {
				ended = d.Updated
			}
			if !ok || !berth.JobStatus(d.Status).Terminal() || !ended.Before(q.Before) || tagged(d) != "" {
				refs.add(d)
			}
		}
		if len(docs) < list.Limit {
			return list.After, nil
		}
	}
}

// versions cleans some versions in a transaction.
type versions struct {
	*Cleaner
	q    berth.CleanStorage
	tx   *store.Tx
	kind string
	refs references
	sum  *berth.CleanedStorage
}

// readReferences reads what jobs that have not ended or that came lately name, and all else.
func (v *versions) readReferences(last int64) error {
	lists := []store.Query{
		{Workspace: v.Workspace, Kind: "jobs", Status: berth.StatusTexts(berth.ActiveStatuses)},
		{Workspace: v.Workspace, Kind: "jobs", After: last, Asc: true},
	}
	for _, kind := range referrers {
		lists = append(lists, store.Query{Workspace: v.Workspace, Kind: kind})
	}
	for _, q := range lists {
		docs, err := v.tx.All(q)
		if err != nil {
			return err
		}
		for _, d := range docs {
			v.refs.add(d)
		}
	}
	return nil
}

// readAliases notes which models have aliases in MLflow's registry.
func (v *versions) readAliases(aliased map[string]bool) error {
	if v.kind != berth.StorageModels {
		return nil
	}
	docs, err := v.tx.All(store.Query{Workspace: v.Workspace, Kind: locate.KindRegistered})
	if err != nil {
		return err
	}
	for _, d := range docs {
		m, err := store.State[locate.Registered](d)
		if err != nil {
			return err // it may be any model's
		}
		if len(m.Aliases) > 0 {
			aliased[strings.ToLower(m.Name)] = true
		}
	}
	return nil
}

// clean deletes one version unless it is kept.
func (v *versions) clean(d *store.Doc, refs references, aliased map[string]bool) error {
	if !d.Updated.Before(v.q.Before) {
		return nil
	}
	why, err := v.keeps(d, refs, aliased)
	if err != nil {
		return err
	}
	if why != "" {
		addKept(v.sum, berth.KeptStorage{Reason: why, Versions: 1})
		return nil
	}
	v.sum.Versions++
	return v.remove(d, v.place(d))
}

func (v *versions) keeps(d *store.Doc, refs references, aliased map[string]bool) (string, error) {
	switch mark := tagged(d); {
	case mark == keptTag:
		return berth.KeptTag, nil
	case mark != "":
		return keptUnread, nil
	case refs.has(d) || v.refs.has(d):
		return keptNamed, nil
	case v.inUse(refs, d) || v.inUse(v.refs, d):
		return keptNamed, nil
	case aliased[strings.ToLower(d.Name)]:
		return keptAlias, nil
	case v.kind == berth.StorageCode:
		return "", nil
	}
	newest, err := locate.Newest(v.tx, v.Workspace, d.Kind, d.Name) // what @latest means
	if err == nil && newest != nil && newest.ID == d.ID {
		return keptNewest, nil
	}
	return "", err
}

// inUse says whether the folder that a version was uploaded to is named.
func (v *versions) inUse(refs references, d *store.Doc) bool {
	return refs[uploading().FindString(v.place(d).Name)]
}

// remove deletes a version, and the files that were uploaded for it.
func (v *versions) remove(d *store.Doc, place locate.Place) error {
	collection := collections[v.kind][0]
	title := v.title(d)
	own, err := locate.StorageOf(v.tx, v.Workspace)
	if err != nil {
		return err
	}
	ours := place.Container == own.Blobs || place.Container == own.Artifacts
	switch {
	case v.q.DryRun, !place.Ours():
	case ours:
		err = blob.Release(v.tx, place.Container, place.Name, title)
	default:
		err = blob.ReleaseForeign(v.tx, v.Workspace, place.Container, place.Name, title+" of workspace "+v.Workspace)
	}
	if err == nil && ours && uploaded().MatchString(strings.TrimRight(place.Name, "/")) {
		err = v.erase(place, title, d.CreatedBy)
	}
	if err != nil || v.q.DryRun {
		return err
	}
	v.tx.Emit(berth.Event{
		Workspace: v.Workspace, Subject: collection + "/" + d.Name + "/versions/" + d.Version, Type: berth.EventResourceDel,
		Reason: title + " deleted by " + v.By + ": nothing refers to it",
	})
	return asset.Delete(v.tx, collection, d)
}

// place is where the files of a version are; the zero Place where that is not known.
func (v *versions) place(d *store.Doc) locate.Place {
	var doc struct{ Properties map[string]any }
	if json.Unmarshal(d.Body, &doc) != nil {
		return locate.Place{}
	}
	uri := locate.ContentURI(collections[v.kind][0], doc.Properties)
	if uri == "" {
		return locate.Place{}
	}
	place, err := v.Locator.Resolve(v.tx, v.Space, d.CreatedBy, uri)
	if err != nil {
		return locate.Place{} // an address that leads nowhere holds nothing
	}
	return place
}

func (v *versions) title(d *store.Doc) string {
	return asset.Title(collections[v.kind][1], d.Name, d.Version)
}

// erase deletes the files in the folder of a version that its maker wrote, save those of other
// versions. Anybody can register the folder of another user.
func (v *versions) erase(at locate.Place, title, maker string) error {
	folder := strings.TrimRight(at.Name, "/")
	for q := (store.BlobQuery{Container: at.Container, Prefix: folder}); ; {
		page, err := v.tx.ListBlobs(q)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, b := range page {
			q.After = b.Name
			if b.Name != folder && !strings.HasPrefix(b.Name, folder+"/") || b.Writer == "" || b.Writer != maker {
				continue
			}
			var gone bool
			if v.q.DryRun {
				of, err := blob.VersionAt(v.tx, b)
				if err != nil {
					return err
				}
				gone = of == "" || of == title
			} else if gone, err = blob.EraseOne(v.tx, b); err != nil {
				return err
			}
			if gone {
				v.sum.Files++
				v.sum.Bytes += b.Size
			}
		}
	}
}

// uploaded matches folders, and what is in them, that clients upload one version or job to: what
// jobs wrote is cleaned with them.
var uploaded = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(?:LocalUpload|az-ml-artifacts)/[^/]+|(?:codes|models|environments)-[0-9a-f]{8})(?:/|$)`)
})
