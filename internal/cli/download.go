package cli

import (
	"context"
	"path/filepath"

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
	return berth.Errorf(berth.NotFound, "job %s wrote nothing to its output %s", job, output)
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

// downloadJob fetches what a job left: one output, everything, or by default its logs and ./outputs. The folders are those that
// az ml makes. To az a job that has not ended has nothing to download, and an output without files is no mistake.
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
		err := s.fetchOutput(ctx, c, job, output, filepath.Join(dir, "named-outputs", output))
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
