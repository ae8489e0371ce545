package migrate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/migrate"
)

// TestSecondAddress: what came from one address of a source is brought up to date from another, and
// nothing comes twice.
func TestSecondAddress(t *testing.T) {
	there, here := newSpace(t), newSpace(t)
	run, model := there.newRun("0"), there.logged("lm", "0", "")
	there.must("POST", "registered-models/create", obj{"name": "R"})
	n := 0
	for i, address := range []string{there.url, strings.Replace(there.url, "127.0.0.1", "localhost", 1), strings.Replace(there.url, "127.0.0.1", "LOCALHOST", 1) + "//", there.url + "/"} {
		n++
		there.must("POST", "runs/log-metric", obj{"run_id": run, "key": "m", "value": 1, "timestamp": n})
		there.must("PATCH", "logged-models/"+model+"/tags", obj{"tags": []obj{{"key": "n", "value": strings.Repeat("x", n)}}})
		there.must("POST", "model-versions/create", obj{"name": "R", "source": "runs:/" + run + "/m"})
		from, err := migrate.Server(address, "", nil, migrate.Patience)
		if err != nil {
			t.Fatal(err)
		}
		got := here.mustBring(from)
		if got.Runs != 1 || got.Unchanged != 0 || got.Versions != 1 {
			t.Errorf("from %s: %+v", address, got)
		}
		if again := here.mustBring(from); again.Unchanged != 1 || again.Points != 0 || again.Versions != 0 {
			t.Errorf("again from %s: %+v", address, again)
		}
		if points, _ := here.must("GET", "metrics/get-history?metric_key=m&run_id="+run, nil)["metrics"].([]any); len(points) != i+1 {
			t.Errorf("from %s: %d points", address, len(points))
		}
	}
	if runs, _ := here.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}})["runs"].([]any); len(runs) != 1 {
		t.Errorf("there are %d runs", len(runs))
	}
}

// TestSecondPath: so is what came from another path of a folder.
func TestSecondPath(t *testing.T) {
	dir, here := t.TempDir(), newSpace(t)
	whole, link := filepath.Join(dir, "mlruns"), filepath.Join(dir, "link")
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(whole, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0/meta.yaml", "experiment_id: '0'\nname: e\n")
	write("0/"+aRun+"/meta.yaml", "run_id: "+aRun+"\nstatus: 3\nstart_time: 1\n")
	write("models/R/meta.yaml", "name: R\n")
	if err := os.Symlink(whole, link); err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{whole, link, whole + "/"} {
		write("0/"+aRun+"/tags/t", strings.Repeat("x", i))
		from, err := migrate.Folder(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := here.mustBring(from); n.Runs != 1 || n.Unchanged != 0 || n.Models != 1 {
			t.Errorf("%s: %+v", path, n)
		}
	}
}

// TestOtherSource: what has the same id or name in another source changes nothing that came before.
func TestOtherSource(t *testing.T) {
	here := newSpace(t)
	for i := range 2 {
		from, err := migrate.Server(fake(t, nil), "", nil, migrate.Patience) // at another port
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := here.bring(from)
		if err != nil || n.Runs != 1 || n.Unchanged != i || n.Models != 1-i || n.LeftBehind != i {
			t.Errorf("%v, %+v", err, n)
		}
	}
}
