package world

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/berthml/berth/bench/measure"
)

// Endpoint is an online endpoint of the server.
type Endpoint struct {
	s    *Server
	Name string
	Host string // HOST:PORT of HTTPS
	Path string // of /score
	Key  string
}

// call makes one call over a connection of its own, since the server may have been restarted.
func (s *Server) call(ctx context.Context, method, path string, body, into any) error {
	c, err := s.Dial(ctx, false)
	if err != nil {
		return err
	}
	defer c.Close()
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	got, err := c.do(method, path, text)
	if err == nil && into != nil {
		err = json.Unmarshal(got, into)
	}
	return err
}

// Endpoint makes an online endpoint.
func (s *Server) Endpoint(ctx context.Context, name string) (*Endpoint, error) {
	e := &Endpoint{s: s, Name: name}
	var v struct {
		Properties struct{ ScoringURI string }
		PrimaryKey string
	}
	if err := s.call(ctx, "PUT", e.path(), map[string]any{"location": "local", "properties": map[string]any{"authMode": "Key"}}, &v); err != nil {
		return nil, err
	}
	u, err := url.Parse(v.Properties.ScoringURI)
	if err != nil {
		return nil, err
	}
	e.Host, e.Path = u.Host, u.Path
	err = s.call(ctx, "POST", e.path()+"/listKeys", map[string]any{}, &v)
	e.Key = v.PrimaryKey
	return e, err
}

func (e *Endpoint) path() string { return e.s.WS + "/onlineEndpoints/" + e.Name }

// Deployment is what a deployment of a scoring script is to be.
type Deployment struct {
	Name, Dir, Script string
	Count, Workers    int
	Env, Properties   map[string]any
}

// Deploy writes a deployment.
func (e *Endpoint) Deploy(ctx context.Context, d Deployment) error {
	code := e.s.WS + "/codes/" + strings.ReplaceAll(strings.Trim(d.Dir, "/"), "/", "-") + "/versions/1"
	if err := e.s.call(ctx, "GET", code, nil, nil); err != nil {
		if err := e.s.call(ctx, "PUT", code, map[string]any{"properties": map[string]any{"codeUri": "file://" + d.Dir}}, nil); err != nil {
			return err
		}
	}
	return e.s.call(ctx, "PUT", e.path()+"/deployments/"+d.Name, map[string]any{
		"location": "local", "sku": map[string]any{"name": "Default", "capacity": d.Count},
		"properties": map[string]any{
			"endpointComputeType": "Managed", "environmentVariables": d.Env, "properties": d.Properties,
			"codeConfiguration": map[string]any{"codeId": code, "scoringScript": d.Script},
			"requestSettings":   map[string]any{"requestTimeout": "PT60S", "maxConcurrentRequestsPerInstance": max(d.Workers, 1)},
		},
	}, nil)
}

// Settled waits until a deployment has as many replicas as it should, and nothing else.
func (e *Endpoint) Settled(ctx context.Context, name string, count int) error {
	for end := time.Now().Add(3 * time.Minute); ; {
		var v struct {
			Properties struct {
				ProvisioningState string
				Berth             struct {
					Error    string
					Replicas []struct{ State string }
				}
			}
		}
		if err := e.s.call(ctx, "GET", e.path()+"/deployments/"+name, nil, &v); err != nil {
			return err
		}
		p, ready := v.Properties, 0
		for _, r := range p.Berth.Replicas {
			if r.State == "ready" {
				ready++
			}
		}
		switch {
		case p.ProvisioningState == "Failed":
			return fmt.Errorf("deployment %s failed: %s", name, p.Berth.Error)
		case p.ProvisioningState == "Succeeded" && ready == count && len(p.Berth.Replicas) == count:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("deployment %s is not settled: %+v", name, p)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Delete ends the replicas of the endpoint, which would outlive the server.
func (e *Endpoint) Delete() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := e.s.call(ctx, "DELETE", e.path(), nil, nil)
	left := func() []int {
		return measure.Find(func(args []string) bool { return strings.HasPrefix(args[0], e.s.Home+"/host/tasks/") })
	}
	for ctx.Err() == nil && err == nil && len(left()) > 0 {
		time.Sleep(50 * time.Millisecond)
	}
	for _, pid := range left() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// Traffic sets the shares of the deployments.
func (e *Endpoint) Traffic(ctx context.Context, shares map[string]int) error {
	return e.s.call(ctx, "PUT", e.path(), map[string]any{"location": "local", "properties": map[string]any{"authMode": "Key", "traffic": shares}}, nil)
}

// Restart ends the server with a signal and starts it again. Its runner host runs on.
func (s *Server) Restart(ctx context.Context, signal syscall.Signal) error {
	if err := s.cmd.Process.Signal(signal); err != nil {
		return err
	}
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		return fmt.Errorf("the server does not end")
	}
	group := s.group
	err := s.start(ctx, nil, s.Bin, "serve", "--home", s.Home, "--listen", s.address) // where its clients look for it
	s.group = group
	return err
}
