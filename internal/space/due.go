package space

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// KeepDaysTag is the tag of a workspace, and of a job, that says for how many days it keeps a kind.
func KeepDaysTag(kind string) string { return keepDays + kind + "_days" }

const keepDays = "berth.keep_"

// ofJobs are the kinds of what jobs left.
var ofJobs = []string{berth.StorageOutputs, berth.StorageArtifacts, berth.StorageLogs}

// A cutoff is the time before which a job must have ended for what it left of a kind to be deleted,
// zero for never. tags are the days that its tags say.
type cutoff func(kind string, tags map[string]int, now time.Time) time.Time

// askedFor is the cutoff of who asks to delete what is older than a time: tags keep it longer.
func askedFor(before time.Time) cutoff {
	return func(kind string, tags map[string]int, now time.Time) time.Time {
		if days, ok := tags[kind]; ok && daysAgo(now, days).Before(before) {
			return daysAgo(now, days)
		}
		return before
	}
}

// keptFor is the cutoff where each kind is kept for so many days unless tags say otherwise.
func keptFor(days map[string]int) cutoff {
	return func(kind string, tags map[string]int, now time.Time) time.Time {
		if n, ok := tags[kind]; ok {
			return daysAgo(now, n)
		}
		return daysAgo(now, days[kind])
	}
}

// longestDays is a hundred years. Longer is for ever: a time.Duration cannot count it.
const longestDays = 36500

// daysAgo is the time so many days before now, zero for 0 days and more than a hundred years, which
// are for ever.
func daysAgo(now time.Time, days int) time.Time {
	if days <= 0 || days > longestDays {
		return time.Time{}
	}
	return now.Add(-time.Duration(days) * day)
}

// due says of which of the kinds that are asked for what a job left is deleted, and of which it is
// old enough for who asks but kept longer by a tag of the job.
func (b *batch) due(d *store.Doc, st berth.JobState, ended time.Time) (due, longer []string, err error) {
	tags, last, err := b.keepTags(d, st, ended)
	if err != nil {
		return nil, nil, err
	}
	for _, kind := range b.q.Kinds {
		switch {
		case !isOfJobs(kind):
		case last.Before(b.before(kind, tags, b.tx.Now())):
			due = append(due, kind)
		case last.Before(b.q.Before):
			longer = append(longer, kind)
		}
	}
	return due, longer, nil
}

// keepTags are the days for which the tags of a job keep what it left, those of its pipeline where
// it has none itself, and when the last of them ended.
func (b *batch) keepTags(d *store.Doc, st berth.JobState, ended time.Time) (days map[string]int, last time.Time, err error) {
	for last = ended; ; {
		for kind, n := range daysOf(d) {
			if _, nearer := days[kind]; !nearer {
				if days == nil {
					days = map[string]int{}
				}
				days[kind] = n
			}
		}
		if st.Parent == "" {
			return days, last, nil
		}
		up, ok := b.above[st.Parent]
		if !ok {
			up, err = b.tx.Get(b.Workspace, "jobs", st.Parent, "")
			if err != nil && berth.CodeOf(err) != berth.NotFound {
				return nil, last, err
			}
			if b.above == nil {
				b.above = map[string]*store.Doc{}
			}
			b.above[st.Parent] = up
		}
		if up == nil {
			return days, last, nil
		}
		if st, ok = stateOf(up); !ok {
			return days, last, nil // keeps says so
		}
		if d = up; st.Times.Ended.After(last) {
			last = st.Times.Ended
		}
	}
}

// daysOf are the days for which the tags of a job keep what it left, 0 for ever. A value that is no
// number of days keeps everything.
func daysOf(d *store.Doc) map[string]int {
	if !bytes.Contains(d.Body, []byte(keepDays)) {
		return nil
	}
	var doc struct {
		Properties struct{ Tags berth.Tags }
	}
	if json.Unmarshal(d.Body, &doc) != nil {
		return nil
	}
	days := map[string]int{}
	for _, kind := range ofJobs {
		if text, ok := doc.Properties.Tags[KeepDaysTag(kind)]; ok {
			n, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil || n < 0 {
				n = 0
			}
			days[kind] = n
		}
	}
	return days
}

// kindTagged is the kind of the document that says that a workspace has jobs whose tags say for how
// many days what they left is kept: where it is missing no job has to be read to know.
const kindTagged = "jobs/tagged"

// NoteTags notes the tags of a job that is written.
func NoteTags(tx *store.Tx, d *store.Doc) error {
	if len(daysOf(d)) == 0 {
		return nil
	}
	_, err := tx.Get(d.Workspace, kindTagged, keepDays, "")
	if berth.CodeOf(err) != berth.NotFound {
		return err
	}
	return tx.Insert(&store.Doc{Workspace: d.Workspace, Kind: kindTagged, Name: keepDays, Body: []byte("{}")})
}

// anyTagged reports whether a workspace has had a job with such a tag.
func anyTagged(ctx context.Context, db *store.DB, workspace string) (found bool, err error) {
	err = db.View(ctx, func(tx *store.Tx) error {
		_, err := tx.Get(workspace, kindTagged, keepDays, "")
		if berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		found = err == nil
		return err
	})
	return found, err
}

// isOfJobs reports whether a kind is of files that jobs left.
func isOfJobs(kind string) bool { return slices.Contains(ofJobs, kind) }
