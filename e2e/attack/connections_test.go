package attack

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestTenThousandConnections: so many clients of an endpoint stay connected, each after an answer,
// and the server keeps answering others in bounded memory.
func TestTenThousandConnections(t *testing.T) {
	const clients, most = 10_000, 1 << 30
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Max < clients+1000 {
		t.Skipf("a process may have %d descriptors here, which is too few: %v", limit.Max, err)
	}
	s := world.Start(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "score.py"), []byte("def init():\n    pass\n\ndef run(data):\n    return data\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	berth := func(args ...string) string {
		t.Helper()
		cmd := s.Command(args...)
		out, err := cmd.Output()
		if e, ok := err.(*exec.ExitError); ok {
			t.Fatalf("%v: %v\n%s%s", args, err, out, e.Stderr)
		}
		return strings.TrimSpace(string(out))
	}
	berth("deploy", dir, "--name", "echo")
	key := berth("online-endpoint", "get-credentials", "-n", "echo", "--query", "primaryKey", "-o", "tsv")
	at, err := url.Parse(berth("online-endpoint", "show", "-n", "echo", "--query", "scoring_uri", "-o", "tsv"))
	if err != nil {
		t.Fatal(err)
	}
	request := "POST " + at.Path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nContent-Length: 2\r\n\r\n{}"
	call := func(c io.ReadWriter) error {
		if _, err := io.WriteString(c, request); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReaderSize(c, 512), nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s %s %w", resp.Status, b, err)
		}
		return nil
	}
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	pid := serverPID(t, s)
	before := peakMemory(t, pid)
	var next, failed atomic.Int64
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			for next.Add(1) <= clients {
				c, err := tls.Dial("tcp", at.Host, config)
				if err == nil {
					t.Cleanup(func() { c.Close() })
					err = call(c)
				}
				if err != nil && failed.Add(1) == 1 {
					t.Errorf("the first of those that failed: %v", err)
				}
			}
		})
	}
	group.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d were not answered", n, clients)
	}
	if out := berth("endpoint", "test", "echo", "-d", "{}"); !strings.Contains(out, "{}") {
		t.Errorf("another client: %s", out)
	}
	if grew := peakMemory(t, pid) - before; grew > most {
		t.Errorf("the server took %d MiB more", grew>>20)
	} else {
		t.Logf("the server took %d MiB more", grew>>20)
	}
}
