package app_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEndpointDiskFull: while the server's disk is full replicas answer, also those that print;
// changes are refused with the reason, and made once there is room.
func TestEndpointDiskFull(t *testing.T) {
	home := shortHome(t)
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "size=64m"); err != nil {
		t.Skip("no tmpfs can be mounted here:", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(home, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	e := startEndpoint(t, start(t, home))
	script := "import os\n\ndef init():\n    pass\n\ndef run(data):\n    print('asked' * 1000)\n    return os.environ.get('WHO')\n"
	code := e.code("c", script)
	e.deploy("blue", code, map[string]any{"WHO": "one"})
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	e.traffic(map[string]any{"blue": 100})
	ballast := filepath.Join(home, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 128<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	for range 20 {
		if code, body, _ := e.call(`{}`); code != http.StatusOK || body != `"one"` {
			t.Fatalf("on a full disk: %d %s", code, body)
		}
	}
	change := map[string]any{"location": "local", "properties": scripted(code, map[string]any{"environmentVariables": map[string]any{"WHO": "two", "TEXT": strings.Repeat("x", 100_000)}})}
	full := false
	for i := 0; i < 100 && !full; i++ { // the database may have room of its own for a while
		status, m := e.do("PUT", fmt.Sprint(e.ws, "/onlineEndpoints/e/deployments/more", i), change)
		full = status == http.StatusServiceUnavailable && strings.Contains(fmt.Sprint(m), "disk")
	}
	if !full {
		t.Error("everything was kept")
	}
	if code, body, _ := e.call(`{}`); code != http.StatusOK {
		t.Errorf("on a full disk: %d %s", code, body)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	e.deploy("blue", code, map[string]any{"WHO": "two"})
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	e.eventually("the new form answers", func() bool { _, body, _ := e.call(`{}`); return body == `"two"` })
	if code, m := e.do("DELETE", e.ws+"/onlineEndpoints/e", nil); code/100 != 2 {
		t.Error(code, m)
	}
}
