package storage

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/webdav"
)

const webPassword = "pa ss/wört"

// webServer is a web server that speaks WebDAV below /files, to one user.
type webServer struct {
	dir, url string
	host     string
	password atomic.Value
	asked    atomic.Int64 // requests that were let in
	agents   atomic.Int64 // those that came from the server
}

func startWeb(t *testing.T) *webServer {
	t.Helper()
	w := &webServer{dir: t.TempDir()}
	w.password.Store(webPassword)
	dav := &webdav.Handler{Prefix: "/files", FileSystem: webdav.Dir(w.dir), LockSystem: webdav.NewMemLS()}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ann" || password != w.password.Load() {
			rw.Header().Set("WWW-Authenticate", `Basic realm="files"`)
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.asked.Add(1)
		if r.UserAgent() == "berth" {
			w.agents.Add(1)
		}
		rw.Header().Set("Set-Cookie", "session=secret")
		dav.ServeHTTP(rw, r)
	}))
	t.Cleanup(s.Close)
	w.host = strings.TrimPrefix(s.URL, "http://")
	w.url = s.URL + "/files/pub"
	return w
}

// allowed is the configuration of a server that sends requests there.
func (w *webServer) allowed() string { return "allow:\n  hosts: [\"" + w.host + "\"]\n" }

func (w *webServer) put(t *testing.T, name, text string) {
	t.Helper()
	p := filepath.Join(w.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func (w *webServer) get(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// TestWeb: jobs read from and write to a web server that wants a password, through the server,
// which alone knows it; to hosts that the operator has not listed, nothing is sent.
func TestWeb(t *testing.T) {
	w := startWeb(t)
	w.put(t, "pub/in/a.txt", "alpha\n")
	w.put(t, "pub/in/deep/b c+d.txt", "beta\n")
	w.put(t, "pub/in/large", strings.Repeat("0123456789abcdef", 5<<20)) // in pieces
	w.put(t, "secret", "no")
	y := begin(t, w.allowed())
	file := "type: http\nname: web\nurl: " + w.url + "\ncredentials: {username: ann, password: \"" + webPassword + "\"}\n"
	y.berth("datastore", "create", "--file", y.file("ds.yaml", file))
	if got := y.berth("datastore", "show", "-n", "web", "-o", "json"); strings.Contains(got, webPassword) || !strings.Contains(got, `"username": "ann"`) {
		t.Errorf("the datastore is shown as\n%s", got)
	}
	const reads = `
command: >-
  md5sum < ${{inputs.folder}}/large && cat ${{inputs.folder}}/a.txt "${{inputs.folder}}/deep/b c+d.txt" ${{inputs.file}} &&
  mkdir -p ${{outputs.o}}/sub/dir && echo written > "${{outputs.o}}/sub/dir/o p.txt" && echo one > ${{outputs.f}}
inputs:
  folder: {type: uri_folder, path: azureml://datastores/web/paths/in}
  file: {type: uri_file, path: "URL/in/a.txt", mode: download}
outputs:
  o: {type: uri_folder, path: azureml://datastores/web/paths/new/out}
  f: {type: uri_file, path: "URL/new/one.txt"}
`
	told := y.completed("reads", strings.ReplaceAll(reads, "URL", w.url))
	if !strings.Contains(told, "alpha\nbeta\nalpha\n") || !strings.Contains(told, "3bb7b51ec5cf0b98bd1af4b4c738483b ") {
		t.Errorf("the job saw\n%s", told)
	}
	if a, b := w.get(t, "pub/new/out/sub/dir/o p.txt"), w.get(t, "pub/new/one.txt"); a != "written\n" || b != "one\n" {
		t.Errorf("the job left %q and %q", a, b)
	}
	if all, ours := w.asked.Load(), w.agents.Load(); all == 0 || all != ours {
		t.Errorf("%d of %d requests came from the server", ours, all)
	}
	before := w.asked.Load()
	y.completed("again", "command: cat ${{inputs.i}}/a.txt\ninputs:\n  i: {type: uri_folder, path: azureml://datastores/web/paths/in}\n")
	if n := w.asked.Load() - before; n != 2 {
		t.Errorf("to see that nothing has changed takes %d requests", n)
	}

	w.password.Store("another")
	if status, told := y.job("revoked", strings.ReplaceAll(copies, "lake", "web")); status != "Failed" || !strings.Contains(told, "datastore web") || !strings.Contains(told, "rejects the credentials") {
		t.Errorf("%s:\n%s", status, told)
	}
	y.berth("datastore", "create", "--file", y.file("ds.yaml", strings.Replace(file, "http://127.0.0.1", "http://localhost", 1)))
	if status, told := y.job("unlisted", strings.ReplaceAll(copies, "lake", "web")); status != "Failed" || !strings.Contains(told, "allow: hosts:") {
		t.Errorf("%s:\n%s", status, told)
	}
}

// TestWebPages: a web server that lists its folders as pages of links, as most do, is read by
// whoever made a datastore of it.
func TestWebPages(t *testing.T) {
	w := startWeb(t)
	w.put(t, "pub/in/a.txt", "alpha\n")
	w.put(t, "pub/in/deep/b & c.txt", "beta\n")
	s := httptest.NewServer(http.FileServer(http.Dir(w.dir)))
	t.Cleanup(s.Close)
	y := begin(t, "").as("ann")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", "type: http\nname: web\nurl: "+s.URL+"\n"))
	told := y.completed("reads", strings.ReplaceAll(`
command: cat ${{inputs.folder}}/a.txt "${{inputs.folder}}/deep/b & c.txt" ${{inputs.streamed}}/a.txt
inputs:
  folder: {type: uri_folder, path: "URL/pub/in"}
  streamed: {type: uri_folder, path: azureml://datastores/web/paths/pub/in}
properties: {berth.stream: streamed, berth.environment: host}
`, "URL", s.URL))
	if !strings.Contains(told, "alpha\nbeta\nalpha\n") {
		t.Errorf("the job saw\n%s", told)
	}
	// One that sends no parts of files is not streamed from.
	whole := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		http.FileServer(http.Dir(w.dir)).ServeHTTP(rw, r)
	}))
	t.Cleanup(whole.Close)
	y.berth("datastore", "create", "--file", y.file("ds.yaml", "type: http\nname: whole\nurl: "+whole.URL+"\n"))
	told = y.completed("streams", "command: cat ${{inputs.i}}/a.txt\ninputs:\n  i: {type: uri_folder, path: azureml://datastores/whole/paths/pub/in}\nproperties: {berth.stream: i, berth.environment: host}\n")
	if !strings.Contains(told, "alpha\n") || !strings.Contains(told, "downloaded to the node and not streamed, since") {
		t.Errorf("the job saw\n%s", told)
	}
	if status, told := y.job("writes", "command: echo x > ${{outputs.o}}/x\noutputs:\n  o: {type: uri_folder, path: azureml://datastores/web/paths/out}\n"); status != "Failed" || !strings.Contains(told, "nor can the folder") {
		t.Errorf("%s:\n%s", status, told)
	}
}
