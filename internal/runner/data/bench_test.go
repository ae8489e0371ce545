package data_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/runner/data"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

// BenchmarkFolder fetches a folder of small files, as a code snapshot is.
func BenchmarkFolder(b *testing.B) {
	s := blobtest.New(b)
	blobs := map[string]string{}
	for i := range 1000 {
		blobs[fmt.Sprintf("code/%d/f%d.py", i/50, i)] = strings.Repeat("x", 4096)
	}
	s.Set(blobs)
	c, err := data.New(data.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		if err := c.Folder(b.Context(), s.At("code"), b.TempDir(), new(data.Total)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "files/s")
}
