//go:build unix

package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync/atomic"
	"testing"
)

// TestImportInterrupted: an import that is ended by Ctrl-C, whatever it waits for, says what it has
// imported and how to go on, and the next one does.
func TestImportInterrupted(t *testing.T) {
	const run = "0123456789abcdef0123456789abcdef"
	answers := map[string]string{
		"experiments/search":       `{"experiments": [{"experiment_id": "1", "name": "e"}]}`,
		"runs/search":              `{"runs": [{"info": {"run_id": "` + run + `", "run_name": "r", "status": "FINISHED"}, "data": {"metrics": [{"key": "m", "value": 1}]}}]}`,
		"metrics/get-history":      `{"metrics": [{"key": "m", "value": 1, "timestamp": 1, "step": 1}]}`,
		"artifacts/list":           `{"files": [{"path": "f", "file_size": 3}]}`,
		"get-artifact":             "abc",
		"registered-models/search": `{}`,
	}
	var stuck atomic.Value // the call that gets no answer
	stuck.Store("")
	reached := make(chan struct{}, 1)
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/"), "/")
		if call == stuck.Load() {
			_, _ = io.Copy(io.Discard, r.Body) // only then is it seen that the client goes away
			if call == "get-artifact" {        // in the midst of it
				w.Header().Set("Content-Length", "3")
				fmt.Fprint(w, "a")
				w.(http.Flusher).Flush()
			}
			reached <- struct{}{}
			<-r.Context().Done()
			return
		}
		if answer, ok := answers[call]; ok {
			fmt.Fprint(w, answer)
			return
		}
		fmt.Fprint(w, `{}`)
	}))
	defer source.Close()
	home, err := os.MkdirTemp("", "bh") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	berth := func(args ...string) (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command("berth", args...)
		cmd.Env = append(os.Environ(), "BERTH_HOME="+home, "BERTH_URL=", "HOME="+home)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		return cmd, &out
	}
	up, out := berth("up")
	if err := up.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	defer func() {
		down, _ := berth("down")
		_ = down.Run() // it may not run
	}()
	for _, at := range []struct{ call, so string }{
		{"experiments/search", "0 experiments, 0 runs (0 unchanged), 0 points, 0 files"},
		{"runs/search", "1 experiment, 0 runs (0 unchanged), 0 points, 0 files"},
		{"metrics/get-history", "1 experiment, 1 run (0 unchanged), 0 points, 0 files"},
		{"artifacts/list", "1 experiment, 1 run (0 unchanged), 1 point, 0 files"},
		{"get-artifact", "1 experiment, 1 run (0 unchanged), 1 point, 0 files"},
		{"registered-models/search", "1 experiment, 1 run (0 unchanged), 1 point, 1 file"},
	} {
		t.Run(path.Base(at.call), func(t *testing.T) {
			stuck.Store(at.call)
			cmd, out := berth("tracking", "import", "--from", source.URL)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-reached
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
				t.Errorf("%v, want exit code 130", err)
			}
			want := "interrupted; imported so far: " + at.so
			if !strings.Contains(out.String(), want) || !strings.HasSuffix(out.String(), "\nrun the same command again to go on\n") ||
				strings.Contains(out.String(), "berth:") || strings.Contains(out.String(), "not imported") {
				t.Errorf("it says\n%s\nwant %q, how to go on, and no error", out, want)
			}
		})
	}
	stuck.Store("")
	last, out := berth("tracking", "import", "--from", source.URL)
	if err := last.Run(); err != nil || !strings.Contains(out.String(), "imported 1 experiment, 1 run (1 unchanged), 0 points, 0 files") {
		t.Errorf("the last import: %v\n%s", err, out)
	}
}
