package app

import (
	"context"
	"net"
	"path/filepath"

	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/all"
)

// registry opens the targets of this server's computes.
func (a *App) registry() *driver.Registry {
	return driver.NewRegistry(a.drivers, func(name string) driver.Config { return a.targetConfig(name, a.host) }, a.log)
}

// targetConfig is what a target is opened with. Those that share this machine share its built
// environments.
func (a *App) targetConfig(name string, host []string) driver.Config {
	c := driver.Config{Home: a.cfg.Home, Host: host, Log: a.log, Dial: a.dialSelf, Environments: a.environments(), Cache: a.dataCache(), Program: a.program.hash, Hosts: a.cfg.Allow.Hosts}
	if a.cfg.SSHAgent != "false" {
		c.SSHAgent = a.cfg.SSHAgent
	}
	for driver, word := range map[string]string{"slurm": a.cfg.Slurm, "kubernetes": a.cfg.Kubernetes} {
		if word == "" || word == "false" {
			continue
		}
		if c.Consents == nil {
			c.Consents = map[string]string{}
		}
		c.Consents[driver] = word
	}
	switch name {
	case all.Local:
		c.Dir, c.Slots = filepath.Join(a.cfg.Home, "host"), a.cfg.Slots
		c.Environments.Dir = a.cfg.Environments // below Dir when it is empty
	case all.Clusters:
		c.Dir = filepath.Join(a.cfg.Home, "nodes")
	default:
		c.Dir = filepath.Join(a.cfg.Home, "computes", name)
	}
	return c
}

// dialSelf opens a connection to this server for a runner on another machine.
func (a *App) dialSelf(ctx context.Context) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", reachable(a.tcp))
	if err != nil {
		return nil, err
	}
	return a.relayed.add(c), nil
}

// dataCache is where code and inputs of tasks are kept, for all nodes on this machine.
func (a *App) dataCache() driver.Cache {
	return driver.Cache{Dir: filepath.Join(a.cfg.Home, "host", "cache"), Bytes: a.cfg.DataCache}
}

// environments is where built environments are kept. Nodes come and go: what was built for one
// serves the next.
func (a *App) environments() driver.Environments {
	e := driver.Environments{Dir: a.cfg.Environments, Bytes: a.cfg.EnvironmentCache, Engine: a.cfg.ContainerEngine}
	if e.Dir == "" {
		e.Dir = filepath.Join(a.cfg.Home, "host", "envs")
	}
	return e
}
