//go:build unix

package ssh_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/ssh"
	"github.com/berthml/berth/internal/driver/ssh/sshtest"
)

// TestHostileMachine has machines that let the server in and then talk without end, or say nothing:
// connecting fails, and takes no more memory or time than it may.
func TestHostileMachine(t *testing.T) {
	for name, startup := range map[string]string{
		"lines without end": "while :; do echo noise; done; ",
		"one endless line":  "cat /dev/zero; ",
		"silence":           "exec sleep 1000; ",
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			f.sshd.Startup(startup)
			ctx := t.Context()
			if name == "silence" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			_, err := f.d.(driver.Connector).Connect(ctx, f.access())
			if berth.CodeOf(err) != berth.Unavailable {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestMuteMachine has machines that fall silent at each step of connecting to them: the server
// gives up by itself.
func TestMuteMachine(t *testing.T) {
	for _, step := range []string{sshtest.MuteHandshake, sshtest.MuteLogin, sshtest.MuteCommand, sshtest.MuteCopy, sshtest.MuteForward} {
		t.Run(step, func(t *testing.T) {
			f := openBare(t)
			ssh.SetPatience(f.d, 500*time.Millisecond)
			mute, access := f.sshd, f.access()
			if step == sshtest.MuteForward {
				mute = sshtest.Start(t, t.TempDir(), f.sshd.Client())
				access.Properties = f.properties(map[string]any{"jumpHosts": []string{"you@" + mute.Addr}})
			}
			mute.Mute(step)
			ended := make(chan error, 1)
			go func() {
				_, err := f.d.(driver.Connector).Connect(t.Context(), access)
				ended <- err
			}()
			select {
			case err := <-ended:
				if berth.CodeOf(err) != berth.Unavailable {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Error("it still waits")
				mute.Cut()
				<-ended
			}
		})
	}
}

// TestRelayedAndNotRead has tasks that open connections to the server and do not read what comes:
// the machine can be used all the same.
func TestRelayedAndNotRead(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := open(t)
	f.dial = func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			b := make([]byte, 64<<10)
			for { // until it is closed
				if _, err := there.Write(b); err != nil {
					return
				}
			}
		}()
		return here, nil
	}
	f.connect(t)
	port, err := os.ReadFile(filepath.Join(f.agent(t), "port"))
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		c, err := net.Dial("tcp", "127.0.0.1:"+string(port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 5 { // while what is held back grows
		l := f.launch(n, "sleep 0.2")
		if _, err := f.d.Start(ctx, l); err != nil {
			t.Fatal(err)
		}
		if o := drivertest.Wait(ctx, t, f.d, l.Task); o.Exit == nil || o.Exit.Code != 0 {
			t.Errorf("exit %+v", o.Exit)
		}
	}
}

// TestMoved has a document that would send a machine's key or password to another one.
func TestMoved(t *testing.T) {
	const doc = `{"properties":{"properties":{"address":"h","administratorAccount":{"username":"me"},"jumpHosts":["j"]},"description":"x"}}`
	for _, change := range [][2]string{{`"h"`, `"evil"`}, {`"me"`, `"root"`}, {`"j"`, `"evil"`}} {
		err := ssh.Check([]byte(doc), []byte(strings.Replace(doc, change[0], change[1], 1)))
		if berth.CodeOf(err) != berth.Conflict {
			t.Errorf("%v: %v", change, err)
		}
	}
	if err := ssh.Check([]byte(doc), []byte(strings.Replace(doc, `"x"`, `"y"`, 1))); err != nil {
		t.Error(err)
	}
}

// TestDocuments has documents of computes that cannot be connected to.
func TestDocuments(t *testing.T) {
	for _, c := range []struct{ doc, says string }{
		{`{"properties":{"properties":{"administratorAccount":{"username":"me"}}}}`, "address is required"},
		{`{"properties":{"properties":{"address":"h"}}}`, "username is required"},
		{`{"properties":{"properties":{"address":"me@h","administratorAccount":{"username":"me"}}}}`, "must be a host name"},
		{`{"properties":{"properties":{"address":"h","sshPort":70000,"administratorAccount":{"username":"me"}}}}`, "must be a port"},
		{`{"properties":{"properties":{"address":"h","jumpHosts":["a b"],"administratorAccount":{"username":"me"}}}}`, "USER@HOST:PORT"},
		{`{"properties":{"properties":{"address":5}}}`, "properties: "},
		{`{"properties":{"resourceId":"/subscriptions/s/virtualMachines/vm1","properties":{"administratorAccount":{"username":"me"}}}}`, ""},
	} {
		err := ssh.Check(nil, []byte(c.doc))
		if c.says == "" && err != nil || c.says != "" && (berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.doc, err)
		}
	}
}
