package devbox_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/devbox"
)

func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.made("Box", map[string]any{"setupScripts": map[string]any{"scripts": map[string]any{"creationScript": map[string]any{"scriptSource": "inline", "scriptData": "aGk="}}}})
		if got := p.op("put", "box"); got != "InProgress" {
			t.Errorf("the creation is %s", got)
		}
		p.reaches("box", "Running")
		if got := p.op("put", "box"); got != "Succeeded" {
			t.Errorf("the creation is %s", got)
		}
		v, _ := p.show("box")
		if v.Properties.ProvisioningState != "Succeeded" || len(v.Properties.Properties.Applications) != 1 ||
			!strings.HasSuffix(v.Properties.Properties.Applications[0].EndpointURI, "/berth/instances/s/g/w/box/jupyter/lab") {
			t.Errorf("%+v", v)
		}
		file := filepath.Join(devbox.Dir(p.dir, space.Key(), "box"), "home", "notes")
		if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		first := v.Properties.Berth.Node
		for _, step := range []struct {
			verb, state string
			body        any
		}{
			{"stop", "Stopped", nil},
			{"start", "Running", nil},
			{"restart", "Running", nil},
			{"resize", "Running", map[string]string{"targetVMSize": "Standard_DS2_v2"}},
		} {
			p.action("box", step.verb, step.body)
			if got := p.op(step.verb, "box"); got != "InProgress" && step.verb != "stop" { // which may take no time at all
				t.Errorf("%s is %s at once", step.verb, got)
			}
			p.until(step.verb, func() bool { return p.op(step.verb, "box") == "Succeeded" })
			if got := p.state("box"); got != step.state {
				t.Errorf("after %s it is %s", step.verb, got)
			}
		}
		v, _ = p.show("box")
		if v.Properties.Properties.VMSize != "Standard_DS2_v2" || v.Properties.Berth.Node == first {
			t.Errorf("resized to %s on node %s", v.Properties.Properties.VMSize, v.Properties.Berth.Node)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
			t.Errorf("the home lost a file: %q %v", b, err)
		}
		runs := p.of("box").runs()
		if len(runs) != 4 || runs[0].Creation == nil || runs[1].Creation != nil {
			t.Errorf("the creation script ran not once, or the agent started %d times", len(runs))
		}
		machine, records := p.nodes()
		if len(machine) != 1 || len(records) != 1 || machine[0] != records[0] {
			t.Errorf("nodes %v, records %v", machine, records)
		}
		want := []string{"Creating", "SettingUp", "Running", "Stopping", "Stopped", "Starting", "SettingUp", "Running", "Restarting", "Running"}
		if got := p.states("Box"); len(got) < len(want) || cmp.Diff(want, got[:len(want)]) != "" {
			t.Errorf("states: %v", got)
		}
		if code, b := p.do("DELETE", p.ws+"/computes/box", nil); code != http.StatusAccepted {
			t.Fatalf("%d %s", code, b)
		}
		if got := p.state("box"); got != "Deleting" {
			t.Errorf("it is %s", got)
		}
		p.reaches("box", "gone")
		if machine, records := p.nodes(); len(machine)+len(records) > 0 {
			t.Errorf("left: nodes %v, records %v", machine, records)
		}
		if _, err := os.Stat(filepath.Dir(filepath.Dir(file))); !os.IsNotExist(err) {
			t.Errorf("its directory is left: %v", err)
		}
		if got := p.op("delete", "box"); got != "Succeeded" {
			t.Errorf("the deletion is %s", got)
		}
	})
}

// TestKilled ends the loop at every moment of a start, a stop and a deletion: the next one makes it
// so, once.
func TestKilled(t *testing.T) {
	for _, c := range []struct{ verb, end string }{{"start", "Running"}, {"stop", "Stopped"}, {"restart", "Running"}, {"delete", "gone"}} {
		for at := time.Duration(0); at <= 15*time.Second; at += 2500 * time.Millisecond {
			t.Run(fmt.Sprintf("%s/%s", c.verb, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := build(t)
					p.made("box", nil)
					p.reaches("box", "Running")
					if c.verb == "start" {
						p.action("box", "stop", nil)
						p.reaches("box", "Stopped")
					}
					if c.verb == "delete" {
						p.do("DELETE", p.ws+"/computes/box", nil)
					} else {
						p.action("box", c.verb, nil)
					}
					time.Sleep(at)
					p.stop()
					time.Sleep(time.Minute)
					p.run()
					p.until(c.verb, func() bool { return p.state("box") == c.end && p.op(c.verb, "box") == "Succeeded" })
					time.Sleep(time.Minute)
					if got := p.state("box"); got != c.end {
						t.Errorf("later it is %s", got)
					}
					machine, records := p.nodes()
					want := map[string]int{"Running": 1}[c.end]
					if len(machine) != want || len(records) != want {
						t.Errorf("nodes %v, records %v", machine, records)
					}
				})
			})
		}
	}
}

func TestSetupFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.of("box").be(func(b *box) { b.fails = "the creation script failed: exit status 3" })
		p.made("box", nil)
		p.reaches("box", "SetupFailed")
		v, _ := p.show("box")
		if len(v.Properties.Properties.Errors) != 1 || !strings.Contains(v.Properties.Properties.Errors[0].Error.Message, "exit status 3\nits last line") {
			t.Errorf("%+v", v.Properties.Properties.Errors)
		}
		if got := p.op("put", "box"); !strings.HasPrefix(got, "Failed") || !strings.Contains(got, "exit status 3") {
			t.Errorf("the creation: %s", got)
		}
		if v.Properties.ProvisioningState != "Failed" {
			t.Errorf("provisioning state %s", v.Properties.ProvisioningState)
		}
		p.of("box").be(func(b *box) { b.fails = "" })
		p.action("box", "start", nil)
		p.until("start", func() bool { return p.op("start", "box") == "Succeeded" })
		v, _ = p.show("box")
		if v.Properties.Properties.State != "Running" || v.Properties.ProvisioningState != "Succeeded" || len(v.Properties.Properties.Errors) > 0 {
			t.Errorf("%+v", v)
		}
	})
}

func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		agent := p.of("box")
		agent.seen(devbox.Signal{Name: "kernels", Busy: true, Why: "a notebook kernel is busy (python3)"})
		p.made("box", map[string]any{"idleTimeBeforeShutdown": "PT10M"})
		p.reaches("box", "Running")
		time.Sleep(time.Hour)
		v, _ := p.show("box")
		if v.Properties.Properties.State != "Running" || !strings.Contains(v.Properties.Berth.Awake, "kernel is busy") {
			t.Fatalf("a busy instance: %+v", v)
		}
		if at := v.Properties.Berth.StopsAt; !at.IsZero() {
			t.Errorf("it is busy and says that it stops at %v", at)
		}
		for _, e := range p.events("box") {
			if e.Reason == "" {
				t.Errorf("%s says nothing", e.Type)
			}
		}
		agent.seen(devbox.Signal{Name: "gpu", Error: "nvidia-smi is gone"})
		time.Sleep(time.Hour)
		if got := p.state("box"); got != "Running" {
			t.Fatalf("what cannot be seen counts as busy, and it is %s", got)
		}
		last := time.Now()
		agent.seen(devbox.Signal{Name: "ssh", Last: last, Why: "somebody was connected over ssh"})
		time.Sleep(9 * time.Minute)
		v, _ = p.show("box")
		if v.Properties.Properties.State != "Running" || v.Properties.Berth.StopsAt.Sub(last).Abs() < 10*time.Minute-time.Second {
			t.Fatalf("before its time: %+v at %v", v, last)
		}
		// The server is away when the time comes, and somebody works: nothing stops.
		p.stop()
		time.Sleep(time.Hour)
		agent.seen(devbox.Signal{Name: "ssh", Busy: true, Why: "somebody is connected over ssh"})
		p.run()
		time.Sleep(time.Minute)
		if got := p.state("box"); got != "Running" {
			t.Fatalf("a busy instance whose deadline passed while nobody looked is %s", got)
		}
		agent.seen(devbox.Signal{Name: "ssh", Last: time.Now(), Why: "somebody was connected over ssh"})
		p.reaches("box", "Stopped")
		v, _ = p.show("box")
		if op := v.Properties.Properties.LastOperation; op.Trigger != "IdleShutdown" || op.Name != "Stop" || op.Status != "Succeeded" {
			t.Errorf("%+v", op)
		}
		if !strings.Contains(v.Properties.Berth.Reason, "last activity: somebody was connected over ssh") {
			t.Errorf("reason: %s", v.Properties.Berth.Reason)
		}
		agent.be(func(b *box) {
			if b.stopped != 1 {
				t.Errorf("the agent was asked %d times to end", b.stopped)
			}
		})
	})
}

func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble's clock starts at midnight of a Saturday, UTC
		p := build(t)
		entry := func(action, expression string) map[string]any {
			return map[string]any{"action": action, "status": "Enabled", "triggerType": "Cron", "cron": map[string]any{"expression": expression}}
		}
		p.made("box", map[string]any{"schedules": map[string]any{"computeStartStop": []any{entry("stop", "0 18 * * *"), entry("start", "0 8 * * *")}}})
		p.reaches("box", "Running")
		at := func(day, hour, minute int) {
			time.Sleep(time.Until(time.Date(2000, 1, day, hour, minute, 0, 0, time.UTC)))
		}
		at(1, 17, 59)
		if got := p.state("box"); got != "Running" {
			t.Errorf("before 18:00 it is %s", got)
		}
		at(1, 18, 2)
		if v, _ := p.show("box"); v.Properties.Properties.State != "Stopped" || v.Properties.Properties.LastOperation.Trigger != "Schedule" {
			t.Errorf("after 18:00: %+v", v)
		}
		// Somebody starts it in the evening: the schedule that fired before does not stop it again.
		at(1, 20, 0)
		p.action("box", "start", nil)
		p.reaches("box", "Running")
		at(2, 7, 0)
		if got := p.state("box"); got != "Running" {
			t.Errorf("in the night it is %s", got)
		}
		// The server is away at 18:00, and makes up for it.
		at(2, 17, 0)
		p.stop()
		at(2, 19, 0)
		p.run()
		p.reaches("box", "Stopped")
		at(3, 8, 2)
		if got := p.state("box"); got != "Running" {
			t.Errorf("at 08:02 it is %s", got)
		}
	})
}

// TestKilledServices: an agent that is killed, a node that is killed and one that vanishes come
// back without anybody asking.
func TestKilledServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.made("box", nil)
		p.reaches("box", "Running")
		v, _ := p.show("box")
		node := v.Properties.Berth.Node
		for i, kill := range []func(){p.of("box").kill, func() { p.driver.KillNode(node) }, func() { p.driver.DropNode(node) }} {
			before := len(p.of("box").runs())
			kill()
			p.until("another agent", func() bool { return len(p.of("box").runs()) > before && p.of("box").there() })
			time.Sleep(time.Minute)
			if got := p.state("box"); got != "Running" {
				t.Errorf("%d: it is %s", i, got)
			}
			if machine, _ := p.nodes(); len(machine) != 1 || machine[0] != node {
				t.Errorf("%d: nodes %v", i, machine)
			}
		}
	})
}

// TestAgentThatCannotStay ends an instance whose agent ends again and again.
func TestAgentThatCannotStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.of("box").be(func(b *box) { b.deaf = true })
		over := make(chan struct{})
		defer close(over)
		go func() {
			for {
				select {
				case <-time.After(time.Second):
					p.of("box").kill()
				case <-over:
					return
				}
			}
		}()
		p.made("box", nil)
		p.reaches("box", "CreateFailed")
		if v, _ := p.show("box"); !strings.Contains(v.Properties.Berth.Reason, "agent ended 5 times in a row") {
			t.Errorf("%+v", v)
		}
		p.until("nothing is left", func() bool { machine, records := p.nodes(); return len(machine)+len(records) == 0 })
	})
}

func TestDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.made("box", nil)
		p.reaches("box", "Running")
		p.of("box").be(func(b *box) { b.disk = 950 }) // of 1000
		p.until("a warning", func() bool {
			v, _ := p.show("box")
			return slices.ContainsFunc(v.Properties.Berth.Warnings, func(w string) bool {
				return strings.Contains(w, "95 % full") && strings.Contains(w, "berth ssh box")
			})
		})
		warned := 0
		time.Sleep(time.Hour)
		for _, e := range p.events("box") {
			if e.Type == berth.EventWarning && strings.Contains(e.Reason, "full") {
				warned++
			}
		}
		if warned != 1 {
			t.Errorf("%d warnings", warned)
		}
	})
}

func TestUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.made("box", nil)
		p.reaches("box", "Running")
		for _, c := range []struct {
			user string
			role auth.Role
			want int
		}{{"bob", auth.User, http.StatusForbidden}, {"root", auth.Admin, http.StatusAccepted}} {
			if code, b := p.as(c.user, c.role, "POST", p.ws+"/computes/box/stop", nil); code != c.want {
				t.Errorf("stop by %s: %d %s", c.user, code, b)
			}
		}
		if code, b := p.as("bob", auth.User, "DELETE", p.ws+"/computes/box", nil); code != http.StatusForbidden {
			t.Errorf("deletion by bob: %d %s", code, b)
		}
		body := map[string]any{"properties": map[string]any{"computeType": "ComputeInstance", "properties": map[string]any{
			"vmSize": "Standard_DS3_v2", "personalComputeInstanceSettings": map[string]any{"assignedUser": map[string]any{"objectId": auth.ObjectID("bob"), "tenantId": "t"}},
		}}}
		if code, b := p.as("ann", auth.User, "PUT", p.ws+"/computes/other", body); code != http.StatusForbidden {
			t.Errorf("for somebody else, by a user: %d %s", code, b)
		}
		if code, b := p.as("root", auth.Admin, "PUT", p.ws+"/computes/other", body); code != http.StatusBadRequest {
			t.Errorf("for somebody nobody knows: %d %s", code, b)
		}
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		cron := func(expression string) map[string]any {
			return map[string]any{"schedules": map[string]any{"computeStartStop": []any{map[string]any{"action": "stop", "triggerType": "Cron", "cron": map[string]any{"expression": expression}}}}}
		}
		for want, inner := range map[string]map[string]any{
			"immediately": {"idleTimeBeforeShutdown": "PT0M"},
			"never fires": cron("0 0 31 2 *"),
			"no size":     {"vmSize": "Standard_Nothing"},
			"time zone":   {"schedules": map[string]any{"computeStartStop": []any{map[string]any{"action": "stop", "triggerType": "Cron", "cron": map[string]any{"expression": "0 0 * * *", "timeZone": "Nowhere"}}}}},
		} {
			if code, b := p.create("box", inner); code != http.StatusBadRequest || !strings.Contains(string(b), want) {
				t.Errorf("%v: %d %s, want %q", inner, code, b, want)
			}
		}
		p.made("box", nil)
		if code, b := p.create("box", map[string]any{"idleTimeBeforeShutdown": "PT15M"}); code != http.StatusOK {
			t.Errorf("another idle time: %d %s", code, b)
		}
		p.reaches("box", "Running")
		p.action("box", "stop", nil)
		p.reaches("box", "Stopped")
		if code, b := p.do("POST", p.ws+"/computes/box/restart", nil); code != http.StatusConflict {
			t.Errorf("restart of a stopped one: %d %s", code, b)
		}
		if code, b := p.create("box", map[string]any{"vmSize": "Standard_DS2_v2"}); code != http.StatusOK {
			t.Errorf("resize of a stopped one: %d %s", code, b)
		}
		if v, _ := p.show("box"); v.Properties.Properties.State != "Stopped" || p.op("put", "box") != "Succeeded" {
			t.Errorf("%+v", v)
		}
	})
}
