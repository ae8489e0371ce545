// Package attack tries to get at a running server what its users must not be able to get: memory,
// connections, other people's bytes. Each story has the built program, a home of its own, and the
// tokens an attacker would have.
package attack

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// client trusts the server.
func client(t *testing.T, s *world.Server) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(s.CABundle)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatal("no certificates in the bundle")
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// serverPID is the process of the server.
func serverPID(t *testing.T, s *world.Server) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Home, "run", "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ PID int }
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v.PID
}

// peakMemory is the most memory a process has had so far, in bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// TestMemoryIsNotTakenWithoutAToken: a body of many small elements, at every address that takes a
// body, costs the server next to nothing while nobody has said who they are.
func TestMemoryIsNotTakenWithoutAToken(t *testing.T) {
	s := world.Start(t)
	c := client(t, s)
	ws := "/subscriptions/" + s.Sub + "/resourceGroups/" + s.Group + "/providers/Microsoft.MachineLearningServices/workspaces/" + s.Workspace
	list := []byte("[" + strings.Repeat("{},", 16<<20/3-1) + "{}]")
	object := []byte(`{"properties":{"x":[` + strings.Repeat("{},", 16<<20/3-16) + `{}]}}`)
	form := []byte(strings.Repeat("a=b&", 4<<20))
	pid := serverPID(t, s)
	before := peakMemory(t, pid)
	var group sync.WaitGroup
	for _, a := range []struct {
		method, path, kind string
		body               []byte
	}{
		{"POST", "/runner/v1/reports", "application/json", list},
		{"POST", "/runner/v1/reports", "application/json", list},
		{"POST", "/runner/v1/tasks/j.1/log?offset=0", "application/octet-stream", list},
		{"PUT", ws + "/jobs/j", "application/json", object},
		{"POST", "/history/v1.0" + ws + "/rundata", "application/json", object},
		{"POST", "/tokens", "application/json", object},
		{"POST", "/msi/token", "application/x-www-form-urlencoded", form},
		{"POST", "/common/oauth2/v2.0/token", "application/x-www-form-urlencoded", form},
		{"PUT", "/st.blob.berth/c/b?comp=blocklist", "application/xml", list},
		{"POST", "/berth/instances/s/g/w/i/jupyter/x", "application/json", object},
	} {
		group.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), a.method, s.URL+a.path, bytes.NewReader(a.body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", a.kind)
			res, err := c.Do(req)
			if err != nil {
				return // the server may hang up on so large a body
			}
			defer res.Body.Close()
			b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
			if res.StatusCode/100 != 4 || len(b) > 4096 {
				t.Errorf("%s %s: %s and %d bytes: %.200s", a.method, a.path, res.Status, len(b), b)
			}
		})
	}
	group.Wait()
	if grew := peakMemory(t, pid) - before; grew > 256<<20 {
		t.Errorf("the server took %d MiB more", grew>>20)
	}
}
