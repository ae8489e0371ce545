package docker_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/docker"
)

func TestReference(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for _, c := range []struct{ in, name, tag, host string }{
		{"python", "python", "latest", "docker.io"},
		{"python:3.12-slim", "python", "3.12-slim", "docker.io"},
		{"library/python@" + digest, "library/python", digest, "docker.io"},
		{"python:3@" + digest, "python", digest, "docker.io"},
		{"mcr.microsoft.com/azureml/x:1", "mcr.microsoft.com/azureml/x", "1", "mcr.microsoft.com"},
		{"localhost/berth-env:ab", "localhost/berth-env", "ab", "localhost"},
		{"localhost:5000/a/b", "localhost:5000/a/b", "latest", "localhost:5000"},
		{"index.docker.io/a/b", "index.docker.io/a/b", "latest", "docker.io"},
		{"index.example.org/a/b", "index.example.org/a/b", "latest", "index.example.org"}, // whose logins are its own
		{digest, "sha256", strings.Repeat("a", 64), "docker.io"},
	} {
		r, err := docker.ParseReference(c.in)
		if err != nil || r.Name != c.name || r.Tag != c.tag || r.Host() != c.host {
			t.Errorf("%s: %+v from %s, %v", c.in, r, r.Host(), err)
		}
	}
	for _, s := range []string{"", "/", "a//b", "../containers", "a/../../x", "a b", "a?x=1", "a#b", "python:", "python@", "a\n", "a%2f..", "x:1/../y"} {
		if r, err := docker.ParseReference(s); err == nil {
			t.Errorf("%q is taken as %+v", s, r)
		}
	}
}

func TestCopy(t *testing.T) {
	frame := func(kind byte, s string) string {
		b := []byte{kind, 0, 0, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint32(b[4:], uint32(len(s)))
		return string(b) + s
	}
	var out bytes.Buffer
	if err := docker.Copy(&out, strings.NewReader(frame(1, "one ")+frame(2, "")+frame(2, "two"))); err != nil || out.String() != "one two" {
		t.Errorf("%q, %v", out.String(), err)
	}
	for name, s := range map[string]string{
		"cut in a head": "\x01\x00\x00", "cut in a frame": frame(1, "abc")[:9], "an unknown stream": frame(9, "x"), "an error": frame(3, "no disk"),
	} {
		if err := docker.Copy(&bytes.Buffer{}, strings.NewReader(s)); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}

// TestVersionOfTheAPI shows that an older engine is spoken to in its own version, and a newer one
// in ours.
func TestVersionOfTheAPI(t *testing.T) {
	for theirs, want := range map[string]string{"1.41": "/v1.41/version", "1.99": "/v1.44/version", "": "/v1.44/version"} {
		asked := ""
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.Path
			w.Header().Set("Api-Version", theirs)
			w.Write([]byte(`{"Version":"1"}`))
		})
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Version(t.Context()); err != nil || v.Version != "1" || asked != want {
			t.Errorf("an engine of %q was asked %s: %+v, %v", theirs, asked, v, err)
		}
	}
}

func TestErrors(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusConflict)
		w.Write([]byte(`{"message":"the name is taken"}`))
	})
	if _, err := c.Create(t.Context(), "x", docker.Config{}, docker.HostConfig{}); docker.Status(err) != http.StatusConflict || err.Error() != "the name is taken" {
		t.Errorf("%v", err)
	}
	away, err := docker.New("unix://"+filepath.Join(t.TempDir(), "none"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*docker.ConnectionError](away.Ping(t.Context())); !ok {
		t.Error("an engine that is away is not told apart")
	}
	for _, host := range []string{"", "here", "ssh://x", "unix://"} {
		if _, err := docker.New(host, nil); err == nil {
			t.Errorf("%q is an address", host)
		}
	}
}

// TestFailureInTheMiddle shows that a pull that fails after it began is a failure.
func TestFailureInTheMiddle(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"status":"Downloading","id":"a","progressDetail":{"current":1,"total":2}}` + "\n" + `{"errorDetail":{"message":"no space left"}}`))
	})
	var seen int64
	err := c.Pull(t.Context(), docker.Reference{Name: "a", Tag: "1"}, nil, func(m docker.Message) error { seen += m.Progress.Current; return nil })
	if err == nil || err.Error() != "no space left" || seen != 1 {
		t.Errorf("%d, %v", seen, err)
	}
}

func serve(t *testing.T, h http.HandlerFunc) *docker.Client {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	s.Start()
	t.Cleanup(s.Close)
	c, err := docker.New("unix://"+l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
