package envs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Where things are inside an image that packages were added to.
const (
	imageEnv   = "/opt/berth/env"
	buildDir   = "/run/berth"
	buildUV    = "/run/berth-uv"
	buildCache = "/run/berth-cache"
	imagePath  = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// deriveScript adds the packages inside the image. The settings are in a file, not in the
// container's variables: those would stay in the image, with the passwords in them.
const deriveScript = `set -e
. ` + buildDir + `/vars
e=` + imageEnv + ` b=` + buildDir + `
conda=$(command -v micromamba || command -v mamba || command -v conda || ls /opt/miniconda/bin/conda /opt/conda/bin/conda 2>/dev/null | head -n 1 || true)
if [ -n "$CONDA_SOLVE" ]; then
  [ -n "$conda" ] || { echo "error: $CONDA_SOLVE"; exit 3; }
  case $conda in */micromamba) "$conda" create -y -p $e -f $b/environment.yml;; *) "$conda" env create -p $e -f $b/environment.yml;; esac
elif [ -z "$WANT" ]; then
  ` + buildUV + ` venv --no-project $e
elif ! ` + buildUV + ` venv --no-project --python "$WANT" $e; then
  if [ -n "$conda" ] && "$conda" create -y -p /opt/berth/python "python=$WANT"; then
    ` + buildUV + ` venv --no-project --python /opt/berth/python/bin/python $e
  else
    ` + buildUV + ` venv --no-project $e
    echo "berth-warning: the environment wants Python $WANT, which the image does not have: $($e/bin/python --version 2>&1) is used instead"
  fi
fi
if [ -s $b/requirements.txt ]; then
  ` + buildUV + ` pip install --no-progress --compile-bytecode --python $e/bin/python -r $b/requirements.txt "$@"
fi`

// deriveImage is the image made of base and the packages of r, built when it is not there yet.
func (c *Cache) deriveImage(ctx context.Context, eng *engine, base string, r request, e berth.LaunchEnv, progress, warn func(string)) (id, hash string, cached bool, err error) {
	sum := sha256.Sum256([]byte(base + "\n" + r.key()))
	hash = hex.EncodeToString(sum[:20])
	ref := ownDerived + ":" + hash
	build := func() error { return c.deriveIn(ctx, eng, base, ref, hash, r, e, progress) }
	id, cached, labels, err := c.imageOnce(ctx, eng, ref, hash, progress, build)
	if err != nil {
		return "", "", false, err
	}
	var warnings []string
	if b, err := base64.RawURLEncoding.DecodeString(labels[Label+".warnings"]); err == nil {
		_ = json.Unmarshal(b, &warnings)
	}
	for _, w := range warnings {
		warn(w)
	}
	return id, hash, cached, nil
}

// imageOnce is the id of one of our own images; build makes it when it is not there, once at a
// time.
func (c *Cache) imageOnce(ctx context.Context, eng *engine, ref, hash string, progress func(string), build func() error) (id string, cached bool, labels map[string]string, err error) {
	inspect := func() (string, bool) {
		res, err := eng.cli.Image(ctx, ref)
		if err != nil {
			return "", false
		}
		labels = res.Config.Labels
		c.noteImage(eng, ref, hash, 0)
		return res.ID, true
	}
	if id, ok := inspect(); ok {
		return id, true, labels, nil
	}
	lock, err := c.lockWait(ctx, "image-"+hash, func() { progress("waiting for another job that builds the same image") })
	if err != nil {
		return "", false, nil, err
	}
	defer lock.Close()
	if id, ok := inspect(); ok {
		return id, true, labels, nil
	}
	start := time.Now()
	if err := build(); err != nil {
		return "", false, nil, err
	}
	id, ok := inspect()
	if !ok {
		return "", false, nil, berth.Errorf(berth.Unavailable, "the engine does not know the image %s that it just made", ref)
	}
	progress(fmt.Sprintf("image built in %.1fs", time.Since(start).Seconds()))
	c.evictImages(ctx, eng)
	return id, false, labels, nil
}

func (c *Cache) deriveIn(ctx context.Context, eng *engine, base, ref, hash string, r request, e berth.LaunchEnv, progress func(string)) error {
	uv, err := c.staticUV(ctx, progress)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(c.path("tmp"), "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	mounts, err := c.deriveFiles(tmp, r, e)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.path("uv-cache"), 0o755); err != nil {
		return err
	}
	mounts = append(mounts, Mount{tmp, buildDir, true}, Mount{uv, buildUV, true}, Mount{c.path("uv-cache"), buildCache, false})

	logFile := c.path("logs", hash+".log")
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	b := &builder{cache: c, log: log, progress: progress}
	lines := newLineWriter(b)
	progress(fmt.Sprintf("adding %s to the image", count(len(r.Requirements), "requirement")))
	run, err := (&Container{Image: base, eng: eng}).Start(ctx, ContainerSpec{
		Name: "berth-build-" + hash[:16], Cmd: append([]string{"/bin/sh", "-c", deriveScript, "sh"}, r.args()...),
		User: "0", Workdir: "/", Mounts: mounts, Log: lines, Labels: map[string]string{Label: "build"},
	})
	if err != nil {
		return err
	}
	defer func() { _ = run.Remove(context.WithoutCancel(ctx)) }()
	code, oom, err := run.Wait(ctx)
	lines.flush()
	switch {
	case err != nil:
		return err
	case oom:
		return berth.Errorf(berth.Invalid, "adding packages to the image took more memory than the node has")
	case code != 0:
		return explain(&runError{name: "adding packages to image " + cmp.Or(e.Image, e.Build), err: fmt.Errorf("exit code %d", code), lines: lines.all}, logFile)
	}
	return c.commit(ctx, eng, run.ID, base, ref, hash, lines.all)
}

// deriveFiles writes what the script reads, and returns what else has to be visible inside.
func (c *Cache) deriveFiles(dir string, r request, e berth.LaunchEnv) ([]Mount, error) {
	vars := map[string]string{
		"UV_CACHE_DIR": buildCache, "UV_LINK_MODE": "copy", "UV_PYTHON_INSTALL_DIR": "/opt/berth/pythons",
		"UV_PYTHON_PREFERENCE": "system", "UV_NO_PROGRESS": "1", "NO_COLOR": "1", "UV_HTTP_RETRIES": "1", "HOME": "/root",
	}
	for _, kv := range os.Environ() {
		if k, v, _ := strings.Cut(kv, "="); strings.HasPrefix(k, "UV_") && vars[k] == "" || strings.HasSuffix(strings.ToLower(k), "_proxy") || k == "SSL_CERT_FILE" {
			vars[k] = v
		}
	}
	for _, kv := range indexEnv(&r) {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	requirements := r.file()
	if len(r.Foreign) > 0 {
		vars["CONDA_SOLVE"] = r.refusal(name(e)).Error()
		requirements = ""
		if strings.TrimSpace(e.Pip) != "" {
			s := r.solved(e, "")
			requirements = s.file()
		}
	}
	vars["WANT"] = r.Python.minor()
	var mounts []Mount
	var text strings.Builder
	for k, v := range vars {
		fmt.Fprintf(&text, "export %s=%s\n", k, shellQuote(v))
		for p := range strings.FieldsFuncSeq(v, func(r rune) bool { return r == ',' || r == ' ' }) {
			if k == "SSL_CERT_FILE" || k == "UV_FIND_LINKS" { // files of the node that uv is pointed to
				if _, err := os.Stat(p); err == nil && filepath.IsAbs(p) {
					mounts = append(mounts, Mount{p, p, true})
				}
			}
		}
	}
	for name, content := range map[string]string{"vars": text.String(), "requirements.txt": requirements, "environment.yml": e.Conda} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	return mounts, nil
}

// commit makes an image of the container in which the packages were added.
func (c *Cache) commit(ctx context.Context, eng *engine, id, base, ref, hash string, lines []string) error {
	res, err := eng.cli.Image(ctx, base)
	if err != nil {
		return engineError("looking at the base image", err)
	}
	path, user, dir := imagePath, "root", "/"
	for _, kv := range res.Config.Env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	user, dir = cmp.Or(res.Config.User, user), cmp.Or(res.Config.WorkingDir, dir)
	warnings := []string{}
	for _, l := range lines {
		if w, ok := strings.CutPrefix(l, "berth-warning: "); ok {
			warnings = append(warnings, w)
		}
	}
	w, err := json.Marshal(warnings)
	if err != nil {
		return err
	}
	err = eng.cli.Commit(ctx, id, ref, []string{
		"ENV PATH=" + imageEnv + "/bin:" + path, "ENV VIRTUAL_ENV=" + imageEnv, "USER " + user, "WORKDIR " + dir,
		"LABEL " + Label + "=env", "LABEL " + Label + ".env=" + hash,
		"LABEL " + Label + ".warnings=" + base64.RawURLEncoding.EncodeToString(w), // engines differ in how they quote
	})
	if err != nil {
		return engineError("keeping the image with the packages", err)
	}
	if made, err := eng.cli.Image(ctx, ref); err == nil {
		c.noteImage(eng, ref, hash, max(made.Size-res.Size, 1))
	}
	return nil
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// A lineWriter gives a builder's log and progress whole lines of a stream.
type lineWriter struct {
	b    *builder
	part []byte
	all  []string
}

func newLineWriter(b *builder) *lineWriter { return &lineWriter{b: b} }

func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			w.part = append(w.part, p...)
			return n, nil
		}
		w.line(string(append(w.part, p[:i]...)))
		w.part, p = nil, p[i+1:]
	}
}

func (w *lineWriter) flush() {
	if len(w.part) > 0 {
		w.line(string(w.part))
		w.part = nil
	}
}

func (w *lineWriter) line(s string) {
	s = mask(strings.TrimRight(s, "\r"))
	_, _ = io.WriteString(w.b.log, s+"\n")
	w.b.note(s)
	if w.all = append(w.all, s); len(w.all) > 2000 {
		w.all = w.all[1000:]
	}
}
