package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// ownTemp begins the name of the folder in a home that has the copies a backup works with.
const ownTemp = ".backup-"

// homeTemp is that folder: with the home's other secrets, for one user.
func homeTemp(home string) string {
	return filepath.Join(home, ownTemp+strconv.Itoa(os.Getuid()))
}

// commonTemp is where copies are made where there is no home.
func commonTemp() string {
	return filepath.Join(os.TempDir(), "berth-backup-"+strconv.Itoa(os.Getuid()))
}

// scratch makes a folder below base, which only this user can read, for copies in clear. Those of
// processes that were killed are removed.
func scratch(base string) (dir string, done func(), err error) {
	if err := os.Mkdir(base, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", nil, err
	}
	info, err := os.Lstat(base)
	if err != nil {
		return "", nil, err
	}
	if !info.IsDir() || !private(info) {
		return "", nil, berth.Errorf(berth.Conflict, "%s is not a folder that only this user can read; remove it", base)
	}
	all, err := waitLock(filepath.Join(base, "lock")) // until this one has a lock of its own
	if err != nil {
		return "", nil, err
	}
	defer all.Close()
	entries, err := os.ReadDir(base)
	if err != nil {
		return "", nil, err
	}
	for _, e := range entries {
		if path := filepath.Join(base, e.Name()); strings.HasPrefix(e.Name(), "run-") && abandoned(path) {
			if err := os.RemoveAll(path); err != nil {
				return "", nil, err
			}
		}
	}
	if dir, err = os.MkdirTemp(base, "run-"); err != nil {
		return "", nil, err
	}
	own, err := lockFile(filepath.Join(dir, "lock"), "backup")
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() {
		os.RemoveAll(dir) // what is left is removed by the next one
		own.Close()
	}, nil
}
