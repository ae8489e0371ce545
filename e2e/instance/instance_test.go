// Package instance tells the story of somebody with a compute instance: JupyterLab through the
// proxy, ssh, jobs, idleness.
package instance_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
)

// place is a server and one instance on it.
type place struct {
	*world.Server
	t    *testing.T
	name string
}

// make makes an instance and waits until it runs.
func (p *place) make(extra string) {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "ci.yml")
	if err := os.WriteFile(file, []byte("name: "+p.name+"\ntype: computeinstance\nsize: Standard_DS2_v2\n"+extra), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.run("compute", "create", "-f", file, "-o", "none")
	p.t.Cleanup(func() { // whatever happened, nothing of it stays
		_ = p.Command("compute", "delete", "-n", p.name, "--yes").Run()
	})
	if got := p.state(); got != "Running" {
		p.t.Fatalf("after its creation it is %s\n%s", got, p.logs())
	}
}

func (p *place) run(args ...string) string {
	p.t.Helper()
	out, err := p.Command(args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("berth %s: %v\n%s\n%s", strings.Join(args, " "), err, out, p.logs())
	}
	return string(out)
}

func (p *place) logs() string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(p.Home, "instances", "*", "*", "log", "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(&b, "== %s\n%s\n", filepath.Base(f), text[max(0, len(text)-2000):])
	}
	return b.String()
}

func (p *place) path() string {
	return "/subscriptions/" + p.Sub + "/resourceGroups/" + p.Group + "/providers/Microsoft.MachineLearningServices/workspaces/" + p.Workspace + "/computes/" + p.name
}

func (p *place) app() string {
	return "/berth/instances/" + strings.ToLower(p.Sub+"/"+p.Group+"/"+p.Workspace+"/"+p.name)
}

var browser = &http.Client{
	Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // the test's own server
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// do makes a request with a token, "" for none.
func (p *place) do(method, path, token string, body []byte, header ...string) (*http.Response, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.URL+path, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := browser.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res, string(b)
}

type shown struct {
	Properties struct {
		Properties struct {
			State         string
			LastOperation struct{ OperationName, OperationStatus, OperationTrigger string }
			Applications  []struct{ DisplayName, EndpointURI string }
		}
		Berth struct{ Reason, Awake, Node string }
	}
}

func (p *place) show() (v shown) {
	p.t.Helper()
	res, b := p.do("GET", p.path()+"?api-version=2023-08-01-preview", p.Token, nil)
	if res.StatusCode == http.StatusNotFound {
		v.Properties.Properties.State = "gone"
		return v
	}
	if err := json.Unmarshal([]byte(b), &v); err != nil {
		p.t.Fatalf("%v in %s", err, b)
	}
	return v
}

func (p *place) state() string { return p.show().Properties.Properties.State }

// until waits for something that is about to be.
func (p *place) until(what string, f func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !f() {
		if time.Now().After(deadline) {
			p.t.Fatalf("never: %s; %+v\n%s", what, p.show(), p.logs())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestInstance(t *testing.T) {
	t.Parallel()
	p := &place{Server: world.Start(t), t: t, name: "box"}
	p.make("")
	var bob struct{ Token string }
	if err := json.Unmarshal([]byte(p.run("token", "create", "bob", "-o", "json")), &bob); err != nil || bob.Token == "" {
		t.Fatalf("%v", err)
	}
	t.Run("who gets in", func(t *testing.T) { whoGetsIn(t, p, bob.Token) })
	t.Run("notebook", func(t *testing.T) { notebook(t, p) })
	t.Run("browser", func(t *testing.T) { inBrowser(t, p) })
	t.Run("ssh", func(t *testing.T) { overSSH(t, p, bob.Token) })
	t.Run("job", func(t *testing.T) { jobs(t, p) })
	t.Run("jupyter killed", func(t *testing.T) { jupyterKilled(t, p) })
	t.Run("server killed", func(t *testing.T) { serverKilled(t, p) })
	t.Run("idle", func(t *testing.T) { idle(t, p) })
	t.Run("start again", func(t *testing.T) {
		p.run("compute", "start", "-n", p.name)
		if out := p.run("ssh", p.name, "--", "cat", "wave.txt"); !strings.HasPrefix(out, "0.0\n") {
			t.Errorf("the home was not kept: %q", out)
		}
	})
	node := p.show().Properties.Berth.Node
	p.run("compute", "delete", "-n", p.name, "--yes")
	p.until("it is gone", func() bool { return p.state() == "gone" })
	nothingLeft(t, p, node)
}

func whoGetsIn(t *testing.T, p *place, bob string) {
	for _, path := range []string{"/jupyter/lab", "/jupyter/api/kernels", "/ssh"} {
		if res, b := p.do("GET", p.app()+path, bob, nil); res.StatusCode != http.StatusForbidden || !strings.Contains(b, "belongs to") {
			t.Errorf("bob at %s: %s %s", path, res.Status, b)
		}
		if res, b := p.do("GET", p.app()+path, "", nil); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("nobody at %s: %s %s", path, res.Status, b)
		}
	}
	for _, app := range p.show().Properties.Properties.Applications {
		if res, b := p.do("GET", strings.TrimPrefix(app.EndpointURI, p.URL), p.Token, nil); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %.300s", app.DisplayName, res.Status, b)
		}
	}
	if res, _ := p.do("GET", p.app()+"/jupyter/api/contents/..%2f..%2fagent.json", p.Token, nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("a path that climbs: %s", res.Status)
	}
	// Nothing of it listens where somebody else on the machine could reach it.
	out, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	if agent := agentPID(t, p); agent > 0 {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", agent))
		for _, fd := range fds {
			to, _ := os.Readlink(fd)
			if inode, ok := strings.CutPrefix(to, "socket:["); ok && bytes.Contains(out, []byte(" "+strings.TrimSuffix(inode, "]")+" ")) {
				t.Errorf("the agent listens on a port: %s", to)
			}
		}
	}
}

// agentPID is the process of the instance's agent.
func agentPID(t *testing.T, p *place) int {
	t.Helper()
	for _, pid := range processes(t, filepath.Join(p.Home, "instances")) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(b), "\x00_devbox\x00") {
			return pid
		}
	}
	return 0
}

// processes are those whose command line or home directory has text in it.
func processes(t *testing.T, text string) (out []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		if pid != os.Getpid() && len(cmdline) > 0 && (bytes.Contains(cmdline, []byte(text)) || bytes.Contains(environ, []byte("\x00HOME="+text)) || bytes.HasPrefix(environ, []byte("HOME="+text))) {
			out = append(out, pid)
		}
	}
	return out
}

func notebook(t *testing.T, p *place) {
	python := world.Python(t, "requests==2.34.2", "websocket-client==1.9.2")
	dir, err := filepath.Abs("../../examples/notebook")
	if err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(t.TempDir(), "out.ipynb")
	cmd := exec.Command(python, filepath.Join(dir, "execute.py"), p.name, filepath.Join(dir, "wave.ipynb"), result)
	cmd.Env = append(p.Command().Env, "BERTH="+p.Bin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, p.logs())
	}
	for _, want := range []string{"on box\n", "(0.997, -0.999)", "executed 3 cells"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the notebook does not say %q:\n%s", want, out)
		}
	}
	if b, err := os.ReadFile(result); err != nil || !bytes.Contains(b, []byte(`"execute_result"`)) {
		t.Errorf("the result has no outputs: %v\n%s", err, b)
	}
}

// inBrowser goes the way of `berth compute open`: a link, a cookie, and no credentials on either
// side.
func inBrowser(t *testing.T, p *place) {
	if own := p.run("compute", "open", "-n", p.name); !strings.HasPrefix(own, "http://berth-") || !strings.Contains(own, ".localhost:") {
		t.Errorf("on the user's own machine: %s", own)
	}
	address := strings.TrimSpace(p.run("compute", "open", "-n", p.name, "--https"))
	path := strings.TrimPrefix(address, p.URL)
	res, page := p.do("GET", path, "", nil)
	if res.StatusCode != http.StatusOK || len(res.Cookies()) != 1 || strings.Contains(page, p.Token) {
		t.Fatalf("%s %s", res.Status, page)
	}
	cookie := res.Cookies()[0]
	if !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != p.app()+"/" {
		t.Errorf("%+v", cookie)
	}
	if res, _ := p.do("GET", path, "", nil); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("a link is good twice: %s", res.Status)
	}
	session := cookie.Name + "=" + cookie.Value
	res, _ = p.do("GET", p.app()+"/jupyter/lab", "", nil, "Cookie", session)
	if res.StatusCode != http.StatusOK {
		t.Errorf("with the cookie: %s", res.Status)
	}
	for _, k := range res.Cookies() {
		if !strings.HasPrefix(k.Path, p.app()+"/jupyter/") {
			t.Errorf("a cookie of Jupyter's for %s", k.Path)
		}
	}
	if res, _ := p.do("GET", p.app()+"/jupyter/api/kernels", "", nil, "Cookie", session, "Origin", "https://evil.example"); res.StatusCode != http.StatusForbidden {
		t.Errorf("from a page of another origin: %s", res.Status)
	}
	if res, _ := p.do("GET", p.app()+"2/jupyter/lab", "", nil, "Cookie", session); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("the cookie opens another instance: %s", res.Status)
	}
	// What Jupyter is sent holds nothing of ours: a kernel prints the headers it was started with.
	res, b := p.do("POST", p.app()+"/jupyter/api/terminals", p.Token, nil)
	if res.StatusCode != http.StatusOK {
		t.Errorf("a terminal: %s %s", res.Status, b)
	}
}

func overSSH(t *testing.T, p *place, bob string) {
	cmd := p.Command("ssh", p.name, "--", "cat; echo on $BERTH_INSTANCE; exit 4")
	cmd.Stdin = strings.NewReader("over the wire, ")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 4 || string(out) != "over the wire, on box\n" {
		t.Errorf("%q %v", out, err)
	}
	cmd = p.Command("compute", "connect-ssh", "-n", p.name, "--", "true")
	cmd.Env = append(cmd.Env, "BERTH_URL="+p.URL, "BERTH_TOKEN="+bob, "BERTH_CA="+p.CABundle)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "belongs to") {
		t.Errorf("bob over ssh: %v %s", err, out)
	}
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("there is no ssh here")
	}
	user := t.TempDir()
	install := p.Command("ssh", "--config", "--install")
	install.Env = append(install.Env, "HOME="+user)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	config := filepath.Join(user, ".ssh", "berth", "config")
	data := bytes.Repeat([]byte{0, 1, 2, 0xff, '\r', '\n', '~', '.'}, 1<<15)
	local := filepath.Join(user, "data")
	if err := os.WriteFile(local, data, 0o600); err != nil {
		t.Fatal(err)
	}
	tools := [][]string{
		{"ssh", "-F", config, "box", "echo hello from $BERTH_INSTANCE"},
		{"scp", "-q", "-F", config, local, "box:copied"},
		{"ssh", "-F", config, "box.berth", "cmp copied " + local + " && echo same"},
	}
	if _, err := exec.LookPath("rsync"); err == nil {
		tools = append(tools, []string{"rsync", "-e", "ssh -F " + config, "-r", local, "box:synced/"}, []string{"ssh", "-F", config, "box", "cmp synced/data copied && echo same"})
	}
	for _, words := range tools {
		cmd := exec.Command(words[0], words[1:]...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(words, " "), err, out)
		}
		if words[0] == "ssh" && !strings.Contains(string(out), "same") && !strings.Contains(string(out), "hello from box") {
			t.Errorf("%s: %s", strings.Join(words, " "), out)
		}
	}
}

func jobs(t *testing.T, p *place) {
	out := p.run("run", "--on", p.name, "--", "sh", "-c", "echo job on $HOSTNAME; sleep 3")
	if !strings.Contains(out, "job on") {
		t.Errorf("%s", out)
	}
	p.until("the event that it was JobRunning", func() bool { return strings.Contains(p.run("events", "-o", "json"), `"state":"JobRunning"`) })
	p.until("it is Running again", func() bool { return p.state() == "Running" })
}

func jupyterKilled(t *testing.T, p *place) {
	killed := 0
	for _, pid := range processes(t, filepath.Join(p.Home, "instances")) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(b), "\x00jupyterlab\x00") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed++
		}
	}
	if killed != 1 {
		t.Fatalf("%d JupyterLabs", killed)
	}
	p.until("JupyterLab is back", func() bool {
		res, _ := p.do("GET", p.app()+"/jupyter/api/status", p.Token, nil)
		return res.StatusCode == http.StatusOK
	})
	p.until("a warning", func() bool { return strings.Contains(p.run("events", "-o", "json"), "JupyterLab ended") })
	if got := p.state(); got != "Running" {
		t.Errorf("it is %s", got)
	}
}

func serverKilled(t *testing.T, p *place) {
	before := agentPID(t, p)
	var info struct{ PID int }
	b, err := os.ReadFile(filepath.Join(p.Home, "run", "server.json"))
	if err != nil || json.Unmarshal(b, &info) != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.until("the server is gone", func() bool { return world.Gone(info.PID) })
	p.run("up")
	if out := p.run("ssh", p.name, "--", "echo still here"); !strings.Contains(out, "still here") {
		t.Errorf("%s", out)
	}
	if after := agentPID(t, p); after != before || before == 0 {
		t.Errorf("the agent was process %d and is %d", before, after)
	}
	if got := p.state(); got != "Running" {
		t.Errorf("it is %s", got)
	}
}

func idle(t *testing.T, p *place) {
	body := []byte(`{"properties":{"computeType":"ComputeInstance","properties":{"vmSize":"Standard_DS2_v2","idleTimeBeforeShutdown":"PT4S"}}}`)
	if res, b := p.do("PUT", p.path()+"?api-version=2023-08-01-preview", p.Token, body, "Content-Type", "application/json"); res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", res.Status, b)
	}
	p.until("it stops by itself", func() bool { return p.state() == "Stopped" })
	v := p.show()
	if op := v.Properties.Properties.LastOperation; op.OperationTrigger != "IdleShutdown" || op.OperationStatus != "Succeeded" {
		t.Errorf("%+v", op)
	}
	if !strings.Contains(v.Properties.Berth.Reason, "nothing used it for") {
		t.Errorf("%+v", v)
	}
	res, b := p.do("GET", p.app()+"/jupyter/lab", p.Token, nil)
	if res.StatusCode != http.StatusConflict || !strings.Contains(b, "berth compute start -n box") {
		t.Errorf("a stopped one: %s %s", res.Status, b)
	}
}

// nothingLeft looks for what an instance could leave behind.
func nothingLeft(t *testing.T, p *place, node string) {
	if left := processes(t, filepath.Join(p.Home, "instances")); len(left) > 0 {
		t.Errorf("processes %v", left)
	}
	for _, pattern := range []string{
		filepath.Join(p.Home, "instances", "*", "*"), filepath.Join(p.Home, "nodes", node), "/sys/fs/cgroup/*/*/" + node, "/sys/fs/cgroup/*/" + node,
	} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			t.Errorf("left: %v", found)
		}
	}
}

// TestPythonSDK is the story of somebody with Azure's own client.
func TestPythonSDK(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.35.2", "1.34.1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			python := world.Python(t, "azure-ai-ml=="+version, "azure-identity==1.27.0", "six==1.17.0")
			p := &place{Server: world.Start(t), t: t, name: "sdkbox"}
			t.Cleanup(func() { _ = p.Command("compute", "delete", "-n", p.name, "--yes").Run() })
			story, err := filepath.Abs("story.py")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(python, story)
			cmd.Env, cmd.Dir = p.Environ(), t.TempDir()
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s\n%s\n%s", err, out, errs.String(), p.logs())
			}
			for _, line := range []string{"create", "list", "job", "stop, start, restart", "refusal", "delete"} {
				if !strings.Contains(string(out), "seen: "+line+"\n") {
					t.Errorf("the story does not say %q:\n%s", line, out)
				}
			}
		})
	}
}

// TestExample runs the example as a newcomer would.
func TestExample(t *testing.T) {
	t.Parallel()
	p := &place{Server: world.Start(t), t: t, name: "notebook-box"}
	t.Cleanup(func() { _ = p.Command("compute", "delete", "-n", p.name, "--yes").Run() })
	script, err := filepath.Abs("../../examples/notebook/run.sh")
	if err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(t.TempDir(), "out.ipynb")
	cmd := exec.Command(script)
	cmd.Env = append(p.Command().Env, "BERTH="+p.Bin, "PYTHON="+world.Python(t, "requests==2.34.2", "websocket-client==1.9.2"), "OUT="+result)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, p.logs())
	}
	for _, want := range []string{"on notebook-box", "(0.997, -0.999)", "0.0\n0.247\n0.479\n", "notebook-box is Stopped"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the example does not show %q:\n%s", want, out)
		}
	}
	if got := p.state(); got != "gone" {
		t.Errorf("afterwards it is %s", got)
	}
}
