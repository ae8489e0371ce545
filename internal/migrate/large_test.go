package migrate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/migrate"
)

// TestLargeRunIsLeftBehind: a run with more tags than one may have here is named as left behind,
// with the reason; the others are imported.
func TestLargeRunIsLeftBehind(t *testing.T) {
	dir, here := t.TempDir(), newSpace(t)
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const large, plain = "00000000000000000000000000000001", "00000000000000000000000000000002"
	write("0/meta.yaml", "experiment_id: '0'\nname: e\n")
	for _, id := range []string{large, plain} {
		write("0/"+id+"/meta.yaml", "run_id: "+id+"\nrun_name: x\nstatus: 3\nstart_time: 1\n")
		write("0/"+id+"/tags/t", "v")
	}
	for i := range 300 {
		write(fmt.Sprint("0/", large, "/tags/k", i), strings.Repeat("v", 8000))
	}
	from, err := migrate.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	n, _, err := here.bring(from)
	if err != nil || n.LeftBehind != 1 || !strings.Contains(fmt.Sprint(n.NotImported), "run "+large+" has more than 2 MiB of tags") {
		t.Errorf("%v, %+v", err, n)
	}
	here.must("GET", "runs/get?run_id="+plain, nil)
}
