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
	"github.com/berthml/berth/internal/store"
)

// EnvironmentPrefix begins the names of environments that are made of models; the rest is a hash of
// what is in them.
const EnvironmentPrefix = "mlflow-model-"

// maxConda bounds the list of packages of a model.
const maxConda = 1 << 20

// environment is the environment of a replica: the one the deployment names, or, for an MLflow
// model without one, that of the model, which is made into an environment of the workspace.
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
	text, err := k.condaOf(ctx, v, m)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256([]byte(text))
	name := EnvironmentPrefix + hex.EncodeToString(h[:])
	body, err := json.Marshal(map[string]any{"properties": map[string]any{"condaFile": text, "isAnonymous": true, "osType": "Linux"}})
	if err != nil {
		return "", err
	}
	var there *store.Doc
	read := func(tx *store.Tx) (err error) {
		if there, err = tx.Get(k.key.workspace, "environments/versions", name, "1"); berth.CodeOf(err) == berth.NotFound {
			there, err = nil, nil
		}
		return err
	}
	if err := k.l.o.DB.View(ctx, read); err != nil {
		return "", err
	}
	if there == nil {
		err = k.l.o.DB.Update(ctx, func(tx *store.Tx) error {
			if err := read(tx); err != nil || there != nil {
				return err
			}
			there = &store.Doc{Workspace: k.key.workspace, Kind: "environments/versions", Name: name, Version: "1", CreatedBy: v.doc.CreatedBy, Body: body}
			return tx.Insert(there)
		})
	}
	if err == nil && !bytes.Equal(there.Body, body) { // it was there before the server kept such names for itself
		err = berth.Errorf(berth.Conflict, "environment %s is not the one that the server made of the model: delete it", name)
	}
	return v.ws.ResourceID("environments", name, "versions", "1"), err
}

// condaOf is the conda file of an MLflow model.
func (k *keeper) condaOf(ctx context.Context, v *view, m Model) (string, error) {
	var container, name string
	err := k.l.o.DB.View(ctx, func(tx *store.Tx) error {
		p, err := k.l.o.Locator.Resolve(tx, v.ws, v.doc.CreatedBy, m.ID)
		container, name = p.Container, p.Name
		return err
	})
	if err != nil {
		return "", err
	}
	if container == "" {
		return "", berth.Errorf(berth.Unsupported, "model %s:%s is not in this server's storage, so that its packages cannot be read: name an environment in the deployment", m.Name, m.Version)
	}
	r, err := k.l.o.Blobs.Open(ctx, container, path.Join(name, "conda.yaml"))
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
