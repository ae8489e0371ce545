package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// difference is a field of which two jobs have different values.
type difference struct {
	Field string `json:"field"`
	A     any    `json:"a"`
	B     any    `json:"b"`
}

func diffCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff JOB JOB",
		Short: "Show in what two jobs differ: code, inputs, parameters, metrics, end",
		Long: "Compares two jobs field by field, as their files would say it, and the parameters and metrics that they logged.\n" +
			"JOB is a name, a prefix of one, or `last`. Exits with 0 whether they differ or not.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("name two jobs: `berth diff JOB JOB`; `berth ps -a` lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			var names [2]string
			var fields [2]map[string]any
			for i, text := range args {
				if names[i], fields[i], err = s.comparable(cmd, c, text); err != nil {
					return err
				}
			}
			found := differences(fields[0], fields[1])
			if s.format.chosen() {
				return s.print(found)
			}
			if len(found) == 0 {
				s.say("%s and %s do not differ", names[0], names[1])
				return nil
			}
			t := table{header: []string{"FIELD", legible(clip(names[0], 36)), legible(names[1])}}
			for _, d := range found {
				t.add(cell{d.Field, bold}, cell{clip(oneLine(shownValue(d.A)), 36), ""}, cell{oneLine(shownValue(d.B)), ""})
			}
			return s.printRows(t)
		},
	}
	s.format.flags(cmd)
	return cmd
}

// comparable is what of a job can be compared, by the paths of its fields.
func (s *session) comparable(cmd *cobra.Command, c *client.Client, text string) (string, map[string]any, error) {
	j, err := s.job(cmd.Context(), c, text)
	if err != nil {
		return "", nil, err
	}
	d, err := c.Get(cmd.Context(), "jobs", j.Name)
	if err != nil {
		return "", nil, err
	}
	file := entity(jobNoun(), d)
	for _, own := range []string{"name", "id", "creation_context", "services"} {
		delete(file, own)
	}
	if file["display_name"] == j.Name {
		delete(file, "display_name")
	}
	file["compute"] = j.State().Compute
	if e := j.State().Exit; e != nil {
		file["exit_code"] = e.Code
	}
	out := map[string]any{}
	flatten(out, "", file)
	run, err := c.Run(cmd.Context(), j.Name)
	if berth.CodeOf(err) == berth.NotFound { // a job that is no run, or whose run was deleted
		return j.Name, out, nil
	}
	if err != nil {
		return "", nil, err
	}
	for _, p := range run.Data.Params {
		out["param "+p.Key] = p.Value
	}
	for _, m := range run.Data.Metrics {
		out["metric "+m.Key] = m.Value
	}
	return j.Name, out, nil
}

// flatten writes the leaves of a document into out, by their paths.
func flatten(out map[string]any, path string, v any) {
	m, ok := v.(map[string]any)
	if !ok {
		if v != nil {
			out[path] = v
		}
		return
	}
	for k, inner := range m {
		flatten(out, strings.TrimPrefix(path+"."+k, "."), inner)
	}
}

// differences are the fields that are not the same in both, sorted.
func differences(a, b map[string]any) []difference {
	out := []difference{}
	for k, v := range a {
		if shownValue(v) != shownValue(b[k]) {
			out = append(out, difference{k, v, b[k]})
		}
	}
	for k, v := range b {
		if _, ok := a[k]; !ok {
			out = append(out, difference{k, nil, v})
		}
	}
	slices.SortFunc(out, func(x, y difference) int { return strings.Compare(x.Field, y.Field) })
	return out
}

// shownValue is a value in a line.
func shownValue(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(b)
	}
	return fmt.Sprint(v)
}
