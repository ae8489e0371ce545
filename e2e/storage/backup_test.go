package storage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestBackupInBucket: a server whose blobs are in a bucket is backed up to another place in it, and
// restored into a home without a bucket.
func TestBackupInBucket(t *testing.T) {
	s := startS3(t)
	y := inBucket(t, s)
	y.berth("run", "--no-code", "--name", "one", "--output", "o="+filepath.Join(t.TempDir(), "o"), "--", "echo kept > ${{outputs.o}}/r.txt; echo said")
	key := y.file("backup.key", s3Key+"\n"+s3Secret+"\n")
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	at := []string{"s3://data/backups", "--endpoint", s.endpoint, "--key-file", key}
	y.berth(append([]string{"backup"}, at...)...)
	y.berth(append([]string{"backup", "verify"}, at...)...)
	other := world.Home(t)
	config := y.file("berth.yaml", "slots: 2\n")
	y.berth(append([]string{"restore", "--home", other, "--config", config}, at...)...)
	to := t.TempDir()
	y.berth("--home", other, "download", "one", "--all", "--download-path", to)
	defer y.berth("--home", other, "down")
	found := ""
	_ = filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "r.txt" {
			text, _ := os.ReadFile(path)
			found = strings.TrimSpace(string(text))
		}
		return nil
	})
	if found != "kept" {
		t.Errorf("the restored output is %q", found)
	}
}
