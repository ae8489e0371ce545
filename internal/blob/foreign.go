package blob

import (
	"encoding/json"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// A version may consist of files in a container of another workspace. Its own workspace keeps a
// note of each such hold, so that it ends with the workspace.

// kindForeign is the kind of these notes.
const kindForeign = "foreignholds"

// foreign is a hold of a version on files of another workspace.
type foreign struct {
	Container string `json:"container"`
	Name      string `json:"name"`
	Version   string `json:"version"`
}

// NoteForeign notes in a workspace that a version of it holds files of another one.
func NoteForeign(tx *store.Tx, workspace, container, name, version string) error {
	body, err := json.Marshal(foreign{container, name, version})
	if err != nil {
		return err
	}
	err = tx.Insert(&store.Doc{Workspace: workspace, Kind: kindForeign, Name: placeKey(container, name, version), Body: body})
	if berth.CodeOf(err) == berth.Conflict {
		return nil // noted before
	}
	return err
}

// ReleaseForeign is Release for a hold of which NoteForeign made a note.
func ReleaseForeign(tx *store.Tx, workspace, container, name, version string) error {
	err := tx.Delete(workspace, kindForeign, placeKey(container, name, version), "")
	if err != nil && berth.CodeOf(err) != berth.NotFound {
		return err
	}
	return Release(tx, container, name, version)
}

// ForgetWorkspace ends the holds of a workspace that is deleted: those of its versions on files of
// others, and all on its own containers.
func ForgetWorkspace(tx *store.Tx, workspace string, containers ...string) error {
	notes, err := tx.All(store.Query{Workspace: workspace, Kind: kindForeign})
	if err != nil {
		return err
	}
	for _, d := range notes {
		var f foreign
		if err := json.Unmarshal(d.Body, &f); err != nil {
			return err
		}
		if err := ReleaseForeign(tx, workspace, f.Container, f.Name, f.Version); err != nil {
			return err
		}
	}
	for _, container := range containers {
		for _, kind := range []string{kindHolds, kindProofs} {
			docs, err := tx.All(store.Query{Kind: kind, Parent: container, NoBody: true})
			if err != nil {
				return err
			}
			for _, d := range docs {
				if err := tx.Delete("", kind, d.Name, ""); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
