package app_test

import (
	"fmt"
	"os"
	"sort"
	"syscall"
	"testing"
	"time"
)

func TestQuickLatency(t *testing.T) {
	if os.Getenv("QB") == "" {
		t.Skip()
	}
	s := start(t, shortHome(t))
	var lat []float64
	stamp := t.TempDir() + "/stamp"
	for i := range 60 {
		os.Remove(stamp)
		begin := time.Now()
		s.submit(fmt.Sprintf("j%d", i), "date +%s%N > "+stamp)
		s.wait(fmt.Sprintf("j%d", i))
		b, _ := os.ReadFile(stamp)
		var ns int64
		fmt.Sscan(string(b), &ns)
		lat = append(lat, float64(ns-begin.UnixNano())/1e6)
	}
	sort.Float64s(lat)
	t.Logf("p50 %.2f p90 %.2f max %.2f ms", lat[30], lat[54], lat[59])
	var r0, r1 syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r0)
	begin := time.Now()
	n := 2000
	sem := make(chan bool, 16)
	for i := range n {
		sem <- true
		go func() { defer func() { <-sem }(); s.submit(fmt.Sprintf("k%d", i), "/bin/true") }()
	}
	for range 16 {
		sem <- true
	}
	t.Logf("submitted in %v", time.Since(begin))
	for {
		_, m := s.do("GET", s.ws+"/jobs?status=NotStarted,Queued,Preparing,Running,Finalizing&$top=1", nil)
		if len(m["value"].([]any)) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	el := time.Since(begin)
	syscall.Getrusage(syscall.RUSAGE_SELF, &r1)
	cpu := time.Duration(r1.Utime.Nano()+r1.Stime.Nano()-r0.Utime.Nano()-r0.Stime.Nano())
	t.Logf("%d jobs in %v: %.0f/s, server+client cpu per job %v", n, el, float64(n)/el.Seconds(), cpu/time.Duration(n))
}
