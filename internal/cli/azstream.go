package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// azFrame is what az writes around the log of a job it streams, on standard output: which job it
// is, which file the log is, and where the job is to be looked at.
type azFrame struct {
	s    *session
	head string
}

// frame writes the beginning of it. By our own manners there is none: standard output is the job's
// alone.
func (s *session) frame(ctx context.Context, c *client.Client, job string) (*azFrame, error) {
	if !s.format.az {
		return nil, nil
	}
	d, err := c.Get(ctx, "jobs", job)
	if err != nil {
		return nil, err
	}
	page, _ := at(d.Properties(), "services.Studio.endpoint").(string)
	f := &azFrame{s, fmt.Sprintf("RunId: %s\nWeb View: %s\n", job, page)}
	_, err = s.out.WriteString(f.head)
	return f, err
}

// log writes the heading of the log.
func (f *azFrame) log(name string) {
	if f == nil {
		return
	}
	if name == "" {
		name = berth.StdLog
	}
	title := "Streaming " + name
	fmt.Fprintf(f.s.out, "\n%s\n%s\n\n", title, strings.Repeat("=", len(title)))
}

// end writes what is to be said of a job that has ended; open says that the log ended within a
// line. A job that failed is an error in az's own form. One that was canceled is not.
func (f *azFrame) end(j *client.Job, open bool) error {
	if open {
		fmt.Fprintln(f.s.out)
	}
	fmt.Fprintf(f.s.out, "\nExecution Summary\n=================\n%s", f.head)
	if j.Status() != berth.Failed {
		fmt.Fprintln(f.s.out)
		return nil
	}
	why, err := json.MarshalIndent(map[string]any{"error": map[string]any{"code": "UserError", "message": j.State().Reason}}, "", "    ")
	if err != nil {
		return err
	}
	return berth.Errorf(berth.Invalid, "Exception : \n %s", why)
}
