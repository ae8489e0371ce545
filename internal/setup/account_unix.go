//go:build unix

package setup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// live reports whether this is about the running system, and systemd runs it.
func (t *Team) live() bool {
	_, err := os.Stat("/run/systemd/system")
	return t.Below() == "" && err == nil
}

// hasAccounts reports whether there are accounts below the root.
func (t *Team) hasAccounts() bool {
	_, err := os.Stat(t.at("/etc/passwd"))
	return err == nil && os.Geteuid() == 0
}

// account is the ids of the account.
func (t *Team) account() (uid, gid int, ok bool) {
	text, err := os.ReadFile(t.at("/etc/passwd"))
	if err != nil {
		return 0, 0, false
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if f := strings.Split(lines.Text(), ":"); len(f) >= 4 && f[0] == t.Account {
			uid, err1 := strconv.Atoi(f[2])
			gid, err2 := strconv.Atoi(f[3])
			return uid, gid, err1 == nil && err2 == nil
		}
	}
	return 0, 0, false
}

func (t *Team) accountExists() bool {
	_, _, ok := t.account()
	return ok
}

func (t *Team) createAccount(ctx context.Context) error {
	shell := "/bin/sh"
	if _, err := os.Stat(t.at("/bin/bash")); err == nil {
		shell = "/bin/bash" // of terminals in jobs; nobody can log in without a password
	}
	args := []string{"--system", "--user-group", "--home-dir", t.accountHome(), "--no-create-home", "--shell", shell, "--comment", "Berth", t.Account}
	if t.Below() != "" {
		args = append([]string{"--prefix", t.Root}, args...)
	}
	return command(ctx, "useradd", args...)
}

func (t *Team) removeAccount(ctx context.Context) error {
	if !t.accountExists() {
		return nil
	}
	args := []string{t.Account}
	if t.Below() != "" {
		args = append([]string{"--prefix", t.Root}, args...)
	}
	return command(ctx, "userdel", args...)
}

// own gives a folder, with everything in it, to the account. Without it, below another root, it
// stays ours.
func (t *Team) own(path string) error {
	uid, gid, ok := t.account()
	if os.Geteuid() != 0 || !ok {
		if t.Below() != "" {
			return nil
		}
		return berth.Errorf(berth.Denied, "run `berth setup` as root")
	}
	return filepath.WalkDir(t.at(path), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}

// command runs a program of the system.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		text := strings.TrimSpace(string(out))
		return berth.Errorf(berth.Internal, "%s %s: %w", name, strings.Join(args, " "), errors.Join(err, errors.New(text)))
	}
	return nil
}
