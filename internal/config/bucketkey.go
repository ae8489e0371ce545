package config

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/berthml/berth"
)

// ReadKey reads the key of a bucket: its id and its secret, a line each, in a file that only its
// owner can read.
func ReadKey(path string) (id, secret string, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", berth.Errorf(berth.Invalid, "a bucket needs a key: write the access key id and the secret access key to %s, a line each", path)
	}
	if err != nil {
		return "", "", err
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = berth.Errorf(berth.Invalid, "%s can be read by others: run chmod 600 %s", path, path)
	}
	lines := strings.Fields(string(text))
	if err == nil && len(lines) != 2 {
		err = berth.Errorf(berth.Invalid, "%s must have two lines, the access key id and the secret access key", path)
	}
	if err != nil {
		return "", "", err
	}
	return lines[0], lines[1], nil
}
