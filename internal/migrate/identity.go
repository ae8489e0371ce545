package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/berthml/berth"
)

// Runs of jobs, in other workspaces, have the names of the jobs as ids. Here a job may have that
// name, now or later, so that these runs get ids like those of MLflow.

// isMLflowRun says whether an id is one that MLflow gives a run, which it keeps.
func isMLflowRun(id string) bool {
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}

// newID is the id that a run of an experiment gets. It is made of what no address of the source
// changes, so that every import finds the run again.
func newID(within Experiment, run string) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%q %d %q", within.ID, within.Created, run))
	return hex.EncodeToString(h[:16])
}

// runID is the id that a run of the source has in the workspace, whether it is there yet or not.
func (c *copier) runID(ctx context.Context, id string) (string, error) {
	if id == "" || isMLflowRun(id) || checkName(id) != nil {
		return id, nil //nolint:nilerr // the server says what is wrong with it
	}
	if known := c.ids[id]; known != "" {
		return known, nil
	}
	experiment, err := c.from.ExperimentOf(ctx, id)
	if err != nil && !leaves(err) {
		return "", err
	}
	c.ids[id] = newID(c.experiments[experiment], id)
	return c.ids[id], nil
}

// namesRun are the tags whose value is the id of another run.
var namesRun = map[string]bool{"mlflow.parentRunId": true, "mlflow.rootRunId": true}

// runTags are the tags of a run as they are in the workspace, where it has an id.
func (c *copier) runTags(ctx context.Context, r *Run, id string) (tags []Pair, err error) {
	tags = theirTags(r.Data.Tags)
	for i, t := range tags {
		if namesRun[t.Key] {
			if tags[i].Value, err = c.runID(ctx, t.Value); err != nil {
				return nil, err
			}
		}
	}
	if id != r.Info.ID {
		tags = append(tags, Pair{berth.TagImportedID, r.Info.ID})
	}
	return tags, nil
}
