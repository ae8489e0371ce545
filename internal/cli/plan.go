package cli

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// The exit codes of a plan; 0 is that the job would run now or soon, and whatever went wrong is
// exitFailed, so that these two mean nothing else.
const (
	exitWait  = 4 // it would wait for a limit
	exitNever = 5 // it can never run as it is
)

func planCommand(s *session) *cobra.Command {
	var file, name string
	var set wordGroups
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show where and when a job would run, at what cost, and what prevents it",
		Long: "Shows what would happen to a job if it were submitted now. Nothing is created or uploaded.\n\n" +
			"Exits with 0 if the job would run now or soon, 4 if it would wait because of a limit, 5 if it can never run,\n" +
			"and 1 if the file or the request is wrong.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("give a file: `berth plan -f job.yml`")
			}
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return planFailed(err)
			}
			sets, err := setsOf(&set)
			if err != nil {
				return err
			}
			r, err := s.load(c, "job", file, sets, name, "")
			if err != nil {
				return planFailed(err)
			}
			return s.plan(cmd.Context(), c, r)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "YAML file of a job")
	setFlag(cmd, &set)
	f.StringVarP(&name, "name", "n", "", "name the job would have")
	s.format.flags(cmd)
	return cmd
}

// planError is an error of a plan: it ends the program with exitFailed, whatever its code.
type planError struct{ msg string }

func (e planError) Error() string { return e.msg }

func planFailed(err error) error {
	var exit exitError
	var use usageError
	if err == nil || errors.As(err, &exit) || errors.As(err, &use) {
		return err
	}
	return planError{err.Error()}
}

// plan plans what a file describes.
func (s *session) plan(ctx context.Context, c *client.Client, r *spec.Result) error {
	for _, w := range r.Warnings {
		s.warn("%v", w)
	}
	name, body, err := planned(r)
	if err != nil {
		return planFailed(err)
	}
	return s.planBody(ctx, c, name, body)
}

// planned is the name and the document of the job a file describes, with what would be made first
// beside it and a placeholder for everything that would be uploaded.
func planned(r *spec.Result) (string, map[string]any, error) {
	last := len(r.Resources) - 1
	job := r.Resources[last]
	if job.Type != "jobs" {
		return "", nil, berth.Errorf(berth.Invalid, "the file describes no job; a plan is for jobs")
	}
	var body map[string]any
	raw, err := withoutUploads(job)
	if err != nil {
		return "", nil, err
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return "", nil, err
	}
	var first []any
	for _, other := range r.Resources[:last] {
		raw, err := withoutUploads(other)
		if err != nil {
			return "", nil, err
		}
		first = append(first, map[string]any{"type": other.Type, "name": other.Name, "version": other.Version, "body": raw})
	}
	if first != nil {
		body["berth"] = map[string]any{"resources": first}
	}
	if job.Name == "" {
		job.Name = newName()
	}
	return job.Name, body, nil
}

// withoutUploads is a document with the local path where the address of an upload would stand.
func withoutUploads(res spec.Resource) (json.RawMessage, error) {
	local := map[string]string{}
	for _, u := range res.Uploads {
		local[u.Placeholder] = "local:" + u.Path
	}
	return res.Fill(local)
}

// planBody asks for the plan of a document, prints it, and ends with what it means.
func (s *session) planBody(ctx context.Context, c *client.Client, name string, body any) error {
	p, err := c.Plan(ctx, name, body)
	if err != nil {
		return planFailed(err)
	}
	if s.format.chosen() {
		err = s.print(p)
	} else {
		err = s.printPlan(p, time.Now())
	}
	if err != nil {
		return err
	}
	switch p.Verdict {
	case berth.PlanWait:
		return exitError(exitWait)
	case berth.PlanNever:
		return exitError(exitNever)
	}
	return nil
}
