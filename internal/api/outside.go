package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/storage"
	"github.com/berthml/berth/internal/store"
)

// signatureLife is how long a signed request to storage elsewhere is good. A runner that needs
// longer asks again.
const signatureLife = time.Hour

// signStorage signs requests of a task to storage elsewhere. The bytes go between the node and the
// storage; the key stays here.
func (s *runnerService) signStorage(c *call) error {
	id, err := s.authority.Keys.CheckTask(auth.Bearer(c.r.Header.Get("Authorization")), c.now)
	if err != nil || id != berth.TaskID(c.r.PathValue("id")) {
		return berth.Errorf(berth.Denied, "this token does not open task %s", c.r.PathValue("id"))
	}
	var ask struct {
		Grant    string                 `json:"grant"`
		Requests []berth.OutsideRequest `json:"requests"`
	}
	if err := c.into(&ask); err != nil {
		return err
	}
	if len(ask.Requests) > berth.MaxOutsideRequests {
		return berth.Errorf(berth.Invalid, "%d requests are signed at once, not %d", berth.MaxOutsideRequests, len(ask.Requests))
	}
	var g locate.Grant
	raw, err := s.authority.Keys.Open(ask.Grant, auth.StorageGrant(id))
	if err == nil {
		err = json.Unmarshal(raw, &g)
	}
	if err != nil {
		return berth.Errorf(berth.Denied, "the grant is not one of task %s", id)
	}
	key, err := s.granted(c, id, g)
	if err != nil {
		return err
	}
	if p := key.Principal(); p != nil {
		user, err := s.principals.Key(c.ctx(), *p, c.now)
		if err == nil {
			err = key.Delegate(user)
		}
		if err != nil {
			return berth.Errorf(berth.CodeOf(err), "datastore %s: %w", g.Datastore, err)
		}
	}
	urls := make([]string, len(ask.Requests))
	for i, r := range ask.Requests {
		if err := c.ctx().Err(); err != nil {
			return err
		}
		if r.Do.Writes() && !g.Write {
			return berth.Errorf(berth.Denied, "an input is not written to")
		}
		if key.Authorization() != "" {
			urls[i], err = s.address(id, g, r, key, c.now)
		} else {
			urls[i], err = key.Sign(g.Path, r, c.now, c.now.Add(signatureLife))
		}
		if err != nil {
			return err
		}
	}
	c.w.Header().Set("Cache-Control", "no-store")
	return c.send(http.StatusOK, map[string]any{"urls": urls})
}

// granted opens the storage that a task has a grant for, while the user whose task it is may do
// something.
func (s *runnerService) granted(c *call, id berth.TaskID, g locate.Grant) (*storage.Key, error) {
	if g.User != "" {
		if err := s.authority.CheckHolder(c.ctx(), auth.UserHolder(g.User), c.now); err != nil {
			return nil, err
		}
	}
	return s.storageKey(c, id, g)
}

// storageKey opens the storage that a task has a grant for.
func (s *runnerService) storageKey(c *call, id berth.TaskID, g locate.Grant) (key *storage.Key, err error) {
	err = s.db.View(c.ctx(), func(tx *store.Tx) error {
		t, err := tx.Task(id)
		if err != nil {
			return err
		}
		if t.State == berth.TaskDone {
			return berth.Errorf(berth.Gone, "task %s is over, and its token with it", id)
		}
		d, err := tx.Get(t.Workspace, "datastores", g.Datastore, "")
		if berth.CodeOf(err) == berth.NotFound {
			return berth.Errorf(berth.NotFound, "datastore %s was deleted", g.Datastore)
		}
		if err != nil {
			return err
		}
		ds, err := locate.ReadDatastore(d)
		if err != nil {
			return err
		}
		secrets, err := openSecrets(s.authority.Keys, t.Workspace+"/datastores/"+d.Name, d)
		if err != nil {
			return err
		}
		if key, err = ds.Open(ds.Credentials, asMap(secrets["credentials.secrets"])); err != nil {
			err = berth.Errorf(berth.CodeOf(err), "datastore %s: %w", d.Name, err)
		}
		return err
	})
	return key, err
}
