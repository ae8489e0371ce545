package serve

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// Inference is how a server of the user's own is asked, as the inferenceConfig of its environment
// says.
type Inference struct {
	Port  int    // that it listens on, unless it listens on the one it is given
	Live  string // path at which it answers while it works
	Ready string // path at which it answers when it is ready
	Score string // path of the requests that are sent to /score of the endpoint
}

// route is one of the three parts of an inferenceConfig.
type route struct {
	Port int    `json:"port"`
	Path string `json:"path"`
}

// FindInference reads the inferenceConfig of an environment of the workspace. It is nil where there
// is none, and where the environment is not one of the workspace.
func FindInference(tx *store.Tx, ws berth.Workspace, environment string) (*Inference, error) {
	ref, err := berth.ParseRef(environment, "environments")
	if environment == "" || err != nil || ref.Registry != "" {
		return nil, nil //nolint:nilerr // what is wrong with the reference is said by who uses it
	}
	d, err := locate.Version(tx, ws, "environments", ref)
	if berth.CodeOf(err) == berth.NotFound {
		return nil, nil // a curated one has none
	}
	if err != nil {
		return nil, err
	}
	var v struct {
		Properties struct {
			Config *struct {
				Live  route `json:"livenessRoute"`
				Ready route `json:"readinessRoute"`
				Score route `json:"scoringRoute"`
			} `json:"inferenceConfig"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return nil, berth.Errorf(berth.Invalid, "environment %s:%s cannot be read: %w", d.Name, d.Version, err)
	}
	c := v.Properties.Config
	if c == nil {
		return nil, nil
	}
	for name, r := range map[string]route{"livenessRoute": c.Live, "readinessRoute": c.Ready, "scoringRoute": c.Score} {
		switch {
		case r.Port != c.Score.Port:
			return nil, berth.Errorf(berth.Unsupported, "environment %s:%s: inferenceConfig.%s is at port %d and scoringRoute at %d: name one port for all three", d.Name, d.Version, name, r.Port, c.Score.Port)
		case r.Port < 1 || r.Port > 65535:
			return nil, berth.Errorf(berth.Invalid, "environment %s:%s: inferenceConfig.%s.port must be a number from 1 to 65535, not %d", d.Name, d.Version, name, r.Port)
		case !isPath(r.Path):
			return nil, berth.Errorf(berth.Invalid, "environment %s:%s: inferenceConfig.%s.path must be a path such as /health, not %q", d.Name, d.Version, name, r.Path)
		}
	}
	return &Inference{Port: c.Score.Port, Live: c.Live.Path, Ready: c.Ready.Path, Score: c.Score.Path}, nil
}

// isPath says whether a text can be the path in the first line of a request.
func isPath(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return strings.HasPrefix(text, "/")
}

// serverEnv is what the process that stands before a server of the user's own is told of it.
func (s Spec) serverEnv(i *Inference) map[string]string {
	env := map[string]string{"BERTH_COMMAND": s.Command, "BERTH_COMMAND_PORT": s.Port, "BERTH_READY": s.Ready}
	if i == nil {
		return env
	}
	if s.Command == "" {
		env["BERTH_IMAGE_PROGRAM"] = "1" // the runner puts the image's own program into its place
	}
	if s.Ready == "" {
		env["BERTH_READY"] = i.Ready
	}
	if s.Port == "" {
		env["BERTH_IMAGE_PORT"] = strconv.Itoa(i.Port)
	}
	env["BERTH_LIVE"] = i.Live
	env["BERTH_LIVE_PERIOD"] = seconds(s.Live.Period)
	env["BERTH_LIVE_TIMEOUT"] = seconds(s.Live.Timeout)
	env["BERTH_LIVE_FAILURES"] = strconv.Itoa(s.Live.Failures)
	return env
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// Probing is how often a server of the user's own is asked whether it works.
type Probing struct {
	Period, Timeout time.Duration
	Failures        int // in a row, after which it is replaced
}

// probing reads a liveness probe; what it does not say is as in Azure.
func probing(p *probe) (Probing, error) {
	out := Probing{Period: 10 * time.Second, Timeout: 2 * time.Second, Failures: 30}
	if p == nil {
		return out, nil
	}
	if p.FailureThreshold != nil {
		out.Failures = *p.FailureThreshold // which startup has checked
	}
	if err := duration(&out.Period, "livenessProbe.period", p.Period); err != nil {
		return out, err
	}
	return out, duration(&out.Timeout, "livenessProbe.timeout", p.Timeout)
}
