package front_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
)

// TestPutFile: a file of this machine is kept for who is near and names the very file, and for
// nobody else.
func TestPutFile(t *testing.T) {
	s := serve(t)
	path := filepath.Join(t.TempDir(), "large")
	text := strings.Repeat("0123456789abcdef", 3<<20)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	good := berth.FileHere{Path: path, Size: info.Size(), Modified: info.ModTime()}
	another := good
	another.Size--
	later := good
	later.Modified = later.Modified.Add(time.Nanosecond)
	for what, x := range map[string]struct {
		file   berth.FileHere
		near   string
		status int
	}{
		"good":           {good, "1", http.StatusOK},
		"far":            {good, "", http.StatusForbidden},
		"another size":   {another, "1", http.StatusConflict},
		"another time":   {later, "1", http.StatusConflict},
		"a pipe":         {berth.FileHere{Path: pipe, Modified: info.ModTime()}, "1", http.StatusConflict},
		"nothing":        {berth.FileHere{Path: path + "x"}, "1", http.StatusConflict},
		"a folder":       {berth.FileHere{Path: filepath.Dir(path)}, "1", http.StatusConflict},
		"no path at all": {berth.FileHere{}, "1", http.StatusConflict},
	} {
		b, err := json.Marshal(x.file)
		if err != nil {
			t.Fatal(err)
		}
		name := "box/" + strings.ReplaceAll(what, " ", "")
		resp, body := s.do(http.MethodPut, name+"?comp=file", "", "Near", x.near, berth.FileHereHeader, string(b))
		if resp.StatusCode != x.status {
			t.Errorf("%s: %s %s", what, resp.Status, body)
		}
		resp, got := s.do(http.MethodGet, name, "")
		if x.status != http.StatusOK && resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: something was kept: %s", what, resp.Status)
		}
		if x.status == http.StatusOK && (got != text || body != "16777216\n33554432\n50331648\ndone\n") {
			t.Errorf("%s: %d bytes were kept, and the answer is %q", what, len(got), body)
		}
	}
	b, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{"", "{"} { // what a job has its runner send is a body
		if resp, body := s.do(http.MethodPut, "box/x?comp=file", string(b), "Near", "1", berth.FileHereHeader, header); resp.StatusCode != http.StatusBadRequest {
			t.Error(resp.Status, body)
		}
	}
}
