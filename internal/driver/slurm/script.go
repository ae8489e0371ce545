package slurm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// Exit codes of a script that cannot run its task.
const (
	seesHome  = 96
	noProgram = 97
	noRoom    = 98
)

// maxScript is how long a script may be: Slurm takes 4 MiB unless it was told otherwise.
const maxScript = 3 << 20

// submit submits the job of a task, or of a gang, and returns its number.
func (d *Driver) submit(ctx context.Context, r *record, all []berth.Launch) (string, error) {
	hash, err := d.c.Program()
	if err != nil {
		return "", berth.Errorf(berth.Unavailable, "the server's program cannot be read: %w", err)
	}
	home := d.c.Home
	if d.c.Consents[name] == trusted || d.slurm.login != nil { // or the account is not the server's
		home = ""
	}
	text, err := script(hash, all[0], home)
	if len(all) > 1 {
		text, err = gangScript(hash, all, home)
	}
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	s := d.site
	d.mu.Unlock()
	return d.slurm.submit(ctx, text, options(s, r, all, d.slurm.account()))
}

// trusted is the word of an operator who lets jobs run on nodes that see the server's folder.
const trusted = "trusted"

// options are those of sbatch for a task. The server's own environment stays here: it has secrets.
func options(s site, r *record, all []berth.Launch, who account) []string {
	l, n := all[0], strconv.Itoa(len(all))
	out := []string{
		"--job-name=" + r.Name, "--comment=berth task " + string(l.Task), "--output=/dev/null", "--error=/dev/null", "--chdir=/",
		"--nodes=" + n, "--ntasks=" + n, "--ntasks-per-node=1", "--no-requeue", "--export=" + exported(who),
	}
	for _, x := range [][2]string{{"partition", s.Partition}, {"account", s.Account}, {"qos", s.QOS}, {"constraint", s.Constraint}} {
		if x[1] != "" {
			out = append(out, "--"+x[0]+"="+x[1])
		}
	}
	if s.limit > 0 {
		out = append(out, "--time="+strconv.Itoa(int(math.Ceil(s.limit.Minutes()))))
	}
	if l.CPUs > 0 {
		out = append(out, "--cpus-per-task="+strconv.Itoa(int(math.Ceil(l.CPUs))))
	}
	if l.Memory > 0 {
		out = append(out, "--mem="+strconv.FormatInt((l.Memory+1<<20-1)>>20, 10)+"M")
	}
	return append(out, s.Options...)
}

// exported are the variables that a job is given.
func exported(who account) string {
	var out []string
	for _, v := range [][2]string{{"HOME", who.home}, {"USER", who.user}, {"LOGNAME", who.user}, {"LANG", os.Getenv("LANG")}} {
		if v[1] != "" && !strings.ContainsAny(v[1], ",'\"\n") {
			out = append(out, v[0]+"="+v[1])
		}
	}
	return strings.Join(append(out, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ",")
}

// script is the batch script of a task. It ends where it sees home, unless that is empty. Slurm
// keeps the script for the account alone: it has the task's own token, which is good for nothing
// else.
func script(hash string, l berth.Launch, home string) ([]byte, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	out := strings.Replace(filler(hash, l, home).Replace(scriptText), "@LAUNCH@", base64.StdEncoding.EncodeToString(b), 1)
	if len(out) > maxScript {
		return nil, berth.Errorf(berth.Invalid, "the task has %d bytes of settings, and a batch script of Slurm can carry %d", len(out), maxScript)
	}
	return []byte(out), nil
}

// filler fills in a script what does not depend on the task.
func filler(hash string, l berth.Launch, home string) *strings.Replacer {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return strings.NewReplacer(
		"@HOME@", quote(home), "@SEES_HOME@", strconv.Itoa(seesHome), "@NO_ROOM@", strconv.Itoa(noRoom), "@NO_PROGRAM@", strconv.Itoa(noProgram),
		"@HASH@", quote(hash), "@MACHINE@", quote(machine), "@URL@", quote(strings.TrimSuffix(l.Home.URL, "/")+ProgramPath+hash),
		"@CA@", base64.StdEncoding.EncodeToString([]byte(l.Home.CA)),
	)
}

// ProgramPath is where the server gives out its program, by the hash of it.
const ProgramPath = "/runner/v1/programs/"

// quote makes a word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// scriptText is the script: it finds the program, or fetches it, checks it by its hash each time,
// and becomes it.
const scriptText = `#!/bin/sh
umask 077
home=@HOME@
[ -z "$home" ] || [ ! -e "$home" ] || exit @SEES_HOME@
dir=$(mktemp -d "${TMPDIR:-/tmp}/berth-task.XXXXXX") || exit @NO_ROOM@
hash=@HASH@
fail() { rm -rf "$dir"; exit "$1"; }
good() { echo "$hash  $1" | sha256sum -c >/dev/null 2>&1; }
[ "$(uname -m)" = @MACHINE@ ] || fail @NO_PROGRAM@
bin="${HOME:-$dir}/.berth/bin"
program="$bin/berth-$hash"
if ! good "$program"; then
  mkdir -p "$bin" || fail @NO_ROOM@
  new="$bin/.$hash.$SLURM_JOB_ID.$SLURM_PROCID.$$"
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
base64 -d > "$dir/launch.json" <<'BERTH' || fail @NO_ROOM@
@LAUNCH@
BERTH
exec "$program" _task --dir "$dir"
`
