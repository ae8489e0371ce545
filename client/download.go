package client

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/berthml/berth"
)

// Download is the result of a download.
type Download struct {
	Files int
	Bytes int64
	// Left are the names of files that were left behind: there are others below them, as if they
	// were folders too.
	Left []string
}

// blobItem is one line of a list of blobs.
type blobItem struct {
	Name string `xml:"Name"`
	Size int64  `xml:"Properties>Content-Length"`
}

// Download copies what is at the URI of a place in a datastore, or of a job's output, below the
// folder dir: a folder's files under their relative names, a single file under its own. Files
// appear whole or not at all. A name that would leave dir is an error.
func (c *Client) Download(ctx context.Context, uri, dir string, progress func(done, total int64)) (Download, error) {
	ds, prefix, items, err := c.content(ctx, uri)
	if err != nil {
		return Download{}, err
	}
	base := prefix + "/"
	if len(items) == 0 { // not a folder
		if items, err = c.blobs(ctx, ds, prefix); err != nil {
			return Download{}, err
		}
		base = strings.TrimSuffix(path.Dir(prefix)+"/", "./")
		items = only(items, prefix)
	}
	if len(items) == 0 {
		return Download{}, berth.Errorf(berth.NotFound, "there is nothing at %s", uri)
	}
	return c.fetchAll(ctx, c.blobOpener(ds), items, base, dir, progress)
}

// An opener asks for a file, by its name in a list, from a byte on. The rest of a file is asked for
// with the tag of its beginning, so that it is not the rest of another version.
type opener func(ctx context.Context, name string, at int64, tag string) (*http.Response, error)

// blobOpener opens blobs of a container.
func (c *Client) blobOpener(ds *folder) opener {
	return func(ctx context.Context, name string, at int64, tag string) (*http.Response, error) {
		req, err := c.blobRequest(ctx, http.MethodGet, ds.at(name))
		if err != nil {
			return nil, err
		}
		if at > 0 {
			req.Header.Set("x-ms-range", "bytes="+strconv.FormatInt(at, 10)+"-")
		}
		if tag != "" {
			req.Header.Set("If-Match", tag)
		}
		return c.blob(req, http.StatusOK, http.StatusPartialContent)
	}
}

// Folder returns the name of the folder that a URI leads to, "" if it leads to a file or to
// nothing.
func (c *Client) Folder(ctx context.Context, uri string) (string, error) {
	_, prefix, items, err := c.content(ctx, uri)
	if err != nil || len(items) == 0 {
		return "", err
	}
	return path.Base(prefix), nil
}

// IsFile says whether a URI names a file in the server's own storage. Of other storage, and of what
// is not there, nothing is known.
func (c *Client) IsFile(ctx context.Context, uri string) bool {
	place, err := c.outputPlace(ctx, uri)
	if err != nil {
		return false
	}
	name, file, err := splitURI(place)
	if err != nil || strings.Trim(file, "/") == "" {
		return false
	}
	ds, err := c.datastore(ctx, name)
	if err != nil {
		return false
	}
	req, err := c.blobRequest(ctx, http.MethodHead, ds.at(file))
	if err != nil {
		return false
	}
	resp, err := c.blob(req, http.StatusOK, http.StatusNotFound)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// content is where a URI leads to, and what is in it if that is a folder.
func (c *Client) content(ctx context.Context, uri string) (ds *folder, prefix string, items []blobItem, err error) {
	place, err := c.outputPlace(ctx, uri)
	if err != nil {
		return nil, "", nil, err
	}
	name, prefix, err := splitURI(place)
	if err != nil {
		return nil, "", nil, err
	}
	if ds, err = c.datastore(ctx, name); err != nil {
		return nil, "", nil, err
	}
	items, err = c.blobs(ctx, ds, prefix+"/")
	return ds, prefix, items, err
}

// outputPlace is the datastore URI of azureml://jobs/JOB/outputs/OUTPUT/paths/PATH; any other URI
// is itself. The output artifacts is everything a job left in its own folder.
func (c *Client) outputPlace(ctx context.Context, uri string) (string, error) {
	rest, ok := strings.CutPrefix(uri, "azureml://jobs/")
	if !ok {
		return uri, nil
	}
	p := strings.Split(strings.Trim(rest, "/"), "/")
	if len(p) < 3 || !strings.EqualFold(p[1], "outputs") || len(p) > 3 && !strings.EqualFold(p[3], "paths") {
		return "", berth.Errorf(berth.Invalid, "%s must have the form azureml://jobs/JOB/outputs/OUTPUT/paths/PATH", uri)
	}
	place := Artifacts(p[0])
	if p[2] != "artifacts" {
		outputs, err := c.Outputs(ctx, p[0])
		if err != nil {
			return "", err
		}
		if place, ok = outputs[p[2]]; !ok {
			return "", berth.Errorf(berth.NotFound, "job %s has no output %s", p[0], p[2])
		}
	}
	return strings.TrimSuffix(place, "/") + "/" + strings.Join(p[min(len(p), 4):], "/"), nil
}

func only(items []blobItem, name string) []blobItem {
	for _, it := range items {
		if it.Name == name {
			return []blobItem{it}
		}
	}
	return nil
}

// blobs lists the blobs whose names begin with prefix.
func (c *Client) blobs(ctx context.Context, ds *folder, prefix string) ([]blobItem, error) {
	var all []blobItem
	for marker := ""; ; {
		q := "restype=container&comp=list&prefix=" + url.QueryEscape(prefix)
		if marker != "" {
			q += "&marker=" + url.QueryEscape(marker)
		}
		req, err := c.blobRequest(ctx, http.MethodGet, withQuery(ds.at(""), q))
		if err != nil {
			return nil, err
		}
		resp, err := c.blob(req, http.StatusOK)
		if err != nil {
			return nil, err
		}
		var page struct {
			Blobs      []blobItem `xml:"Blobs>Blob"`
			NextMarker string     `xml:"NextMarker"`
		}
		err = errors.Join(c.lost(xml.NewDecoder(resp.Body).Decode(&page)), resp.Body.Close())
		if err != nil {
			return nil, err
		}
		all = append(all, page.Blobs...)
		if marker = page.NextMarker; marker == "" {
			return all, nil
		}
	}
}

func (c *Client) fetchAll(ctx context.Context, open opener, items []blobItem, base, dir string, progress func(done, total int64)) (Download, error) {
	var d Download
	items, d.Left = apart(items, base)
	for _, it := range items {
		if rel := strings.TrimPrefix(it.Name, base); !filepath.IsLocal(filepath.FromSlash(rel)) || strings.ContainsAny(rel, "\\\x00") {
			return d, berth.Errorf(berth.Invalid, "the name %q would leave the folder %s; nothing was downloaded", it.Name, dir)
		}
		d.Bytes += it.Size
	}
	d.Files = len(items)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return d, berth.Errorf(berth.Invalid, "%w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return d, berth.Errorf(berth.Invalid, "%w", err)
	}
	defer root.Close() // nothing was written through it
	var done atomic.Int64
	count := func(n int64) {
		if now := done.Add(n); progress != nil {
			progress(now, d.Bytes)
		}
	}
	return d, each(ctx, len(items), func(ctx context.Context, i int) error {
		rel := filepath.FromSlash(strings.TrimPrefix(items[i].Name, base))
		if err := c.fetch(ctx, root, open, items[i], rel, count); err != nil {
			return fmt.Errorf("download %s: %w", rel, err)
		}
		return nil
	})
}

// apart are the files that can be beside each other below a folder, and the names of the others:
// storage may have both a file a and a file a/b.
func apart(items []blobItem, base string) (fit []blobItem, left []string) {
	folders := map[string]bool{}
	rel := func(it blobItem) string { return path.Clean(strings.TrimPrefix(it.Name, base)) }
	for _, it := range items {
		for dir := path.Dir(rel(it)); dir != "." && dir != "/" && !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	for _, it := range items {
		if folders[rel(it)] {
			left = append(left, it.Name)
		} else {
			fit = append(fit, it)
		}
	}
	return fit, left
}

// fetch copies one file to rel below root, through a file beside it.
func (c *Client) fetch(ctx context.Context, root *os.Root, open opener, it blobItem, rel string, count func(int64)) (err error) {
	if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return berth.Errorf(berth.Invalid, "%w", err)
	}
	part := rel + ".part-" + berth.NewGUID()[:8]
	file, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return berth.Errorf(berth.Invalid, "%w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
			root.Remove(part) //nolint:errcheck // the first error is the one to tell
		}
	}()
	if err := c.fetchInto(ctx, open, it, file, count); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return root.Rename(part, rel)
}

// fetchInto copies a file of a list into file, going on where a cut connection left off. One that
// became another since then is fetched from its beginning.
func (c *Client) fetchInto(ctx context.Context, open opener, it blobItem, file *os.File, count func(int64)) error {
	f := fetching{open: open, name: it.Name, size: it.Size, file: file, count: count}
	changes := 0
	for attempt := 1; f.at < f.size; attempt++ {
		n, err := c.fetchMore(ctx, &f)
		if n > 0 {
			attempt = 1
		}
		switch {
		case err == nil && n == 0:
			return berth.Errorf(berth.Unavailable, "the file ended at byte %d of %d; it changed during the download", f.at, f.size)
		case err == nil:
			continue
		case f.at > 0 && berth.CodeOf(err) == berth.Precondition:
			if changes++; changes == retries {
				return berth.Errorf(berth.Unavailable, "the file changes again and again during the download")
			}
			if err := f.restart(); err != nil {
				return err
			}
			continue
		case attempt >= retries || !unreachable(err):
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
	return nil
}

// fetching is a file on its way.
type fetching struct {
	open  opener
	name  string
	size  int64
	tag   string // of the version that file has the first bytes of
	file  *os.File
	at    int64 // how many there are
	count func(int64)
}

func (f *fetching) restart() error {
	f.count(-f.at)
	f.at, f.tag = 0, ""
	_, err := f.file.Seek(0, io.SeekStart)
	return errors.Join(err, f.file.Truncate(0))
}

func (c *Client) fetchMore(ctx context.Context, f *fetching) (int64, error) {
	resp, err := f.open(ctx, f.name, f.at, f.tag)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() // opened for reading
	if f.at > 0 && resp.StatusCode != http.StatusPartialContent {
		return 0, berth.Errorf(berth.Internal, "the server ignored the range it was asked for")
	}
	if f.at == 0 {
		if f.tag = resp.Header.Get("ETag"); strings.HasPrefix(f.tag, "W/") {
			f.tag = "" // says nothing about bytes
		}
		if resp.ContentLength >= 0 {
			f.size = resp.ContentLength
		}
	}
	sink := &writeError{w: &counter{f.file, f.count}}
	n, err := io.Copy(sink, resp.Body)
	f.at += n
	if sink.err != nil {
		return n, sink.err
	}
	return n, c.lost(err)
}

// counter tells how many bytes went by.
type counter struct {
	w     io.Writer
	count func(int64)
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.count(int64(n))
	return n, err
}

// Outputs returns the datastore URI of each named output of a job.
func (c *Client) Outputs(ctx context.Context, job string) (map[string]string, error) {
	var run struct {
		RunMetadata struct {
			Outputs map[string]struct{ AssetID string }
		}
	}
	if err := c.call(ctx, http.MethodPost, "/history/v1.0"+c.path("rundata"), map[string]any{"runId": job, "selectRunMetadata": true}, &run); err != nil {
		return nil, err
	}
	out := map[string]string{}
	var ids []string
	for _, o := range run.RunMetadata.Outputs {
		ids = append(ids, o.AssetID)
	}
	if len(ids) == 0 {
		return out, nil
	}
	uris, err := c.resolve(ctx, ids)
	if err != nil {
		return nil, err
	}
	for name, o := range run.RunMetadata.Outputs {
		out[name] = uris[o.AssetID]
	}
	return out, nil
}

// Artifacts returns the URI of a job's logs and of its ./outputs and ./logs.
func Artifacts(job string) string {
	return "azureml://datastores/workspaceartifactstore/paths/ExperimentRun/dcid." + job
}
