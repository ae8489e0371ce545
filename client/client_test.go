package client_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

const workspace = "/subscriptions/s/resourceGroups/g/providers/" + berth.Provider + "/workspaces/w"

// open returns a client of a server with these handlers, by path below the workspace or from the
// root.
func open(t *testing.T, handlers map[string]http.HandlerFunc) *client.Client {
	t.Helper()
	srv := httptest.NewTLSServer(mux(handlers))
	t.Cleanup(srv.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(t.Context(), client.Config{
		URL: srv.URL, Token: "secret", CA: ca, Workspace: berth.Workspace{Subscription: "s", Group: "g", Name: "w"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// mux has handlers at their paths, which are below the workspace or begin with a slash.
func mux(handlers map[string]http.HandlerFunc) *http.ServeMux {
	m := http.NewServeMux()
	for pattern, h := range handlers {
		method, path, _ := strings.Cut(pattern, " ")
		if !strings.HasPrefix(path, "/") {
			path = workspace + "/" + path
		}
		m.HandleFunc(method+" "+path, h)
	}
	return m
}

func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) }
}

func TestErrorsCarryCodeAndMessage(t *testing.T) {
	c := open(t, map[string]http.HandlerFunc{"GET jobs/j": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"error":{"code":"ResourceNotFound","message":"there is no job j"}}`)
	}})
	_, err := c.Job(t.Context(), "j")
	if berth.CodeOf(err) != berth.NotFound || err.Error() != "there is no job j" {
		t.Errorf("got %v, %s", err, berth.CodeOf(err))
	}
}

// TestBlobErrorsCarryTheirMessage: the storage says what is wrong in XML, with lines for those who
// keep its log.
func TestBlobErrorsCarryTheirMessage(t *testing.T) {
	b := &blobs{}
	h := b.handlers()
	h["PUT /st.blob.berth/"] = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("x-ms-error-code", "InsufficientStorage")
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, xml.Header+"<Error><Code>InsufficientStorage</Code><Message>the disk is full\nRequestId:1\nTime:2</Message></Error>")
	}
	c := open(t, h)
	_, err := c.Data(t.Context(), "workspaceblobstore", &client.Upload{Folder: "f", Hash: "h", Files: []client.File{file(t, "a", []byte("x"))}})
	if berth.CodeOf(err) != berth.Unavailable || !strings.HasSuffix(err.Error(), "the disk is full") {
		t.Errorf("got %v", err)
	}
}

func TestUnavailableIsRetried(t *testing.T) {
	calls := 0
	c := open(t, map[string]http.HandlerFunc{"GET jobs/j": func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("Authorization %q", got)
		}
		if calls++; calls < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("ETag", `"42"`)
		io.WriteString(w, `{"name":"j","properties":{"status":"Running"}}`)
	}})
	j, err := c.Job(t.Context(), "j")
	if err != nil || j.Rev != 42 || j.Status() != berth.Running || calls != 3 {
		t.Errorf("got %+v after %d calls, %v", j, calls, err)
	}
}

func TestListFollowsPages(t *testing.T) {
	c := open(t, map[string]http.HandlerFunc{"GET jobs": func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("$skip"))
		next := ""
		if n < 2 {
			// The address is the server's own idea of itself; a tunnel has another.
			next = "https://elsewhere:1" + r.URL.Path + "?$skip=" + strconv.Itoa(n+1)
		}
		fmt.Fprintf(w, `{"value":[{"name":"j%d"}],"nextLink":%q}`, n, next)
	}})
	var names []string
	for j, err := range c.Jobs(t.Context(), client.JobQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, j.Name)
	}
	if !slices.Equal(names, []string{"j0", "j1", "j2"}) {
		t.Errorf("got %v", names)
	}
}

func TestSubmitNeverEdits(t *testing.T) {
	c := open(t, map[string]http.HandlerFunc{"PUT jobs/j": func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "*" {
			t.Error("a submit could change a job that exists")
		}
		w.Header().Set("ETag", `"7"`)
		w.WriteHeader(http.StatusCreated)
		io.Copy(w, r.Body)
	}})
	d, rev, err := c.Submit(t.Context(), "j", []byte(`{"name":"j"}`))
	if err != nil || rev != 7 || d.Name() != "j" {
		t.Errorf("got %v, %d, %v", d, rev, err)
	}
}

// A log that is cut off is taken up where it broke, and the job's end is believed only from its
// status.
func TestFollowResumesByOffset(t *testing.T) {
	log := []byte("one\ntwo\nthree\n")
	var mu sync.Mutex
	cut, away := 0, 0
	c := open(t, map[string]http.HandlerFunc{
		"GET jobs/j/logs": func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			at, _ := strconv.Atoi(r.URL.Query().Get("offset"))
			w.Header().Set("X-Berth-Offset", strconv.Itoa(at))
			end := min(len(log), at+5)
			w.Write(log[at:end])
			if cut++; cut%2 == 1 {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		},
		"GET jobs/j": func(w http.ResponseWriter, r *http.Request) {
			status := "Running"
			if cut >= 4 {
				status = "Failed"
			}
			fmt.Fprintf(w, `{"name":"j","properties":{"status":%q,"berth":{"exit":{"code":3}}}}`, status)
		},
	})
	var got bytes.Buffer
	j, err := c.Follow(t.Context(), "j", client.LogOptions{}, &got, func(error) { away++ })
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(log) || j.Status() != berth.Failed || j.State().Exit.Code != 3 || away == 0 {
		t.Errorf("got %q, %s, told %d times", got.String(), j.Status(), away)
	}
}

func TestLogReturnsTheWritersError(t *testing.T) {
	c := open(t, map[string]http.HandlerFunc{"GET jobs/j/logs": answer("text")})
	_, err := c.Log(t.Context(), "j", client.LogOptions{}, full{})
	if err != errFull {
		t.Errorf("got %v", err)
	}
}

type full struct{}

var errFull = fmt.Errorf("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWatchGoesOnAfterACut(t *testing.T) {
	calls := 0
	c := open(t, map[string]http.HandlerFunc{"GET events": func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("from"))
		calls++
		fmt.Fprintf(w, "id: %d\nevent: job.status\ndata: {\"rev\":%d,\"type\":\"job.status\",\"subject\":\"jobs/j\"}\n\n", from+1, from+1)
	}})
	var revs []berth.Rev
	done := fmt.Errorf("enough")
	err := c.Watch(t.Context(), "", 10, func(e berth.Event) error {
		if revs = append(revs, e.Rev); len(revs) == 3 {
			return done
		}
		return nil
	})
	if err != done || !slices.Equal(revs, []berth.Rev{11, 12, 13}) || calls != 3 {
		t.Errorf("got %v, %v, %d calls", err, revs, calls)
	}
}

// TestWatchIsRefused: who watches too many runs is told, unless one of the streams is the one that
// was lost a moment ago.
func TestWatchIsRefused(t *testing.T) {
	crowded := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "You watch 32 runs"}`)
	}
	calls := 0
	path := berth.Workspace{Subscription: "s", Group: "g", Name: "w"}.TrackingPath()
	c := open(t, map[string]http.HandlerFunc{"GET " + path + "/api/2.0/berth/metrics/stream": func(w http.ResponseWriter, r *http.Request) {
		switch calls++; {
		case r.URL.Query().Get("run_id") == "refused" || calls == 2:
			crowded(w)
		case calls == 1:
			fmt.Fprint(w, "data: {\"key\":\"loss\"}\n\n")
		default:
			fmt.Fprint(w, "event: ended\ndata: {\"status\":\"FINISHED\"}\n\n")
		}
	}})
	each := func(client.Point) error { return nil }
	if status, err := c.WatchMetrics(t.Context(), "lost", each); status != "FINISHED" || err != nil || calls != 3 {
		t.Errorf("%s, %v after %d requests", status, err, calls)
	}
	if _, err := c.WatchMetrics(t.Context(), "refused", each); berth.CodeOf(err) != berth.Limit || err.Error() != "You watch 32 runs" || calls != 4 {
		t.Errorf("%v after %d requests", err, calls)
	}
}

func TestOpenRefusesWhatCannotBeSafe(t *testing.T) {
	for _, cfg := range []client.Config{
		{URL: "http://server:1", Token: "x"}, {URL: "https://server:1"}, {URL: "server", Token: "x"}, {URL: "https://server:1", Token: "x", CA: "/nowhere"},
	} {
		if _, err := client.Open(context.Background(), cfg); err == nil || berth.CodeOf(err) == berth.Unavailable {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestNoServerIsUnavailable(t *testing.T) {
	_, err := client.Open(t.Context(), client.Config{Home: t.TempDir()})
	if berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "berth up") {
		t.Errorf("got %v", err)
	}
}

// TestDamagedServerFile: a file that a power failure cut is not a server, and starting one makes it
// good.
func TestDamagedServerFile(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", "junk"} {
		if err := os.WriteFile(filepath.Join(home, "run", "server.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := client.Dial(t.Context(), home)
		if err == nil || !client.NotRunning(err) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDefaultHome(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"BERTH_HOME": "/a"}, "/a"},
		{map[string]string{"HOME": "/u", "XDG_DATA_HOME": "/x"}, "/x/berth"},
		{map[string]string{"HOME": "/u"}, "/u/.local/share/berth"},
	} {
		c, err := client.FromEnv(func(k string) string { return tt.env[k] })
		if err != nil || (c.Home != tt.want && os.PathSeparator == '/' && !strings.Contains(c.Home, "Library")) {
			t.Errorf("%v: %s, %v", tt.env, c.Home, err)
		}
	}
}
