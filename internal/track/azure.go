package track

import (
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

// Azure's plugin for MLflow (azureml-mlflow) wants addresses of artifacts in a form of its own, and
// takes and gets the files by the run history: it asks there for a signed address of each blob.
//
//	azureml://HOST:PORT/mlflow/v2.0/subscriptions/…/workspaces/NAME/experiments/E/runs/ID/artifacts/PATH
//
// ID is a run or a logged model, or NAME:VERSION of a model that MLflow did not register.

// HistoryPath is below which Serve has the calls of the run history: ID/artifacts/….
const HistoryPath = "api/2.0/berth/history/"

// contentLife is how long the signed address of an artifact is good.
const contentLife = time.Hour

// maxUploads bounds the files of one request for addresses to write to.
const maxUploads = 1000

// azureRoot is below which the plugin has the artifacts of something.
func (c *call) azureRoot(experiment, id string) string {
	return c.azureExperiments() + experiment + "/runs/" + url.PathEscape(id) + "/artifacts"
}

func (c *call) azureExperiments() string {
	return c.Of.AzurePluginURI(c.s.Locator.BaseURL) + "/experiments/"
}

// shownBelow is the address of the artifacts of a run or logged model as the caller's client knows
// them.
func (c *call) shownBelow(uri, experiment, id string) string {
	if _, ours := proxied(uri); !ours || !c.who.Azure {
		return uri
	}
	return c.azureRoot(experiment, id)
}

// shown is the address of an artifact as the caller's client knows them.
func (c *call) shown(uri string) string {
	p, ours := proxied(uri)
	if !ours || !c.who.Azure {
		return uri
	}
	f := c.fileAt(p)
	var root, of string
	switch {
	case f.run != nil:
		root, of = c.azureRoot(f.run.Experiment, f.run.ID), f.run.URI
	case f.model != nil:
		root, of = c.azureRoot(f.model.Experiment, f.model.ID), f.model.URI
	case f.asset != nil:
		root, of = c.azureRoot(assetArtifacts, strings.Join(strings.SplitN(p, "/", 4)[1:3], ":")), f.asset.URI
	}
	if rest, ok := after(of, p); ok {
		return root + rest
	}
	return uri
}

// after is what a path of the artifact proxy has after the root of what it belongs to; ok is false
// for a path that is not below it.
func after(uri, p string) (rest string, ok bool) {
	root, ours := proxied(uri)
	rest, ok = strings.CutPrefix(p, root)
	return rest, ours && ok && (rest == "" || rest[0] == '/')
}

// given is the address of an artifact as this server knows it, of what the plugin sends.
func (c *call) given(uri string) (string, error) {
	uri = plainScheme(uri)
	rest, ok := strings.CutPrefix(uri, c.azureExperiments())
	if !ok {
		return uri, nil
	}
	u, err := url.Parse(rest)
	if err != nil {
		return "", errPath
	}
	seg := strings.SplitN(u.Path, "/", 5)
	if len(seg) < 4 || seg[1] != "runs" || seg[3] != "artifacts" {
		return "", invalid("Invalid model version source: '%s'. It is not the address of an artifact.", uri)
	}
	root, _, err := c.rootOf(seg[2])
	if err != nil {
		return "", err
	}
	return below(root, seg[4:]...), nil
}

// rootOf is where the artifacts of a run, a logged model or NAME:VERSION are, and whose they are.
// It does not say whether the caller may read them: they may be those of a registered version.
func (c *call) rootOf(id string) (uri string, of file, err error) {
	if name, number, ok := strings.Cut(id, ":"); ok {
		v := c.assetVersion(name, number)
		if v == nil {
			return "", file{}, noVersion(name, number)
		}
		return v.URI, file{asset: v}, nil
	}
	var m *loggedModel
	var r *run
	c.view(func(x *index) { m, r = x.logged[id], x.run(id) })
	switch {
	case m != nil && !m.Deleted:
		return m.URI, file{model: m}, nil
	case r != nil:
		return r.URI, file{run: r}, nil
	}
	if r, err = c.runOf(id); err != nil {
		return "", file{}, err
	}
	return r.URI, file{run: r}, nil
}

// contentView says where a file is; the address is signed.
type contentView struct {
	URI       string `json:"contentUri,omitempty"`
	Path      string `json:"path"`
	Origin    string `json:"origin"`
	Container string `json:"container"`
}

// historyRoute finds the calls of the run history about the artifacts of a run: ID/artifacts/….
func historyRoute(method, rest string) (route, string, error) {
	id, call, _ := strings.Cut(rest, "/")
	switch method + " " + call {
	case "GET artifacts":
		return route{do: historyFiles, reads: true, task: true}, id, nil
	case "GET artifacts/contentinfo":
		return route{do: historyContent, reads: true, task: true}, id, nil
	case "POST artifacts/batch/metadata":
		return route{do: historyUpload, task: true}, id, nil
	}
	return route{}, "", noRoute(method, "history/"+rest)
}

// historyRoot is the path at the artifact proxy of what a call of the run history is about.
func (c *call) historyRoot() (id, root string, err error) {
	id, ok := clean(c.path)
	if !ok {
		return "", "", errPath
	}
	uri, of, err := c.rootOf(id)
	if err != nil {
		return "", "", err
	}
	root, ours := proxied(uri)
	if !ours {
		if err := c.mayFile(of, false); err != nil {
			return "", "", err
		}
		return "", "", invalid("The artifacts of %s are not kept by this server", id)
	}
	return id, root, nil
}

// historyFiles lists all files of a run.
func historyFiles(c *call) (any, error) {
	id, root, err := c.historyRoot()
	if err != nil {
		return nil, err
	}
	f, err := c.fileFor(root)
	if err != nil {
		return nil, err
	}
	if err := c.mayFile(f, false); err != nil {
		return nil, err
	}
	prefix := f.name + "/"
	blobs, _, next, err := c.s.Blobs.List(c.ctx, f.container, blob.ListOptions{Prefix: prefix, After: c.text("continuationToken")})
	if err != nil {
		return nil, err
	}
	files := []contentView{}
	for _, b := range blobs {
		files = append(files, contentView{Path: strings.TrimPrefix(b.Name, prefix), Origin: "ExperimentRun", Container: "dcid." + id})
	}
	answer := map[string]any{"value": files}
	if next != "" {
		answer["continuationToken"] = next
		answer["nextLink"] = c.s.Locator.BaseURL + c.r.URL.EscapedPath() + "?continuationToken=" + url.QueryEscape(next)
	}
	return answer, nil
}

// historyContent is where to read a file of a run.
func historyContent(c *call) (any, error) {
	p := c.need("path")
	if err := c.done(); err != nil {
		return nil, err
	}
	id, root, err := c.historyRoot()
	if err != nil {
		return nil, err
	}
	f, err := c.historyFile(root, p)
	if err == nil {
		err = c.mayFile(f, false)
	}
	if err != nil {
		return nil, err
	}
	if _, err := c.s.Blobs.Stat(c.ctx, f.container, f.name); err != nil {
		if code := berth.CodeOf(err); code == berth.NotFound || code == berth.Invalid {
			return nil, missing("No such artifact: '%s'", p)
		}
		return nil, err
	}
	to, err := c.address(f, signRead, contentLife)
	if err != nil {
		return nil, err
	}
	return c.content(id, p, to), nil
}

// historyUpload is where to write files of a run.
func historyUpload(c *call) (any, error) {
	if n := c.count("paths"); n > maxUploads {
		return nil, invalid("At most %d files can be uploaded by one request. Got %d.", maxUploads, n)
	}
	var paths []string
	for _, m := range c.items("paths") {
		x := params{m: m}
		paths = append(paths, x.need("path"))
		if x.err != nil {
			c.fail(x.err)
		}
	}
	if err := c.done(); err != nil {
		return nil, err
	}
	id, root, err := c.historyRoot()
	if err == nil {
		err = c.mayStore()
	}
	if err != nil {
		return nil, err
	}
	files, content := map[string]any{}, map[string]any{}
	var of file // whose address it is: all are of one run or model
	var to Address
	for _, p := range paths {
		f, err := c.historyFile(root, p)
		if err != nil {
			return nil, err
		}
		if f.asset != nil || f.id() == "" || f.id() != of.id() {
			if err := c.mayFile(f, true); err != nil {
				return nil, err
			}
			if to, err = c.address(f, signWrite, contentLife); err != nil {
				return nil, err
			}
			of = f
		}
		to.Container, to.Name = f.container, f.name
		files[p] = contentView{Path: p, Origin: "ExperimentRun", Container: "dcid." + id}
		content[p] = c.content(id, p, to)
	}
	return map[string]any{"artifacts": files, "artifactContentInformation": content, "errors": map[string]any{}}, nil
}

// historyFile is a file below a root, of which addresses are signed here.
func (c *call) historyFile(root, p string) (file, error) {
	safe, err := safePath(p)
	if err != nil {
		return file{}, err
	}
	if safe == "" {
		return file{}, errPath
	}
	f, err := c.fileFor(path.Join(root, safe))
	if err != nil {
		return file{}, err
	}
	if c.s.Sign == nil {
		return file{}, refuse(notImplemented, "Addresses of artifacts are not signed here: ask the server for the file itself")
	}
	return f, nil
}

func (c *call) content(id, p string, at Address) contentView {
	return contentView{URI: c.s.Sign(at) + c.storageMark(), Path: p, Origin: "ExperimentRun", Container: "dcid." + id}
}

// storageMark is what an address must have in it somewhere: the plugin skips a download, without a
// word, whose address does not look like one of the storage of its cloud, which is ours where the
// environment names our metadata and the public one elsewhere. It does not send this parameter.
func (c *call) storageMark() string {
	return "&storage=.blob." + c.s.Locator.Suffix + "/.blob.core.windows.net//?"
}
