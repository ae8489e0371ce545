package app_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/app"
	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
	"github.com/berthml/berth/internal/driver/local"
)

// TestNewComputeType: a compute of a type that only a driver knows runs jobs, although its driver
// does no more than every driver has to. One that could not work is refused.
func TestNewComputeType(t *testing.T) {
	home := shortHome(t)
	toy := func(c driver.Config) (driver.Driver, error) {
		c.Dir = filepath.Join(home, "toy")
		d, err := local.Open(c)
		return struct{ driver.Driver }{d}, err // without what else the driver of this machine can do
	}
	nodes := func(driver.Config) (driver.Driver, error) { return fake.New(fake.Options{Scales: true}), nil }
	t.Cleanup(func() {
		if err := local.StopIdle(context.Background(), filepath.Join(home, "toy")); err != nil {
			t.Errorf("the toy's runner host stays: %v", err)
		}
	})
	s := startAs(t, config.Default(home), func(a *app.App) {
		a.AddDriver("toy", driver.Type{Open: toy})
		a.AddDriver("nodes", driver.Type{Open: nodes})
	})
	put := func(name, computeType string) (int, map[string]any) {
		return s.do("PUT", s.ws+"/computes/"+name, map[string]any{"location": "here", "properties": map[string]any{"computeType": computeType}})
	}
	if code, m := put("box", "Toy"); code != http.StatusCreated {
		t.Fatal(code, m)
	}
	if code, m := put("many", "Nodes"); code != http.StatusBadRequest || !strings.Contains(fmt.Sprint(m), "makes nodes") {
		t.Errorf("one that makes nodes: %d %v", code, m)
	}
	if code, m := put("none", "Unheard"); code/100 != 4 || !strings.Contains(fmt.Sprint(m), "Unheard") {
		t.Errorf("one without a driver: %d %v", code, m)
	}
	s.submitTo("box", "hello", "echo hello")
	if log, status := s.wait("hello"); log != "hello\n" || status != "Completed" {
		t.Errorf("log %q, status %v", log, status)
	}
	s.submitTo("box", "long", "echo begun; sleep 600")
	s.eventually("the task runs", func() bool {
		_, m := s.do("GET", s.ws+"/jobs/long/logs", nil)
		return m["raw"] == "begun\n"
	})
	if code, m := s.do("POST", s.ws+"/jobs/long/cancel", nil); code/100 != 2 {
		t.Fatal(code, m)
	}
	if _, status := s.wait("long"); status != "Canceled" {
		t.Errorf("status %v", status)
	}
	_, m := s.do("GET", s.ws+"/computes/box", nil)
	if p := m["properties"].(map[string]any); p["isAttachedCompute"] != true || p["berth"].(map[string]any)["connected"] != true {
		t.Errorf("%v", p)
	}
	if code, m := s.do("DELETE", s.ws+"/computes/box?underlyingResourceAction=Detach", nil); code/100 != 2 {
		t.Errorf("detach: %d %v", code, m)
	}
}

// TestComputeThatCannotBeOpened: a compute whose driver refuses it, as after a change of the
// server's settings, holds up nobody else, and can be detached.
func TestComputeThatCannotBeOpened(t *testing.T) {
	refused := false
	open := func(driver.Config) (driver.Driver, error) {
		if refused {
			return nil, berth.Errorf(berth.Denied, "not any more")
		}
		return fake.New(fake.Options{}), nil
	}
	home := shortHome(t)
	add := func(a *app.App) { a.AddDriver("toy", driver.Type{Open: open}) }
	s := startAs(t, config.Default(home), add)
	if code, m := s.do("PUT", s.ws+"/computes/box", map[string]any{"location": "here", "properties": map[string]any{"computeType": "Toy"}}); code != http.StatusCreated {
		t.Fatal(code, m)
	}
	s.stop()
	refused = true
	s = startAs(t, config.Default(home), add)
	s.submitTo("local", "hello", "echo hello")
	if log, status := s.wait("hello"); log != "hello\n" || status != "Completed" {
		t.Errorf("log %q, status %v", log, status)
	}
	if code, m := s.do("DELETE", s.ws+"/computes/box?underlyingResourceAction=Detach", nil); code/100 != 2 {
		t.Errorf("detach: %d %v", code, m)
	}
	s.eventually("it is gone", func() bool {
		code, _ := s.do("GET", s.ws+"/computes/box", nil)
		return code == http.StatusNotFound
	})
}
