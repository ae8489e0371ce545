// Package storage has stories of storage elsewhere: jobs that read from and write to it through
// datastores.
package storage

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/storage"
)

// story is a server with somebody who uses it.
type story struct {
	t       *testing.T
	s       *world.Server
	dir     string
	env     []string
	account *syscall.SysProcAttr // of whose account it is; nil is that of the test
}

func begin(t *testing.T, config string) *story {
	t.Helper()
	home := world.Home(t)
	if config != "" {
		if err := os.WriteFile(filepath.Join(home, "berth.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &story{t: t, s: world.StartIn(t, home), dir: t.TempDir()}
}

// file writes a file for a command to read.
func (y *story) file(name, text string) string {
	y.t.Helper()
	p := filepath.Join(y.dir, name)
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		y.t.Fatal(err)
	}
	return p
}

// as is the story of a user who is not an administrator.
func (y *story) as(name string) *story {
	y.t.Helper()
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(y.berth("token", "create", name, "-o", "json")), &made); err != nil || made.Token == "" {
		y.t.Fatalf("no token for %s: %v", name, err)
	}
	return &story{t: y.t, s: y.s, dir: y.t.TempDir(), env: []string{"BERTH_URL=" + y.s.URL, "BERTH_TOKEN=" + made.Token, "BERTH_CA=" + y.s.CABundle}}
}

// command is the program with arguments.
func (y *story) command(args ...string) *exec.Cmd {
	cmd := y.s.Command(args...)
	cmd.Env = append(cmd.Env, y.env...)
	cmd.SysProcAttr = y.account
	return cmd
}

// berth runs a command that must succeed, and returns what it wrote.
func (y *story) berth(args ...string) string {
	y.t.Helper()
	out, err := y.command(args...).CombinedOutput()
	if err != nil {
		y.t.Fatalf("berth %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// job submits a job and returns its end and everything that is told of it.
func (y *story) job(name, yaml string) (status, told string) {
	y.t.Helper()
	y.berth("job", "create", "--file", y.file(name+".yaml", y.yaml(name, yaml)))
	return y.end(name)
}

// yaml is the text of a job that runs on the node as it is.
func (y *story) yaml(name, rest string) string {
	return "name: " + name + "\nenvironment: {image: none}\nproperties: {berth.environment: host}\n" + rest
}

// end waits for the end of a job.
func (y *story) end(name string) (status, told string) {
	y.t.Helper()
	log, _ := y.command("job", "stream", "-n", name).CombinedOutput()
	status = strings.TrimSpace(y.berth("job", "show", "-n", name, "--query", "status", "-o", "tsv"))
	return status, string(log) + y.berth("explain", name)
}

// until repeats a command until it says what is wanted, while a job has not ended.
func (y *story) until(job, want string, args ...string) {
	y.t.Helper()
	var said []byte
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		status := strings.TrimSpace(y.berth("job", "show", "-n", job, "--query", "status", "-o", "tsv"))
		if said, _ = y.command(args...).CombinedOutput(); strings.Contains(string(said), want) {
			return
		}
		if berth.JobStatus(status).Terminal() {
			break
		}
	}
	y.t.Fatalf("berth %s does not say %q:\n%s", strings.Join(args, " "), want, said)
}

// completed is job for one that must succeed.
func (y *story) completed(name, yaml string) string {
	y.t.Helper()
	status, told := y.job(name, yaml)
	if status != "Completed" {
		y.t.Fatalf("job %s: %s\n%s", name, status, told)
	}
	return told
}

// program makes a command that is not bound to the test's context, which ends before its clean-up.
func program(name string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// open is what opens a store, for tests to fill it.
func open(t *testing.T, props, credentials, secrets map[string]any) *storage.Key {
	t.Helper()
	s, err := storage.Read(props)
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.Open(credentials, secrets)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// put makes an object.
func put(t *testing.T, k *storage.Key, name, text string) {
	t.Helper()
	u, err := k.Sign(name, berth.OutsideRequest{Do: berth.OutsidePut}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	send(t, http.MethodPut, u, text)
}

// send sends a request that must succeed, and returns the answer.
func send(t *testing.T, method, u, text string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, u, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Ms-Blob-Type", "BlockBlob")
	req.Header.Set("X-Ms-Version", "2022-11-02")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s %s, %v", method, u, res.Status, b, err)
	}
	return string(b)
}
