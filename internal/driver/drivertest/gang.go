package drivertest

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// Gang makes the launches of a job of several nodes, one for each command.
func (f Fixture) Gang(commands ...string) []berth.Launch {
	all := make([]berth.Launch, len(commands))
	for i, command := range commands {
		if i == 0 {
			all[0] = f.Launch(command)
		} else {
			all[i] = all[0]
			all[i].Task += berth.TaskID("-" + strconv.Itoa(i))
			all[i].Command = command
			if all[i].LogFile != "" {
				all[i].LogFile += "-" + strconv.Itoa(i)
			}
		}
		name := "user_logs/std_log_process_" + strconv.Itoa(i) + ".txt"
		all[i].Log = name
		all[i].Group = &berth.Group{
			Node: i, Nodes: make([]berth.Peer, len(commands)), Port: 29500, Secret: "secret", World: len(commands),
			Processes: []berth.Process{{Rank: i, Log: name, LogFile: all[i].LogFile}},
		}
		for k := range all[i].Group.Nodes {
			all[i].Group.Nodes[k].Slots = 1
		}
	}
	return all
}

// gangs checks the optional interface Ganger, where the target has it.
func gangs(t *testing.T, ctx context.Context, f Fixture) {
	info, err := f.Driver.Probe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !info.Gangs {
		t.Skip("the target does not start gangs")
	}
	if !info.Distributed || info.MaxNodes < 2 {
		t.Errorf("a target that starts gangs says Distributed is %v and MaxNodes is %d", info.Distributed, info.MaxNodes)
	}
	gangTwice(t, ctx, f)
	gangFails(t, ctx, f)
	gangStops(t, ctx, f)
	if all, err := f.Driver.Observe(ctx); err != nil || len(all) != 0 {
		t.Errorf("Observe after all were removed: %v, %v", all, err)
	}
}

func startGang(ctx context.Context, t *testing.T, f Fixture, all []berth.Launch) []driver.Handle {
	t.Helper()
	hs, err := f.Driver.(driver.Ganger).StartGang(ctx, all)
	if err != nil || len(hs) != len(all) {
		t.Fatalf("StartGang: %v, %v", hs, err)
	}
	return hs
}

func removeAll(ctx context.Context, t *testing.T, f Fixture, hs []driver.Handle) {
	t.Helper()
	for _, h := range append(hs, hs...) {
		if err := f.Driver.Remove(ctx, h); err != nil {
			t.Errorf("Remove: %v", err)
		}
	}
}

// gangTwice: each task of a gang runs once, on a handle of its own.
func gangTwice(t *testing.T, ctx context.Context, f Fixture) {
	t.Helper()
	all := f.Gang("echo x", "echo x")
	hs := startGang(ctx, t, f, all)
	if again := startGang(ctx, t, f, all); !slices.Equal(hs, again) || hs[0] == hs[1] {
		t.Errorf("handles %q and %q", hs, again)
	}
	for i, l := range all {
		o := Wait(ctx, t, f.Driver, l.Task)
		if !o.Exit.OK() || o.Handle != hs[i] {
			t.Errorf("task %d: %+v, exit %+v", i, o, o.Exit)
		}
		once(t, f, l)
	}
	if again := startGang(ctx, t, f, all); !slices.Equal(hs, again) {
		t.Errorf("handles %q and %q", hs, again)
	}
	removeAll(ctx, t, f, hs)
}

// gangFails: a task that fails is seen to have, and the other one is stopped for that.
func gangFails(t *testing.T, ctx context.Context, f Fixture) {
	t.Helper()
	all := f.Gang("sleep 600", "exit 3")
	hs := startGang(ctx, t, f, all)
	until(ctx, t, f.Driver, all[1].Task, func(o driver.Observed) bool { return o.State != berth.TaskPlaced })
	if err := f.Driver.Stop(ctx, hs[0], driver.Stop{Grace: limit, Cause: "peer", Why: "process 1 ended with exit code 3"}); err != nil {
		t.Fatal(err)
	}
	if o := Wait(ctx, t, f.Driver, all[0].Task); o.Exit == nil || o.Exit.Cause != "peer" || o.Exit.Reason == "" {
		t.Errorf("the task whose peer failed: exit %+v", o.Exit)
	}
	if o := Wait(ctx, t, f.Driver, all[1].Task); o.Exit.OK() {
		t.Errorf("the task that failed: exit %+v", o.Exit)
	}
	removeAll(ctx, t, f, hs)
}

// gangStops: all tasks of a gang end when all are stopped, and none can be removed before.
func gangStops(t *testing.T, ctx context.Context, f Fixture) {
	t.Helper()
	all := f.Gang("sleep 600", "sleep 600")
	hs := startGang(ctx, t, f, all)
	until(ctx, t, f.Driver, all[1].Task, func(o driver.Observed) bool { return o.State == berth.TaskRunning })
	if err := f.Driver.Remove(ctx, hs[1]); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("removing a running task: %v, want conflict", err)
	}
	for _, h := range hs {
		if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: limit}); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range all {
		if o := Wait(ctx, t, f.Driver, l.Task); o.Exit == nil || o.Exit.Cause != "canceled" {
			t.Errorf("%s: exit %+v", l.Task, o.Exit)
		}
	}
	removeAll(ctx, t, f, hs)
}
