package slurm

import (
	"context"
	"encoding/base64"
	"math"
	"runtime"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// Exit codes of a script that cannot run its task.
const (
	seesHome  = 96
	noProgram = 97
)

// maxScript is how long a script may be: Slurm takes 4 MiB unless it was told otherwise.
const maxScript = 3 << 20

// work is what a job does, and what it needs.
type work struct {
	script []byte
	nodes  int
	cpus   float64 // of each node; 0 is Slurm's default
	memory int64   // bytes of each node; 0 is Slurm's default
	gpus   int     // of each node
	about  string  // for people
	site   site    // where it is submitted, and how
}

// alone submits work as a job of its own.
func (d *Driver) alone(what func() (work, error)) func(context.Context, *record) (string, error) {
	return func(ctx context.Context, r *record) (string, error) {
		w, err := what()
		if err != nil {
			return "", err
		}
		return d.slurm.submit(ctx, r.Name, w, 1)
	}
}

// gangWork is the job of a gang.
func (d *Driver) gangWork(all []berth.Launch) (w work, err error) {
	hash, home, err := d.program()
	if err != nil {
		return w, err
	}
	w = work{nodes: len(all), cpus: all[0].CPUs, memory: all[0].Memory, gpus: all[0].GPUCount, about: "task " + string(all[0].Task), site: d.settings()}
	w.script, err = gangScript(hash, all, home)
	return w, err
}

// settings are how jobs are submitted now.
func (d *Driver) settings() site {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.site
}

// program is the hash of the program that jobs run, and the folder that they must not see, empty
// when they may.
func (d *Driver) program() (hash, home string, err error) {
	if hash, err = d.c.Program(); err != nil {
		return "", "", berth.Errorf(berth.Unavailable, "the server's program cannot be read: %w", err)
	}
	if d.c.Consents[name] == trusted || d.login != nil || d.rest != nil { // or the account is not the server's
		return hash, "", nil
	}
	return hash, d.c.Home, nil
}

// trusted is the word of an operator who lets jobs run on nodes that see the server's folder.
const trusted = "trusted"

// options are those of sbatch for a job, which gets the environment that [commands.run] gives
// sbatch.
func options(name string, w work) []string {
	s, n := w.site, strconv.Itoa(w.nodes)
	out := []string{
		"--job-name=" + name, "--comment=berth " + w.about, "--output=/dev/null", "--error=/dev/null", "--chdir=/",
		"--nodes=" + n, "--ntasks=" + n, "--ntasks-per-node=1", "--no-requeue", "--export=ALL",
	}
	for _, x := range [][2]string{{"partition", s.Partition}, {"account", s.Account}, {"qos", s.QOS}, {"constraint", s.Constraint}} {
		if x[1] != "" {
			out = append(out, "--"+x[0]+"="+x[1])
		}
	}
	if s.limit > 0 {
		out = append(out, "--time="+strconv.Itoa(int(math.Ceil(s.limit.Minutes()))))
	}
	if w.cpus > 0 {
		out = append(out, "--cpus-per-task="+strconv.Itoa(int(math.Ceil(w.cpus))))
	}
	if w.memory > 0 {
		out = append(out, "--mem="+strconv.FormatInt((w.memory+1<<20-1)>>20, 10)+"M")
	}
	if w.gpus > 0 {
		out = append(out, "--gres=gpu:"+strconv.Itoa(w.gpus))
	}
	return append(out, s.Options...)
}

// taskScript is the batch script of tasks, of which each finds its launch by its index. Those of an
// array, which has a name, take turns. The shell does not get to the launches: the program reads
// them from the file that the script is in. It ends where it sees home, unless that is empty. Slurm
// keeps the script for the account alone: it has the tasks' own tokens, which are good for nothing
// else.
func taskScript(hash string, all []berth.Launch, home, array string) ([]byte, error) {
	out := filler(hash, all[0].Home, home).Replace(scriptText) + `exec "$program" _task --script "$0" --dir "$dir" --index "${SLURM_ARRAY_TASK_ID:-0}"`
	if array != "" {
		out += " --array " + array
	}
	out += "\n"
	text, err := berth.AppendLaunches([]byte(out), all)
	if err != nil {
		return nil, err
	}
	switch {
	case len(text) <= maxScript:
		return text, nil
	case len(all) > 1:
		return nil, errTooLong
	}
	return nil, berth.Errorf(berth.Invalid, "the task has %d bytes of settings, and a batch script of Slurm can carry %d", len(text), maxScript)
}

// filler fills in a script what does not depend on the task.
func filler(hash string, at berth.Home, home string) *strings.Replacer {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return strings.NewReplacer(
		"@HOME@", quote(home), "@SEES_HOME@", strconv.Itoa(seesHome), "@NO_ROOM@", strconv.Itoa(berth.ExitNoRoom), "@NO_PROGRAM@", strconv.Itoa(noProgram),
		"@HASH@", quote(hash), "@MACHINE@", quote(machine), "@URL@", quote(strings.TrimSuffix(at.URL, "/")+ProgramPath+hash),
		"@CA@", base64.StdEncoding.EncodeToString([]byte(at.CA)),
	)
}

// ProgramPath is where the server gives out its program, by the hash of it.
const ProgramPath = "/runner/v1/programs/"

// quote makes a word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// scriptText is how a script begins: it finds the program, or fetches it. The hash of the program
// is checked once on each node, and again when the file is newer than that. What a node does for
// every task starts no other program.
const scriptText = `#!/bin/sh
umask 077
unset LC_ALL LD_LIBRARY_PATH SLURM_TIME_FORMAT
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
[ -n "$HOME" ] || { HOME=$(getent passwd "$(id -u)" | cut -d: -f6); [ -d "$HOME" ] || HOME=; export HOME; }
home=@HOME@
[ -z "$home" ] || [ ! -e "$home" ] || exit @SEES_HOME@
hash=@HASH@
dir=
fail() { [ -z "$dir" ] || rm -rf "$dir"; exit "$1"; }
bin="$HOME/.berth/bin"
program="$bin/berth-$hash"
ok="$bin/.$hash.$SLURMD_NODENAME.ok"
if [ -z "$HOME" ] || [ ! -x "$program" ] || [ ! "$ok" -nt "$program" ]; then
  dir=$(mktemp -d "${TMPDIR:-/tmp}/berth-task.XXXXXX") || exit @NO_ROOM@
  [ "$(uname -m)" = @MACHINE@ ] || fail @NO_PROGRAM@
  good() { echo "$hash  $1" | sha256sum -c >/dev/null 2>&1; }
  [ -n "$HOME" ] || bin="$dir/bin"
  program="$bin/berth-$hash"
  new="$bin/.$hash.$SLURM_JOB_ID.$SLURM_PROCID.$$"
  if ! good "$program"; then
    mkdir -p "$bin" || fail @NO_ROOM@
    url=@URL@
    base64 -d > "$dir/ca" <<'BERTH'
@CA@
BERTH
    if command -v curl >/dev/null; then
      curl -fsS --retry 8 --cacert "$dir/ca" -o "$new" "$url"
    elif command -v wget >/dev/null; then
      wget -q --tries=8 --retry-on-http-error=503 --ca-certificate="$dir/ca" -O "$new" "$url"
    else
      python3 -c 'import ssl, sys, shutil, urllib.request as u
shutil.copyfileobj(u.urlopen(sys.argv[1], context=ssl.create_default_context(cafile=sys.argv[2])), open(sys.argv[3], "wb"))' "$url" "$dir/ca" "$new"
    fi
    { good "$new" && chmod 700 "$new" && mv "$new" "$program"; } || { rm -f "$new"; fail @NO_PROGRAM@; }
  fi
  { : > "$new.ok" && mv "$new.ok" "$ok"; } 2>/dev/null
fi
`

// dirText makes the directory of a job that is not a task's.
const dirText = `[ -n "$dir" ] || dir=$(mktemp -d "${TMPDIR:-/tmp}/berth-task.XXXXXX") || exit @NO_ROOM@
`

// heredoc is the part of a script that writes a file in the directory of the job.
func heredoc(file string, b []byte) string {
	return `base64 -d > "$dir/` + file + `" <<'BERTH' || fail ` + strconv.Itoa(berth.ExitNoRoom) + "\n" + base64.StdEncoding.EncodeToString(b) + "\nBERTH\n"
}
