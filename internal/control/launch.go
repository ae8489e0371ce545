package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// launchLife is how long a launch's token and signatures are good: longer than any job we expect.
const launchLife = 90 * 24 * time.Hour

// buildLaunches is what the runners of a gang need. It puts the tasks on their nodes.
func (cy *cycle) buildLaunches(p *pool, j *jobWork, tasks []*berth.Task, nodes []string) ([]berth.Launch, error) {
	var v berth.CommandJob
	if err := json.Unmarshal(j.props, &v); err != nil {
		return nil, berth.Errorf(berth.Invalid, "the job's properties: %w", err)
	}
	if !p.single() || p.several() {
		for i, t := range tasks {
			t.Node = nodes[i]
		}
	}
	if grouped(&v, len(tasks)) && !p.target.Info.Distributed {
		return nil, berth.Errorf(berth.Unsupported, "compute %s cannot run the processes of a distributed job", p.name)
	}
	if grouped(&v, len(tasks)) {
		port, err := cy.takePorts(worldSize(&v, len(tasks)) + len(tasks) + portSpare)
		if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			t.Port = port
		}
	}
	switch {
	case tasks[0].Attempt == 1:
		cy.tellUnused(p, j)
	case j.puller == nil:
		if err := cy.archiveLogs(j, tasks[0].Attempt-1); err != nil {
			return nil, err
		}
	}
	out := make([]berth.Launch, len(tasks))
	for i := range tasks {
		var err error
		if out[i], err = cy.buildLaunch(j, &v, tasks, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// relaunch is what a task that was placed before was given then.
func (cy *cycle) relaunch(j *jobWork, t berth.Task) (berth.Launch, error) {
	var v berth.CommandJob
	if err := json.Unmarshal(j.props, &v); err != nil {
		return berth.Launch{}, berth.Errorf(berth.Invalid, "the job's properties: %w", err)
	}
	var tasks []*berth.Task
	at := -1
	for _, x := range j.tasks {
		if x.Attempt == t.Attempt {
			if x.ID == t.ID {
				at = len(tasks)
			}
			tasks = append(tasks, x)
		}
	}
	if at < 0 {
		return berth.Launch{}, berth.Errorf(berth.NotFound, "task %s is not the job's any more", t.ID)
	}
	return cy.buildLaunch(j, &v, tasks, at)
}

// buildLaunch is everything the runner of the i-th task of an attempt needs, with each reference
// resolved to something it can reach. It also registers the logs, so that they can be read from the
// first byte on.
func (cy *cycle) buildLaunch(j *jobWork, v *berth.CommandJob, tasks []*berth.Task, i int) (berth.Launch, error) {
	t := tasks[i]
	ws, storage, err := cy.workspace(j.doc.Workspace)
	if err != nil {
		return berth.Launch{}, err
	}
	target := cy.c.target(cy.state, t)
	b := builder{cy: cy, ws: ws, storage: storage, task: t.ID, job: j.doc.Name, user: j.doc.CreatedBy, admin: j.state.Admin}
	timeout, err := berth.ParseDuration(v.Limits.Timeout)
	if err != nil {
		return berth.Launch{}, err
	}
	l := berth.Launch{
		Task: t.ID, Job: j.doc.Name, Attempt: t.Attempt, Workspace: ws, Submitted: j.state.Times.Submitted,
		Home: target.Home, Command: v.Command, Env: map[string]string{}, Timeout: timeout, Grace: grace, ShmSize: v.Resources.ShmSize,
		InstanceType: v.Resources.InstanceType, Node: t.Node, Log: stdLog, Serves: t.Serves,
	}
	l.Home.Token = cy.c.o.Keys.TaskToken(t.ID, cy.now.Add(launchLife))
	for k, x := range v.Env {
		l.Env[k] = string(x)
	}
	l.Env["AZUREML_EXPERIMENT_NAME"] = v.ExperimentName
	if j.state.Serves != "" && cy.c.o.Replica != nil {
		maps.Copy(l.Env, cy.c.o.Replica(j.doc.Name))
	}
	if l.DockerArgs, err = locate.DockerArgs(v.Resources.ContainerArgs()); err != nil {
		return l, err
	}
	if !b.admin {
		if err := cy.c.o.Locator.Allow.Options(v.Resources.ContainerArgs()); err != nil {
			return l, err
		}
	}
	if err = b.code(&l, v.CodeID); err != nil {
		return l, err
	}
	if target.Info.SharedDisk {
		l.Objects = b.cy.c.o.Blobs.Objects()
	}
	if l.Inputs, err = b.inputs(v.Inputs, j.props); err != nil {
		return l, err
	}
	if l.Outputs, err = b.outputs(v.Outputs); err != nil {
		return l, err
	}
	if l.Environment, err = b.environment(v.EnvironmentID, j.props); err != nil {
		return l, err
	}
	l.Tracking, l.Services = cy.tracking(ws, t, v.ExperimentName), cy.services(&l, t, v.Services)
	if err := cy.fit(&l, t, j); err != nil {
		return l, err
	}
	l.Artifacts = b.sign(storage.Artifacts, locate.ArtifactPath(j.doc.Name), "rwld")
	if grouped(v, len(tasks)) {
		l.Group = groupOf(v, tasks, i, cy.c.o.Keys.GroupSecret(t.Gang()), cy.withAddresses(target.Info, t))
		l.Log = l.Group.Processes[0].Log
	}
	return l, b.registerLogs(&l, t, target.Info.SharedDisk)
}

// fit adds what the task's node gives it, and what its job needs of that.
func (cy *cycle) fit(l *berth.Launch, t *berth.Task, j *jobWork) error {
	if err := cy.pull(l, j); err != nil {
		return err
	}
	cy.onNode(l, t)
	needs, err := berth.NeedsOf(j.props)
	if err == nil {
		needs.Limit(l)
	}
	return err
}

// onNode adds what a node of a cluster brings with it.
func (cy *cycle) onNode(l *berth.Launch, t *berth.Task) {
	if t.Node == "" {
		return
	}
	p := cy.state.poolOf(t)
	if p.single() {
		return // of an attached machine nothing is known but its name
	}
	if n := p.node(t.Node); n != nil {
		l.GPUs, l.NoGPU = n.GPUs, len(n.GPUs) == 0
		// the node's limits are the task's, so that it is the task that is seen to break them
		if n.Slots == 1 {
			l.CPUs, l.Memory = float64(n.VCPUs), n.Memory
		}
	}
	if t.Spot && cy.c.o.Keep != "" {
		// one for all nodes: each finds what the first one saved
		l.Keep = filepath.Join(cy.c.o.Keep, keepName(t))
	}
}

// keepName is the directory of what the attempts at a job hand on: their common part of the id.
func keepName(t *berth.Task) string {
	return strings.TrimSuffix(t.Gang(), "."+strconv.Itoa(t.Attempt))
}

const stdLog = berth.StdLog

// registerLogs gives each process of a task a log that grows.
func (b builder) registerLogs(l *berth.Launch, t *berth.Task, shared bool) error {
	file := func(name, id string) (string, error) {
		rel := logPath(b.storage.ID, id)
		now := b.cy.now
		err := b.cy.tx.PutBlob(&store.Blob{
			Container: b.storage.Artifacts, Name: locate.ArtifactPath(b.job) + "/" + name, Live: rel, ContentType: "text/plain; charset=utf-8",
			ETag: fmt.Sprintf("0x%016X", now.UnixNano()), Created: now, Modified: now,
		})
		if err != nil || !shared {
			return "", err
		}
		return filepath.Join(b.cy.c.o.Blobs.Dir(), filepath.FromSlash(rel)), nil
	}
	var err error
	if l.LogFile, err = file(l.Log, string(t.ID)); err != nil || l.Group == nil {
		return err
	}
	for i := range l.Group.Processes {
		p := &l.Group.Processes[i]
		if i == 0 {
			p.LogFile = l.LogFile
		} else if p.LogFile, err = file(p.Log, processLogID(t.ID, p.Rank)); err != nil {
			return err
		}
	}
	return nil
}

// archiveLogs moves the logs of an earlier attempt out of the way of the next, and keeps them.
func (cy *cycle) archiveLogs(j *jobWork, attempt int) error {
	_, storage, err := cy.workspace(j.doc.Workspace)
	if err != nil {
		return err
	}
	folder := locate.ArtifactPath(j.doc.Name) + "/user_logs/"
	logs, err := cy.tx.ListBlobs(store.BlobQuery{Container: storage.Artifacts, Prefix: folder + "std_log"})
	if err != nil {
		return err
	}
	for _, b := range logs {
		old := b.Name
		b.Name = fmt.Sprintf("%sattempt_%d/%s", folder, attempt, strings.TrimPrefix(old, folder))
		if err := cy.tx.PutBlob(b); err != nil {
			return err
		}
		if err := cy.tx.DeleteBlob(storage.Artifacts, old); err != nil {
			return err
		}
	}
	return nil
}

// workspaceStorage is a workspace and its storage.
type workspaceStorage struct {
	ws      berth.Workspace
	storage locate.Storage
}

// workspace reads a workspace once per cycle.
func (cy *cycle) workspace(key string) (berth.Workspace, locate.Storage, error) {
	if p, ok := cy.workspaces[key]; ok {
		return p.ws, p.storage, nil
	}
	var p workspaceStorage
	d, err := cy.tx.Get("", "workspaces", key, "")
	if err != nil {
		return p.ws, p.storage, err
	}
	if p.ws, err = locate.WorkspaceOf(d); err != nil {
		return p.ws, p.storage, err
	}
	if p.storage, err = store.State[locate.Storage](d); err != nil {
		return p.ws, p.storage, err
	}
	if cy.workspaces == nil {
		cy.workspaces = map[string]workspaceStorage{}
	}
	cy.workspaces[key] = p
	return p.ws, p.storage, nil
}

// builder resolves the references of one job.
type builder struct {
	cy      *cycle
	ws      berth.Workspace
	storage locate.Storage
	task    berth.TaskID
	job     string
	user    string
	admin   bool // an administrator submitted it
}

// sign is a URL that opens a file or folder of ours with perm. One that writes or deletes ends with
// the task: the runner of a task that was given up may live on, and would change what the next
// attempt writes.
func (b builder) sign(container, name, perm string) string {
	g := front.Grant{Container: container, Prefix: name, Perm: perm, Expiry: b.cy.now.Add(launchLife), User: b.user}
	switch {
	case strings.ContainsAny(perm, "wd"):
		g.Holder = auth.TaskHolder(b.task)
	case b.user != "":
		g.Holder = auth.UserHolder(b.user)
	}
	return b.cy.c.o.Locator.URL(container, name) + "?" + b.cy.c.o.Signer.Sign(g)
}

// address is the URL of a place, and the folder that links must not lead out of where it is a
// file's. It is here that a job of a user is kept from the server's files: what was checked when it
// was submitted may name something else by now.
func (b builder) address(p locate.Place, perm string, write bool) (address, below string, err error) {
	if p.Ours() {
		return b.sign(p.Container, p.Name, perm), "", nil
	}
	if p.Outside() {
		return "", "", berth.Errorf(berth.Unsupported, "datastore %s is outside of this server, where only inputs and outputs of jobs can be: upload it instead", p.Datastore)
	}
	if !b.admin {
		below, err = b.cy.c.o.Locator.Allow.Permit(p, write)
	}
	if err == nil {
		address, err = b.cy.c.o.Keys.OpenAddress(p.URL, p.User)
	}
	return address, below, err
}

// version is the version token of what lies at a place, empty where it has none. Logs, which grow
// unnoticed, are with the artifacts.
func (b builder) version(p locate.Place) (string, error) {
	if !p.Ours() || p.Container == b.storage.Artifacts {
		return "", nil
	}
	return blob.Version(b.cy.tx, p.Container, p.Name)
}

// content is the place of what a version of an asset consists of. Its document is read to the
// letter, as it was when its files were held.
func (b builder) content(d *store.Doc, collection string) (locate.Place, error) {
	var v struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return locate.Place{}, berth.Errorf(berth.Invalid, "%s %s:%s cannot be read: %w", collection, d.Name, d.Version, err)
	}
	return b.cy.c.o.Locator.Content(b.cy.tx, b.ws, d, locate.ContentURI(collection, v.Properties))
}

// code adds the code to a launch.
func (b builder) code(l *berth.Launch, id string) error {
	if id == "" {
		return nil
	}
	ref, err := berth.ParseRef(id, "codes")
	if err != nil {
		return err
	}
	d, err := locate.Version(b.cy.tx, b.ws, "codes", ref)
	if err != nil {
		return err
	}
	p, err := b.content(d, "codes")
	if err != nil {
		return err
	}
	if !p.Ours() && !p.Outside() && p.URL == "" {
		return berth.Errorf(berth.Invalid, "code %s does not say where its files are", id)
	}
	if l.Code, l.CodeBelow, err = b.address(p, "rl", false); err != nil {
		return err
	}
	l.CodeVersion, err = b.version(p)
	return err
}

func (b builder) inputs(in map[string]berth.JobInput, props json.RawMessage) (map[string]berth.LaunchInput, error) {
	out := make(map[string]berth.LaunchInput, len(in))
	streamed, err := streamedInputs(in, props)
	if err != nil {
		return nil, err
	}
	for name, i := range in {
		x := berth.LaunchInput{Type: i.Type, Mode: i.Mode, URI: i.URI, Stream: streamed[name]}
		if i.Literal() {
			x.Type = "literal"
			if i.Value != nil {
				x.Value = string(*i.Value)
			}
		} else {
			p, err := b.cy.c.o.Locator.Resolve(b.cy.tx, b.ws, b.user, i.URI)
			switch {
			case err != nil:
			case p.Outside():
				x.Outside, err = b.outside(p, false)
				x.URL = x.Outside.At
			default:
				x.Ours = p.Ours()
				x.URL, x.Below, err = b.address(p, "rl", locate.Writes(i.Mode))
			}
			if err == nil {
				x.Version, err = b.version(p)
			}
			if err == nil {
				x.URI, err = b.cy.c.o.Keys.OpenAddress(i.URI, b.user)
			}
			if err != nil {
				return nil, berth.Errorf(berth.CodeOf(err), "input %s: %w", name, err)
			}
		}
		out[name] = x
	}
	return out, nil
}

// streamedInputs are the inputs that a job asks to be streamed.
func streamedInputs(in map[string]berth.JobInput, props json.RawMessage) (map[string]bool, error) {
	if !bytes.Contains(props, []byte(berth.StreamProperty)) {
		return nil, nil
	}
	var extra struct {
		Properties map[string]berth.Scalar `json:"properties"`
	}
	if err := json.Unmarshal(props, &extra); err != nil {
		return nil, berth.Errorf(berth.Invalid, "the job's properties: %w", err)
	}
	modes := map[string]string{}
	for name, i := range in {
		if !i.Literal() {
			modes[name] = i.Mode
		}
	}
	return berth.StreamedInputs(string(extra.Properties[berth.StreamProperty]), modes)
}

func (b builder) outputs(in map[string]berth.JobOutput) (map[string]berth.LaunchOutput, error) {
	out := make(map[string]berth.LaunchOutput, len(in))
	for name, o := range in {
		x := berth.LaunchOutput{Type: o.Type, Mode: o.Mode, URI: o.Place(b.job, name)}
		p, err := b.cy.c.o.Locator.Resolve(b.cy.tx, b.ws, b.user, x.URI)
		switch {
		case err != nil:
		case p.Outside():
			x.Outside, err = b.outside(p, true)
			x.URL = x.Outside.At
		default:
			x.URL, x.Below, err = b.address(p, "rwld", true)
		}
		if err == nil {
			x.URI, err = b.cy.c.o.Keys.OpenAddress(x.URI, b.user)
		}
		if err != nil {
			return nil, berth.Errorf(berth.CodeOf(err), "output %s: %w", name, err)
		}
		out[name] = x
	}
	return out, nil
}
