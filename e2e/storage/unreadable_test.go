package storage

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// nobody is the account of a story that must not be root's: root reads everything.
const nobody = 65534

// beginAsNobody is begin for a server and a command line that are not root's.
func beginAsNobody(t *testing.T) *story {
	t.Helper()
	root, err := os.MkdirTemp("", "bn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	bin := filepath.Join(root, "berth")
	y := &story{t: t, dir: filepath.Join(root, "dir"), s: &world.Server{Bin: bin, Home: filepath.Join(root, "home")}}
	if os.Geteuid() == 0 {
		y.account = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	err = errors.Join(copyFile(world.Binary(t), bin), os.Chmod(root, 0o755), os.Mkdir(y.dir, 0o700), os.Mkdir(y.s.Home, 0o700), os.Mkdir(filepath.Join(root, "cache"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	if y.account != nil {
		for _, p := range []string{y.dir, y.s.Home, filepath.Join(root, "cache")} {
			if err := os.Chown(p, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	cache := filepath.Join(root, "cache")
	y.env = []string{"HOME=" + cache, "XDG_CACHE_HOME=" + cache, "BERTH_ENV_CACHE=" + filepath.Join(cache, "envs"), "TMPDIR=" + cache}
	y.berth("up")
	t.Cleanup(func() { _ = y.command("down").Run() })
	return y
}

func copyFile(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// sh runs a command of the shell in the story's folder, as the story's account.
func (y *story) sh(text string) {
	y.t.Helper()
	cmd := exec.CommandContext(y.t.Context(), "/bin/sh", "-c", text)
	cmd.Dir, cmd.SysProcAttr = y.dir, y.account
	if out, err := cmd.CombinedOutput(); err != nil {
		y.t.Fatalf("%s: %v\n%s", text, err, out)
	}
}

// TestUnreadable: a file that cannot be read is named wherever it is met: in the folder of berth
// run, in that of a data asset, and among a job's outputs, of which everything else is kept.
func TestUnreadable(t *testing.T) {
	y := beginAsNobody(t)
	y.sh("mkdir code; echo 1 > code/main.py; echo 2 > code/secret.bin; chmod 000 code/secret.bin")
	run := y.command("run", "--no-wait", "--", "true")
	run.Dir = filepath.Join(y.dir, "code")
	for name, cmd := range map[string]*exec.Cmd{
		"run":  run,
		"data": y.command("data", "create", "--name", "d", "--type", "uri_folder", "--path", filepath.Join(y.dir, "code")),
	} {
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "secret.bin") || !strings.Contains(string(out), "permission denied") {
			t.Errorf("berth %s: %v\n%s", name, err, out)
		}
	}
	if list := strings.TrimSpace(y.berth("job", "list", "--query", "[].name", "-o", "tsv") + y.berth("data", "list", "--query", "[].name", "-o", "tsv")); list != "" {
		t.Errorf("there are %s", list)
	}
	status, told := y.job("leaves", `
command: >-
  cd ${{outputs.o}} && mkdir sub closed && echo a > a && echo b > sub/b && echo c > c && echo d > closed/d && chmod 000 c closed
outputs:
  o: {type: uri_folder, mode: upload}
`)
	if status != "Failed" || !strings.Contains(told, "keeping output o") || !strings.Contains(told, "c, closed: permission denied") {
		t.Errorf("%s\n%s", status, told)
	}
	to := filepath.Join(y.dir, "got")
	y.berth("job", "download", "-n", "leaves", "--output-name", "o", "--download-path", to)
	var found []string
	_ = filepath.WalkDir(to, func(p string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			found = append(found, filepath.Base(p))
		}
		return err
	})
	if got := strings.Join(found, " "); got != "a b" {
		t.Errorf("of the outputs there are %q", got)
	}
}
