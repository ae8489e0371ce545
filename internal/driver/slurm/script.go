package slurm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// Exit codes of a script that cannot run its task.
const (
	noProgram = 97
	noRoom    = 98
)

// maxScript is how long a script may be: Slurm takes 4 MiB unless it was told otherwise.
const maxScript = 3 << 20

// submit submits the job of a task and returns its number.
func (d *Driver) submit(ctx context.Context, r *record, l berth.Launch) (string, error) {
	prog, err := d.program()
	if err != nil {
		return "", err
	}
	text, err := script(prog, l, d.c.Home)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	s := d.site
	d.mu.Unlock()
	return d.slurm.submit(ctx, text, options(s, r, l))
}

// options are those of sbatch for a task. The server's own environment stays here: it has secrets.
func options(s site, r *record, l berth.Launch) []string {
	out := []string{
		"--job-name=" + r.Name, "--comment=berth task " + string(l.Task), "--output=/dev/null", "--error=/dev/null", "--chdir=/",
		"--nodes=1", "--ntasks=1", "--no-requeue", "--export=" + exported(),
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
func exported() string {
	var out []string
	for _, name := range []string{"HOME", "USER", "LOGNAME", "LANG"} {
		if v := os.Getenv(name); v != "" && !strings.ContainsAny(v, ",'\"\n") {
			out = append(out, name+"="+v)
		}
	}
	return strings.Join(append(out, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ",")
}

// program is this build of Berth.
type program struct {
	path string // where it is on this machine, and on nodes that share this disk
	hash string // of its bytes
}

// program finds the build, named by its hash: whatever is at that path on a node is the same.
func (d *Driver) program() (program, error) {
	d.building.Lock()
	defer d.building.Unlock()
	if d.built.hash != "" {
		return d.built, nil
	}
	p, err := keepProgram(d.c.Host[0], filepath.Join(d.c.Dir, "bin"))
	if err != nil {
		return p, berth.Errorf(berth.Unavailable, "the program for Slurm's nodes cannot be kept: %w", err)
	}
	d.built = p
	return p, nil
}

func keepProgram(self, dir string) (program, error) {
	f, err := os.Open(self)
	if err != nil {
		return program{}, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return program{}, err
	}
	p := program{hash: hex.EncodeToString(h.Sum(nil))}
	p.path = filepath.Join(dir, "berth-"+p.hash)
	if _, err := os.Stat(p.path); err == nil {
		return p, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return p, err
	}
	if os.Link(self, p.path) == nil {
		return p, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return p, err
	}
	to, err := os.OpenFile(p.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o700)
	if err != nil {
		return p, err
	}
	_, err = io.Copy(to, f)
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return p, err
	}
	return p, os.Rename(p.path+".new", p.path)
}

// script is the batch script of a task. Slurm keeps it for the account alone: it has the task's own
// token, which is good for nothing else.
func script(p program, l berth.Launch, home string) ([]byte, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	var out bytes.Buffer
	fmt.Fprintf(&out, scriptText, noRoom, quote(p.path), quote(p.hash), quote(machine), noProgram, quote(strings.TrimSuffix(l.Home.URL, "/")+ProgramPath+p.hash),
		base64.StdEncoding.EncodeToString([]byte(l.Home.CA)), noProgram, noProgram, base64.StdEncoding.EncodeToString(b), quote(home))
	if out.Len() > maxScript {
		return nil, berth.Errorf(berth.Invalid, "the task has %d bytes of settings, and a batch script of Slurm can carry %d", out.Len(), maxScript)
	}
	return out.Bytes(), nil
}

// ProgramPath is where the server gives out its program, by the hash of it.
const ProgramPath = "/runner/v1/programs/"

// quote makes a word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// scriptText is the script: it finds the program, or fetches it, checks it by its hash, and becomes
// it.
const scriptText = `#!/bin/sh
umask 077
dir=$(mktemp -d "${TMPDIR:-/tmp}/berth-task.XXXXXX") || exit %d
program=%s
hash=%s
if [ ! -x "$program" ]; then
  [ "$(uname -m)" = %s ] || exit %d
  bin="${HOME:-/tmp}/.berth/bin"
  program="$bin/berth-$hash"
  if [ ! -x "$program" ]; then
    mkdir -p "$bin"
    url=%s
    base64 -d > "$dir/ca" <<'BERTH'
%s
BERTH
    if command -v curl >/dev/null; then
      curl -fsS --retry 3 --cacert "$dir/ca" -o "$dir/program" "$url"
    elif command -v wget >/dev/null; then
      wget -q --ca-certificate="$dir/ca" -O "$dir/program" "$url"
    else
      python3 -c 'import ssl, sys, shutil, urllib.request as u
shutil.copyfileobj(u.urlopen(sys.argv[1], context=ssl.create_default_context(cafile=sys.argv[2])), open(sys.argv[3], "wb"))' "$url" "$dir/ca" "$dir/program"
    fi || { rm -rf "$dir"; exit %d; }
    echo "$hash  $dir/program" | sha256sum -c >/dev/null 2>&1 || { rm -rf "$dir"; exit %d; }
    chmod 700 "$dir/program" && mv "$dir/program" "$program"
  fi
fi
base64 -d > "$dir/launch.json" <<'BERTH'
%s
BERTH
exec "$program" _task --dir "$dir" --home %s
`
