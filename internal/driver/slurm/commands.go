package slurm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// commands are Slurm's own, which work on this machine, or on a login node.
type commands struct {
	login *login // nil: this machine
}

// commandTime is how long a command may take: clients of Slurm wait for ever for a controller that
// is away.
const commandTime = 20 * time.Second

// submitter is the command that submits jobs.
const submitter = "sbatch"

// forJobs are the variables that sbatch is given, and with it the job: others may be secrets of the
// server. A choice by sbatch's own --export would have nodes run the account's login shell first.
var forJobs = []string{"HOME", "USER", "LOGNAME", "LANG", "PATH", "LD_LIBRARY_PATH", "SLURM_CONF"}

// run runs a command of Slurm and returns what it printed.
func (c commands) run(ctx context.Context, in []byte, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	if c.login != nil {
		return c.login.run(ctx, in, name, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = os.Environ()
	if name == submitter {
		cmd.Env = nil
		for _, v := range forJobs {
			if value, ok := os.LookupEnv(v); ok {
				cmd.Env = append(cmd.Env, v+"="+value)
			}
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C", "SLURM_TIME_FORMAT=standard")
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	if in != nil {
		cmd.Stdin = bytes.NewReader(in)
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	switch {
	case err == nil:
		return out.String(), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", berth.Errorf(berth.Unsupported, "%s is not installed on the server's machine: install Slurm's client commands, or attach a login node with --ssh", name)
	case ctx.Err() != nil:
		return "", silent(name)
	}
	return "", &commandError{name: name, msg: lastLine(said.String()), err: err}
}

// silent is the error of a command that did not end in time.
func silent(name string) error {
	return berth.Errorf(berth.Unavailable, "%s: Slurm's controller does not answer", name)
}

func lastLine(said string) string {
	said = strings.TrimSpace(said)
	return said[strings.LastIndexByte(said, '\n')+1:]
}

// account is whose jobs the commands submit.
func (c commands) account() account {
	if c.login != nil {
		return c.login.account()
	}
	return account{uid: strconv.Itoa(os.Getuid())}
}

// account is an account of the cluster.
type account struct{ uid string }

// commandError is what a command of Slurm said when it failed.
type commandError struct {
	name, msg string
	err       error
}

func (e *commandError) Error() string {
	if e.msg == "" {
		return e.name + ": " + e.err.Error()
	}
	return e.msg
}

func (e *commandError) Unwrap() error { return e.err }

// refusals are what sbatch says of jobs that can never run; anything else may pass.
var refusals = []string{
	"invalid partition", "invalid account", "invalid qos", "invalid feature", "requested node configuration is not available",
	"invalid generic resource", "more processors requested than permitted", "memory specification can not be satisfied",
	"requested time limit is invalid", "unrecognized option", "invalid option", "access/permission denied", "invalid reservation",
	"node count specification invalid",
}

// submit is [calls.submit].
func (c commands) submit(ctx context.Context, name string, w work, tasks int) (string, error) {
	args := append([]string{"--parsable"}, options(name, w)...)
	if tasks > 1 {
		args = append(args, arrayOption(tasks))
	}
	out, err := c.run(ctx, w.script, submitter, args...)
	if failed, ok := errors.AsType[*commandError](err); ok {
		for _, r := range refusals {
			if strings.Contains(strings.ToLower(failed.msg), r) {
				return "", berth.Errorf(berth.Invalid, "Slurm refuses the job: %s", failed.msg)
			}
		}
		return "", berth.Errorf(berth.Unavailable, "Slurm does not take the job: %w", err)
	}
	if err != nil {
		return "", err
	}
	number, _, _ := strings.Cut(strings.TrimSpace(out), ";") // the name of a cluster may follow
	if _, err := strconv.ParseUint(number, 10, 64); err != nil {
		return "", berth.Errorf(berth.Unavailable, "sbatch printed %q instead of the number of a job", out)
	}
	return number, nil
}

// columns are those of squeue's listing, with their widths.
var columns = []struct {
	name  string
	width int
}{{"JobArrayID", 20}, {"State", 20}, {"exit_code", 12}, {"Name", 48}, {"NodeList", 80}, {"RestartCnt", 8}, {"Reason", 200}}

// jobs is [calls.jobs].
func (c commands) jobs(ctx context.Context) ([]job, error) {
	var format []string
	for _, x := range columns {
		format = append(format, x.name+":"+strconv.Itoa(x.width))
	}
	out, err := c.run(ctx, nil, "squeue", "--noheader", "--array", "--states=all", "--user="+c.account().uid, "--Format="+strings.Join(format, ","))
	if err != nil {
		return nil, unavailable(err)
	}
	var all []job
	for line := range strings.Lines(out) {
		if j, ok := parseJob(strings.TrimRight(line, "\n")); ok {
			all = append(all, j)
		}
	}
	return all, nil
}

func parseJob(line string) (job, bool) {
	var fields []string
	for _, x := range columns {
		n := min(x.width, len(line))
		fields = append(fields, strings.TrimSpace(line[:n]))
		line = line[n:]
	}
	j := job{number: fields[0], state: fields[1], code: parseCode(fields[2]), name: fields[3], node: fields[4], why: fields[6]}
	j.restarts, _ = strconv.Atoi(fields[5])
	return j, j.number != "" && j.state != ""
}

// parseCode reads an exit code, which some versions print as CODE:SIGNAL and others as the status
// of wait.
func parseCode(s string) int {
	if code, sig, ok := strings.Cut(s, ":"); ok {
		n, _ := strconv.Atoi(code)
		if m, _ := strconv.Atoi(sig); n == 0 && m > 0 {
			return 128 + m
		}
		return n
	}
	n, _ := strconv.Atoi(s)
	if n > 0 && n < 256 {
		return 128 + n&127
	}
	return n >> 8
}

// past is [calls.past].
func (c commands) past(ctx context.Context, number string) (j job, kept bool, err error) {
	out, err := c.run(ctx, nil, "sacct", "--noheader", "--parsable2", "--allocations", "--jobs="+number, "--format=State,ExitCode,NodeList")
	if failed, ok := errors.AsType[*commandError](err); ok && strings.Contains(strings.ToLower(failed.msg), "accounting storage is disabled") {
		return job{}, false, nil
	}
	if berth.CodeOf(err) == berth.Unsupported { // there is no sacct
		return job{}, false, nil
	}
	if err != nil {
		return job{}, false, unavailable(err)
	}
	line, _, _ := strings.Cut(out, "\n")
	f := strings.Split(line, "|")
	if len(f) != 3 {
		return job{}, true, nil
	}
	j = job{number: number, code: parseCode(f[1]), node: f[2]}
	j.state, _, _ = strings.Cut(f[0], " ") // CANCELLED by 1000
	// sacct takes 128 off exit codes that have it.
	j.vague = j.code > 0 && j.code < 128
	return j, true, nil
}

// ask is [calls.ask].
func (c commands) ask(ctx context.Context, number string, atOnce bool) error {
	name := "USR1"
	if atOnce {
		name = "USR2"
	}
	return c.scancel(ctx, "--batch", "--signal="+name, number)
}

// cancel is [calls.cancel].
func (c commands) cancel(ctx context.Context, number string) error { return c.scancel(ctx, number) }

// cancelWaiting is [calls.cancelWaiting]. Of an array it would cancel all that wait.
func (c commands) cancelWaiting(ctx context.Context, number string) error {
	return c.scancel(ctx, "--state=PENDING", number)
}

// scancel calls scancel. A job that has ended is success.
func (c commands) scancel(ctx context.Context, args ...string) error {
	_, err := c.run(ctx, nil, "scancel", args...)
	return unlessOver(err)
}

// overWords are what Slurm says of a job that has ended.
var overWords = []string{"already completed", "already completing", "invalid job id", "job/step already", "already finished"}

// unlessOver is the error of a command for a job, nil where that has ended.
func unlessOver(err error) error {
	failed, ok := errors.AsType[*commandError](err)
	if !ok {
		return err
	}
	for _, over := range overWords {
		if strings.Contains(strings.ToLower(failed.msg), over) {
			return nil
		}
	}
	return unavailable(err)
}

// throttle is [calls.throttle].
func (c commands) throttle(ctx context.Context, number string, most int) error {
	_, err := c.run(ctx, nil, "scontrol", "update", "JobId="+number, "ArrayTaskThrottle="+strconv.Itoa(most))
	return unlessOver(err)
}

// cluster is [calls.cluster].
func (c commands) cluster(ctx context.Context) (a about, err error) {
	out, err := c.run(ctx, nil, "scontrol", "--oneliner", "show", "config")
	if err != nil {
		return a, unavailable(err)
	}
	for line := range strings.Lines(out) {
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "ClusterName":
			a.name, a.machine = value, "slurm:"+value
		case "SLURM_VERSION":
			a.version = value
		case "MaxArraySize": // the first index that is too large
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				a.maxArray = max(1, n)
			}
		}
	}
	if a.name == "" {
		return a, berth.Errorf(berth.Unavailable, "Slurm does not say what its cluster is called")
	}
	return a, nil
}

// limitOf reads a time limit as sinfo prints it: DAYS-HOURS:MINUTES:SECONDS, of which only minutes
// and seconds need be there, or infinite.
func limitOf(s string) time.Duration {
	days, rest, ok := strings.Cut(s, "-")
	if !ok {
		days, rest = "0", s
	}
	seconds := 0
	for part := range strings.SplitSeq(rest, ":") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return 0
		}
		seconds = 60*seconds + n
	}
	n, _ := strconv.Atoi(days)
	return time.Duration(n)*24*time.Hour + time.Duration(seconds)*time.Second
}

// nodes is [calls.nodes].
func (c commands) nodes(ctx context.Context, partition string) ([]node, error) {
	args := []string{"--noheader", "--Node", "--format=%N|%c|%m|%G|%t|%l"}
	if partition != "" {
		args = append(args, "--partition="+partition)
	}
	out, err := c.run(ctx, nil, "sinfo", args...)
	if err != nil {
		return nil, unavailable(err)
	}
	var all []node
	seen := map[string]bool{} // a node in several partitions is listed for each
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 6 || seen[f[0]] {
			continue
		}
		seen[f[0]] = true
		n := node{Longest: limitOf(f[5])}
		n.CPUs, _ = strconv.ParseFloat(strings.TrimRight(f[1], "+"), 64)
		mb, _ := strconv.ParseInt(strings.TrimRight(f[2], "+"), 10, 64)
		n.Memory, n.GPUs = mb<<20, gpus(f[3])
		n.Down = strings.HasPrefix(f[4], "down") || strings.HasPrefix(f[4], "drain") || strings.HasPrefix(f[4], "drng") || strings.HasPrefix(f[4], "fail")
		all = append(all, n)
	}
	if len(all) == 0 && partition != "" {
		return nil, berth.Errorf(berth.Invalid, "Slurm has no partition %q with nodes", partition)
	}
	return all, nil
}

// addresses is [calls.addresses].
func (c commands) addresses(ctx context.Context) (map[string]string, error) {
	out, err := c.run(ctx, nil, "sinfo", "--noheader", "--Node", "--Format=NodeList:100,NodeAddr:100")
	if err != nil {
		return nil, unavailable(err)
	}
	at := map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 {
			at[f[0]] = f[1]
		}
	}
	return at, nil
}

// gpus counts the GPUs in a list of generic resources, such as gpu:a100:4(S:0-1),tmpdisk:100.
func gpus(list string) int {
	total := 0
	for _, x := range strings.Split(list, ",") {
		if rest, ok := strings.CutPrefix(x, "gpu:"); ok {
			rest, _, _ = strings.Cut(rest, "(")
			n, err := strconv.Atoi(rest[strings.LastIndexByte(rest, ':')+1:])
			if err == nil {
				total += n
			}
		}
	}
	return total
}

// unavailable is the error of a command that may work later.
func unavailable(err error) error {
	if failed, ok := errors.AsType[*commandError](err); ok {
		return berth.Errorf(berth.Unavailable, "Slurm does not answer: %w", failed)
	}
	return err
}
