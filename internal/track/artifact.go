package track

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
)

// Artifacts are blobs in the container of the workspace's runs. E/R/artifacts/P is the file P of
// run R, which is where a job's own files are too; anything else is below a folder of its own.
const otherArtifacts = locate.LoggedRoot

var errPath = invalid("Invalid path")

// safePath refuses paths that could lead out of where they seem to be.
func safePath(p string) (string, error) {
	if strings.ContainsAny(p, "\x00\\") || strings.HasPrefix(p, "/") || strings.Contains(p, "://") {
		return "", errPath
	}
	text := p
	for range 4 { // a path that becomes another when it is decoded again
		more, err := url.PathUnescape(text)
		if err != nil || more == text {
			break
		}
		text = more
	}
	for _, t := range []string{p, text} {
		if slices.Contains(strings.FieldsFunc(t, func(r rune) bool { return r == '/' || r == '\\' }), "..") || strings.HasPrefix(t, "/") {
			return "", errPath
		}
	}
	p = strings.Trim(path.Clean("/"+p), "/")
	return p, nil
}

// rawPath is the artifact path of the address, which may not hide slashes.
func (c *call) rawPath() (string, error) {
	p, ok := clean(c.path)
	if !ok {
		return "", errPath
	}
	return safePath(p)
}

// A file is where an artifact is.
type file struct {
	container, name string // of the blob
	path            string // at the artifact proxy
	run             *run
	model           *loggedModel
	asset           *version // that MLflow did not register: its files do not change
}

// fileAt finds what a path of the artifact proxy means.
func (w *workspace) fileAt(p string) file {
	seg := strings.SplitN(p, "/", 4)
	if len(seg) >= 3 && seg[0] == assetArtifacts {
		if v := w.assetVersion(seg[1], seg[2]); v != nil {
			return file{container: v.Container, name: path.Join(append([]string{v.Folder}, seg[3:]...)...), path: p, asset: v}
		}
	}
	if len(seg) >= 3 && seg[2] == "artifacts" {
		if r := w.run(seg[1]); r != nil {
			name := locate.ArtifactPath(r.ID)
			if len(seg) == 4 {
				name += "/" + seg[3]
			}
			return file{container: w.Artifacts, name: name, path: p, run: r}
		}
	}
	f := file{container: w.Artifacts, name: otherArtifacts + p, path: p}
	w.view(func(x *index) { f.run, f.model = x.ownerOf(p) })
	return f
}

// fileFor is fileAt for what somebody asks for: the run of a job counts although nothing has listed
// it yet.
func (c *call) fileFor(p string) (file, error) {
	if seg := strings.SplitN(p, "/", 4); len(seg) >= 3 && seg[2] == "artifacts" && c.run(seg[1]) == nil {
		if _, err := c.jobRunOf(c.ctx, seg[1]); err != nil {
			return file{}, err
		}
	}
	return c.fileAt(p), nil
}

// fileIn is the file with a name in a container of the workspace.
func (w *workspace) fileIn(container, name string) file {
	f := file{container: container, name: name}
	if p, ok := strings.CutPrefix(name, otherArtifacts); ok && container == w.Artifacts {
		if at := w.fileAt(p); at.container == container && at.name == name {
			return at
		}
	}
	id, rest := w.jobFolder(container, name)
	f.run = w.run(id)
	if f.run != nil && container == w.Artifacts {
		f.path = path.Join(f.run.Experiment, id, "artifacts") + rest
	}
	return f
}

// jobFolder is the job in whose folder a name in a container of the workspace would be, and where:
// jobs have folders in both.
func (w *workspace) jobFolder(container, name string) (job, rest string) {
	root := locate.OutputRoot
	if container == w.Artifacts {
		root = locate.ArtifactPath("")
	}
	below, ok := strings.CutPrefix(name, root)
	if !ok {
		return "", ""
	}
	job, _, _ = strings.Cut(below, "/")
	return job, strings.TrimPrefix(below, job)
}

// inRun is where a file is below the folder of its run: "" for the folder, or a path that begins
// with a slash. The path at the artifact proxy ends with it.
func (f file) inRun() string {
	rest, ok := strings.CutPrefix(f.name, locate.ArtifactPath(f.run.ID))
	if ok && (rest == "" || rest[0] == '/') {
		return rest
	}
	rest, _ = after(f.run.URI, f.path)
	return rest
}

func upload(c *call) (any, error) {
	p, err := c.rawPath()
	if err != nil {
		return nil, err
	}
	return c.put(p)
}

// drain reads what is left of a body that is refused, within reason: a client that is cut off while
// it sends never sees why.
func (c *call) drain() {
	io.CopyN(io.Discard, c.r.Body, 64<<20) //nolint:errcheck // the answer is what counts
}

// put keeps the body of the request as an artifact.
func (c *call) put(p string) (any, error) {
	f, err := c.fileFor(p)
	if err == nil {
		err = cmp.Or(c.mayFile(f, true), c.mayStore())
	}
	if err != nil {
		c.drain()
		return nil, err
	}
	o := blob.PutOptions{ContentType: typeOf(p), Size: max(c.r.ContentLength, 0)}
	if _, err := c.s.Blobs.Put(c.ctx, f.container, f.name, c.uploadBody(p, f), o); err != nil {
		if berth.CodeOf(err) == berth.Internal && c.ctx.Err() != nil {
			return nil, refuse(badRequest, "The upload was interrupted")
		}
		return nil, err
	}
	return empty, nil
}

func download(c *call) (any, error) {
	p, err := c.rawPath()
	if err != nil {
		return nil, err
	}
	return c.send(p, p)
}

// send answers with an artifact; shown is what it is called in an error.
func (c *call) send(p, shown string) (any, error) {
	f, err := c.fileFor(p)
	if err != nil {
		return nil, err
	}
	if err := c.mayFile(f, false); err != nil {
		return nil, err
	}
	r, err := c.s.Blobs.Open(c.ctx, f.container, f.name)
	if berth.CodeOf(err) == berth.NotFound || berth.CodeOf(err) == berth.Invalid {
		return nil, missing("No such artifact: '%s'", shown)
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := r.Blob()
	h := c.w.Header()
	h.Set("Content-Type", typeOf(p))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(p)}))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("ETag", `"`+strings.Trim(b.ETag, `"`)+`"`)
	http.ServeContent(c.w, c.r, "", b.Modified, r)
	return nil, nil
}

// plainNames are the names without an ending that are text.
var plainNames = []string{"mlmodel", "mlproject"}

var types = map[string]string{
	".txt": "text/plain", ".log": "text/plain", ".err": "text/plain", ".cfg": "text/plain", ".conf": "text/plain", ".ini": "text/plain",
	".md": "text/plain", ".py": "text/plain", ".js": "text/plain", ".yaml": "text/plain", ".yml": "text/plain", ".json": "text/plain",
	".csv": "text/plain", ".tsv": "text/plain", ".sh": "text/plain", ".xml": "text/plain", ".properties": "text/plain",
	".html": "text/html", ".htm": "text/html", ".css": "text/css", ".pdf": "application/pdf", ".png": "image/png", ".jpg": "image/jpeg",
	".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".svg": "image/svg+xml", ".zip": "application/zip",
	".gz": "application/gzip", ".tar": "application/x-tar", ".mp4": "video/mp4", ".mp3": "audio/mpeg", ".wav": "audio/x-wav",
}

// typeOf is what a file is by its name.
func typeOf(p string) string {
	base := path.Base(p)
	if slices.Contains(plainNames, strings.ToLower(base)) {
		return "text/plain"
	}
	if t := types[strings.ToLower(path.Ext(base))]; t != "" {
		return t
	}
	return "application/octet-stream"
}

type fileView struct {
	Path string `json:"path"`
	Dir  bool   `json:"is_dir"`
	Size *int64 `json:"file_size,omitempty"`
}

// list is what is in a folder; names are relative to it.
func (c *call) list(p string) ([]fileView, error) {
	f, err := c.fileFor(p)
	if err != nil {
		return nil, err
	}
	if err := c.mayFile(f, false); err != nil {
		return nil, err
	}
	prefix := strings.TrimSuffix(f.name, "/") + "/"
	var out []fileView
	for after := ""; ; {
		blobs, folders, next, err := c.s.Blobs.List(c.ctx, f.container, blob.ListOptions{Prefix: prefix, Delimiter: "/", After: after})
		if err != nil {
			return nil, err
		}
		for _, b := range blobs {
			out = append(out, fileView{Path: strings.TrimPrefix(b.Name, prefix), Size: &b.Size})
		}
		for _, d := range folders {
			out = append(out, fileView{Path: strings.Trim(strings.TrimPrefix(d, prefix), "/"), Dir: true})
		}
		if after = next; next == "" {
			break
		}
	}
	slices.SortFunc(out, func(a, b fileView) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

func listProxied(c *call) (any, error) {
	p, err := safePath(c.text("path"))
	if err != nil {
		return nil, err
	}
	files, err := c.list(p)
	if err != nil {
		return nil, err
	}
	return paged("files", files, ""), nil
}

// listBelow lists a folder of a run or model; names are relative to its root.
func (c *call) listBelow(uri, folder string) (any, error) {
	folder, err := safePath(folder)
	if err != nil {
		return nil, err
	}
	answer := map[string]any{"root_uri": uri}
	root, ours := proxied(uri)
	if !ours {
		return answer, nil // the files are elsewhere, where this server does not go
	}
	files, err := c.list(path.Join(root, folder))
	if err != nil {
		return nil, err
	}
	for i := range files {
		files[i].Path = path.Join(folder, files[i].Path)
	}
	if len(files) > 0 {
		answer["files"] = files
	}
	return answer, nil
}

func listArtifacts(c *call) (any, error) {
	id, folder := c.runID(), c.text("path")
	if err := c.done(); err != nil {
		return nil, err
	}
	r, err := c.runOf(id)
	if err != nil {
		return nil, err
	}
	return c.listBelow(r.URI, folder)
}

// sendBelow answers with a file of a run, model or version.
func (c *call) sendBelow(uri, p string) (any, error) {
	safe, err := safePath(p)
	if err != nil {
		return nil, err
	}
	root, ours := proxied(uri)
	if !ours {
		return nil, missing("No such artifact: '%s'", p)
	}
	return c.send(path.Join(root, safe), p)
}

func getRunArtifact(c *call) (any, error) {
	id, p := c.runID(), c.need("path")
	if err := c.done(); err != nil {
		return nil, err
	}
	r, err := c.runOf(id)
	if err != nil {
		return nil, err
	}
	return c.sendBelow(r.URI, p)
}

func getVersionArtifact(c *call) (any, error) {
	p := c.need("path")
	if _, err := safePath(p); err != nil {
		return nil, err
	}
	name, n := c.need("name"), c.versionNumber()
	if err := c.done(); err != nil {
		return nil, err
	}
	_, v, err := c.versionOf(name, n)
	if err != nil {
		return nil, err
	}
	return c.sendBelow(c.inRun(v.URI), p)
}

func listLoggedArtifacts(c *call) (any, error) {
	m, err := c.loggedOf(c.path, false)
	if err != nil {
		return nil, err
	}
	return c.listBelow(m.URI, c.text("artifact_directory_path"))
}

func getLoggedArtifact(c *call) (any, error) {
	p := c.text("artifact_file_path")
	if p == "" {
		return nil, required("artifact_file_path")
	}
	m, err := c.loggedOf(c.path, false)
	if err != nil {
		return nil, err
	}
	return c.sendBelow(m.URI, p)
}

func deleteProxied(c *call) (any, error) {
	p, err := c.rawPath()
	if err != nil {
		return nil, err
	}
	if p == "" {
		return nil, errPath
	}
	f, err := c.fileFor(p)
	if err != nil {
		return nil, err
	}
	if err := c.mayFile(f, true); err != nil {
		return nil, err
	}
	if err := c.mayEmpty(f); err != nil {
		return nil, err
	}
	return empty, c.deleteFiles(c.ctx, f)
}

// deleteFiles deletes a file, or everything in a folder. What is not there is deleted.
func (w *workspace) deleteFiles(ctx context.Context, f file) error {
	if err := w.s.Blobs.Delete(ctx, f.container, f.name); err != nil && berth.CodeOf(err) != berth.NotFound {
		return err
	}
	for {
		blobs, _, next, err := w.s.Blobs.List(ctx, f.container, blob.ListOptions{Prefix: strings.TrimSuffix(f.name, "/") + "/"})
		if err != nil {
			return err
		}
		for _, b := range blobs {
			if err := w.s.Blobs.Delete(ctx, f.container, b.Name); err != nil && berth.CodeOf(err) != berth.NotFound {
				return err
			}
		}
		if next == "" {
			return nil
		}
	}
}

// maxUIUpload bounds uploads by MLflow's web page.
const maxUIUpload = 10 << 20

// uploadArtifact is how MLflow's web page uploads a file.
func uploadArtifact(c *call) (any, error) {
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, invalid("The query string is malformed")
	}
	id, p := q.Get("run_uuid"), q.Get("path")
	if id == "" {
		id = q.Get("run_id")
	}
	switch {
	case id == "":
		return nil, invalid("Request must specify run_uuid.")
	case p == "":
		return nil, invalid("Request must specify path.")
	case c.r.ContentLength > maxUIUpload:
		c.drain()
		return nil, tooLarge()
	}
	safe, err := safePath(p)
	if err != nil {
		return nil, err
	}
	r, err := c.runOf(id)
	if err != nil {
		return nil, err
	}
	root, ours := proxied(r.URI)
	if !ours {
		return nil, invalid("The artifacts of run %s are not stored on this server", id)
	}
	body := http.MaxBytesReader(c.w, c.r.Body, maxUIUpload)
	first := make([]byte, 1)
	n, err := io.ReadFull(body, first)
	if n == 0 || err != nil {
		return nil, invalid("Request must specify data.")
	}
	c.r.Body = io.NopCloser(io.MultiReader(strings.NewReader(string(first)), body))
	answer, err := c.put(path.Join(root, safe))
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return nil, tooLarge()
	}
	return answer, err
}

func tooLarge() error { return invalid("Artifact size is too large. Max size is 10MB.") }
