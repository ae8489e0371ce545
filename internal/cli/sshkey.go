package cli

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// sshKey is the flag, and its value, for the key that ssh would log in with: the first key file
// that a server can use, or else the name of a key in the user's agent. w is what ssh would do.
func sshKey(ctx context.Context, where string, w map[string]string) (flag, value string, err error) {
	var locked []string // public keys
	for _, path := range strings.Split(w["identityfile"], "\n") {
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", "", err
			}
			path = filepath.Join(home, rest)
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		public, has := passphrase(path)
		if !has {
			return "ssh-private-key-file", path, nil
		}
		locked = append(locked, public)
	}
	keys := agentKeys(ctx, w["identityagent"])
	for _, public := range locked {
		for _, k := range keys {
			if public == ssh.FingerprintSHA256(k) {
				return "agent-key", k.String(), nil
			}
		}
	}
	switch {
	case len(keys) == 1 && len(locked) == 0:
		return "agent-key", keys[0].String(), nil
	case len(keys) > 0:
		var names []string
		for _, k := range keys {
			names = append(names, ssh.FingerprintSHA256(k)+" "+k.Comment)
		}
		return "", "", usagef("no key file without a passphrase was found for %s; give one with --ssh-private-key-file, a password with --admin-password, "+
			"or, if the server has an SSH agent (ssh_agent in its berth.yaml), one of its keys with --agent-key; yours has:\n  %s", where, strings.Join(names, "\n  "))
	case len(locked) > 0:
		return "", "", usagef("the private key for %s has a passphrase, which a server cannot enter; give another one with --ssh-private-key-file, or a password with --admin-password", where)
	}
	return "", "", usagef("no private key was found for %s; give one with --ssh-private-key-file, or a password with --admin-password", where)
}

// passphrase says whether a key file has one, and then which key it is: the fingerprint, or nothing
// where that is not known.
func passphrase(path string) (fingerprint string, has bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", false // whoever sends the file says why not
	}
	_, err = ssh.ParsePrivateKey(b)
	missing, ok := errors.AsType[*ssh.PassphraseMissingError](err)
	if !ok {
		return "", false
	}
	if missing.PublicKey != nil {
		return ssh.FingerprintSHA256(missing.PublicKey), true
	}
	b, err = os.ReadFile(path + ".pub")
	if err != nil {
		return "", true
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(b)
	if err != nil {
		return "", true
	}
	return ssh.FingerprintSHA256(public), true
}

// agentKeys are the keys in the user's agent; none if there is no agent. configured is ssh's
// IdentityAgent.
func agentKeys(ctx context.Context, configured string) []*agent.Key {
	socket := cmp.Or(configured, "SSH_AUTH_SOCK")
	switch {
	case socket == "none":
		return nil
	case socket == "SSH_AUTH_SOCK":
		socket = os.Getenv(socket)
	case strings.HasPrefix(socket, "$"):
		socket = os.Getenv(socket[1:])
	case strings.HasPrefix(socket, "~/"):
		if home, err := os.UserHomeDir(); err == nil {
			socket = filepath.Join(home, socket[2:])
		}
	}
	if socket == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	keys, err := agent.NewClient(conn).List()
	if err != nil {
		return nil
	}
	return keys
}
