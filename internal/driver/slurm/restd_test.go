//go:build engines

package slurm_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/slurm"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
)

// openRestd is a driver that knows a cluster by slurmrestd only.
func openRestd(t *testing.T, c *slurmtest.Cluster, address string) *fixture {
	t.Helper()
	f := newFixture(t, c)
	b, err := json.Marshal(map[string]any{"properties": map[string]any{"computeType": "Slurm", "properties": map[string]any{
		"partition": "main", "restSettings": map[string]any{"address": address, "user": "root"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	f.document = string(b)
	f.access = &driver.Access{Properties: b, Secrets: map[string]string{slurm.RestToken: c.Token(t, 3600)}}
	f.reopen(t)
	return f
}

func TestRestdConformance(t *testing.T) {
	c := slurmtest.Start(t, 2, 16, slurmtest.Rest)
	address := c.Slurmrestd(t)
	drivertest.RunTogether(t, func(t *testing.T) drivertest.Fixture { return openRestd(t, c, address).contract() })
}

// TestRestd: a token expires while a task runs and another waits to be submitted, slurmrestd and
// the controller go away and come back, and nothing is lost.
func TestRestd(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := slurmtest.Start(t, 2, 16, slurmtest.Rest, slurmtest.Accounts, "MinJobAge=2")
	f := openRestd(t, c, c.Slurmrestd(t))
	first := f.launch(1, "sleep 5; echo one; exit 3")
	if _, err := f.d.Start(ctx, first); err != nil {
		t.Fatal(err)
	}
	connect := func(token string) error {
		f.access.Secrets[slurm.RestToken] = token
		_, err := f.d.(driver.Connector).Connect(ctx, *f.access)
		return err
	}
	short := c.Token(t, 3)
	if err := connect(short); err != nil {
		t.Fatal(err)
	}
	second := f.launch(2, "echo two")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		_, err := f.d.Observe(ctx)
		if err != nil {
			if berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "the token of root for Slurm has expired") {
				t.Fatalf("expired: %v", err)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the token does not expire")
		}
	}
	if _, err := f.d.Start(ctx, second); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "attach again with a new one") {
		t.Errorf("submitted with a token that has expired: %v", err)
	}
	if err := connect(short); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("connected with a token that has expired: %v", err)
	}
	if err := connect("wrong.token.x"); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "does not accept the token") {
		t.Errorf("connected with a token of nobody: %v", err)
	}
	if err := connect(c.Token(t, 3600)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.d.Start(ctx, second); err != nil {
		t.Fatal(err)
	}
	if o := drivertest.Wait(ctx, t, f.d, first.Task); o.Exit.Code != 3 {
		t.Errorf("exit %+v", o.Exit)
	}
	if o := drivertest.Wait(ctx, t, f.d, second.Task); !o.Exit.OK() || f.log(second) != "two\n" {
		t.Errorf("exit %+v, log %q", o.Exit, f.log(second))
	}
	third := f.launch(3, "sleep 3; exit 4")
	if _, err := f.d.Start(ctx, third); err != nil {
		t.Fatal(err)
	}
	f.Kill("slurmrestd")
	if _, err := f.d.Probe(ctx); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "slurmrestd does not answer") {
		t.Errorf("without slurmrestd: %v", err)
	}
	f.Saved(t, "berth task job-3.1")
	f.Kill("slurmctld")
	c.Slurmrestd(t)
	if _, err := f.d.Probe(ctx); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("without a controller: %v", err)
	}
	f.Controller(t)
	if o := drivertest.Wait(ctx, t, f.d, third.Task); o.Exit == nil || o.Exit.Code != 4 && o.Exit.Cause != "lost" && !strings.Contains(o.Exit.Reason, "accounts do not say") {
		t.Errorf("exit %+v", o.Exit)
	}
}
