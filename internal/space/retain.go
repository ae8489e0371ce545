package space

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// KeepDaysTag is the tag of a workspace that says for how many days it keeps a kind.
func KeepDaysTag(kind string) string { return "berth.keep_" + kind + "_days" }

// Retain deletes in every workspace what jobs left and what nothing refers to that is older than it
// is kept: as the
// workspace's tags say, else as days says. What cannot be understood is kept.
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
		for _, kind := range berth.StorageKinds {
			if kind == berth.StorageMetrics { // deleted_run_days
				continue
			}
			keep := days[kind]
			if text, ok := doc.Tags[KeepDaysTag(kind)]; ok {
				if keep, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
					log.Warn("workspace tag is not a number of days; nothing is deleted", "workspace", ws.Name, "tag", KeepDaysTag(kind), "value", text)
					continue
				}
			}
			if keep <= 0 {
				continue
			}
			got, err := c.Clean(ctx, berth.CleanStorage{Kinds: []string{kind}, Before: db.Now().Add(-time.Duration(keep) * day), Everyone: true})
			if err != nil {
				failed = append(failed, err)
			}
			if got.Files > 0 || got.Versions > 0 {
				log.Info("deleted what is old", "workspace", ws.Name, "kind", kind, "jobs", got.Jobs, "versions", got.Versions, "files", got.Files, "bytes", got.Bytes)
			}
		}
	}
	return errors.Join(failed...)
}
