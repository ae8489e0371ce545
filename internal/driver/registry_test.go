package driver_test

import (
	"io"
	"regexp"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
)

// closing is a driver that says when it is let go.
type closing struct {
	*fake.Driver
	closed *int
}

func (c closing) Close() error { *c.closed++; return nil }

var _ io.Closer = closing{}

func TestRegistry(t *testing.T) {
	opened, closed := map[string]int{}, 0
	open := func(c driver.Config) (driver.Driver, error) {
		opened[c.Name]++
		return closing{fake.New(fake.Options{}), &closed}, nil
	}
	types := map[string]driver.Type{
		"local": {Open: open, Shared: "here"}, "amlcompute": {Open: open, Shared: "nodes"}, "computeinstance": {Open: open, Shared: "nodes"},
		"agent": {Open: open}, "site": {Open: open, Consent: "jobs run with the account of this server"},
	}
	dirs := map[string]bool{}
	r := driver.NewRegistry(func(n string) (driver.Type, bool) { t, ok := types[n]; return t, ok }, func(name string) driver.Config {
		dirs[name] = true
		return driver.Config{}
	}, nil)
	of := func(ws, name, body string) *driver.Target {
		t.Helper()
		x, err := r.Of(driver.Compute{Workspace: ws, Name: name, Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	const agent = `{"properties":{"computeType":"VirtualMachine","properties":{"connection":"Agent"}}}`
	if of("w", "local", `{}`) != of("v", "Local", `{"properties":{"computeType":"VirtualMachine"}}`) {
		t.Error("the machine itself is two targets")
	}
	if of("w", "a", `{"properties":{"computeType":"AmlCompute"}}`) != of("w", "b", `{"properties":{"computeType":"computeinstance"}}`) {
		t.Error("clusters and instances do not share their target")
	}
	laptop := of("w", "laptop", agent)
	if laptop != of("w", "LAPTOP", agent) || laptop == of("v", "laptop", agent) || laptop == of("w", "other", agent) {
		t.Error("a compute of its own target does not have one")
	}
	if len(dirs) != 5 || !dirs["here"] || !dirs["nodes"] || opened["laptop"] != 2 {
		t.Errorf("%v, %v", dirs, opened)
	}
	for body, code := range map[string]berth.Code{
		`{"properties":{"computeType":"Databricks"}}`: berth.Unsupported, `{"properties":{"computeType":"VirtualMachine"}}`: berth.Unsupported,
		`{"properties":3}`: berth.Invalid, `{"properties":{"computeType":"VirtualMachine","properties":{"connection":"pigeon"}}}`: berth.Unsupported, agent: "",
		// Nobody attaches the server's own machine or nodes under another name, or uses its account
		// elsewhere without the operator's word.
		`{"properties":{"computeType":"VirtualMachine","properties":{"connection":"local"}}}`: berth.Invalid, `{"properties":{"computeType":"Local"}}`: berth.Invalid,
		`{"properties":{"computeType":"VirtualMachine","properties":{"connection":"amlcompute"}}}`: berth.Invalid, `{"properties":{"computeType":"Site"}}`: berth.Denied,
	} {
		if err := r.Check(driver.Compute{Workspace: "w", Name: "x", Body: []byte(body)}, nil); berth.CodeOf(err) != code {
			t.Errorf("%s: %v", body, err)
		}
	}
	if closed != 1 {
		t.Errorf("a driver that was opened for a check: closed %d times", closed)
	}
	closed = 0
	if err := r.Forget("w", "Laptop"); err != nil || closed != 1 {
		t.Errorf("%v, %d closed", err, closed)
	}
	if of("w", "laptop", agent) == laptop {
		t.Error("a target that was forgotten is still used")
	}
	if err := r.Close(); err != nil || closed != 6 {
		t.Errorf("%v, %d closed", err, closed)
	}
	if _, err := r.Of(driver.Compute{Workspace: "w", Name: "laptop", Body: []byte(agent)}); berth.CodeOf(err) != berth.Unavailable {
		t.Error(err)
	}
}

// acceptor is a driver whose machine connects by itself, and which does no more than it has to.
type acceptor struct {
	driver.Driver
	driver.Acceptor
}

// TestCheckOfTypes: the server accepts a compute of a type that only a driver knows, but not one
// for which it would have to make nodes or wait for a machine, nor the change of one into another.
func TestCheckOfTypes(t *testing.T) {
	types := map[string]driver.Driver{
		"plain": struct{ driver.Driver }{fake.New(fake.Options{})}, "other": fake.New(fake.Options{}),
		"nodes": fake.New(fake.Options{Scales: true}), "waits": acceptor{}, "agent": acceptor{},
	}
	r := driver.NewRegistry(func(n string) (driver.Type, bool) {
		d, ok := types[n]
		return driver.Type{Open: func(driver.Config) (driver.Driver, error) { return d, nil }}, ok
	}, func(string) driver.Config { return driver.Config{} }, nil)
	const plain, other = `{"properties":{"computeType":"Plain"}}`, `{"properties":{"computeType":"Other"}}`
	const agent = `{"properties":{"computeType":"VirtualMachine","properties":{"connection":"agent"}}}`
	for _, c := range []struct {
		old, body string
		want      berth.Code
	}{
		{"", plain, ""},
		{"", other, ""},
		{"", agent, ""},
		{plain, plain, ""},
		{plain, other, berth.Conflict},
		{"", `{"properties":{"computeType":"Nodes"}}`, berth.Invalid},
		{"", `{"properties":{"computeType":"Waits"}}`, berth.Invalid},
	} {
		var old []byte
		if c.old != "" {
			old = []byte(c.old)
		}
		if err := r.Check(driver.Compute{Workspace: "w", Name: "x", Body: []byte(c.body)}, old); berth.CodeOf(err) != c.want {
			t.Errorf("%s after %s: %v, want %q", c.body, c.old, err, c.want)
		}
	}
}

func TestKey(t *testing.T) {
	a, b := driver.Key("server", "compute", "job.1"), driver.Key("server", "computejob", ".1")
	if a == b || a != driver.Key("server", "compute", "job.1") || !regexp.MustCompile(`^b-[a-z2-7]{32}$`).MatchString(a) {
		t.Errorf("%s, %s", a, b)
	}
}
