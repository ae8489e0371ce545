package cli

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// fetch downloads a URI below dir, with progress, and says what came.
func (s *session) fetch(ctx context.Context, c *client.Client, what, uri, dir string) error {
	line := s.newProgress()
	got, err := c.Download(ctx, uri, dir, func(done, total int64) {
		line.set("downloading %s: %s of %s", what, size(done), size(total))
	})
	line.stop()
	if err != nil {
		return err
	}
	s.say("%s: %d %s, %s, in %s", what, got.Files, plural(got.Files, "file"), size(got.Bytes), dir)
	return s.leftFiles(got)
}

// leftFiles names the files that a download has left behind, and fails if there are any.
func (s *session) leftFiles(got client.Download) error {
	for _, name := range got.Left {
		s.warn("%s was left behind: there are files below it, and a folder cannot be a file too", name)
	}
	if len(got.Left) > 0 {
		return exitError(exitFailed)
	}
	return nil
}

// fetchOutput downloads a named output of a job into dir.
func (s *session) fetchOutput(ctx context.Context, c *client.Client, job, output, dir string) error {
	outputs, err := c.Outputs(ctx, job)
	if err != nil {
		return err
	}
	uri, ok := outputs[output]
	if !ok {
		return berth.Errorf(berth.NotFound, "job %s has no output %q; it has %s", job, output, listOf(sortedKeys(outputs)))
	}
	err = s.fetch(ctx, c, "output "+output, uri, dir)
	if berth.CodeOf(err) != berth.NotFound {
		return err
	}
	if j, err := c.Job(ctx, job); err == nil && !j.Status().Terminal() {
		return berth.Errorf(berth.NotFound, "job %s has written nothing to its output %s yet: it is %s", job, output, j.Status())
	}
	if why := s.cleaned(ctx, c, job, berth.StorageOutputs); why != "" {
		return berth.Errorf(berth.NotFound, "%s", why)
	}
	return berth.Errorf(berth.NotFound, "job %s wrote nothing to its output %s", job, output)
}

// cleaned says when files of a job of this kind were deleted because of their age, "" if they were
// not, or longer ago than events are kept.
func (s *session) cleaned(ctx context.Context, c *client.Client, job, kind string) string {
	events, _, err := c.Events(ctx, job, 0)
	if err != nil {
		return "" // it only explains
	}
	for i := len(events) - 1; i >= 0; i-- {
		kinds, _, _ := strings.Cut(events[i].Reason, " deleted by ")
		if e := events[i]; e.Type == berth.EventStorage && slices.Contains(strings.Split(kinds, ", "), kind) {
			return fmt.Sprintf("the files of job %s were deleted on %s: %s", job, e.Time.Local().Format("2006-01-02 15:04"), e.Reason)
		}
	}
	return ""
}

// fetchOutputs copies the outputs of a job that has ended to where they are wanted, and tells how
// to get those that it could not.
func (s *session) fetchOutputs(ctx context.Context, c *client.Client, j *client.Job, outputs map[string]string) error {
	left := maps.Clone(outputs)
	for _, output := range sortedKeys(outputs) {
		if outputs[output] == "" {
			continue
		}
		err := s.fetchOutput(ctx, c, j.Name, output, outputs[output])
		switch {
		case interrupted(ctx, err):
			s.say("\ninterrupted")
			s.fetchLater(j.Name, left)
			return exitError(exitInterrupted)
		case err != nil && j.Status() != berth.Completed:
			s.warn("output %s was not fetched: %v", output, err)
		case err != nil:
			s.fetchLater(j.Name, left)
			return err
		}
		delete(left, output)
	}
	return nil
}

// fetchLater tells how to get the outputs that were to be copied and were not.
func (s *session) fetchLater(job string, outputs map[string]string) {
	for _, name := range sortedKeys(outputs) {
		if outputs[name] != "" {
			s.say("output %s was not copied to %s; when the job has ended, this copies it:", name, outputs[name])
			s.say("  berth job download -n %s --output-name %s", job, quote(name+"="+outputs[name]))
		}
	}
}

func listOf(words []string) string {
	switch len(words) {
	case 0:
		return "none"
	case 1:
		return words[0]
	}
	out := words[0]
	for _, w := range words[1:] {
		out += ", " + w
	}
	return out
}

// downloadJob fetches what a job left: one output, everything, or by default its logs and
// ./outputs. The folders are those that az ml makes. To az a job that has not ended has nothing to
// download, and an output without files is not a mistake.
func (s *session) downloadJob(ctx context.Context, c *client.Client, job, output, dir string, all bool) error {
	if s.format.az {
		j, err := c.Job(ctx, job)
		if err != nil {
			return err
		}
		if !j.Status().Terminal() {
			return berth.Errorf(berth.Conflict, "job %s is in state %s; download is allowed only when it is Completed, Failed or Canceled. `berth job download` takes what there is", job, j.Status())
		}
	}
	if output != "" && output != "default" {
		name, to, placed := strings.Cut(output, "=")
		if !placed || to == "" {
			to = filepath.Join(dir, "named-outputs", name)
		}
		err := s.fetchOutput(ctx, c, job, name, to)
		if s.format.az && berth.CodeOf(err) == berth.NotFound {
			s.warn("%v", err)
			return nil
		}
		return err
	}
	err := s.fetch(ctx, c, "logs and artifacts", client.Artifacts(job), filepath.Join(dir, "artifacts"))
	switch {
	case berth.CodeOf(err) == berth.NotFound:
		s.say("%s left no logs or artifacts", job)
	case err != nil:
		return err
	}
	outputs, err := c.Outputs(ctx, job)
	if err != nil {
		return err
	}
	if !all {
		if len(outputs) > 0 {
			s.hint("not copied: %s %s; --all copies everything", plural(len(outputs), "output"), listOf(sortedKeys(outputs)))
		}
		return nil
	}
	for _, name := range sortedKeys(outputs) {
		err := s.fetchOutput(ctx, c, job, name, filepath.Join(dir, "named-outputs", name))
		if berth.CodeOf(err) == berth.NotFound {
			s.warn("%v", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}
