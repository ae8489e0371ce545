package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
)

// TestLoopback: the owner's browser opens an instance over plain HTTP on the machine itself, with a
// link that is good once. Nothing else is served there, and not to pages of others.
func TestLoopback(t *testing.T) {
	x := openBox(t)
	s := x.h.(*api.Server)
	const origin = "http://berth-1f.localhost:4711"
	s.Loopback = origin
	h := s.LoopbackHandler()
	ask := func(h http.Handler, method, at, body string, headers ...string) *http.Response {
		t.Helper()
		r := httptest.NewRequest(method, at, strings.NewReader(body)).WithContext(t.Context())
		for i := 0; i < len(headers); i += 2 {
			if headers[i] == "local" {
				r = r.WithContext(auth.With(r.Context(), auth.Principal{User: "ann", Role: auth.User, Token: "ann"}))
				continue
			}
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	link := func(body string, headers ...string) string {
		t.Helper()
		res := ask(x.h, "POST", x.ws+"/computes/box/open", body, headers...)
		var out struct{ URL string }
		if err := json.NewDecoder(res.Body).Decode(&out); err != nil || res.StatusCode != 200 {
			t.Fatal(res.Status, err)
		}
		return out.URL
	}
	if u := link("{}", "Authorization", "Bearer "+x.ann); !strings.HasPrefix(u, "https://") {
		t.Errorf("to somebody who may be elsewhere: %s", u)
	}
	if u := link(`{"https":true}`, "local", ""); !strings.HasPrefix(u, "https://") {
		t.Errorf("with https: %s", u)
	}
	u := link(`{"app":"rstudio"}`, "local", "")
	if !strings.HasPrefix(u, origin+"/berth/open/") {
		t.Fatal(u)
	}
	if res := ask(h, "GET", strings.Replace(u, "berth-1f.localhost:4711", "evil.example:4711", 1), ""); res.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("under another name: %s", res.Status)
	}
	res := ask(h, "GET", u, "")
	if res.StatusCode != 200 || len(res.Cookies()) != 1 {
		t.Fatal(res.Status)
	}
	cookie := res.Cookies()[0]
	if cookie.Secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != boxPath+"/" || cookie.Domain != "" {
		t.Errorf("%+v", cookie)
	}
	session := cookie.Name + "=" + cookie.Value
	for what, c := range map[string]struct {
		status int
		res    *http.Response
	}{
		"the link again":        {401, ask(h, "GET", u, "")},
		"the application":       {200, ask(h, "GET", origin+boxPath+"/rstudio/x", "", "Cookie", session)},
		"its own pages":         {200, ask(h, "GET", origin+boxPath+"/rstudio/x", "", "Cookie", session, "Origin", origin)},
		"pages of another port": {403, ask(h, "GET", origin+boxPath+"/rstudio/x", "", "Cookie", session, "Origin", "http://berth-1f.localhost:1")},
		"pages of the server":   {403, ask(h, "GET", origin+boxPath+"/rstudio/x", "", "Cookie", session, "Origin", "https://127.0.0.1:8443")},
		"no cookie":             {401, ask(h, "GET", origin+boxPath+"/rstudio/x", "")},
		"a token in clear":      {401, ask(h, "GET", origin+boxPath+"/rstudio/x", "", "Authorization", "Bearer "+x.ann)},
		"the API":               {404, ask(h, "GET", origin+x.ws+"/jobs", "", "Authorization", "Bearer "+x.ann)},
		"metrics":               {404, ask(h, "GET", origin+"/metrics", "", "Authorization", "Bearer "+x.ann)},
	} {
		if c.res.StatusCode != c.status {
			t.Errorf("%s: %s, want %d", what, c.res.Status, c.status)
		}
	}
	x.mu.Lock()
	if proto := x.last.Header.Get("X-Forwarded-Proto"); proto != "http" {
		t.Errorf("the application believes to be reached over %q", proto)
	}
	x.mu.Unlock()
}
