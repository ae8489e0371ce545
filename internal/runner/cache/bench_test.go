package cache_test

import (
	"fmt"
	"testing"

	"github.com/berthml/berth/internal/runner/cache"
)

// BenchmarkUseAgain is the use of a tree of many files that is on the node already.
func BenchmarkUseAgain(b *testing.B) {
	const files = 20_000
	s := &server{t: b, files: map[string]string{}}
	for i := range files {
		s.files[fmt.Sprintf("part%d/file%d.py", i/100, i)] = fmt.Sprint(i)
	}
	s.share()
	c, err := cache.Open(b.TempDir(), cache.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	for i := -1; i < b.N; i++ {
		if i == 0 {
			b.ResetTimer()
		}
		u, err := c.Get(b.Context(), s.source("v1"))
		if err != nil {
			b.Fatal(err)
		}
		u.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/files, "us/file")
}
