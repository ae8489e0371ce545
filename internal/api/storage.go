package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/space"
)

// storageService serves what takes space in a workspace's own storage (ours):
//
//	GET  storage?by=kind,user,job,age,workspace   by workspace: of all of them
//	POST cleanStorage                   a berth.CleanStorage
type storageService struct {
	of         space.Sources
	quota      *space.Quota
	at         locate.Locator
	workspaces *workspaceService
	tracking   Tracking
	passOn     func(w http.ResponseWriter, r *http.Request) (bool, error)
}

func (s *storageService) use(c *call) error {
	by := []string{"kind"}
	if v, ok := c.q["by"]; ok {
		by = strings.FieldsFunc(strings.ToLower(strings.Join(v, ",")), func(r rune) bool { return r == ',' })
	}
	if err := space.CheckKeys(by); err != nil {
		return err
	}
	done, err := s.of.Blobs.Survey(c.ctx())
	if err != nil {
		return err
	}
	defer done()
	keys := []string{c.ws.Key()}
	if slices.Contains(by, space.ByWorkspace) {
		all, err := s.workspaces.allWorkspaces(c.ctx())
		if err != nil {
			return err
		}
		keys = nil
		for _, ws := range all {
			keys = append(keys, ws.Key())
		}
	}
	out, err := space.Use(c.ctx(), s.of, keys, by, c.now)
	if err != nil {
		return err
	}
	if !slices.Contains(by, space.ByWorkspace) {
		if out.Limit, err = s.quota.Limit(c.ctx(), c.ws.Key()); err != nil {
			return err
		}
	}
	return c.send(http.StatusOK, out)
}

func (s *storageService) clean(c *call) error {
	var q berth.CleanStorage
	if err := c.into(&q); err != nil {
		return err
	}
	if err := space.Check(q); err != nil {
		return err
	}
	cleaner := space.Cleaner{DB: s.of.DB, Blobs: s.of.Blobs, Workspace: c.ws.Key(), Space: c.ws, Locator: s.at, User: c.who.User, By: c.who.User}
	if q.Everyone {
		if c.who.Role != auth.Admin {
			return berth.Errorf(berth.Denied, "only an administrator may delete what belongs to everyone: leave that out to delete what is yours")
		}
		cleaner.User = ""
	}
	if slices.Contains(q.Kinds, berth.StorageMetrics) {
		if passed, err := c.passOn(s.passOn); passed || err != nil {
			if !q.DryRun {
				s.quota.Forget(c.ws.Key())
			}
			return err
		}
		found, err := s.workspaces.lookUpWorkspace(c.ctx(), c.ws)
		if err != nil {
			return err
		}
		cleaner.Runs = func(ctx context.Context, user string, q berth.CleanStorage) (berth.CleanedStorage, error) {
			return s.tracking.Clean(ctx, found.tracking, user, q)
		}
	}
	done, err := s.of.Blobs.Survey(c.ctx())
	if err != nil {
		return err
	}
	defer done()
	out, err := cleaner.Clean(c.ctx(), q)
	if !q.DryRun {
		s.quota.Forget(c.ws.Key())
	}
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, out)
}
