//go:build linux && engines

package conformance_test

import (
	"fmt"
	"slices"
	"strings"
)

const intro = `# What jobs can ask for, and where

Each row is something that the YAML file of a job can ask for, each column a kind of compute. The table is what a run of
` + "`go test -tags engines ./e2e/conformance -write`" + ` saw, which submits each to each; ` + "`make test-engines`" + ` fails when it sees something else. Nothing is ignored silently:

| | |
|---|---|
| yes | the job gets what it asks for |
| refused | the job is refused when it is submitted; the sentence is below the table |
| fails | the job ends before its command runs; the sentence is below the table |
| no effect | the job runs without it, and an event of the job says so (` + "`berth events`, `berth run`" + `) |
| – | it has no meaning there |

The machines of this run have no container engine and no GPU. Where there is a container engine, ` + "`image`, `shm_size`, `docker_args`" + ` and images built from a
Dockerfile work on this machine, clusters, SSH and agents ([environments](environments.md)). SSH is one machine: [several as one compute](attached.md#several-machines-as-one-compute) run jobs of as many nodes as
there are machines (` + "`resources.instance_count`" + `), and are as SSH otherwise.

`

// render writes the page.
func render(targets []target, cells []*cell) string {
	var out, notes strings.Builder
	out.WriteString(intro)
	out.WriteString("| asked for | |")
	for _, x := range targets {
		fmt.Fprintf(&out, " %s |", x.title)
	}
	out.WriteString("\n|---|---|" + strings.Repeat("---|", len(targets)) + "\n")
	group := ""
	var said []string
	for row := range slices.Chunk(cells, len(targets)) {
		f := row[0].f
		first := ""
		if f.group != group {
			first, group = f.group, f.group
		}
		fmt.Fprintf(&out, "| %s | %s |", first, f.name)
		for _, c := range row {
			mark := c.mark
			if note := sentence(c.note); note != "" {
				at := slices.Index(said, note)
				if at < 0 {
					at, said = len(said), append(said, note)
					fmt.Fprintf(&notes, "%d. %s\n", at+1, note)
				}
				mark += fmt.Sprintf(" (%d)", at+1)
			}
			fmt.Fprintf(&out, " %s |", mark)
		}
		out.WriteString("\n")
	}
	return out.String() + "\n" + notes.String()
}
