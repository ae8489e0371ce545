package control

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// launchLife is how long a launch's token and signatures are good: longer than any job we expect.
const launchLife = 90 * 24 * time.Hour

const stdLog = "user_logs/std_log.txt"

// launch is everything the task's runner needs, with each reference resolved to something it can reach. It also registers the
// log, so that it can be read from the first byte on.
func (m *move) launch(j *jobWork, t *berth.Task) (berth.Launch, error) {
	var v berth.CommandJob
	if err := json.Unmarshal(j.props, &v); err != nil {
		return berth.Launch{}, berth.Errorf(berth.Invalid, "the job's properties: %w", err)
	}
	ws, storage, err := m.workspace(j.doc.Workspace)
	if err != nil {
		return berth.Launch{}, err
	}
	target := m.c.o.Targets[t.Compute]
	b := builder{m: m, ws: ws, storage: storage, job: j.doc.Name}
	timeout, err := berth.ParseDuration(v.Limits.Timeout)
	if err != nil {
		return berth.Launch{}, err
	}
	l := berth.Launch{
		Task: t.ID, Job: j.doc.Name, Attempt: t.Attempt, Workspace: ws, Submitted: j.state.Times.Submitted,
		Home: target.Home, Command: v.Command, Env: map[string]string{}, Timeout: timeout, Grace: grace, ShmSize: v.Resources.ShmSize,
	}
	l.Home.Token = m.c.o.Keys.TaskToken(t.ID, m.now.Add(launchLife))
	for k, x := range v.Env {
		l.Env[k] = string(x)
	}
	l.Env["AZUREML_EXPERIMENT_NAME"] = v.ExperimentName
	if l.DockerArgs, err = dockerArgs(v.Resources.DockerArgs); err != nil {
		return l, err
	}
	if l.Code, err = b.code(v.CodeID); err != nil {
		return l, err
	}
	if l.Inputs, err = b.inputs(v.Inputs); err != nil {
		return l, err
	}
	if l.Outputs, err = b.outputs(v.Outputs); err != nil {
		return l, err
	}
	if l.Environment, err = b.environment(v.EnvironmentID, j.props); err != nil {
		return l, err
	}
	folder := locate.ArtifactPath(j.doc.Name)
	l.Artifacts = b.sign(storage.Artifacts, folder, "rwl")
	rel, err := m.c.logs.path(storage.ID, t.ID)
	if err != nil {
		return l, berth.Errorf(berth.Unavailable, "no place for the log: %w", err)
	}
	err = m.tx.PutBlob(&store.Blob{
		Container: storage.Artifacts, Name: folder + "/" + stdLog, Live: rel, ContentType: "text/plain; charset=utf-8",
		ETag: fmt.Sprintf("0x%016X", m.now.UnixNano()), Created: m.now, Modified: m.now,
	})
	if err != nil {
		return l, err
	}
	if target.SharedDisk {
		l.LogFile = filepath.Join(m.c.o.Blobs.Dir(), filepath.FromSlash(rel))
	}
	return l, nil
}

// place is a workspace and its storage.
type place struct {
	ws      berth.Workspace
	storage locate.Storage
}

// workspace reads a workspace once per move.
func (m *move) workspace(key string) (berth.Workspace, locate.Storage, error) {
	if p, ok := m.places[key]; ok {
		return p.ws, p.storage, nil
	}
	var p place
	d, err := m.tx.Get("", "workspaces", key, "")
	if err != nil {
		return p.ws, p.storage, err
	}
	if p.ws, err = locate.WorkspaceOf(d); err != nil {
		return p.ws, p.storage, err
	}
	if err := json.Unmarshal(d.Own, &p.storage); err != nil {
		return p.ws, p.storage, err
	}
	if m.places == nil {
		m.places = map[string]place{}
	}
	m.places[key] = p
	return p.ws, p.storage, nil
}

// dockerArgs takes a string or a list of strings.
func dockerArgs(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return list, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, berth.Errorf(berth.Invalid, "resources.dockerArgs must be text or a list of texts")
	}
	return strings.Fields(text), nil
}

// builder resolves the references of one job.
type builder struct {
	m       *move
	ws      berth.Workspace
	storage locate.Storage
	job     string
}

// sign is a URL that opens a file or folder of ours with perm.
func (b builder) sign(container, name, perm string) string {
	g := front.Grant{Container: container, Prefix: name, Perm: perm, Expiry: b.m.now.Add(launchLife)}
	return b.m.c.o.Locator.URL(container, name) + "?" + b.m.c.o.Signer.Sign(g)
}

func (b builder) resolve(uri, perm string) (string, error) {
	p, err := b.m.c.o.Locator.Resolve(b.m.tx, b.ws, uri)
	if err != nil {
		return "", err
	}
	if p.Ours() {
		return b.sign(p.Container, p.Name, perm), nil
	}
	return p.URL, nil
}

func (b builder) code(id string) (string, error) {
	if id == "" {
		return "", nil
	}
	ref, err := berth.ParseRef(id, "codes")
	if err != nil {
		return "", err
	}
	d, err := locate.Version(b.m.tx, b.ws, "codes", ref)
	if err != nil {
		return "", err
	}
	var v struct {
		Properties struct{ CodeURI string }
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return "", err
	}
	return b.resolve(v.Properties.CodeURI, "rl")
}

func (b builder) inputs(in map[string]berth.JobInput) (map[string]berth.LaunchInput, error) {
	out := make(map[string]berth.LaunchInput, len(in))
	for name, i := range in {
		x := berth.LaunchInput{Type: i.Type, Mode: i.Mode, URI: i.URI}
		if i.Literal() {
			x.Type = "literal"
			if i.Value != nil {
				x.Value = string(*i.Value)
			}
		} else {
			var err error
			if x.URL, err = b.resolve(i.URI, "rl"); err != nil {
				return nil, berth.Errorf(berth.CodeOf(err), "input %s: %w", name, err)
			}
		}
		out[name] = x
	}
	return out, nil
}

func (b builder) outputs(in map[string]berth.JobOutput) (map[string]berth.LaunchOutput, error) {
	out := make(map[string]berth.LaunchOutput, len(in))
	for name, o := range in {
		uri := strings.ReplaceAll(o.URI, "${{name}}", b.job)
		uri = strings.ReplaceAll(uri, "${{output_name}}", name)
		x := berth.LaunchOutput{Type: o.Type, Mode: o.Mode, URI: uri}
		if x.URI == "" {
			x.URI = "azureml://datastores/workspaceblobstore/paths/" + locate.OutputPath(b.job, name) + "/"
		}
		var err error
		if x.URL, err = b.resolve(x.URI, "rwl"); err != nil {
			return nil, berth.Errorf(berth.CodeOf(err), "output %s: %w", name, err)
		}
		out[name] = x
	}
	return out, nil
}

// hostProperty is the job property with which a user lets a job run on the node although its environment names an image.
const hostProperty = "berth.environment"

func (b builder) environment(id string, props json.RawMessage) (berth.LaunchEnv, error) {
	var extra struct {
		Properties map[string]berth.Scalar `json:"properties"`
	}
	if err := json.Unmarshal(props, &extra); err != nil {
		return berth.LaunchEnv{}, err
	}
	host := b.m.c.o.ImagesOnHost || strings.EqualFold(string(extra.Properties[hostProperty]), "host")
	if id == "" {
		return berth.LaunchEnv{}, nil
	}
	ref, err := berth.ParseRef(id, "environments")
	if err != nil {
		return berth.LaunchEnv{}, err
	}
	name := ref.Name
	if ref.Version != "" {
		name += ":" + ref.Version
	}
	d, err := locate.Version(b.m.tx, b.ws, "environments", ref)
	if ref.Registry != "" || err != nil {
		env, ok := b.m.c.o.Curated(ref.Name)
		if !ok {
			if err == nil {
				err = berth.Errorf(berth.Unsupported, "environment %s is in a registry, and is not one of the curated environments this server knows", id)
			}
			return berth.LaunchEnv{}, err
		}
		env.Name, env.Host = name, host
		return env, nil
	}
	var v struct {
		Properties struct {
			Image     string
			CondaFile string
			Build     *struct{ ContextURI, DockerfilePath string }
		}
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return berth.LaunchEnv{}, err
	}
	env := berth.LaunchEnv{Name: name, Image: v.Properties.Image, Conda: v.Properties.CondaFile, Host: host}
	if bc := v.Properties.Build; bc != nil {
		if env.Build, err = b.resolve(bc.ContextURI, "rl"); err != nil {
			return env, err
		}
		env.Dockerfile = bc.DockerfilePath
	}
	return env, nil
}

// shards gives each log a file in one of 256 folders below dir/logs.
type shards struct {
	dir  string
	mu   sync.Mutex
	made [256]bool
}

// path is where a task's log is, relative to dir; its folder exists afterwards.
func (s *shards) path(workspace string, id berth.TaskID) (string, error) {
	h := fnv.New32a()
	h.Write([]byte(id)) // a hash does not fail
	n := h.Sum32() & 0xff
	rel := fmt.Sprintf("logs/%02x", n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.made[n] {
		if err := os.MkdirAll(filepath.Join(s.dir, filepath.FromSlash(rel)), 0o700); err != nil {
			return "", err
		}
		s.made[n] = true
	}
	return rel + "/" + workspace[:8] + "-" + string(id) + ".txt", nil
}
