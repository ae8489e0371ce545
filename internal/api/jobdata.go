package api

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/storage"
	"github.com/berthml/berth/internal/store"
)

// The data and assets that a job names.

// checkData refuses an input or output (side) that names what is not there, or could not be
// written.
func (c jobCall) checkData(tx *store.Tx, side, name string, v map[string]any) error {
	if err := berth.CheckName(strings.TrimSuffix(side, "s"), name); err != nil {
		return err
	}
	if err := c.checkAssetOf(tx, v); err != nil {
		return berth.Errorf(berth.CodeOf(err), "properties.%s.%s: %w", side, name, err)
	}
	uri := text(v, "uri")
	direct := strings.EqualFold(text(v, "mode"), "Direct")
	evaluated := side == "inputs" && uri != "" && berth.EvaluatesInput(text(v, "mode"))
	if kind := text(v, "jobInputType"); evaluated && !strings.EqualFold(kind, "mltable") {
		return berth.Errorf(berth.Invalid, "properties.inputs.%s: mode %s is for inputs of type mltable, not %s", name, text(v, "mode"), kind)
	}
	if storage.Elsewhere(uri) && !direct {
		if p, err := c.s.Resolve(tx, c.ws, c.who.User, uri); err != nil || p.Outside() {
			return err
		}
		return berth.Errorf(berth.Invalid, "properties.%s.%s: no datastore of this workspace is for %s: create one and use azureml://datastores/NAME/paths/PATH, or give mode Direct for the command to open it itself", side, name, berth.CleanURL(uri))
	}
	if side == "outputs" && !writable(uri) && !direct {
		return berth.Errorf(berth.Invalid, "properties.outputs.%s: nothing can be written to %s: use azureml://datastores/NAME/paths/PATH", name, berth.CleanURL(uri))
	}
	if err := readable(uri, direct); err != nil {
		return berth.Errorf(berth.Invalid, "properties.%s.%s: %w", side, name, err)
	}
	scheme := strings.ToLower(uri)
	isID := side == "inputs" && strings.HasPrefix(scheme, "/subscriptions/")
	if !isID && !strings.HasPrefix(scheme, "azureml:") && !strings.HasPrefix(scheme, "http") || strings.Contains(uri, "${{") {
		return nil
	}
	if ref, err := berth.ParseRef(uri, "data"); err == nil && side == "inputs" && c.willRegister(ref) {
		return nil
	}
	place, err := c.s.Resolve(tx, c.ws, c.who.User, uri)
	if err == nil {
		_, err = c.s.Authority.Keys.OpenAddress(place.URL, place.User)
	}
	if err == nil && side == "inputs" && !direct && !strings.EqualFold(text(v, "jobInputType"), "uri_file") {
		err = listable(place)
	}
	if err != nil {
		return berth.Errorf(berth.Invalid, "properties.%s.%s: %w", side, name, err)
	}
	return nil
}

// readable refuses an address that nothing can read, or nothing but the command.
func readable(uri string, direct bool) error {
	scheme, rest, ok := strings.Cut(strings.ToLower(uri), "://")
	if !ok || strings.Contains(uri, "${{") {
		return nil
	}
	if _, err := url.Parse(uri); err != nil && strings.HasPrefix(scheme, "http") {
		return berth.Errorf(berth.Invalid, "%s is not a URL: a password in it must be escaped (%%2F is a slash)", berth.CleanURL(uri))
	}
	if direct {
		return nil
	}
	if !slices.Contains([]string{"azureml", "https", "http", "file"}, scheme) {
		return berth.Errorf(berth.Invalid, "addresses that begin with %s:// cannot be read here: use azureml://datastores/NAME/paths/PATH or https://, or give mode Direct for the command to open it itself", scheme)
	}
	if rest == "" || scheme != "file" && rest[0] == '/' {
		return berth.Errorf(berth.Invalid, "%s is not an address: it names no host", berth.CleanURL(uri))
	}
	return nil
}

// listable refuses a folder at an address of which nobody can say which files it has.
func listable(p locate.Place) error {
	u, err := url.Parse(p.URL)
	if p.Ours() || p.Outside() || err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil //nolint:nilerr // what is no address is not for this to say
	}
	_, _, err = berth.BlobFolder(u)
	return err
}

// writable says whether a runner can put an output at an address of this form.
func writable(uri string) bool {
	if uri == "" || strings.HasPrefix(uri, "${{") || strings.HasPrefix(uri, "/") { // a path is one in the default datastore
		return true
	}
	scheme, _, ok := strings.Cut(strings.ToLower(uri), ":")
	return ok && slices.Contains([]string{"azureml", "https", "http", "file"}, scheme)
}

// checkAssetOf refuses an output that is to become an asset and could not.
func (c jobCall) checkAssetOf(tx *store.Tx, output map[string]any) error {
	name, version := text(output, "assetName"), text(output, "assetVersion")
	if name == "" {
		return nil
	}
	if err := berth.CheckName("asset", name); err != nil || version == "" {
		return err
	}
	if err := berth.CheckVersion("asset", version); err != nil {
		return err
	}
	_, err := tx.Get(c.ws.Key(), assetKind(output)+"/versions", name, version)
	if err == nil {
		return berth.Errorf(berth.Conflict, "%s:%s already exists, and versions are immutable; use another version, or none for the next one", name, version)
	}
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	return err
}

// assetKind is the collection of the asset that an output becomes.
func assetKind(output map[string]any) string {
	if strings.HasSuffix(strings.ToLower(text(output, "jobOutputType")), "_model") {
		return "models"
	}
	return "data"
}

// checkAsset says whether the code or environment a job names is there.
func (c jobCall) checkAsset(tx *store.Tx, coll string, ref berth.Ref) error {
	_, curated := c.s.Curated(ref.Name)
	switch {
	case coll == "environments" && curated && strings.HasPrefix(strings.ToLower(ref.Registry), "azureml"):
		return nil
	case ref.Registry != "":
		return berth.Errorf(berth.Unsupported, "%s is in registry %s; this server has no registries, and it is not one of the curated environments it knows%s", ref.Name, ref.Registry, c.nearest(coll, ref.Name))
	}
	_, err := locate.Version(tx, c.ws, coll, ref)
	switch {
	case err == nil || coll != "environments":
	case curated:
		return nil
	case berth.IsMissing(err):
		return berth.Missingf("%v%s%s", err, c.nearest(coll, ref.Name), asImage(ref))
	}
	return err
}

// asImage says how an image is named, where the name of an environment looks like one.
func asImage(ref berth.Ref) string {
	if _, err := strconv.Atoi(ref.Version); ref.Version == "" || err == nil {
		return ""
	}
	image := ref.Name + ":" + ref.Version
	return fmt.Sprintf("; the container image is `--environment docker://%s`, or `environment: {image: %q}` in a file", image, image)
}

// nearest names a curated environment that may have been meant.
func (c jobCall) nearest(coll, name string) string {
	if coll != "environments" || c.s.NearestCurated == nil {
		return ""
	}
	if near := c.s.NearestCurated(name); near != "" {
		return "; the nearest curated environment is " + near
	}
	return ""
}
