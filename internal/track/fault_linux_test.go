package track_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFullDisk: points that find no room are refused with 503, which clients try again; the points
// before stay, and more come once there is room. The answer does not name files of the server.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	points := filepath.Join(dir, "tracking")
	if err := os.Mkdir(points, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", points, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(points, syscall.MNT_DETACH) })
	ballast := filepath.Join(points, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 128<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir)
	run := s.newRun("0", nil)
	batch := func(n int) obj {
		var metrics []obj
		for i := range 1000 {
			metrics = append(metrics, obj{"key": "m", "value": i, "timestamp": n*1000 + i, "step": n*1000 + i})
		}
		return obj{"run_id": run, "metrics": metrics}
	}
	n := 0
	for ; ; n++ {
		code, m := s.do("POST", "runs/log-batch", batch(n))
		if code == 200 {
			continue
		}
		if text, _ := m["message"].(string); code != 503 || m["error_code"] != "TEMPORARILY_UNAVAILABLE" || !strings.Contains(text, "full") || strings.Contains(text, dir) {
			t.Fatalf("%d %v", code, m)
		}
		break
	}
	if n == 0 {
		t.Fatal("nothing was logged before the disk was full")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	s.must("POST", "runs/log-batch", batch(n))
	if h := s.must("GET", "metrics/get-history?metric_key=m&run_id="+run, nil)["metrics"].([]any); len(h) != 1000*(n+1) {
		t.Errorf("%d points after %d batches", len(h), n+1)
	}
}
