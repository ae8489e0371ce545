package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// SSH is an sshd on loopback, which rsync copies through.
type SSH struct {
	daemons
	Port, Key string
	command   string // how rsync reaches it
}

// StartSSH starts an sshd with keys of its own in dir. An error says what is not installed.
func StartSSH(ctx context.Context, dir string) (*SSH, error) {
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		if sshd = "/usr/sbin/sshd"; !exists(sshd) {
			return nil, errors.New("sshd is not installed")
		}
	}
	for _, name := range []string{"rsync", "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, fmt.Errorf("%s is not installed", name)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	_ = os.Mkdir("/run/sshd", 0o755) // where sshd separates privileges, if it runs as root
	for _, key := range []string{"host", "user"} {
		if out, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	s := &SSH{daemons: daemons{logs: dir}, Port: port, Key: filepath.Join(dir, "user")}
	s.command = "ssh -F none -p " + port + " -i " + filepath.Join(dir, "user") + " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes"
	_, err = s.start(ctx, sshd, "-D", "-e", "-f", "/dev/null", "-h", filepath.Join(dir, "host"), "-p", port, "-o", "ListenAddress=127.0.0.1", "-o", "PidFile=none",
		"-o", "AuthorizedKeysFile="+filepath.Join(dir, "user.pub"), "-o", "StrictModes=no", "-o", "PermitRootLogin=yes", "-o", "UsePAM=no")
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out, err := exec.CommandContext(ctx, "/bin/sh", "-c", s.command+" 127.0.0.1 true").CombinedOutput()
		if err == nil {
			return s, nil
		}
		if time.Now().After(end) {
			s.Stop()
			return nil, fmt.Errorf("sshd does not answer: %w: %s", err, out)
		}
	}
}

// Stop ends it.
func (s *SSH) Stop() { s.stopAll() }

// Exec is milliseconds from calling ssh to the first instruction of a command there.
func (s *SSH) Exec(ctx context.Context, stamp string, pipe *Pipe) (float64, error) {
	t := time.Now()
	if out, err := exec.CommandContext(ctx, "/bin/sh", "-c", s.command+` 127.0.0.1 "$0" "$1"`, stamp, pipe.Path).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("ssh: %w: %s", err, out)
	}
	first, err := pipe.Wait(time.Minute)
	return Ms(first.Sub(t)), err
}

// RsyncExec is CopyExec with rsync over ssh in the place of cp.
func (s *SSH) RsyncExec(ctx context.Context, from, to, stamp string, pipe *Pipe) (float64, error) {
	defer os.RemoveAll(to)
	t := time.Now()
	if out, err := exec.CommandContext(ctx, "/bin/sh", "-c", `rsync -a -e "$4" "$0/" "127.0.0.1:$1/" && exec "$2" "$3"`, from, to, stamp, pipe.Path, s.command).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("rsync: %w: %s", err, out)
	}
	first, err := pipe.Wait(time.Minute)
	return Ms(first.Sub(t)), err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
