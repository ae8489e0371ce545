package app

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"

	"github.com/berthml/berth"
)

// maxSocket is how long the path of a socket may be on every system we run on.
const maxSocket = 100

// socketPath is where the local socket lives: in the home, or, when that path is too long for a
// socket, in a private folder of the temporary directory that is named after the home.
func socketPath(run string) (string, error) {
	path, err := filepath.Abs(filepath.Join(run, "api.sock"))
	if err != nil || len(path) <= maxSocket {
		return path, err
	}
	h := sha256.Sum256([]byte(path))
	dir := filepath.Join(os.TempDir(), "berth-"+strconv.Itoa(os.Getuid())+"-"+hex.EncodeToString(h[:6]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// Everybody may make folders there: one that somebody else made before us, or a link, would put
	// them between us and our clients.
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() || !mine(info) {
		return "", berth.Errorf(berth.Denied, "%s does not belong to this server; remove it, or choose a home with a shorter path", dir)
	}
	return filepath.Join(dir, "api.sock"), os.Chmod(dir, 0o700)
}
