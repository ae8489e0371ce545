package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/ordered"
	"github.com/berthml/berth/internal/store"
)

// indexService serves indexes, which Azure keeps on its data plane.
type indexService struct {
	db         *store.DB
	location   string
	docs       *documentService
	workspaces *workspaceService
}

// Index assets live on the data plane, are flat, and carry an id of another form; otherwise they
// are versioned assets like any.

func (s *indexService) indexes(c *call, p []string) error {
	if !fold(p, 0, "indexes") {
		return notFound(c)
	}
	switch {
	case len(p) == 1:
		return s.listIndexes(c, "")
	case len(p) == 2 && strings.HasSuffix(p[1], ":getNextVersion"):
		return s.nextVersion(c, strings.TrimSuffix(p[1], ":getNextVersion"))
	case len(p) == 2:
		return s.latestIndex(c, p[1])
	case len(p) == 3 && fold(p, 2, "versions"):
		return s.listIndexes(c, p[1])
	case len(p) == 4 && fold(p, 2, "versions"):
		return s.index(c, p[1], p[3])
	}
	return notFound(c)
}

// index serves one version.
func (s *indexService) index(c *call, name, version string) error {
	switch c.r.Method {
	case http.MethodPut:
		return s.putIndex(c, indexResource.kind(version), name, version)
	case http.MethodDelete:
		return s.docs.remove(c, &indexResource, name, version)
	case http.MethodGet, http.MethodHead:
	default:
		return methodError(c)
	}
	d, err := s.docs.load(c, &indexResource, name, version)
	if err != nil {
		return err
	}
	return s.sendIndex(c, http.StatusOK, d)
}

func (s *indexService) latestIndex(c *call, name string) error {
	var d *store.Doc
	err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		d, err = latest(tx, c.ws.Key(), &indexResource, name)
		return err
	})
	if err != nil {
		return c.missing(err, &indexResource, name, "")
	}
	return s.sendIndex(c, http.StatusOK, d)
}

// nextVersion says which version a client that counts should create next.
func (s *indexService) nextVersion(c *call, name string) error {
	out := map[string]any{"nextVersion": 1}
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		d, err := tx.Get(c.ws.Key(), indexResource.Collection, name, "")
		if berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		own, err := store.State[asset.Container](d)
		if err != nil {
			return err
		}
		next, err := strconv.Atoi(own.Next)
		if err != nil {
			return err
		}
		out["nextVersion"], out["latestVersion"] = next, own.Latest
		return nil
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, out)
}

func (s *indexService) putIndex(c *call, kindV, name, version string) error {
	if err := berth.CheckName("index", name); err != nil {
		return err
	}
	if err := berth.CheckVersion("index", version); err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	stripReadOnly(body)
	raw, err := ordered.Marshal(body, c.received)
	if err != nil {
		return err
	}
	var d *store.Doc
	err = s.db.Update(c.ctx(), func(tx *store.Tx) error {
		d, err = tx.Get(c.ws.Key(), kindV, name, version)
		if berth.CodeOf(err) == berth.NotFound {
			d = &store.Doc{Workspace: c.ws.Key(), Kind: kindV, Name: name, Version: version, CreatedBy: c.who.User, Body: raw}
			if err := c.mayMake(tx, &indexResource, d); err != nil {
				return err
			}
			if err := tx.Insert(d); err != nil {
				return err
			}
			return asset.UpdateContainer(tx, c.ws.Key(), indexResource.Collection, name, version, c.who.User, nil)
		}
		if err != nil {
			return err
		}
		if err := c.madeIt(&indexResource, d, "change"); err != nil {
			return err
		}
		d.Body = raw
		d.Archived, _ = body["isArchived"].(bool)
		return tx.Save(d)
	})
	if err != nil {
		return err
	}
	return s.sendIndex(c, http.StatusOK, d) // also when it is new
}

func (s *indexService) listIndexes(c *call, name string) error {
	q, err := listCall{c}.query(indexResource.Collection+"/"+indexResource.Child, name)
	if err != nil {
		return err
	}
	value := []any{}
	seen := map[string]bool{}
	err = s.db.View(c.ctx(), func(tx *store.Tx) error {
		docs, err := tx.List(q)
		for _, d := range docs {
			if name == "" && seen[d.Name] {
				continue // the list of indexes has the newest of each
			}
			seen[d.Name] = true
			m, err := s.renderIndex(c, d)
			if err != nil {
				return err
			}
			b, err := ordered.Marshal(m, d.Body)
			if err != nil {
				return err
			}
			value = append(value, json.RawMessage(b))
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}

func (s *indexService) renderIndex(c *call, d *store.Doc) (map[string]any, error) {
	own, err := s.workspaces.storage(c.ctx(), c.ws)
	if err != nil {
		return nil, err
	}
	m := map[string]any{}
	if err := decodeJSON(d.Body, &m); err != nil {
		return nil, err
	}
	m["id"] = "azureml://locations/" + s.location + "/workspaces/" + own.ID + "/indexes/" + d.Name + "/versions/" + d.Version
	m["systemData"] = systemData(d, stamp)
	setDefault(m, "tags", map[string]any{})
	setDefault(m, "properties", map[string]any{})
	return m, nil
}

func (s *indexService) sendIndex(c *call, status int, d *store.Doc) error {
	m, err := s.renderIndex(c, d)
	if err != nil {
		return err
	}
	return c.sendLike(status, m, d)
}
