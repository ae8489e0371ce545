package slurm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// line is a line of squeue with such columns.
func line(values ...string) string {
	var b strings.Builder
	for i, v := range values {
		fmt.Fprintf(&b, "%-*s", columns[i].width, v)
	}
	return b.String()
}

func TestParseJob(t *testing.T) {
	got, ok := parseJob(line("17", "PENDING", "0", "b-abc", "", "2", "ReqNodeNotAvail, UnavailableNodes:n[1-2]"))
	want := job{number: "17", state: "PENDING", name: "b-abc", restarts: 2, why: "ReqNodeNotAvail, UnavailableNodes:n[1-2]"}
	if !ok || got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, empty := range []string{"", "   "} {
		if j, ok := parseJob(empty); ok {
			t.Errorf("%q is %+v", empty, j)
		}
	}
}

func TestParseCode(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "768": 3, "3:0": 3, "0:9": 137, "9": 137, "0:0": 0, "": 0, "x": 0} {
		if got := parseCode(text); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}

func TestGPUs(t *testing.T) {
	for list, want := range map[string]int{"(null)": 0, "gpu:4": 4, "gpu:a100:4(S:0-1),tmpdisk:100": 4, "gpu:v100:2,gpu:a100:1": 3, "gpu:x": 0} {
		if got := gpus(list); got != want {
			t.Errorf("%q has %d, want %d", list, got, want)
		}
	}
}

// TestExit tells the ends of jobs apart.
func TestExit(t *testing.T) {
	stopped := &driver.Stop{Cause: "evicted", Why: "its node is wanted"}
	for _, tt := range []struct {
		state string
		code  int
		stop  *driver.Stop
		want  berth.Exit
	}{
		{"COMPLETED", 0, nil, berth.Exit{}},
		{"COMPLETED", 0, stopped, berth.Exit{}},
		{"FAILED", 3, nil, berth.Exit{Code: 3, Reason: "the command ended with exit code 3"}},
		{"FAILED", 143, stopped, berth.Exit{Code: 143, Cause: "evicted", Reason: "its node is wanted"}},
		{"CANCELLED", 0, &driver.Stop{}, berth.Exit{Code: 143, Cause: "canceled", Reason: "it was asked to stop"}},
		{"CANCELLED", 0, nil, berth.Exit{Code: -1, Cause: "canceled", Reason: "Slurm's job 7 was canceled there"}},
		{"TIMEOUT", 0, nil, berth.Exit{Code: -1, Cause: "timeout", Reason: "Slurm's job 7 has used up its time limit"}},
		{"OUT_OF_MEMORY", 125, nil, berth.Exit{Code: 137, OOM: true, Reason: "Slurm's job 7 was ended because it ran out of memory"}},
		{"NODE_FAIL", 0, nil, berth.Exit{Code: -1, Cause: "lost", Reason: "the node n1 of Slurm's job 7 failed"}},
		{"PREEMPTED", 0, nil, berth.Exit{Code: -1, Cause: "evicted", Reason: "Slurm's job 7 was preempted"}},
		{"", 0, nil, berth.Exit{Code: -1, Cause: "lost", Reason: "Slurm does not know b-abc any more, and has no accounts of it"}},
	} {
		got := exitOf(&record{Name: "b-abc", Job: "7", Stop: tt.stop}, job{state: tt.state, code: tt.code, node: "n1"})
		if diff := cmp.Diff(&tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.state, diff)
		}
	}
}

func TestOptions(t *testing.T) {
	for option, ok := range map[string]bool{
		"--gres=gpu:1": true, "--exclusive": true, "--mem=4G": true,
		"--uid=0": false, "--clusters=other": false, "--job-name=x": false, "--array=1-9": false, "--wrap=true": false, "-p": false, "gres=gpu:1": false, "--": false, "--mem=1\n--uid=0": false,
	} {
		if err := checkOption(option); (err == nil) != ok {
			t.Errorf("%q: %v", option, err)
		}
	}
}

// TestQuote: whatever a path has in it, the shell sees one word.
func TestQuote(t *testing.T) {
	if got, want := quote("a'b $(c)"), `'a'\''b $(c)'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestReason(t *testing.T) {
	for word, want := range map[string]string{
		"None": "Slurm has not looked at it yet", "Resources": "no node of Slurm has what it asks for free (Resources)",
		"ReqNodeNotAvail, UnavailableNodes:n1": "a node that it asks for is down, drained or reserved (ReqNodeNotAvail, UnavailableNodes:n1)",
		"Strange":                              "Slurm has it wait: Strange",
	} {
		if got := reason(word); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
