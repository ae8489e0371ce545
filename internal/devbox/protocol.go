package devbox

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/store"
)

// Config is what an agent is told, in agent.json of the instance's directory.
type Config struct {
	Name string `json:"name"`
	User string `json:"user"`
	Node string `json:"node"`
	// Home is the server's: jobs of hosts below it may not connect to the agent.
	Home string `json:"home,omitempty"`
	// Run numbers the agents of a node.
	Run int `json:"run"`
	// Prefix is the path of the instance's applications on the server.
	Prefix   string            `json:"prefix"`
	Creation *Script           `json:"creation,omitempty"` // nil when it ran before
	Startup  *Script           `json:"startup,omitempty"`
	Apps     []App             `json:"apps,omitempty"`
	Vars     map[string]string `json:"vars,omitempty"` // of every process on it
	GPUs     []int             `json:"gpus,omitempty"`
	// Packages are what its Python environment starts with.
	Packages     []string            `json:"packages"`
	Environments driver.Environments `json:"environments"`
	CPUs         float64             `json:"cpus,omitempty"`
	Memory       int64               `json:"memory,omitempty"`
}

// Phases of an agent, in order.
const (
	PhaseEnvironment = "environment"
	PhaseCreation    = "creation"
	PhaseStartup     = "startup"
	PhaseServices    = "services"
	PhaseReady       = "ready"
	PhaseFailed      = "failed"
)

// Status is what an agent says of its instance.
type Status struct {
	Run   int    `json:"run"`
	Seq   int    `json:"seq"` // grows with each change
	Phase string `json:"phase"`
	// Detail is what it is doing, for people.
	Detail string `json:"detail,omitempty"`
	// SetUp says that the creation script has run to its end.
	SetUp bool `json:"setUp,omitempty"`
	// Failed says why Phase is PhaseFailed, and Log is the end of the log that tells more.
	Failed   string              `json:"failed,omitempty"`
	Log      string              `json:"log,omitempty"`
	Apps     []berth.InstanceApp `json:"apps,omitempty"`
	Warnings []string            `json:"warnings,omitempty"`
	HostKey  string              `json:"hostKey,omitempty"`
}

// An Agent is reached over the socket of its instance. Errors mean that it does not answer.
type Agent interface {
	// Status waits until there is a status with another Seq than after and returns it, or the same
	// one after a while.
	Status(ctx context.Context, after int) (Status, error)
	// Signals says whether the instance is used.
	Signals(ctx context.Context) ([]Signal, error)
	// Disk says how many bytes the instance's files take.
	Disk(ctx context.Context) (int64, error)
	// Stop ends the instance's services; it returns when they are gone.
	Stop(ctx context.Context) error
}

// IsInstance says whether a compute's document is that of an instance.
func IsInstance(d *store.Doc) bool {
	var v struct {
		Properties struct {
			ComputeType string `json:"computeType"`
		} `json:"properties"`
	}
	return json.Unmarshal(d.Body, &v) == nil && strings.EqualFold(v.Properties.ComputeType, berth.TypeInstance)
}

// Prefix is the path of an instance's applications on the server; workspace is the workspace's key.
func Prefix(workspace, name string) string {
	p := strings.Split(strings.Trim(workspace, "/"), "/")
	if len(p) < 8 {
		return ""
	}
	return "/berth/instances/" + strings.Join([]string{p[1], p[3], p[7], strings.ToLower(name)}, "/")
}
