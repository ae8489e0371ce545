package worker_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/serve/worker"
)

// memoryGroup makes a control group with a limit on memory, or skips the test.
func memoryGroup(t *testing.T, limit int) string {
	t.Helper()
	name, file := "/sys/fs/cgroup/memory/berth-test-"+strconv.Itoa(os.Getpid()), "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		name, file = "/sys/fs/cgroup/berth-test-"+strconv.Itoa(os.Getpid()), "memory.max"
	}
	if err := os.Mkdir(name, 0o755); err != nil {
		t.Skip("no control group can be made here:", err)
	}
	t.Cleanup(func() { os.Remove(name) })
	if err := os.WriteFile(filepath.Join(name, file), []byte(strconv.Itoa(limit)), 0o600); err != nil {
		t.Skip("memory cannot be limited here:", err)
	}
	return name
}

// TestOutOfMemory: the log says of a worker that the kernel ended for want of memory that this is
// why. It is replaced; one whose init does not fit is not.
func TestOutOfMemory(t *testing.T) {
	group := memoryGroup(t, 96<<20)
	run := func(script string, ask func(address string)) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "score.py")
		if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", `echo $$ > "$1/cgroup.procs" && exec python3 -c "$2"`, "sh", group, worker.Boot)
		cmd.Env = append(os.Environ(), worker.SourceVariable+"="+worker.Source(), "AZUREML_ENTRY_SCRIPT="+path)
		log, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		text := func() string {
			b, err := os.ReadFile(log.Name())
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if ask != nil {
			port := ""
			until(t, "it listens", func() bool {
				_, rest, _ := strings.Cut(text(), "berth-worker: ports ")
				line, _, whole := strings.Cut(rest, "\n")
				port = line
				return whole
			})
			ask("http://127.0.0.1:" + port)
			cmd.Process.Signal(os.Interrupt)
		}
		cmd.Wait() // its end is in the log
		return text()
	}
	const large = "bytearray(256 << 20)"
	said := run("def init():\n    global model\n    model = "+large+"\n\ndef run(data):\n    return 1\n", nil)
	for _, want := range []string{"for want of memory (its limit is 96 MiB)", "init needs more memory than there is"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	said = run("def init():\n    pass\n\ndef run(data):\n    return len("+large+" if data == 'large' else data)\n", func(at string) {
		if resp, err := http.Post(at+"/score", "text/plain", strings.NewReader("large")); err == nil {
			resp.Body.Close()
			t.Errorf("an answer of a worker without memory: %d", resp.StatusCode)
		}
		resp, err := http.Post(at+"/score", "text/plain", strings.NewReader("small"))
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Error(resp.StatusCode)
		}
	})
	if !strings.Contains(said, "for want of memory (its limit is 96 MiB)") || strings.Contains(said, "init needs more") {
		t.Errorf("it says:\n%s", said)
	}
}
