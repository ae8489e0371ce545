package serve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"path"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// EnvironmentPrefix begins the names of environments that are made of models; the rest is a hash of
// what is in them.
const EnvironmentPrefix = "mlflow-model-"

// maxConda bounds the list of packages of a model.
const maxConda = 1 << 20

// environment is the environment of a replica: the one the deployment names, or, for an MLflow
// model without one, that of the model.
func (k *keeper) environment(ctx context.Context, v *view, s Spec) (string, error) {
	if s.Environment != "" || s.Code != "" || s.Model == "" || s.Command != "" {
		return s.Environment, nil
	}
	var m Model
	err := k.l.o.DB.View(ctx, func(tx *store.Tx) (err error) {
		m, err = FindModel(tx, v.ws, s.Model)
		return err
	})
	if err != nil || !m.MLflow {
		return "", err
	}
	return ModelEnvironments{DB: k.l.o.DB, Blobs: k.l.o.Blobs, Locator: k.l.o.Locator}.Of(ctx, v.ws, v.doc.CreatedBy, m)
}

// ModelEnvironments makes environments of what MLflow models say they need. Online and batch
// deployments of a model have the same.
type ModelEnvironments struct {
	DB      *store.DB
	Blobs   *blob.Store
	Locator locate.Locator
}

// Of is the id of the environment of a model, which user may read. It is one of the workspace, and
// the server's own: everybody who deploys a model that needs the same gets it.
func (e ModelEnvironments) Of(ctx context.Context, ws berth.Workspace, user string, m Model) (string, error) {
	conda, err := e.conda(ctx, ws, user, m)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256([]byte(conda))
	v := asset.Version{
		Workspace: ws.Key(), Collection: "environments", Name: EnvironmentPrefix + hex.EncodeToString(h[:]), Version: "1",
		Properties: map[string]any{"condaFile": conda, "isAnonymous": true, "osType": "Linux"},
	}
	there := false
	read := func(tx *store.Tx) error {
		d, err := tx.Get(v.Workspace, "environments/versions", v.Name, v.Version)
		if there = err == nil; berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		if err == nil {
			err = same(d, v)
		}
		return err
	}
	if err := e.DB.View(ctx, read); err != nil {
		return "", err
	}
	if !there {
		err = e.DB.Update(ctx, func(tx *store.Tx) error {
			if err := read(tx); err != nil || there {
				return err
			}
			_, err := asset.Create(tx, v)
			return err
		})
	}
	return ws.ResourceID("environments", v.Name, "versions", v.Version), err
}

// same refuses an environment with the name of another that was there before the server kept such
// names for itself.
func same(d *store.Doc, v asset.Version) error {
	body, err := json.Marshal(map[string]any{"properties": v.Properties})
	if err == nil && !bytes.Equal(d.Body, body) {
		err = berth.Errorf(berth.Conflict, "environment %s is not the one that the server made of the model: delete it", v.Name)
	}
	return err
}

// conda is the conda file of an MLflow model.
func (e ModelEnvironments) conda(ctx context.Context, ws berth.Workspace, user string, m Model) (string, error) {
	var container, name string
	err := e.DB.View(ctx, func(tx *store.Tx) error {
		p, err := e.Locator.Resolve(tx, ws, user, m.ID)
		container, name = p.Container, p.Name
		return err
	})
	if err != nil {
		return "", err
	}
	if container == "" {
		return "", berth.Errorf(berth.Unsupported, "model %s:%s is not in this server's storage, so that its packages cannot be read: name an environment in the deployment", m.Name, m.Version)
	}
	r, err := e.Blobs.Open(ctx, container, path.Join(name, "conda.yaml"))
	if berth.CodeOf(err) == berth.NotFound {
		return "", berth.Errorf(berth.Invalid, "model %s:%s has no conda.yaml, which says what it needs: name an environment in the deployment", m.Name, m.Version)
	}
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxConda+1))
	if err == nil && len(b) > maxConda {
		err = berth.Errorf(berth.Limit, "conda.yaml of model %s:%s is larger than %d MiB", m.Name, m.Version, maxConda>>20)
	}
	return string(b), err
}
