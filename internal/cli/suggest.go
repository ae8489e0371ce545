package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
)

// otherWords are words of other programs, with the commands of ours that do the same.
var otherWords = map[string][]string{
	"jobs":        {"job", "ps"},
	"list":        {"ps", "job list"},
	"ls":          {"ps", "job list"},
	"queue":       {"ps"},
	"squeue":      {"ps"},
	"submit":      {"run", "job create -f FILE"},
	"sbatch":      {"run", "job create -f FILE"},
	"srun":        {"run -i"},
	"exec":        {"run -i", "ssh"},
	"shell":       {"ssh", "run -i -- bash"},
	"bash":        {"run -i -- bash"},
	"kill":        {"cancel"},
	"abort":       {"cancel"},
	"scancel":     {"cancel"},
	"delete":      {"rm"},
	"remove":      {"rm"},
	"retry":       {"rerun"},
	"resubmit":    {"rerun"},
	"restart":     {"rerun", "compute restart"},
	"start":       {"up", "compute start"},
	"server":      {"up", "status"},
	"daemon":      {"up"},
	"info":        {"status"},
	"whoami":      {"status"},
	"log":         {"logs"},
	"tail":        {"logs -f"},
	"attach":      {"logs -f", "compute attach"},
	"watch":       {"logs -f", "events -f"},
	"why":         {"explain"},
	"describe":    {"explain", "show"},
	"inspect":     {"show"},
	"get":         {"show", "download"},
	"cp":          {"download"},
	"fetch":       {"download"},
	"cluster":     {"compute"},
	"clusters":    {"compute list"},
	"nodes":       {"compute list-nodes"},
	"sizes":       {"compute list-sizes"},
	"price":       {"cost", "compute list-sizes"},
	"serve-model": {"deploy"},
	"notebook":    {"compute create --type ComputeInstance", "open"},
	"jupyter":     {"open"},
	"env":         {"environment"},
	"dataset":     {"data"},
	"config":      {"status", "login"},
	"auth":        {"login"},
	"update":      {"job update"},
	"create":      {"job create", "compute create"},
	"wait":        {"logs -f --exit-code"},
	"instance":    {"compute create --type ComputeInstance", "compute list"},
	"instances":   {"compute list"},
}

// sameVerbs are words for the same thing; a command has one of them, as a rule.
var sameVerbs = [][]string{
	{"list", "ls"},
	{"delete", "remove", "rm"},
	{"create", "add", "new"},
	{"show", "get", "describe", "inspect"},
	{"cancel", "stop", "kill", "abort"},
	{"logs", "log", "tail"},
}

// suggestions are the commands that were probably meant by a word, the likeliest first.
func suggestions(cmd *cobra.Command, word string) []string {
	if near := otherWords[word]; near != nil && !cmd.HasParent() && cmd.Root().Annotations[azMark] == "" {
		return near
	}
	if cmd.HasParent() {
		for _, same := range sameVerbs {
			for _, c := range cmd.Commands() {
				if slices.Contains(same, word) && slices.Contains(same, c.Name()) && c.IsAvailableCommand() {
					return []string{c.Name()}
				}
			}
		}
	}
	most := 1 // letters that differ
	if len(word) > 4 {
		most = 2
	}
	type found struct {
		name     string
		distance int
	}
	var near []found
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		switch d := transposed(word, c.Name()); {
		case d <= most:
			near = append(near, found{c.Name(), d})
		case len(word) > 1 && strings.HasPrefix(c.Name(), word):
			near = append(near, found{c.Name(), most})
		}
	}
	slices.SortStableFunc(near, func(a, b found) int { return a.distance - b.distance })
	var out []string
	for _, f := range near[:min(3, len(near))] {
		if f.distance == near[0].distance || len(out) == 0 {
			out = append(out, f.name)
		}
	}
	return out
}

// transposed is distance, with two letters that changed places counted as one.
func transposed(a, b string) int {
	d := berth.Distance(a, b)
	for i := 0; i+1 < len(a); i++ {
		d = min(d, 1+berth.Distance(a[:i]+a[i+1:i+2]+a[i:i+1]+a[i+2:], b))
	}
	return d
}
