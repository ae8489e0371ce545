package api

import (
	"encoding/json"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/store"
)

// curatedVersion is the latest version of environments that are always there.
const curatedVersion = "1"

// curatedEnvironment is the document of an environment that is always there: it answers for every version somebody names, and for the
// container. The first that somebody makes of that name takes its place.
func (s *Server) curatedEnvironment(workspace, name, version string) (*store.Doc, bool) {
	env, ok := s.Curated(name)
	if !ok {
		return nil, false
	}
	if version == "" {
		own, err := json.Marshal(asset.Container{Latest: curatedVersion, Next: curatedVersion})
		return &store.Doc{Workspace: workspace, Kind: "environments", Name: name, Body: json.RawMessage(`{"properties":{}}`), Own: own}, err == nil
	}
	body, err := json.Marshal(map[string]any{"properties": map[string]any{
		"image": "mcr.microsoft.com/azureml/curated/" + name + ":" + version, "condaFile": env.Conda, "osType": "Linux",
		"environmentType": "Curated", "description": "stands in for the curated environment of that name",
	}})
	if err != nil {
		return nil, false
	}
	return &store.Doc{Workspace: workspace, Kind: "environments/versions", Name: name, Version: version, Body: body}, true
}

func checkEnvironment(_ *call, _ *store.Tx, _, _ string, p map[string]any) error {
	if p["image"] == nil && p["build"] == nil && p["condaFile"] == nil {
		return berth.Errorf(berth.Invalid, "an environment needs properties.image, properties.build or properties.condaFile")
	}
	return nil
}
