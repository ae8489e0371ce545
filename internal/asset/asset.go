// Package asset keeps the versions of assets and the containers they are in.
package asset

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Container is what we keep of an asset's container.
type Container struct {
	Latest string `json:"latestVersion"`
	Next   string `json:"nextVersion"`
}

// Version is one version of an asset that is to be made.
type Version struct {
	Workspace  string // its key
	Collection string
	Name       string
	Version    string // the next one when empty
	User       string
	Properties map[string]any
	Own        json.RawMessage // kept beside it
}

// Title is what a version is called where its files are held.
func Title(noun, name, version string) string { return noun + " " + name + ":" + version }

// Create writes a new version. One that is there already is a Conflict.
func Create(tx *store.Tx, v Version) (version string, err error) {
	if v.Version == "" {
		own, _, err := container(tx, v.Workspace, v.Collection, v.Name)
		if err != nil {
			return "", err
		}
		if v.Version = own.Next; v.Version == "" {
			v.Version = "1"
		}
	}
	maker, was, err := Deleted(tx, v.Workspace, v.Collection, v.Name, v.Version)
	if err != nil {
		return "", err
	}
	if was && maker != v.User {
		return "", berth.Errorf(berth.Denied, "%s %s:%s was deleted; only %s, who created it, or an administrator may create it again", v.Collection, v.Name, v.Version, maker)
	}
	body, err := json.Marshal(map[string]any{"properties": v.Properties})
	if err != nil {
		return "", err
	}
	d := &store.Doc{Workspace: v.Workspace, Kind: v.Collection + "/versions", Name: v.Name, Version: v.Version, CreatedBy: v.User, Body: body, Own: v.Own}
	if err := tx.Insert(d); err != nil {
		return "", err
	}
	return v.Version, UpdateContainer(tx, v.Workspace, v.Collection, v.Name, v.Version, v.User, v.Properties)
}

// Next is the number of the next version of an asset.
func Next(tx *store.Tx, workspace, collection, name string) (int, error) {
	own, _, err := container(tx, workspace, collection, name)
	if err != nil || own.Next == "" {
		return 1, err
	}
	n, err := strconv.Atoi(own.Next)
	if err != nil {
		return 0, berth.Errorf(berth.Internal, "the next version of %s %s is %q", collection, name, own.Next)
	}
	return n, nil
}

// maxChosen bounds the number that a version may be given: as many are left for the next ones.
// Times in nanoseconds are below it.
const maxChosen = 1 << 62

// UpdateContainer creates or updates the container of a new version. A container has the data type
// of its first version.
func UpdateContainer(tx *store.Tx, workspace, collection, name, version, user string, props map[string]any) error {
	own, d, err := container(tx, workspace, collection, name)
	if err != nil {
		return err
	}
	next := 1
	if n, err := strconv.Atoi(own.Next); err == nil {
		next = n
	}
	if n, err := strconv.Atoi(version); err == nil && n >= next {
		if n > maxChosen && n != next || n == math.MaxInt {
			return berth.Errorf(berth.Invalid, "version %s of %s is a number too high to go on from: choose one up to %d, or a name that is not a number", version, name, maxChosen)
		}
		next = n + 1
	}
	raw, err := json.Marshal(Container{Latest: version, Next: strconv.Itoa(next)})
	if err != nil {
		return err
	}
	if d == nil {
		first := map[string]any{}
		if kind, ok := props["dataType"]; ok && collection == "data" {
			first["dataType"] = kind
		}
		body, err := json.Marshal(map[string]any{"properties": first})
		if err != nil {
			return err
		}
		return tx.Insert(&store.Doc{Workspace: workspace, Kind: collection, Name: name, CreatedBy: user, Body: body, Own: raw})
	}
	d.Own = raw
	return tx.Save(d)
}

// container reads a container; its document is nil when there is none. Where there was one, it says
// how its versions are numbered on.
func container(tx *store.Tx, workspace, collection, name string) (own Container, d *store.Doc, err error) {
	d, err = tx.Get(workspace, collection, name, "")
	at := d
	if berth.CodeOf(err) == berth.NotFound {
		d = nil
		if at, err = tx.Get(workspace, kindDeleted(collection), name, ""); berth.CodeOf(err) == berth.NotFound {
			return own, nil, nil
		}
	}
	if err == nil {
		own, err = store.State[Container](at)
	}
	return own, d, err
}
