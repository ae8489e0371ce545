package spec_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthml/berth/internal/spec"
)

// BenchmarkUnchangedFolder is what finding out costs that a folder of many files is the same as
// before.
func BenchmarkUnchangedFolder(b *testing.B) {
	const count = 20_000
	root, files := b.TempDir(), map[string]string{}
	for i := range count {
		files[fmt.Sprintf("Part%d/file%d.py", i/100, i)] = "x"
	}
	write(b, root, files)
	time.Sleep(200 * time.Millisecond) // what was written just now is read again
	u := spec.Upload{Path: root, Index: b.TempDir(), Ignore: []string{".git/", "__pycache__/", ".venv/", ".ipynb_checkpoints/"}}
	for i := -1; i < b.N; i++ {
		if i == 0 {
			b.ResetTimer()
		}
		if _, err := u.Snapshot(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/count, "us/file")
}
