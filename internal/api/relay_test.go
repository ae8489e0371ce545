package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
)

// TestRelay: requests to a web server that wants a password go through the server, each by an
// address of its own that is good for this request, while the task, its user and the datastore are
// there. What the two servers say of themselves stays with them.
func TestRelay(t *testing.T) {
	x := open(t)
	x.token("ann", auth.User)
	var got *http.Request
	var sent []byte
	status := 200
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		sent, _ = io.ReadAll(r.Body)
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Location", "http://127.0.0.1/elsewhere")
		w.WriteHeader(status)
		_, _ = w.Write([]byte("text"))
	}))
	defer far.Close()
	make := func(url string) {
		t.Helper()
		x.do("PUT", x.ws+"/datastores/web", props("datastoreType", "Http", "url", url, "credentials", map[string]any{
			"credentialsType": "UsernamePassword", "username": "u", "secrets": map[string]any{"secretsType": "UsernamePassword", "password": "s3cret"},
		}))
	}
	make(far.URL + "/dav")
	x.saveTask(berth.TaskRunning)
	token := x.auth.Keys.TaskToken("j.1", time.Now().Add(time.Hour))
	grant := locate.Grant{Datastore: "web", Path: "in", User: "ann"}
	sign := func(g locate.Grant, do berth.OutsideVerb, name string) answer {
		t.Helper()
		return x.as(token, "POST", "/runner/v1/tasks/j.1/storage", map[string]any{
			"grant": x.storageGrant("j.1", g), "requests": []any{map[string]any{"do": do, "name": name}},
		})
	}
	address := func(do berth.OutsideVerb, name string) string {
		t.Helper()
		g := grant
		g.Write = do.Writes()
		u, _ := sign(g, do, name).want(200).at("urls.0").(string)
		path, ok := strings.CutPrefix(u, "https://127.0.0.1:8443")
		if !ok || strings.Contains(u, "s3cret") {
			t.Fatalf("%s is signed as %s", do, u)
		}
		return path
	}
	get := address(berth.OutsideGet, "a b")
	a := x.as("", "GET", get, nil, "Range", "bytes=1-2", "Cookie", "mine", "X-Forwarded-For", "9.9.9.9", "Authorization", "Bearer "+token).want(200)
	if user, password, _ := got.BasicAuth(); got.URL.Path != "/dav/in/a b" || user != "u" || password != "s3cret" || got.Header.Get("Range") != "bytes=1-2" {
		t.Errorf("%s as %s:%s, %v", got.URL, user, password, got.Header)
	}
	if got.Header.Get("Cookie") != "" || got.Header.Get("X-Forwarded-For") != "" {
		t.Errorf("passed on: %v", got.Header)
	}
	if a.header.Get("Set-Cookie") != "" || a.header.Get("Location") != "" || a.header.Get("ETag") != `"1"` || string(a.raw) != "text" ||
		a.header.Get("Content-Security-Policy") != "sandbox" || a.header.Get("Content-Disposition") != "attachment" {
		t.Errorf("answered: %v %s", a.header, a.raw)
	}
	if x.as("", "PUT", address(berth.OutsidePut, "o"), "written").want(200); got.Method != "PUT" || string(sent) != "written" {
		t.Errorf("%s %s", got.Method, sent)
	}
	if x.as("", "PROPFIND", address(berth.OutsideList, ""), "<x/>", "Depth", "1").want(200); got.URL.Path != "/dav/in/" || got.Header.Get("Depth") != "1" {
		t.Errorf("%s, %v", got.URL, got.Header)
	}

	got = nil
	for _, method := range []string{"PUT", "DELETE", "HEAD", "PROPFIND", "POST"} {
		x.as("", method, get, nil).want(403)
	}
	x.as("", "GET", strings.Replace(get, "j.1", "k.1", 1), nil).want(403)
	x.as("", "GET", get[:len(get)-1], nil).want(403)
	x.as("", "GET", "/runner/v1/tasks/j.1/relay/x", nil).want(403)
	sign(grant, berth.OutsidePut, "a").want(403)
	sign(grant, berth.OutsideGet, "../a").want(400)
	if err := x.auth.Revoke(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	x.as("", "GET", get, nil).want(410)
	x.token("ann", auth.User)
	if got != nil {
		t.Errorf("%s was sent on", got.URL)
	}
	for status = range slices.Values([]int{301, 307}) {
		x.as("", "GET", get, nil).want(400).says("redirection")
	}
	status = 401
	x.as("", "GET", get, nil).want(401)
	make("http://192.0.2.1/dav")
	sign(grant, berth.OutsideGet, "a").want(400).says("allow: hosts:")
	x.as("", "GET", get, nil).want(400).says("allow: hosts:")
	x.do("DELETE", x.ws+"/datastores/web", nil).want(200)
	x.as("", "GET", get, nil).want(404)
	x.saveTask(berth.TaskDone)
	x.as("", "GET", get, nil).want(410)
}
