package api_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berthml/berth/internal/api"
)

// TestReserveRows: reports that come at once, as on several servers, have places of their own in
// the file of rows, before they have written anything.
func TestReserveRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	const reports, size = 64, 10
	starts := make([]int64, reports)
	var all sync.WaitGroup
	for i := range starts {
		all.Go(func() {
			f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if starts[i], err = api.Reserve(f, size); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seen := map[int64]bool{}
	for _, at := range starts {
		if seen[at] || at%size != 0 || at >= reports*size {
			t.Errorf("a place at %d: %v", at, starts)
		}
		seen[at] = true
	}
}
