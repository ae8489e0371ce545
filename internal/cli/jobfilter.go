package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// jobFilter is which jobs a list is to have. The server applies it to all jobs, but for since:
// lists are newest first, and end there.
type jobFilter struct {
	user, since, tag, experiment, status string
	mine                                 bool
}

func (w *jobFilter) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&w.mine, "mine", false, "only your jobs")
	f.StringVar(&w.user, "user", "", "only jobs of this user")
	f.StringVar(&w.experiment, "experiment", "", "only jobs of this experiment")
	alias(cmd, map[string]string{"experiment-name": "experiment"})
	f.StringVar(&w.tag, "tag", "", "only jobs with this tag: NAME or NAME=VALUE")
	f.StringVar(&w.since, "since", "", "only jobs created since then: 30m, 12h, 7d, or a date such as 2026-01-31")
	f.StringVar(&w.status, "status", "", "only jobs with one of these statuses, for example Failed,Canceled; active is all that have not ended")
}

// query is the filter as the server takes it.
func (w jobFilter) query(now time.Time) (q client.JobQuery, err error) {
	q = client.JobQuery{Mine: w.mine, User: w.user, Experiment: w.experiment, Tag: w.tag}
	if w.mine && w.user != "" {
		return q, usagef("give --mine or --user, not both")
	}
	if strings.HasPrefix(w.tag, "=") {
		return q, usagef("--tag %s: give NAME or NAME=VALUE", w.tag)
	}
	if w.since != "" {
		if q.Since, err = parseSince(w.since, now); err != nil {
			return q, err
		}
	}
	if w.status == "" {
		return q, nil
	}
	for _, word := range strings.Split(w.status, ",") {
		if strings.EqualFold(word, "active") {
			q.Status = append(q.Status, berth.ActiveStatuses...)
			continue
		}
		every := jobStatuses()
		i := slices.IndexFunc(every, func(st berth.JobStatus) bool { return strings.EqualFold(string(st), word) })
		if i < 0 {
			return q, usagef("--status %s is not a status of jobs; they are active, %s", word, strings.Join(berth.StatusTexts(every), ", "))
		}
		q.Status = append(q.Status, every[i])
	}
	return q, nil
}

// jobStatuses are the statuses a job can have.
func jobStatuses() []berth.JobStatus {
	return slices.Concat(berth.ActiveStatuses, []berth.JobStatus{berth.Completed, berth.Failed, berth.Canceled})
}

// parseSince is the time that is a span before now, or a date.
func parseSince(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if d, err := time.ParseDuration(days + "h"); err == nil && d >= 0 {
			return now.Add(-24 * d), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.DateOnly, time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04"} {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("--since %s: give a span such as 30m, 12h or 7d, or a date such as 2026-01-31", text)
}
