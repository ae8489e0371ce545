package points

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// BenchmarkMany writes many points, BERTH_BENCH_POINTS or a million, durably and in batches of
// 10,000 to 1,000 series, opens them again and reads one series.
func BenchmarkMany(b *testing.B) {
	total := 1_000_000
	if n, err := strconv.Atoi(os.Getenv("BERTH_BENCH_POINTS")); err == nil {
		total = n
	}
	const series, batch = 1000, 10_000
	for b.Loop() {
		dir := b.TempDir()
		s, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		entries := make([]Entry, batch)
		for n := 0; n < total; n += batch {
			for i := range entries {
				k := n + i
				entries[i] = Entry{Owner: fmt.Sprint("run-", k/100%series), Key: "loss", Point: Point{Timestamp: 1_700_000_000_000 + int64(k)*3, Step: int64(k/100/series*100 + k%100), Value: 1 / float64(k+1)}}
			}
			if err := s.Append(entries); err != nil {
				b.Fatal(err)
			}
		}
		wrote := time.Since(begin)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		begin = time.Now()
		if s, err = Open(dir, Options{}); err != nil {
			b.Fatal(err)
		}
		opened := time.Since(begin)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		begin = time.Now()
		got, p := 0, make([]Point, 4096)
		for r := s.Reader("run-7", "loss"); ; {
			n, err := r.Next(p)
			if err != nil {
				b.Fatal(err)
			}
			if got += n; n == 0 {
				break
			}
		}
		read := time.Since(begin)
		if want := total / series; total%(100*series) == 0 && got != want {
			b.Fatalf("a series has %d points, want %d", got, want)
		}
		var size int64
		files, err := os.ReadDir(dir)
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				size += info.Size()
			}
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(total)/wrote.Seconds(), "points/s")
		b.ReportMetric(opened.Seconds()*1000, "ms-open")
		b.ReportMetric(read.Seconds()*1000, "ms-read")
		b.ReportMetric(float64(m.HeapAlloc)/1e6, "MB-heap")
		b.ReportMetric(float64(size)/float64(total), "bytes/point")
	}
}
