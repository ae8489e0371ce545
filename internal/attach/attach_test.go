package attach_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/attach"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dialout"
	"github.com/berthml/berth/internal/driver/fake"
	"github.com/berthml/berth/internal/driver/provided"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

var space = berth.Workspace{Subscription: "s", Group: "g", Name: "w"}

// fixture is a gate over a real store, behind TLS, with one compute that a machine may join.
type fixture struct {
	t     *testing.T
	dir   string
	db    *store.DB
	gate  atomic.Pointer[attach.Gate]
	srv   *httptest.Server
	token string
	keys  *auth.Keys
}

func build(t *testing.T) *fixture {
	t.Helper()
	return behind(t, auth.NewDoor(0))
}

func behind(t *testing.T, door *auth.Door) *fixture {
	t.Helper()
	p := &fixture{t: t, dir: t.TempDir()}
	var err error
	if p.db, err = store.Open(t.Context(), "sqlite:"+filepath.Join(p.dir, "db"), store.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.db.Close() })
	err = p.db.Update(t.Context(), func(tx *store.Tx) error {
		if err := tx.Insert(&store.Doc{Kind: "workspaces", Name: space.Key(), Body: []byte(`{}`)}); err != nil {
			return err
		}
		st := berth.ComputeState{}
		p.token = attach.Issue(&st)
		own, err := json.Marshal(st)
		if err != nil {
			return err
		}
		for name, body := range map[string]string{
			"laptop": `{"properties":{"computeType":"VirtualMachine","properties":{"connection":"agent"}}}`,
			"plain":  `{"properties":{"computeType":"AmlCompute"}}`,
			"made":   `{"tags":{"berth.provider":"site"},"properties":{"computeType":"AmlCompute"}}`,
		} {
			if err := tx.Insert(&store.Doc{Workspace: space.Key(), Kind: "computes", Name: name, Body: []byte(body), Own: own}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p.gate.Store(p.open())
	keys, err := auth.LoadKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p.keys = keys
	mux := http.NewServeMux()
	mux.HandleFunc(attach.Pattern, func(w http.ResponseWriter, r *http.Request) {
		agent, err := attach.Authenticate(r, p.db, p.keys, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if err == nil {
			err = p.gate.Load().Connect(w, r, agent)
		}
		if err != nil {
			w.WriteHeader(berth.CodeOf(err).HTTPStatus())
			json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": err.Error()}})
		}
	})
	p.srv = httptest.NewUnstartedServer(mux)
	p.srv.Listener, p.srv.Config.ConnContext = door.Listen(p.srv.Listener), door.ConnContext
	p.srv.StartTLS()
	t.Cleanup(func() { p.srv.Close() })
	t.Cleanup(func() { p.gate.Load().Close() })
	return p
}

// open makes the gate as a server does that has just begun.
func (p *fixture) open() *attach.Gate {
	p.t.Helper()
	log := slog.New(slog.NewTextHandler(p.t.Output(), nil))
	types := func(name string) (driver.Type, bool) {
		if name == driver.Provided {
			return driver.Type{Open: provided.Open}, true
		}
		return driver.Type{Open: dialout.Open}, name == "agent"
	}
	targets := driver.NewRegistry(types, func(string) driver.Config { return driver.Config{} }, log)
	g, err := attach.NewGate(p.t.Context(), p.db, targets, log)
	if err != nil {
		p.t.Fatal(err)
	}
	return g
}

// agent runs an agent of a machine; its end comes from the channel.
func (p *fixture) agent(ctx context.Context, id, compute, token string) <-chan error {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.srv.Certificate().Raw})
	a := &dialout.Agent{
		ID: id, Host: "host-of-" + id, Log: slog.New(slog.DiscardHandler), Driver: fake.New(fake.Options{Nodes: fake.Machine(3)}), LastPause: 50 * time.Millisecond,
		Join: dialout.Join{Server: p.srv.URL, Workspace: space, Compute: compute, Token: token, CA: string(ca)},
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return ended
}

func (p *fixture) state() *berth.AttachedState {
	p.t.Helper()
	var st berth.ComputeState
	err := p.db.View(p.t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(space.Key(), "computes", "laptop", "")
		if err != nil {
			return err
		}
		return json.Unmarshal(d.Own, &st)
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return st.Attached
}

// until waits until the state is as it should be.
func (p *fixture) until(what string, ok func(*berth.AttachedState) bool) *berth.AttachedState {
	p.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if a := p.state(); ok(a) {
			return a
		} else if time.Now().After(end) {
			p.t.Fatalf("%s: %+v", what, a)
		}
	}
}

func connected(a *berth.AttachedState) bool { return a.Connected }
func away(a *berth.AttachedState) bool      { return !a.Connected }

// TestStrangers: whoever is not the compute's agent learns nothing, whatever is wrong.
func TestStrangers(t *testing.T) {
	p := build(t)
	said := map[string]bool{}
	for _, x := range []struct{ compute, token string }{
		{"laptop", "bertha_wrong"}, {"laptop", ""}, {"nothing", p.token}, {"plain", p.token},
	} {
		err := <-p.agent(t.Context(), "m", x.compute, x.token)
		if berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%v: %v", x, err)
			continue
		}
		said[err.Error()] = true
	}
	if len(said) != 1 {
		t.Errorf("strangers are told apart: %v", said)
	}
	if a := p.state(); a.Machine != "" || a.Connected {
		t.Errorf("%+v", a)
	}
	res, err := p.srv.Client().Do(request(t, p, p.token)) // the right token, but no agent
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("a request that is not an agent's: %s", res.Status)
	}
}

func request(t *testing.T, p *fixture, token string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.srv.URL+dialout.Join{Workspace: space, Compute: "laptop"}.Path(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// TestAgentIsNoStranger: the connection of an agent stays where there is no room for more, and a
// stranger's goes.
func TestAgentIsNoStranger(t *testing.T) {
	p := behind(t, auth.NewDoor(1))
	p.agent(t.Context(), "m", "laptop", p.token)
	session := p.until("connected", connected).Session
	c, err := net.Dial("tcp", p.srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stranger is let in: %v", err)
	}
	if a := p.state(); !a.Connected || a.Session != session {
		t.Errorf("the agent was sent away: %+v", a)
	}
}

// TestSecret: the token itself is not in the database.
func TestSecret(t *testing.T) {
	p := build(t)
	p.agent(t.Context(), "m", "laptop", p.token)
	p.until("connected", connected)
	files, err := filepath.Glob(filepath.Join(p.dir, "db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(p.token)) {
			t.Errorf("%s has the token", filepath.Base(f))
		}
	}
}

// TestMachine follows one machine: it connects, says what it can do, goes and comes again; another
// one is refused; a server that begins again knows that nobody is connected; a new token lets
// another machine in and the first one not.
func TestMachine(t *testing.T) {
	p := build(t)
	ctx, stop := context.WithCancel(t.Context())
	first := p.agent(ctx, "m", "laptop", p.token)
	a := p.until("connected", connected)
	if a.Slots != 3 || a.CPUs != 4 || a.Host != "host-of-m" || a.Machine != "m" || !a.Distributed || a.MaxNodes != 1 || a.Away("laptop") != "" {
		t.Errorf("%+v", a)
	}
	if err := <-p.agent(t.Context(), "other", "laptop", p.token); berth.CodeOf(err) != berth.Conflict || !strings.Contains(err.Error(), "host-of-m") {
		t.Errorf("another machine: %v", err)
	}
	stop()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if a := p.until("away", away); a.Slots != 3 || !strings.Contains(a.Away("laptop"), "host-of-m has not been connected since") {
		t.Errorf("%+v", a)
	}

	// Two connections of one machine: the end of the first is not the end of the second.
	older := p.agent(t.Context(), "m", "laptop", p.token)
	one := p.until("connected again", connected).Session
	ctx, stop = context.WithCancel(t.Context())
	p.agent(ctx, "m", "laptop", p.token)
	p.until("connected by another", func(a *berth.AttachedState) bool { return a.Connected && a.Session != one })

	p.gate.Load().Close()
	stop()
	g := p.open()
	if a := p.state(); a.Connected || a.Why != "the server was restarted" {
		t.Errorf("after a restart: %+v", a)
	}
	p.gate.Store(g)
	p.until("connected to the new server", connected)

	p.gate.Load().Drop(p.reissue())
	if err := <-older; berth.CodeOf(err) != berth.Unauthenticated {
		t.Errorf("with the old token: %v", err)
	}
	p.agent(t.Context(), "other", "laptop", p.token)
	if a := p.until("the other machine", connected); a.Machine != "other" {
		t.Errorf("%+v", a)
	}
}

// reissue gives the compute a new token, as a server that was asked to does.
func (p *fixture) reissue() (d *store.Doc) {
	p.t.Helper()
	err := p.db.Update(p.t.Context(), func(tx *store.Tx) (err error) {
		if d, err = tx.Get(space.Key(), "computes", "laptop", ""); err != nil {
			return err
		}
		var st berth.ComputeState
		if err := json.Unmarshal(d.Own, &st); err != nil {
			return err
		}
		p.token = attach.Issue(&st)
		if d.Own, err = json.Marshal(st); err != nil {
			return err
		}
		tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "computes/" + d.Name, Type: berth.EventCompute})
		return tx.Save(d)
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// TestTokenAfterWatchFailed: a machine is let go when another server makes its token void, also
// when the events of its compute could not be read for a while.
func TestTokenAfterWatchFailed(t *testing.T) {
	p := build(t)
	failed := p.gate.Load().FailWatch(berth.Errorf(berth.Unavailable, "the database is away"))
	ended := p.agent(t.Context(), "m", "laptop", p.token)
	p.until("connected", connected)
	<-failed
	p.reissue()
	select {
	case err := <-ended:
		if berth.CodeOf(err) != berth.Unauthenticated {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it stays connected")
	}
}

// TestNodes: a node of a cluster whose nodes connect by themselves is let in by its own token, as
// long as it is wanted.
func TestNodes(t *testing.T) {
	p := build(t)
	put := func(name, compute string, state berth.NodeState) {
		t.Helper()
		err := p.db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := target.NewNode(berth.Node{Name: name, Workspace: space.Key(), Compute: compute, State: state, Provider: "site"})
			if err != nil {
				return err
			}
			return tx.Insert(d)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put("made-1", "made", berth.NodePreparing)
	put("made-2", "made", berth.NodeLeaving)
	put("other-1", "other", berth.NodeIdle)
	token := func(compute, node string) string { return p.keys.NodeToken(space.Key(), compute, node) }
	for _, x := range []struct{ node, compute, token string }{
		{"made-1", "made", ""},
		{"made-1", "made", token("made", "made-2")},
		{"made-1", "made", p.token},
		{"made-2", "made", token("made", "made-2")},
		{"made-3", "made", token("made", "made-3")},
		{"other-1", "made", token("made", "other-1")},
		{"made-1", "plain", token("plain", "made-1")},
		{"made-1", "laptop", token("laptop", "made-1")},
	} {
		if err := <-p.agent(t.Context(), x.node, x.compute, x.token); berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%+v: %v", x, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.srv.Certificate().Raw})
	there := make(chan struct{})
	a := &dialout.Agent{
		ID: "made-1", Host: "h", Log: slog.New(slog.DiscardHandler), Driver: fake.New(fake.Options{Nodes: fake.Machine(1)}), Connected: func() { close(there) },
		Join: dialout.Join{Server: p.srv.URL, Workspace: space, Compute: "made", Token: token("made", "made-1"), CA: string(ca)},
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	select {
	case <-there:
	case err := <-ended:
		t.Errorf("the node itself: %v", err)
	}
	cancel()
}
