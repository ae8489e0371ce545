package app

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/devbox/agent"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// instances is where the directories of compute instances are.
func (a *App) instances() string { return filepath.Join(a.cfg.Home, "instances") }

// reach is how the front door gets to instances.
func (a *App) reach() api.Instances {
	return api.Instances{Dir: a.instances(), Dial: agent.Dial}
}

// openInstances makes the loop that looks after compute instances. Their agents are this program
// with another hidden command.
func (a *App) openInstances(nodes devbox.Machine, envCache driver.Environments, host []string) *devbox.Loop {
	if envCache.Engine == "" {
		envCache.Engine = os.Getenv("DOCKER_HOST") // processes on nodes do not inherit it
	}
	return devbox.New(devbox.Options{
		DB: a.db, Machine: nodes, Dir: a.instances(), Home: a.cfg.Home, Command: append(slices.Clone(host[:1]), "_devbox"), Log: a.log,
		Agent:        func(dir string) devbox.Agent { return agent.NewClient(dir) },
		Admit:        devbox.Admission{Machine: a.machine, QuotaDefault: a.cfg.QuotaDefault}.Admit,
		Script:       a.script,
		DiskBytes:    a.diskBytes(),
		Environments: envCache,
		Access:       a.instanceAccess,
	})
}

// instanceAccess is what programs on an instance need to use this server as its owner.
func (a *App) instanceAccess(workspace, node string) (devbox.Access, error) {
	bundle, err := os.ReadFile(a.certs.Bundle)
	return devbox.Access{URL: a.URL, Token: a.keys.InstanceToken(workspace, node), Bundle: bundle}, err
}

// instanceCheck is how tokens of instances are checked: they are good while the instance has its
// node, for what runs on it.
func (a *App) instanceCheck() auth.InstanceCheck {
	return auth.InstanceCheck{
		Owner: func(ctx context.Context, workspace, node string) (user string, err error) {
			err = a.db.View(ctx, func(tx *store.Tx) error {
				user, err = devbox.OwnerOf(tx, workspace, node)
				return err
			})
			return user, err
		},
		From: a.fromNode,
	}
}

// diskBytes is how large an instance's disk is: what the configuration says, but no more than the
// machine has.
func (a *App) diskBytes() int64 {
	n := a.cfg.InstanceDisk
	var st syscall.Statfs_t
	if err := syscall.Statfs(a.cfg.Home, &st); err == nil {
		all := int64(st.Blocks) * int64(st.Bsize) //nolint:unconvert // other types on other systems
		if n == 0 || all < n {
			return all
		}
	}
	return n
}

// maxScript bounds a setup script.
const maxScript = 1 << 20

// script reads a setup script from a workspace's default storage.
func (a *App) script(ctx context.Context, workspace, path string) ([]byte, error) {
	var at locate.Storage
	err := a.db.View(ctx, func(tx *store.Tx) (err error) {
		at, err = locate.StorageOf(tx, workspace)
		return err
	})
	if err != nil {
		return nil, err
	}
	r, err := a.blobs.Open(ctx, at.Blobs, strings.TrimPrefix(path, "/"))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxScript+1))
	if err == nil && len(b) > maxScript {
		err = berth.Errorf(berth.Limit, "it is larger than %d MiB", maxScript>>20)
	}
	return b, err
}
