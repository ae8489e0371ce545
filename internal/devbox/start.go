package devbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/store"
)

var errStale = errors.New("the agent of an earlier start still answers")

func (k *keeper) dir() string { return Dir(k.l.o.Dir, k.key.workspace, k.key.name) }

// requestNode writes down the node that the instance should have. It is made after that, so that no
// crash can leave one nobody knows.
func (k *keeper) requestNode(ctx context.Context, v *view) (time.Duration, error) {
	var wait time.Duration
	err := k.change(ctx, v, func(tx *store.Tx, now *view) error {
		wait = 0
		n := &berth.Node{
			Name: nodeName(now.doc.Name), Workspace: k.key.workspace, Compute: now.doc.Name, Size: now.spec.Size, State: berth.NodePreparing,
			Why: "asked for", Slots: 1, User: now.it.User, Created: tx.Now(),
		}
		switch err := k.l.o.Admit(tx, n); berth.CodeOf(err) {
		case "":
		case berth.Unavailable:
			wait = 5 * time.Second
			now.it.Reason = "it waits for its node: " + err.Error()
			return nil
		default:
			now.fail(tx, "its node is not available: "+err.Error())
			return nil
		}
		now.it.Node, now.it.Made, now.it.Runs = n.Name, now.it.Attempt, 0
		now.it.Warnings, now.it.Apps, now.it.Errors = nil, nil, nil
		state := berth.InstanceStarting
		switch now.op() {
		case "Create":
			state = berth.InstanceCreating
		case "Restart":
			state = berth.InstanceRestarting
		}
		now.become(tx, state, "its node "+n.Name+" is being created")
		return now.saveNode(tx, n, true)
	})
	if err == nil && wait == 0 {
		err = errAgain
	}
	return wait, err
}

// nodeName is a name of its own, good for a file and a host.
func nodeName(instance string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(instance))
	return "ci-" + strings.Trim(name[:min(len(name), 24)], "-") + "-" + berth.NewGUID()[:8]
}

// fail ends the operation under way. What there is of the instance goes.
func (v *view) fail(tx *store.Tx, why string) {
	name := v.op()
	v.done(name + "Failed")
	v.it.Want, v.it.Errors = berth.InstanceStopped, []string{why}
	if name == "Create" {
		v.state.State, v.state.Error = "Failed", why
		v.become(tx, berth.InstanceCreateFailed, why)
		return
	}
	if v.it.Node == "" {
		v.become(tx, berth.InstanceStopped, why)
		return
	}
	v.become(tx, berth.InstanceStopping, why)
}

// reconcileRunning brings an instance up that has its node, and keeps it up.
func (k *keeper) reconcileRunning(ctx context.Context, v *view) (time.Duration, error) {
	if k.added != v.it.Node {
		if wait, err := k.addNode(ctx, v); err != nil || wait > 0 {
			return wait, err
		}
	}
	if v.it.Runs == 0 {
		return k.nextRun(ctx, v, "")
	}
	if k.started != v.it.Runs {
		if err := k.startAgent(ctx, v); err != nil {
			return 0, err
		}
	}
	if k.status == nil {
		if wait, err := k.missing(ctx, v); err != nil || !v.it.Up() {
			return wait, err
		}
		return k.watch(ctx, v)
	}
	k.deaths = 0
	switch k.status.Phase {
	case PhaseReady:
		if !v.it.Up() || v.stale(k.status) {
			return 0, k.up(ctx, v)
		}
	case PhaseFailed:
		if v.it.State != berth.InstanceSetupFailed {
			return 0, k.setupFailed(ctx, v)
		}
	default:
		return k.settingUp(ctx, v)
	}
	return k.watch(ctx, v)
}

// addNode makes the instance's node. One that is there is no error.
func (k *keeper) addNode(ctx context.Context, v *view) (time.Duration, error) {
	if v.node == nil {
		// Its record was removed by somebody else: ask for another.
		return 0, again(k.change(ctx, v, func(tx *store.Tx, now *view) error {
			now.it.Node, now.it.Runs = "", 0
			return nil
		}))
	}
	if err := k.makeDirs(); err != nil {
		return 0, err
	}
	n := v.node
	err := k.l.o.Machine.AddNode(ctx, driver.NodeSpec{
		Name: n.Name, Size: n.Size, CPUs: float64(n.VCPUs), Memory: n.Memory, GPUs: n.GPUs, Slots: max(1, n.Slots) + 1, // and the agent
	})
	switch berth.CodeOf(err) {
	case "":
		k.added, k.started = n.Name, 0
		return 0, nil
	case berth.Invalid, berth.Unsupported, berth.Limit:
		return 0, again(k.change(ctx, v, func(tx *store.Tx, now *view) error {
			now.fail(tx, "its node could not be created: "+err.Error())
			return nil
		}))
	}
	return 0, err
}

// again is errAgain for what succeeded.
func again(err error) error {
	if err == nil {
		return errAgain
	}
	return err
}

func (k *keeper) makeDirs() error {
	for _, d := range []string{"home", "log", "key"} {
		if err := os.MkdirAll(filepath.Join(k.dir(), d), 0o700); err != nil {
			return fmt.Errorf("creating the instance's directory: %w", err)
		}
	}
	return nil
}

// nextRun writes down that another agent is to be started.
func (k *keeper) nextRun(ctx context.Context, v *view, warning string) (time.Duration, error) {
	return 0, again(k.change(ctx, v, func(tx *store.Tx, now *view) error {
		now.it.Runs++
		if warning != "" {
			now.emit(tx, berth.EventWarning, warning, nil)
		}
		return nil
	}))
}

// startAgent asks the machine for the agent. It is told what to do in a file, which is there before
// it.
func (k *keeper) startAgent(ctx context.Context, v *view) error {
	c, err := k.config(ctx, v)
	if err != nil {
		return again(k.change(ctx, v, func(tx *store.Tx, now *view) error {
			now.fail(tx, err.Error())
			return nil
		}))
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	dir := k.dir()
	if err := writeConfig(filepath.Join(dir, "agent.json"), b); err != nil {
		return err
	}
	_, err = k.l.o.Machine.Start(ctx, berth.Launch{
		Task: taskID(v.it.Node, v.it.Runs), Job: v.doc.Name, Attempt: v.it.Runs, Node: v.it.Node, Submitted: k.l.o.DB.Now(),
		Command: quote(append(slices.Clone(k.l.o.Command), "--dir", dir)), Grace: 10 * time.Second,
		LogFile: filepath.Join(dir, "log", "agent.log"), GPUs: c.GPUs,
	})
	if err != nil {
		if berth.CodeOf(err) == berth.NotFound {
			k.added = "" // the node is gone
		}
		return err
	}
	k.started = v.it.Runs
	return nil
}

// TaskPrefix begins the names of the tasks that agents are. They are in no job.
const TaskPrefix = "ci-"

func taskID(node string, run int) berth.TaskID {
	return berth.TaskID(fmt.Sprintf("%s.agent.%d", node, run))
}

// writeConfig replaces the file as a whole. A disk that is full is no reason not to start: then the
// old one is written over in place, which takes no space, because all are padded to whole blocks.
func writeConfig(path string, b []byte) error {
	b = append(b, bytes.Repeat([]byte{' '}, 4095-(len(b)+4095)%4096)...)
	tmp := path + ".new"
	err := os.WriteFile(tmp, b, 0o600)
	if err == nil {
		return os.Rename(tmp, path)
	}
	os.Remove(tmp)
	f, again := os.OpenFile(path, os.O_WRONLY, 0)
	if again != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer f.Close()
	if _, again = f.WriteAt(b, 0); again == nil {
		again = f.Truncate(int64(len(b)))
	}
	if again != nil {
		return fmt.Errorf("writing %s: %w", path, again)
	}
	return nil
}

// quote writes words for a shell.
func quote(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return "exec " + strings.Join(out, " ")
}

// Packages are what an instance's Python environment starts with. ipykernel and pip are there for
// the user's own.
var Packages = []string{"jupyterlab==4.6.6", "notebook==7.6.5", "ipykernel", "pip"}

// config is what the agent is told.
func (k *keeper) config(ctx context.Context, v *view) (Config, error) {
	ws := strings.Split(strings.Trim(k.key.workspace, "/"), "/")
	c := Config{
		Name: v.doc.Name, User: v.it.User, Node: v.it.Node, Home: k.l.o.Home, Run: v.it.Runs, Prefix: Prefix(k.key.workspace, k.key.name), Packages: Packages,
		Environments: k.l.o.Environments, Apps: v.spec.Apps,
		Vars: map[string]string{"BERTH_INSTANCE": v.doc.Name, "CI_NAME": v.doc.Name},
	}
	if len(ws) >= 8 {
		maps.Copy(c.Vars, map[string]string{
			"AZUREML_ARM_SUBSCRIPTION": ws[1], "AZUREML_ARM_RESOURCEGROUP": ws[3], "AZUREML_ARM_WORKSPACE_NAME": ws[7], "AZUREML_WORKSPACE_NAME": ws[7],
		})
	}
	if err := k.access(v, c.Vars); err != nil {
		return c, err
	}
	if v.node != nil {
		c.GPUs, c.CPUs, c.Memory = v.node.GPUs, float64(v.node.VCPUs), v.node.Memory
	}
	var err error
	if !v.it.SetUp {
		if c.Creation, err = k.script(ctx, v.spec.Creation); err != nil {
			return c, err
		}
	}
	c.Startup, err = k.script(ctx, v.spec.Startup)
	return c, err
}

// script is a script with its text.
func (k *keeper) script(ctx context.Context, s *Script) (*Script, error) {
	if s == nil || s.Data != nil {
		return s, nil
	}
	if k.l.o.Script == nil {
		return nil, berth.Errorf(berth.Unsupported, "setup scripts from the workspace's storage cannot be read here; use scriptSource inline")
	}
	b, err := k.l.o.Script(ctx, k.key.workspace, s.Path)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "the setup script %s cannot be read from the workspace's storage: %w", s.Path, err)
	}
	out := *s
	out.Data = b
	return &out, nil
}

// patience is how long an agent may not answer before it is asked whether it still runs; maxDeaths
// is how many may end by themselves one after the other.
const (
	patience  = 2 * time.Second
	maxDeaths = 4
)

// missing finds out what became of an agent that does not answer.
func (k *keeper) missing(ctx context.Context, v *view) (time.Duration, error) {
	if k.lost.IsZero() {
		return patience, nil
	}
	if d := patience - time.Since(k.lost); d > 0 {
		return d, nil
	}
	id := taskID(v.it.Node, v.it.Runs)
	all, err := k.l.o.Machine.Observe(ctx)
	if err != nil {
		return 0, err
	}
	for _, o := range all {
		if o.Task == id && o.State != berth.TaskDone {
			return patience, nil // it is slow
		}
	}
	if k.deaths++; k.deaths > maxDeaths {
		k.deaths = 0
		why := fmt.Sprintf("its agent ended %d times in a row; see `berth compute logs %s --log agent`", maxDeaths+1, v.doc.Name)
		return 0, again(k.change(ctx, v, func(tx *store.Tx, now *view) error {
			if now.op() == "" || now.it.Up() {
				now.it.Ask("Stop", berth.InstanceStopped, "User", why, tx.Now())
				now.done("StopFailed")
				now.it.Errors = []string{why}
				return nil
			}
			now.fail(tx, why)
			return nil
		}))
	}
	k.clean(ctx, all, v.it.Node)
	k.added = "" // the node may have gone with it
	return k.nextRun(ctx, v, "the instance's services ended unexpectedly and are being restarted")
}

// clean removes the agents of a node that have ended.
func (k *keeper) clean(ctx context.Context, all []driver.Observed, node string) {
	for _, o := range all {
		if strings.HasPrefix(string(o.Task), node+".agent.") && o.State == berth.TaskDone {
			if err := k.l.o.Machine.Remove(ctx, o.Handle); err != nil {
				k.l.o.Log.Debug("agent not removed", "task", o.Task, "err", err)
			}
		}
	}
}

// settingUp shows how far the agent has come.
func (k *keeper) settingUp(ctx context.Context, v *view) (time.Duration, error) {
	s := k.status
	if v.it.State == berth.InstanceSettingUp && k.said == s.Detail {
		return forever, nil
	}
	err := k.change(ctx, v, func(tx *store.Tx, now *view) error {
		now.it.HostKey = s.HostKey
		if s.SetUp {
			now.it.SetUp = true
		}
		if now.it.State != berth.InstanceSettingUp && now.it.State != berth.InstanceRestarting {
			now.become(tx, berth.InstanceSettingUp, s.Detail)
			return nil
		}
		now.it.Reason = s.Detail
		now.emit(tx, berth.EventActivity, s.Detail, nil)
		return nil
	})
	if err != nil {
		return 0, err
	}
	k.said = s.Detail
	return forever, nil
}

// stale says whether the instance's record lacks something its agent says.
func (v *view) stale(s *Status) bool {
	return !slices.Equal(v.it.Apps, s.Apps) || v.it.HostKey != s.HostKey || slices.ContainsFunc(s.Warnings, func(w string) bool {
		return !slices.Contains(v.it.Warnings, w)
	})
}

// up says that the instance can be worked on.
func (k *keeper) up(ctx context.Context, v *view) error {
	s := k.status
	return again(k.change(ctx, v, func(tx *store.Tx, now *view) error {
		now.it.Apps, now.it.HostKey, now.it.SetUp = s.Apps, s.HostKey, true
		for _, w := range s.Warnings {
			now.warn(tx, w)
		}
		if now.node != nil && now.node.State == berth.NodePreparing {
			now.node.State, now.node.Why, now.node.Ready, now.node.IdleSince = berth.NodeIdle, "", tx.Now(), tx.Now()
			if err := now.saveNode(tx, now.node, false); err != nil {
				return err
			}
		}
		if now.it.Up() {
			return nil
		}
		now.done("Succeeded")
		now.state.State, now.state.Error, now.it.Errors = "", "", nil
		now.it.Awake, now.it.AwakeAt, now.it.StopsAt = "it was started", tx.Now(), time.Time{}
		now.become(tx, berth.InstanceRunning, "it is ready")
		return nil
	}))
}

// setupFailed says that a script failed. The node stays, so that its owner can go in and look.
func (k *keeper) setupFailed(ctx context.Context, v *view) error {
	s := k.status
	return again(k.change(ctx, v, func(tx *store.Tx, now *view) error {
		now.it.HostKey, now.it.SetUp = s.HostKey, now.it.SetUp || s.SetUp
		now.it.Errors = []string{s.Failed}
		for _, w := range s.Warnings {
			now.warn(tx, w)
		}
		if s.Log != "" {
			now.it.Errors = append(now.it.Errors, s.Log)
		}
		if now.op() == "Create" {
			now.state.State, now.state.Error = "Failed", s.Failed
		}
		if now.node != nil && now.node.State == berth.NodePreparing {
			now.node.State, now.node.Why = berth.NodeUnusable, s.Failed
			if err := now.saveNode(tx, now.node, false); err != nil {
				return err
			}
		}
		now.done(now.op() + "Failed")
		now.it.Awake, now.it.AwakeAt = "its setup failed", tx.Now()
		now.become(tx, berth.InstanceSetupFailed, s.Failed)
		return nil
	}))
}
