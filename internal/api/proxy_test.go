package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// box is an instance of ann's with an application that remembers what it was asked and echoes what
// an upgraded connection says.
type box struct {
	*house
	srv *httptest.Server
	ann string

	mu   sync.Mutex
	last *http.Request
}

const boxPath = "/berth/instances/sub/group/lab/box"

func openBox(t *testing.T) *box {
	t.Helper()
	x := &box{house: open(t)}
	app := httptest.NewServer(http.HandlerFunc(x.app))
	t.Cleanup(app.Close)
	x.h.(*api.Server).Instances = api.Instances{Dir: t.TempDir(), Dial: func(ctx context.Context, _, to string) (net.Conn, error) {
		if to == "down" {
			return nil, berth.Errorf(berth.Unavailable, "it is down")
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", app.Listener.Addr().String())
	}}
	x.ann = x.token("ann", auth.User)
	x.as(x.ann, "PUT", x.ws+"/computes/Box", map[string]any{"properties": map[string]any{
		"computeType": "ComputeInstance", "properties": map[string]any{"vmSize": "Standard_DS3_v2"},
	}}).want(201)
	x.state(berth.InstanceRunning)
	x.srv = httptest.NewServer(x.h)
	t.Cleanup(x.srv.Close)
	return x
}

// state is what the loop would write.
func (x *box) state(state string) {
	x.t.Helper()
	err := x.db.Update(x.t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(workspace.Key(), "computes", "box", "")
		if err != nil {
			return err
		}
		var st berth.ComputeState
		if err := json.Unmarshal(d.Own, &st); err != nil {
			return err
		}
		st.Instance.State = state
		st.Instance.Apps = []berth.InstanceApp{
			{Name: "jupyter", Title: "JupyterLab", Path: "/lab"},
			{Name: "RStudio", Title: "RStudio", Path: "/"},
			{Name: "down", Title: "down"},
			{Name: "broken", Title: "broken", Error: "there is no engine"},
		}
		d.Own, err = json.Marshal(st)
		if err != nil {
			return err
		}
		return tx.Save(d)
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *box) app(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	x.last = r.Clone(context.Background())
	x.mu.Unlock()
	if r.Header.Get("Upgrade") != "" {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, rw)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: "_xsrf", Value: "1", Path: "/", Domain: "example.org"})
	http.SetCookie(w, &http.Cookie{Name: "berth_instance", Value: "stolen"})
	if strings.HasSuffix(r.URL.Path, "/moved") {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusFound)
		return
	}
	_, _ = io.WriteString(w, "hello")
}

func (x *box) seen() *http.Request {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last
}

func TestProxyHidesCredentials(t *testing.T) {
	x := openBox(t)
	a := x.as(x.ann, "POST", boxPath+"/jupyter/api/x%2Fy?q=1", nil, "Cookie", "berth_instance=secret; theme=dark", "X-Mine", "1", "Connection", "X-Mine").want(200)
	r := x.seen()
	if r.Header.Get("Authorization") != "" || strings.Contains(r.Header.Get("Cookie"), "secret") || !strings.Contains(r.Header.Get("Cookie"), "theme=dark") {
		t.Errorf("the application was sent %v", r.Header)
	}
	if r.Header.Get("X-Mine") != "" {
		t.Error("a header of this hop went on")
	}
	if r.RequestURI != boxPath+"/jupyter/api/x%2Fy?q=1" || r.Header.Get("X-Forwarded-Prefix") != boxPath+"/jupyter" {
		t.Errorf("%s %v", r.RequestURI, r.Header)
	}
	for _, k := range (&http.Response{Header: a.header}).Cookies() {
		if k.Name == "berth_instance" || k.Path != boxPath+"/jupyter/" || k.Domain != "" {
			t.Errorf("a cookie of the application's: %+v", k)
		}
	}
	if string(a.raw) != "hello" {
		t.Errorf("%q", a.raw)
	}
	// Other applications believe to be at the root; names are compared without case.
	x.as(x.ann, "GET", "/berth/instances/SUB/group/Lab/BOX/rstudio/a/b", nil).want(200)
	if r := x.seen(); r.RequestURI != "/a/b" || r.Header.Get("X-Forwarded-Prefix") != boxPath+"/RStudio" {
		t.Errorf("%s %v", r.RequestURI, r.Header)
	}
	if a := x.as(x.ann, "GET", boxPath+"/rstudio/moved", nil).want(302); a.header.Get("Location") != boxPath+"/RStudio/elsewhere" {
		t.Errorf("moved to %s", a.header.Get("Location"))
	}
	if a := x.as(x.ann, "GET", boxPath+"/jupyter?x=1", nil).want(307); a.header.Get("Location") != boxPath+"/jupyter/?x=1" {
		t.Errorf("moved to %s", a.header.Get("Location"))
	}
}

func TestProxyRefuses(t *testing.T) {
	x := openBox(t)
	page := boxPath + "/jupyter/lab"
	for _, c := range []struct {
		name, token, path string
		want              int
	}{
		{"nobody", "", page, 401},
		{"somebody else", x.token("bob", auth.User), page, 403},
		{"a reader of the same name", x.token("ann-reads", auth.Reader), page, 403},
		{"a task", x.auth.Keys.TaskToken("t", time.Now().Add(time.Hour)), page, 403},
		{"an administrator", x.admin, page, 200},
		{"an application that is not there", x.ann, boxPath + "/nothing/", 404},
		{"one that does not run", x.ann, boxPath + "/broken/", 409},
		{"one that does not answer", x.ann, boxPath + "/down/", 503},
		{"an instance that is not there", x.ann, "/berth/instances/sub/group/lab/none/jupyter/", 404},
		{"a workspace that is not there", x.ann, "/berth/instances/sub/group/none/box/jupyter/", 404},
		{"ssh without a tunnel", x.ann, boxPath + "/ssh", 400},
		{"a path that climbs", x.ann, boxPath + "/jupyter/..%2f..%2fx", 404},
		{"a path that climbs openly", x.ann, boxPath + "/jupyter/../ssh", 404},
		{"half a path", x.ann, "/berth/instances/sub/group", 404},
	} {
		if a := x.as(c.token, "GET", c.path, nil); a.status != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, a.status, a.raw, c.want)
		}
	}
	x.state(berth.InstanceStopped)
	if a := x.as(x.ann, "GET", page, nil).want(409); !strings.Contains(string(a.raw), "berth compute start") {
		t.Errorf("%s", a.raw)
	}
}

// upgrade makes an upgraded connection and returns it after one round.
func (x *box) upgrade(token string) (net.Conn, *bufio.Reader) {
	x.t.Helper()
	conn, err := net.Dial("tcp", x.srv.Listener.Addr().String())
	if err != nil {
		x.t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET "+boxPath+"/jupyter/ws HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer "+token+"\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		x.t.Fatalf("%v %v", res, err)
	}
	_, _ = io.WriteString(conn, "ahoy\n")
	if line, err := r.ReadString('\n'); err != nil || line != "ahoy\n" {
		x.t.Fatalf("%q %v", line, err)
	}
	return conn, r
}

func TestProxyUpgrades(t *testing.T) {
	x := openBox(t)
	guest := x.admin
	conn, _ := x.upgrade(guest)
	conn.Close()
	if r := x.seen(); r.Header.Get("Authorization") != "" {
		t.Errorf("the application was sent %v", r.Header)
	}
	// A token that is revoked closes what it had open.
	second, err := x.auth.Create(t.Context(), auth.Token{Name: "ann2", User: "ann", Role: auth.User})
	if err != nil {
		t.Fatal(err)
	}
	conn, r := x.upgrade(second)
	defer conn.Close()
	x.do("DELETE", "/tokens/ann2", nil).want(204)
	if _, err := r.ReadByte(); err == nil {
		t.Error("the connection goes on without its token")
	}
}

func TestOpenLink(t *testing.T) {
	x := openBox(t)
	if a := x.as(x.token("bob", auth.User), "POST", x.ws+"/computes/box/open", nil); a.status != 403 {
		t.Errorf("bob: %d %s", a.status, a.raw)
	}
	link := x.as(x.ann, "POST", x.ws+"/computes/box/open", map[string]any{"app": "rstudio"}).want(200).at("url").(string)
	path, ok := strings.CutPrefix(link, "https://127.0.0.1:8443")
	if !ok || len(link) > 80 || len(path[strings.LastIndex(path, "/")+1:]) < 22 { // 128 bits
		t.Fatalf("%s", link)
	}
	x.as("", "HEAD", path, nil).want(405) // which does not use it up
	a := x.as("", "GET", path, nil).want(200)
	if !strings.Contains(string(a.raw), boxPath+"/RStudio/") {
		t.Errorf("%s", a.raw)
	}
	cookie := (&http.Response{Header: a.header}).Cookies()[0]
	if cookie.Path != boxPath+"/" || !cookie.HttpOnly || !cookie.Secure {
		t.Errorf("%+v", cookie)
	}
	x.as("", "GET", boxPath+"/rstudio/x", nil, "Cookie", cookie.Name+"="+cookie.Value).want(200)
	x.as("", "GET", path, nil).want(401)                                                                                    // once
	x.as("", "GET", path[:len(path)-1], nil).want(401)                                                                      // not ours
	x.as("", "GET", boxPath+"/rstudio/x", nil, "Cookie", cookie.Name+"="+cookie.Value[1:]).want(401)                        // not ours
	x.as("", "GET", "/berth/instances/sub/group/lab/other/jupyter/", nil, "Cookie", cookie.Name+"="+cookie.Value).want(401) // for another
	x.as("", "GET", boxPath+"/rstudio/x", nil, "Cookie", cookie.Name+"="+cookie.Value, "Origin", "https://evil.example").want(403)
	for site, status := range map[string]int{"none": 200, "same-origin": 200, "same-site": 403, "cross-site": 403, "odd": 403} {
		for _, mode := range []string{"navigate", "no-cors", "websocket"} {
			x.as("", "GET", boxPath+"/rstudio/x", nil, "Cookie", cookie.Name+"="+cookie.Value, "Sec-Fetch-Site", site, "Sec-Fetch-Mode", mode).want(status)
		}
	}
	x.do("DELETE", "/tokens/ann", nil).want(204)
	x.as("", "GET", boxPath+"/rstudio/x", nil, "Cookie", cookie.Name+"="+cookie.Value).want(401) // its token is gone
}
