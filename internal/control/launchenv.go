package control

import (
	"encoding/json"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
)

// environment is what a job says of its environment, for the runner.
func (b builder) environment(id string, props json.RawMessage) (berth.LaunchEnv, error) {
	var extra struct {
		Properties map[string]berth.Scalar `json:"properties"`
	}
	if err := json.Unmarshal(props, &extra); err != nil {
		return berth.LaunchEnv{}, berth.Errorf(berth.Invalid, "the job's properties: %w", err)
	}
	host := b.cy.c.o.ImagesOnHost || strings.EqualFold(string(extra.Properties[berth.EnvironmentProperty]), berth.OnHost)
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
	d, err := locate.Version(b.cy.tx, b.ws, "environments", ref)
	if ref.Registry != "" || err != nil {
		env, ok := b.cy.c.o.Curated(ref.Name)
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
			Build     *struct{ DockerfilePath string }
		}
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return berth.LaunchEnv{}, berth.Errorf(berth.Invalid, "environment %s cannot be read: %w", name, err)
	}
	env := berth.LaunchEnv{Name: name, Image: v.Properties.Image, Conda: v.Properties.CondaFile, Host: host}
	if bc := v.Properties.Build; bc != nil {
		p, err := b.content(d, "environments")
		if err != nil {
			return env, err
		}
		if env.Build, env.Below, err = b.address(p, "rl", false); err != nil {
			return env, err
		}
		env.Dockerfile = bc.DockerfilePath
	}
	return env, nil
}
