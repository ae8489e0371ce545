package devbox

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cron"
)

// Spec is what an instance's document says about running it.
type Spec struct {
	Size      string
	Idle      time.Duration // 0: it never stops by itself
	Schedules []Schedule
	Creation  *Script // runs once in its life
	Startup   *Script // runs at each start
	Apps      []App
}

// Schedule starts or stops an instance at certain times.
type Schedule struct {
	Start   bool // else it stops
	Enabled bool
	Trigger cron.Trigger
}

// Script is a shell script of the user's.
type Script struct {
	Data    []byte // the script itself; nil when Path says where it is
	Path    string // in the workspace's storage
	Args    string
	Timeout time.Duration
}

// App is an application of the user's: a container with a web page.
type App struct {
	Name  string
	Image string
	Port  int // inside the container
	Env   map[string]string
	Binds []Bind
}

// Bind is a directory of the instance that an application sees.
type Bind struct {
	Source, Target string
	ReadOnly       bool
}

// scriptTimeout is Azure's limit for scripts that do not say.
const scriptTimeout = 15 * time.Minute

// document is the part of a compute's properties that Parse reads.
type document struct {
	Properties struct {
		VMSize    string  `json:"vmSize"`
		Idle      *string `json:"idleTimeBeforeShutdown"`
		Schedules *struct {
			StartStop []struct {
				Action      string        `json:"action"`
				Status      string        `json:"status"`
				TriggerType string        `json:"triggerType"`
				Cron        *cron.Trigger `json:"cron"`
				Recurrence  *cron.Trigger `json:"recurrence"`
			} `json:"computeStartStop"`
		} `json:"schedules"`
		SetupScripts *struct {
			Scripts struct {
				Creation *script `json:"creationScript"`
				Startup  *script `json:"startupScript"`
			} `json:"scripts"`
		} `json:"setupScripts"`
		CustomServices []struct {
			Name  string `json:"name"`
			Image struct {
				Reference string `json:"reference"`
			} `json:"image"`
			Endpoints []struct {
				Target    int `json:"target"`
				Published int `json:"published"`
			} `json:"endpoints"`
			Env map[string]struct {
				Value berth.Scalar `json:"value"`
			} `json:"environmentVariables"`
			Volumes []struct {
				Source   string `json:"source"`
				Target   string `json:"target"`
				ReadOnly bool   `json:"readOnly"`
			} `json:"volumes"`
		} `json:"customServices"`
	} `json:"properties"`
}

type script struct {
	Source  string `json:"scriptSource"`
	Data    string `json:"scriptData"`
	Args    string `json:"scriptArguments"`
	Timeout string `json:"timeout"`
}

// Parse reads the properties of a compute of type ComputeInstance. Errors name the field and say
// what it may be.
func Parse(properties []byte) (Spec, error) {
	var d document
	var s Spec
	if err := json.Unmarshal(properties, &d); err != nil {
		return s, berth.Errorf(berth.Invalid, "the instance's properties cannot be read: %w", err)
	}
	p := d.Properties
	s.Size = p.VMSize
	if p.Idle != nil && *p.Idle != "" {
		var err error
		if s.Idle, err = berth.ParseDuration(*p.Idle); err != nil {
			return s, berth.Errorf(berth.Invalid, "idleTimeBeforeShutdown: %w", err)
		}
		if s.Idle <= 0 {
			return s, berth.Errorf(berth.Invalid, "idleTimeBeforeShutdown %s would stop the instance immediately; use at least PT1M, or omit it so that the instance is not stopped when idle", *p.Idle)
		}
	}
	if p.Schedules != nil {
		for i, e := range p.Schedules.StartStop {
			sch := Schedule{Enabled: !strings.EqualFold(e.Status, "disabled")}
			switch strings.ToLower(e.Action) {
			case "start":
				sch.Start = true
			case "stop":
			default:
				return s, berth.Errorf(berth.Invalid, "schedules.computeStartStop[%d].action must be start or stop, not %q", i, e.Action)
			}
			switch {
			case e.Cron != nil && !strings.EqualFold(e.TriggerType, "recurrence"):
				sch.Trigger = *e.Cron
				if sch.Trigger.Expression == "" {
					return s, berth.Errorf(berth.Invalid, "schedules.computeStartStop[%d].cron has no expression", i)
				}
			case e.Recurrence != nil && !strings.EqualFold(e.TriggerType, "cron"):
				sch.Trigger = *e.Recurrence
			default:
				return s, berth.Errorf(berth.Invalid, "schedules.computeStartStop[%d] has neither a cron nor a recurrence trigger", i)
			}
			s.Schedules = append(s.Schedules, sch)
		}
	}
	var err error
	if p.SetupScripts != nil {
		if s.Creation, err = p.SetupScripts.Scripts.Creation.parse("creationScript"); err != nil {
			return s, err
		}
		if s.Startup, err = p.SetupScripts.Scripts.Startup.parse("startupScript"); err != nil {
			return s, err
		}
	}
	seen := map[string]bool{"jupyter": true, "ssh": true, "open": true, "log": true, "control": true}
	for i, c := range p.CustomServices {
		if err := berth.CheckName("application", c.Name); err != nil {
			return s, berth.Errorf(berth.Invalid, "customServices[%d]: %w", i, err)
		}
		if seen[strings.ToLower(c.Name)] {
			return s, berth.Errorf(berth.Invalid, "customServices[%d]: the name %s is taken; choose another", i, c.Name)
		}
		seen[strings.ToLower(c.Name)] = true
		a := App{Name: c.Name, Image: c.Image.Reference, Env: map[string]string{}}
		if len(c.Endpoints) > 0 {
			a.Port = c.Endpoints[0].Target
		}
		if a.Image == "" || a.Port <= 0 || a.Port > 65535 {
			return s, berth.Errorf(berth.Invalid, "customServices[%d]: application %s requires image.reference and endpoints[0].target, a port", i, c.Name)
		}
		for k, v := range c.Env {
			a.Env[k] = string(v.Value)
		}
		for _, v := range c.Volumes {
			a.Binds = append(a.Binds, Bind{Source: v.Source, Target: v.Target, ReadOnly: v.ReadOnly})
		}
		s.Apps = append(s.Apps, a)
	}
	return s, nil
}

func (p *script) parse(field string) (*Script, error) {
	if p == nil || p.Data == "" {
		return nil, nil //nolint:nilnil // no script is what was asked for
	}
	s := &Script{Args: p.Args, Timeout: scriptTimeout}
	if p.Timeout != "" {
		d, err := time.ParseDuration(p.Timeout)
		if err != nil {
			d, err = berth.ParseDuration(p.Timeout)
		}
		if err != nil || d <= 0 {
			return nil, berth.Errorf(berth.Invalid, "setupScripts.scripts.%s.timeout must be a duration such as 20m or PT20M, not %q", field, p.Timeout)
		}
		s.Timeout = d
	}
	if !strings.EqualFold(p.Source, "inline") {
		s.Path = p.Data
		return s, nil
	}
	b, err := base64.StdEncoding.DecodeString(p.Data)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "setupScripts.scripts.%s.scriptData must be base64 when scriptSource is inline", field)
	}
	s.Data = b
	return s, nil
}

// Check refuses schedules that never fire. It is apart from Parse because one that has had its day
// is not an error of a document that is only read or changed elsewhere.
func (s Spec) Check(now time.Time) error {
	for i, sch := range s.Schedules {
		if _, err := sch.Trigger.Compile(now, now); err != nil {
			return berth.Errorf(berth.Invalid, "schedules.computeStartStop[%d]: %w", i, err)
		}
	}
	return nil
}

// A Firing is a time at which a schedule starts or stops the instance.
type Firing struct {
	At    time.Time
	Start bool
}

// Next is the first firing after t; ok is false when there is none. anchor is when the instance was
// made.
func (s Spec) Next(anchor, t time.Time) (f Firing, ok bool) {
	for _, sch := range s.Schedules {
		if !sch.Enabled {
			continue
		}
		c, err := sch.Trigger.Compile(anchor, t)
		if err != nil { // it does not fire any more
			continue
		}
		// Of two at the same time stopping wins: it costs nothing.
		if at := c.Next(t); !ok || at.Before(f.At) || at.Equal(f.At) && !sch.Start {
			f, ok = Firing{at, sch.Start}, true
		}
	}
	return f, ok
}

// lookBack is how far back a firing that was missed is still honoured.
const lookBack = 24 * time.Hour

// Due is the last firing after from and not after now: what the schedules want while the one before
// it has been overtaken.
func (s Spec) Due(anchor, from, now time.Time) (f Firing, ok bool) {
	if early := now.Add(-lookBack); from.Before(early) {
		from = early
	}
	for {
		next, more := s.Next(anchor, from)
		if !more || next.At.After(now) {
			return f, ok
		}
		f, ok, from = next, true, next.At
	}
}
