// Package locate turns the many ways in which clients name data — azureml:// URIs, asset ids, blob
// URLs — into a place in our own storage, or a URL elsewhere.
package locate

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Locator knows where the server's storage is, as clients see it.
type Locator struct {
	BaseURL string // https://HOST:PORT
	Account string // name of the storage account
	Suffix  string // what follows ACCOUNT.blob. in path-style URLs
	Zone    string // wildcard DNS zone; empty for path style
	Allow   Allow  // what of the server's machine users may name
}

// Place is where bytes are: in a container of ours, or at a URL elsewhere.
type Place struct {
	Container string
	Name      string // a blob, or the prefix of a folder, without a trailing slash
	URL       string // set when it is not ours: https, http, file, …
	Datastore string // set when Name is in the storage elsewhere of this datastore
	User      string // of a URL: who wrote it, for whom what opens it may be sealed
	// Vouched says that the URL is that of an asset which an administrator registered.
	Vouched bool
}

// Ours reports whether the place is in our own storage.
func (p Place) Ours() bool { return p.Container != "" }

// Outside reports whether the place is in storage elsewhere that a datastore opens.
func (p Place) Outside() bool { return p.Datastore != "" }

// Root is the URL blobs are below.
func (l Locator) Root() string {
	if l.Zone != "" {
		return "https://" + l.Account + ".blob." + l.Zone
	}
	return l.BaseURL + "/" + l.Account + ".blob." + strings.Trim(l.Suffix, "/")
}

// URL is where clients reach a name in a container.
func (l Locator) URL(container, name string) string {
	if name == "" {
		return l.Root() + "/" + container
	}
	return l.Root() + "/" + container + "/" + EscapePath(name)
}

// EscapePath escapes each segment of a blob's name.
func EscapePath(p string) string {
	segs := strings.Split(p, "/")
	for i, x := range segs {
		segs[i] = url.PathEscape(x)
	}
	return strings.Join(segs, "/")
}

// CodeHost is the host the Python SDK insists on when it downloads code; it then uses only the
// path.
const CodeHost = "https://berth.blob.core.windows.net"

// Blob is the container and name of a blob URL of ours.
func (l Locator) Blob(uri string) (container, name string, ok bool) {
	for _, root := range []string{l.Root(), CodeHost} {
		if rest, found := strings.CutPrefix(uri, root+"/"); found {
			return splitBlob(rest)
		}
	}
	return "", "", false
}

func splitBlob(rest string) (container, name string, ok bool) {
	rest, _, _ = strings.Cut(rest, "?")
	container, name, _ = strings.Cut(strings.TrimSuffix(rest, "/"), "/")
	name, err := url.PathUnescape(name)
	return container, name, err == nil && isContainer(container)
}

// BlobOfAny is Blob for a URL that may be of another server of the same database: they share their
// storage.
func (l Locator) BlobOfAny(tx *store.Tx, uri string) (container, name string, ok bool, err error) {
	if container, name, ok = l.Blob(uri); ok {
		return container, name, true, nil
	}
	base, rest, found := strings.Cut(uri, "/"+l.Account+".blob."+strings.Trim(l.Suffix, "/")+"/")
	if !found || l.Zone != "" {
		return "", "", false, nil
	}
	if known, err := tx.ServerAt(base); err != nil || !known {
		return "", "", false, err
	}
	container, name, ok = splitBlob(rest)
	return container, name, ok, nil
}

// isContainer keeps out what is not a container's name: "*" means all of them in a signature.
func isContainer(name string) bool {
	for _, c := range name {
		if c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// Resolve finds the place of a URI inside workspace ws, as user means it: an address in storage
// elsewhere is looked for in their own datastores and in those of administrators.
func (l Locator) Resolve(tx *store.Tx, ws berth.Workspace, user, uri string) (Place, error) {
	return l.resolve(tx, ws, user, uri, 0)
}

func (l Locator) resolve(tx *store.Tx, ws berth.Workspace, user, uri string, depth int) (Place, error) {
	if depth > 8 {
		return Place{}, berth.Errorf(berth.Invalid, "%s: the references form a cycle", berth.CleanURL(uri))
	}
	if container, name, ok, err := l.BlobOfAny(tx, uri); err != nil || ok {
		return Place{Container: container, Name: name}, err
	}
	rest, isAML := cut(uri, "azureml://")
	if !isAML {
		if short, ok := cut(uri, "azureml:"); ok || strings.HasPrefix(strings.ToLower(uri), "/subscriptions/") {
			return l.asset(tx, ws, short, depth)
		}
		return elsewhere(tx, ws, user, uri)
	}
	p := strings.Split(rest, "/")
	// The long form names its workspace first.
	if len(p) > 6 && strings.EqualFold(p[0], "subscriptions") {
		long := berth.Workspace{Subscription: p[1], Group: p[3], Name: p[5]}
		if long.Key() != ws.Key() {
			return Place{}, berth.Errorf(berth.Invalid, "%s is not in the job's workspace", uri)
		}
		p = p[6:]
	}
	switch {
	case len(p) >= 3 && strings.EqualFold(p[0], "datastores") && strings.EqualFold(p[2], "paths"):
		return l.datastore(tx, ws, p[1], strings.Join(p[3:], "/"), uri)
	case len(p) >= 4 && strings.EqualFold(p[0], "jobs") && strings.EqualFold(p[2], "outputs"):
		kept, maker, err := jobOutput(tx, ws, p, uri)
		if err != nil {
			return Place{}, err
		}
		return l.resolve(tx, ws, maker, kept, depth+1)
	}
	return l.asset(tx, ws, uri, depth)
}

// datastore is a path in a datastore.
func (l Locator) datastore(tx *store.Tx, ws berth.Workspace, name, path, uri string) (Place, error) {
	d, err := tx.Get(ws.Key(), "datastores", name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return Place{}, berth.Errorf(berth.Invalid, "The datastore %s could not be found in this workspace (named by %s)", name, uri)
	}
	if err != nil {
		return Place{}, err
	}
	own, err := store.State[struct {
		Container string `json:"container"`
	}](d)
	if err != nil {
		return Place{}, err
	}
	if err := cleanPath(path); err != nil {
		return Place{}, berth.Errorf(berth.Invalid, "%s: %w", uri, err)
	}
	if own.Container == "" {
		return outside(d, strings.Trim(path, "/"))
	}
	return Place{Container: own.Container, Name: strings.Trim(path, "/")}, nil
}

// ResolveOutput returns a URI that stays valid when the job it names is deleted: the output of a
// job becomes its path in the datastore. Every other URI is returned unchanged. job is the job that
// uri names, if any.
func ResolveOutput(tx *store.Tx, ws berth.Workspace, uri string) (kept, job string, err error) {
	var p []string
	if rest, ok := cut(uri, "azureml://jobs/"); ok {
		p = strings.Split("jobs/"+rest, "/")
	} else if rest, ok := cut(uri, "runs:/"); ok { // as MLflow writes it
		name, path, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
		p = append([]string{"jobs", name, "outputs", "artifacts", "paths"}, strings.Split(path, "/")...)
	}
	if len(p) < 4 || !strings.EqualFold(p[2], "outputs") {
		return uri, "", nil
	}
	if kept, _, err = jobOutput(tx, ws, p, uri); err != nil {
		return "", "", err
	}
	return FullURI(ws, kept, "resourcegroups"), p[1], nil
}

// FullURI returns a datastore URI with its workspace, as the service writes it; groups is how to
// spell resourceGroups, for which the service has two spellings. Every other URI is returned
// unchanged.
func FullURI(ws berth.Workspace, uri, groups string) string {
	rest, ok := cut(uri, "azureml://")
	p := strings.Split(rest, "/")
	switch {
	case !ok:
		return uri
	case len(p) > 6 && strings.EqualFold(p[0], "subscriptions") && strings.EqualFold(p[2], groups) && strings.EqualFold(p[6], "datastores"):
		p[2] = groups
	case len(p) > 2 && strings.EqualFold(p[0], "datastores") && strings.EqualFold(p[2], "paths"):
		p = append([]string{"subscriptions", ws.Subscription, groups, ws.Group, "workspaces", ws.Name}, p...)
	default:
		return uri
	}
	return "azureml://" + strings.Join(p, "/")
}

// jobOutput is the URI at which azureml://jobs/J/outputs/O/paths/P is kept; the output "artifacts"
// is the job's own folder. maker is who submitted the job.
func jobOutput(tx *store.Tx, ws berth.Workspace, p []string, uri string) (kept, maker string, err error) {
	job, out := p[1], p[3]
	d, err := tx.Get(ws.Key(), "jobs", job, "")
	if berth.CodeOf(err) == berth.NotFound {
		return "", "", berth.Missingf("%s: there is no job %s", uri, job)
	}
	if err != nil {
		return "", "", err
	}
	tail := ""
	switch more := strings.Trim(strings.Join(p[4:], "/"), "/"); {
	case more == "":
	case strings.EqualFold(p[4], "paths"):
		tail = strings.Join(p[5:], "/")
	default:
		return "", "", berth.Errorf(berth.Invalid, "%s: write azureml://jobs/%s/outputs/%s/paths/%s", uri, job, out, more)
	}
	if err := cleanPath(tail); err != nil {
		return "", "", berth.Errorf(berth.Invalid, "%s: %w", uri, err)
	}
	if strings.EqualFold(out, "artifacts") {
		return join("azureml://datastores/workspaceartifactstore/paths/"+ArtifactPath(d.Name), tail), d.CreatedBy, nil
	}
	var v struct {
		Properties struct {
			Outputs map[string]berth.JobOutput `json:"outputs"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return "", "", berth.Errorf(berth.Invalid, "the outputs of job %s cannot be read: %w", d.Name, err)
	}
	o, ok := v.Properties.Outputs[out]
	if !ok {
		return "", "", berth.Missingf("%s: job %s has no output %s", uri, job, out)
	}
	kept = o.Place(d.Name, out)
	if tail != "" {
		kept = strings.TrimSuffix(kept, "/") + "/" + tail
	}
	return kept, d.CreatedBy, nil
}

// LoggedRoot is above the files in the artifact store that were logged to what is not a run:
// logged models.
const LoggedRoot = "mlflow/"

// OutputRoot is above the folders of jobs' outputs in the default datastore.
const OutputRoot = "azureml/"

// ArtifactPath is the folder of a job's logs and default outputs in the artifact store.
func ArtifactPath(job string) string { return berth.ArtifactPath(job) }

// asset is a version of a data asset or model, whose own URI is then resolved.
func (l Locator) asset(tx *store.Tx, ws berth.Workspace, text string, depth int) (Place, error) {
	ref, err := berth.ParseRef(text, "data")
	if err != nil {
		return Place{}, err
	}
	if ref.Registry != "" {
		return Place{}, berth.Errorf(berth.Unsupported, "%s is in a registry; this server has none", text)
	}
	kind := strings.ToLower(ref.Collection)
	if kind != "data" && kind != "models" && kind != "codes" {
		return Place{}, berth.Errorf(berth.Invalid, "%s is not data", text)
	}
	d, err := Version(tx, ws, kind, ref)
	if err != nil {
		return Place{}, err
	}
	var v struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return Place{}, berth.Errorf(berth.Invalid, "%s cannot be read: %w", text, err)
	}
	uri := ContentURI(kind, v.Properties)
	if uri == "" {
		return Place{}, berth.Errorf(berth.Invalid, "%s has no path", text)
	}
	return l.content(tx, ws, d, uri, depth+1)
}

// contentFields are the properties of assets that say where their files are.
var contentFields = map[string][]string{"data": {"dataUri"}, "models": {"modelUri"}, "codes": {"codeUri"}, "environments": {"build", "contextUri"}}

// ContentField is the property of a version of an asset that says where its files are, as a path;
// "" where there is none.
func ContentField(collection string) string { return strings.Join(contentFields[collection], ".") }

// ContentURI is what that property says.
func ContentURI(collection string, props map[string]any) string {
	fields := contentFields[collection]
	for i, f := range fields {
		if i == len(fields)-1 {
			uri, _ := props[f].(string)
			return uri
		}
		props, _ = props[f].(map[string]any)
	}
	return ""
}

// Content is where the files of a version of an asset are; uri is what its document says.
func (l Locator) Content(tx *store.Tx, ws berth.Workspace, d *store.Doc, uri string) (Place, error) {
	return l.content(tx, ws, d, uri, 0)
}

func (l Locator) content(tx *store.Tx, ws berth.Workspace, d *store.Doc, uri string, depth int) (Place, error) {
	own, err := store.State[kept](d)
	if err != nil {
		return Place{}, berth.Errorf(berth.Internal, "reading the server's record of %s:%s: %w", d.Name, d.Version, err)
	}
	if own.Container != "" {
		return Place{Container: own.Container, Name: own.Name}, nil
	}
	p, err := l.resolve(tx, ws, d.CreatedBy, uri, depth)
	p.Vouched = own.Admin && IsFile(uri)
	return p, err
}

// Version finds the version a reference names: by version, by label, or the newest.
func Version(tx *store.Tx, ws berth.Workspace, collection string, ref berth.Ref) (*store.Doc, error) {
	if ref.Version != "" {
		d, err := tx.Get(ws.Key(), collection+"/versions", ref.Name, ref.Version)
		if berth.CodeOf(err) == berth.NotFound {
			err = notThere(tx, ws, collection, ref.Name, ref.Name+":"+ref.Version)
		}
		return d, err
	}
	return Labelled(tx, ws, collection, ref.Name, ref.Label)
}

// notThere is the error for an asset that is not there, which was called title; it names the one
// that was probably meant.
func notThere(tx *store.Tx, ws berth.Workspace, collection, name, title string) error {
	noun := strings.TrimSuffix(collection, "s")
	if collection == "codes" {
		return berth.Missingf("there is no %s %s in this workspace", noun, title)
	}
	list := fmt.Sprintf("`berth %s list` shows what there is", noun)
	if noun == "environment" {
		list = "`berth environment list` and `berth environment list --curated` show what there is"
	}
	versions, err := tx.List(store.Query{Workspace: ws.Key(), Kind: collection + "/versions", Name: name, Limit: 1, NoBody: true})
	if err != nil {
		return err
	}
	if len(versions) > 0 {
		return berth.Missingf("there is no %s %s in this workspace; its newest version is %s; %s", noun, title, versions[0].Version, list)
	}
	all, err := tx.List(store.Query{Workspace: ws.Key(), Kind: collection, NoBody: true})
	if err != nil {
		return err
	}
	var names []string
	for _, d := range all {
		names = append(names, d.Name)
	}
	if near := berth.Nearest(name, names); near != "" {
		return berth.Missingf("there is no %s %s in this workspace; did you mean %s? %s", noun, title, near, list)
	}
	return berth.Missingf("there is no %s %s in this workspace; %s", noun, title, list)
}

// Component finds the component a step of a pipeline names.
func Component(tx *store.Tx, ws berth.Workspace, id string) (*store.Doc, error) {
	ref, err := berth.ParseRef(id, "components")
	if err != nil {
		return nil, err
	}
	if ref.Registry != "" {
		return nil, berth.Errorf(berth.Unsupported, "component %s is in registry %s; this server has no registries", ref.Name, ref.Registry)
	}
	return Version(tx, ws, "components", ref)
}

func cleanPath(p string) error {
	for _, s := range strings.Split(p, "/") {
		if s == ".." || s == "." || strings.ContainsRune(s, 0) {
			return berth.Errorf(berth.Invalid, "the path must not contain %q", s)
		}
	}
	return nil
}

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + "/" + b
}

func cut(s, prefix string) (string, bool) {
	if len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix) {
		return s[len(prefix):], true
	}
	return s, false
}
