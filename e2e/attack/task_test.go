package attack

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/fence"
)

// runJob submits a command as the owner, waits for its end, and returns what it wrote.
func runJob(t *testing.T, s *world.Server, command string) string {
	t.Helper()
	out, err := s.Command("run", "--", "sh", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	return string(out)
}

// TestTaskAtTheOwnersDoor: the processes of a job run with the server's account, and are refused
// where that account is all it takes, however they hide: the socket, and the identity endpoint with
// the administrator's token.
func TestTaskAtTheOwnersDoor(t *testing.T) {
	s := world.Start(t)
	status := s.Bin + " status"
	home := "env BERTH_HOME=" + s.Home + " "
	msi := "curl -sk -H 'X-IDENTITY-HEADER: " + s.Token + "' '" + s.URL + "/msi/token?resource=x'"
	orphan := func(command string) string { // in a session of its own, without a parent and without the mark of a task
		return "cat >orphan <<'EOF'\n" + command + " >out 2>&1; touch over\nEOF\n(setsid sh orphan &); until [ -e over ]; do sleep 0.05; done; cat out"
	}
	for name, command := range map[string]string{
		"socket":              home + status,
		"socket, no mark":     "env -i BERTH_HOME=" + s.Home + " " + status,
		"socket, orphan":      orphan("env -i BERTH_HOME=" + s.Home + " " + status),
		"identity":            msi,
		"identity, no mark":   "env -i PATH=$PATH " + msi,
		"identity by a child": orphan("env -i PATH=$PATH " + msi),
	} {
		t.Run(name, func(t *testing.T) {
			out := runJob(t, s, "("+command+") 2>&1; true")
			if strings.Contains(out, "access_token") || strings.Contains(out, "workspace") && strings.Contains(out, "admin") {
				t.Errorf("a job was let in:\n%s", out)
			}
			if !strings.Contains(out, "not for the processes of a job") {
				t.Errorf("a job was not told why:\n%s", out)
			}
		})
	}
	// People are let in as before.
	if out, err := s.Command("status").CombinedOutput(); err != nil {
		t.Errorf("status: %v\n%s", err, out)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/msi/token?resource=x", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-IDENTITY-HEADER", s.Token)
	anyServer := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is the test's
	defer anyServer.CloseIdleConnections()
	res, err := (&http.Client{Transport: anyServer}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("the identity endpoint answers %s", res.Status)
	}
}

// TestLinksInOutputs: a job's links to the server's secrets are not uploaded, and the job says
// which.
func TestLinksInOutputs(t *testing.T) {
	s := world.Start(t)
	out := runJob(t, s, "ln -s "+s.Home+"/admin.token outputs/tok; ln -s "+s.Home+"/tls ../x; mkfifo outputs/pipe; echo fine >outputs/fine; echo ended")
	if !strings.Contains(out, "ended") {
		t.Errorf("the job: %s", out)
	}
	b, err := s.Command("job", "list", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var jobs []struct{ Name string }
	if err := json.Unmarshal(b, &jobs); err != nil || len(jobs) != 1 {
		t.Fatalf("%v in %s", err, b)
	}
	to := t.TempDir()
	if out, err := s.Command("job", "download", "-n", jobs[0].Name, "--all", "-p", to).CombinedOutput(); err != nil {
		t.Fatalf("download: %v\n%s", err, out)
	}
	var names []string
	_ = filepath.WalkDir(to, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, d.Name())
			if b, _ := os.ReadFile(p); strings.Contains(string(b), s.Token) {
				t.Errorf("%s has the administrator's token", p)
			}
		}
		return err
	})
	if all := strings.Join(names, " "); !strings.Contains(all, "fine") || strings.Contains(all, "tok") {
		t.Errorf("downloaded: %s", all)
	}
	events, err := s.Command("events", jobs[0].Name).CombinedOutput()
	if err != nil || !strings.Contains(string(events), "tok is a link to a path outside the folder") {
		t.Errorf("events: %v\n%s", err, events)
	}
}

// TestSecretsBehindTheFence: in a home that lies apart, a job cannot read or replace the server's
// secrets, and does all that jobs do.
func TestSecretsBehindTheFence(t *testing.T) {
	home := fencedHome(t)
	s := world.StartIn(t, home)
	for _, secret := range []string{"admin.token", "secret.key", "tls/ca.key", "berth.db", "run/server.json"} {
		path := filepath.Join(home, secret)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out := runJob(t, s, "cat "+path+" && echo leak: read; cp "+path+" x && echo leak: copied; ln "+path+" x && echo leak: linked; echo forged >"+path+
			" && echo leak: written; mv -f x "+path+"; rm -f "+path+" && echo leak: removed; mv "+filepath.Dir(path)+" "+home+"/moved && echo leak: moved; true")
		if strings.Contains(out, "leak: ") {
			t.Errorf("%s:\n%s", secret, out)
		}
		if after, err := os.ReadFile(path); err != nil || secret != "berth.db" && !bytes.Equal(before, after) {
			t.Errorf("%s changed: %v", secret, err)
		}
	}
	out := runJob(t, s, "echo out >outputs/f && cat outputs/f && echo t >/tmp/$$.t && mv /tmp/$$.t . && cat $$.t && ls / >/dev/null && cat /proc/self/stat >/dev/null && echo x >/dev/null && echo fine")
	if !strings.Contains(out, "fine") {
		t.Errorf("an ordinary job:\n%s", out)
	}
	if b, err := s.Command("doctor").CombinedOutput(); !strings.Contains(string(b), "jobs cannot read the server's secrets") {
		t.Errorf("doctor: %v\n%s", err, b)
	}
}

// fencedHome is a folder for a server that lies apart.
func fencedHome(t *testing.T) string {
	t.Helper()
	home, err := os.MkdirTemp("/var/lib", "be")
	if err != nil {
		t.Skip("this account can make no folder in /var/lib")
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	if why := fence.Missing(home); why != "" {
		t.Skip(why)
	}
	return home
}

// TestAgentBesideTheServer: the jobs of an agent on the server's machine are kept from the server's
// secrets, and from the file with which the agent joined.
func TestAgentBesideTheServer(t *testing.T) {
	home := fencedHome(t)
	s := world.StartIn(t, home)
	if out, err := s.Command("compute", "attach", "-n", "here", "--this-machine").CombinedOutput(); err != nil {
		t.Fatalf("attach: %v\n%s", err, out)
	}
	defer func() {
		if out, err := s.Command("agent", "stop").CombinedOutput(); err != nil {
			t.Errorf("agent stop: %v\n%s", err, out)
		}
	}()
	command := "echo x >outputs/f && echo fine"
	for _, secret := range []string{"admin.token", "secret.key", "tls/ca.key", "agent/join.json"} {
		if _, err := os.Stat(filepath.Join(home, secret)); err != nil {
			t.Fatal(err)
		}
		command += "; cat " + filepath.Join(home, secret) + " && echo " + secret + " was read"
	}
	out, err := s.Command("run", "--on", "here", "--", "sh", "-c", command+"; true").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "fine") || strings.Contains(string(out), "was read") {
		t.Errorf("%v:\n%s", err, out)
	}
}
