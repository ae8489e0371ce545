//go:build engines

package slurm_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/slurm"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
	"github.com/berthml/berth/internal/driver/ssh/sshtest"
)

// TestLoginNode uses a cluster whose commands work on a login node only. The connection is cut
// while a task runs: nothing is known until it is there again, and nothing is lost.
func TestLoginNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := slurmtest.Start(t, 2, 16)
	f := openOn(t, c)
	signer, key := sshtest.NewKey(t)
	sshd := sshtest.Start(t, t.TempDir(), signer.PublicKey())
	sshd.Startup("export SLURM_CONF=" + c.Conf + "; echo noise of the account; ")
	t.Setenv("SLURM_CONF", "/nowhere")
	host, port := sshd.HostPort()
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(map[string]any{"properties": map[string]any{"computeType": "Slurm", "properties": map[string]any{
		"address": host, "sshPort": n, "administratorAccount": map[string]any{"username": "me"}, "partition": "main",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if slurm.AsServer(document) || !slurm.AsServer([]byte(`{"properties":{"computeType":"Slurm"}}`)) {
		t.Error("only without a login node jobs run with the account of the server")
	}
	other := []byte(strings.Replace(string(document), host, "10.0.0.1", 1))
	if err := slurm.Check(document, other); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("another login node: %v", err)
	}
	d, err := slurm.Open(driver.Config{Name: "site", Dir: t.TempDir(), Properties: document, Home: os.TempDir(), Program: programHash})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(io.Closer).Close() })
	if _, err := d.Observe(ctx); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("before it is connected: %v", err)
	}
	access := driver.Access{Properties: document, Secrets: map[string]string{"properties.administratorAccount.privateKeyData": key}}
	conn, err := d.(driver.Connector).Connect(ctx, access)
	if err != nil {
		t.Fatal(err)
	}
	if len(conn.HostKeys) != 1 || conn.Host != "berthtest" {
		t.Errorf("connection %+v", conn)
	}
	l := f.launch(1, "echo x; sleep 1; exit 3")
	if _, err := d.Start(ctx, l); err != nil {
		t.Fatal(err)
	}
	sshd.Cut()
	if err := <-conn.Ended; berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("the connection ended with %v", err)
	}
	if all, err := d.Observe(ctx); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("without a connection: %v, %v", all, err)
	}
	access.HostKeys = conn.HostKeys
	if conn, err = d.(driver.Connector).Connect(ctx, access); err != nil {
		t.Fatal(err)
	}
	if o := drivertest.Wait(ctx, t, d, l.Task); o.Exit.Code != 3 {
		t.Errorf("exit %+v", o.Exit)
	}
	if got := f.log(l); got != "x\n" {
		t.Errorf("log %q", got)
	}
	sshd.NewHostKey(t)
	sshd.Cut()
	<-conn.Ended
	if _, err := d.(driver.Connector).Connect(ctx, access); berth.CodeOf(err) != berth.Denied || !strings.Contains(err.Error(), "HOST KEY") {
		t.Errorf("with another host key: %v", err)
	}
}
