package space

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// Retain deletes in every workspace what jobs left and what nothing refers to that is older than it
// is kept: as the tags of a job say, else those of its workspace, else days. What cannot be
// understood is kept.
func Retain(ctx context.Context, db *store.DB, blobs *blob.Store, at locate.Locator, days map[string]int, log *slog.Logger) error {
	var all []*store.Doc
	err := db.View(ctx, func(tx *store.Tx) (err error) {
		all, err = tx.All(store.Query{Kind: "workspaces"})
		return err
	})
	if err != nil {
		return err
	}
	var failed []error
	for _, d := range all {
		ws, err := locate.WorkspaceOf(d)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		var doc struct{ Tags berth.Tags }
		if err := json.Unmarshal(d.Body, &doc); err != nil {
			failed = append(failed, err)
			continue
		}
		c := Cleaner{DB: db, Blobs: blobs, Workspace: ws.Key(), Space: ws, Locator: at, By: "retention"}
		keep := map[string]int{}
		for _, kind := range berth.StorageKinds {
			keep[kind] = days[kind]
			if text, ok := doc.Tags[KeepDaysTag(kind)]; ok {
				if keep[kind], err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
					log.Warn("workspace tag is not a number of days; nothing is deleted", "workspace", ws.Name, "tag", KeepDaysTag(kind), "value", text)
					keep[kind] = 0
				}
			}
		}
		note := func(got berth.CleanedStorage, err error, kinds ...string) {
			if err != nil {
				failed = append(failed, err)
			}
			if got.Files > 0 || got.Versions > 0 {
				log.Info("deleted what is old", "workspace", ws.Name, "kind", strings.Join(kinds, ","), "jobs", got.Jobs, "versions", got.Versions, "files", got.Files, "bytes", got.Bytes)
			}
		}
		look := slices.ContainsFunc(ofJobs, func(kind string) bool { return keep[kind] > 0 })
		if !look {
			if look, err = anyTagged(ctx, db, ws.Key()); err != nil {
				failed = append(failed, err)
			}
		}
		if look {
			var got berth.CleanedStorage
			err := c.cleanJobs(ctx, berth.CleanStorage{Kinds: ofJobs}, keptFor(keep), &got)
			note(got, err, ofJobs...)
		}
		for kind := range collections {
			if before := daysAgo(db.Now(), keep[kind]); !before.IsZero() {
				got, err := c.Clean(ctx, berth.CleanStorage{Kinds: []string{kind}, Before: before, Everyone: true})
				note(got, err, kind)
			}
		}
	}
	return errors.Join(failed...)
}
