package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/berthml/berth"
)

// File is one file to upload.
type File struct {
	Name string // below the uploaded folder, with slashes
	Path string // on this machine
	Size int64
	Hash string // SHA-256 of its first Size bytes, in hex; "" if it is not known
}

// Upload is a folder, or a single file, to upload.
type Upload struct {
	Folder string // what it is called on the other side
	Single bool   // Files is one file, which stands for itself
	Files  []File
	Hash   string // of names and contents
	// Before are the addresses of folders that files of this one were uploaded to earlier; what
	// did not change since is not sent again. Hashes, if not nil, fills in what is known of the
	// hashes of Files before anything is sent: a file that is not what was hashed fails the upload.
	// Begun, if not nil, is called with the address of this upload after that.
	Before []string
	Hashes func(files []File)
	Begun  func(address string)
	// Progress, if not nil, is called with the number of bytes sent and the total. It may be called
	// by several goroutines.
	Progress func(sent, total int64)
}

// Size returns the total size of all files.
func (u *Upload) Size() int64 {
	var n int64
	for _, f := range u.Files {
		n += f.Size
	}
	return n
}

func (u *Upload) begun(address string) {
	if u.Begun != nil && address != "" {
		u.Begun(address)
	}
}

// Code uploads a code folder and returns the id of the code asset. The same content is uploaded
// once: known reports whether it already existed.
func (c *Client) Code(ctx context.Context, u *Upload, hashVersion int) (id string, known bool, err error) {
	name := berth.NewGUID()
	q := fmt.Sprintf("?hash=%s&hashVersion=%d", url.QueryEscape(u.Hash), hashVersion)
	var found page[Document]
	if err := c.call(ctx, http.MethodGet, c.path("codes", name, "versions")+q, nil, &found); err != nil {
		return "", false, err
	}
	if len(found.Value) > 0 && found.Value[0].ID() != "" {
		at, _ := found.Value[0].Properties()["codeUri"].(string)
		u.begun(at)
		return found.Value[0].ID(), true, nil
	}
	var pending struct {
		Blob struct {
			URI        string `json:"blobUri"`
			Credential struct {
				SAS string `json:"sasUri"`
			} `json:"credential"`
		} `json:"blobReferenceForConsumption"`
	}
	if err := c.Post(ctx, map[string]string{"pendingUploadType": "TemporaryBlobReference"}, &pending, "codes", name, "versions", "1", "startPendingUpload"); err != nil {
		return "", false, err
	}
	_, sas, _ := strings.Cut(pending.Blob.Credential.SAS, "?")
	to := &folder{url: strings.TrimSuffix(pending.Blob.URI, "/") + "/" + url.PathEscape(u.Folder), sas: sas}
	if err := c.send(ctx, to, u); err != nil {
		return "", false, err
	}
	d, err := c.Put(ctx, map[string]any{"properties": map[string]any{
		"codeUri": to.url, "isAnonymous": true, "properties": map[string]any{"hash_sha256": u.Hash, "hash_version": hashVersion},
	}}, "codes", name, "versions", "1")
	return d.ID(), false, err
}

// Data uploads files to a datastore, into a folder named after their content, and returns their
// URI. Content that already exists is not sent again.
func (c *Client) Data(ctx context.Context, datastore string, u *Upload) (uri string, err error) {
	ds, err := c.datastore(ctx, datastore)
	if err != nil {
		return "", err
	}
	if len(u.Files) == 0 {
		return "", berth.Errorf(berth.Invalid, "%s has no files to upload", u.Folder)
	}
	prefix := "LocalUpload/" + u.Hash
	uri = "azureml://datastores/" + datastore + "/paths/" + prefix + "/" + u.Folder
	if !u.Single {
		prefix += "/" + u.Folder
	}
	to := &folder{url: ds.url + "/" + escapePath(prefix), sas: ds.sas}
	first := u.Files[0].Name
	if done, err := c.complete(ctx, to, first); err != nil || done {
		return uri, err
	}
	if err := c.send(ctx, to, u); err != nil {
		return "", err
	}
	return uri, c.mark(ctx, to, first)
}

// BlobURL returns the URL, without a signature, of a datastore URI.
func (c *Client) BlobURL(ctx context.Context, uri string) (string, error) {
	name, path, err := splitURI(uri)
	if err != nil {
		return "", err
	}
	ds, err := c.datastore(ctx, name)
	if err != nil {
		return "", err
	}
	return ds.url + "/" + escapePath(path), nil
}

// complete says whether an earlier upload to the folder reached its end: its first file carries a
// mark.
func (c *Client) complete(ctx context.Context, to *folder, first string) (bool, error) {
	req, err := c.blobRequest(ctx, http.MethodHead, to.at(first))
	if err != nil {
		return false, err
	}
	resp, err := c.blob(req, http.StatusOK, http.StatusNotFound)
	if err != nil {
		return false, err
	}
	return resp.StatusCode == http.StatusOK && resp.Header.Get("x-ms-meta-upload_status") == "completed", resp.Body.Close()
}

func (c *Client) mark(ctx context.Context, to *folder, first string) error {
	req, err := c.blobRequest(ctx, http.MethodPut, withQuery(to.at(first), "comp=metadata"))
	if err != nil {
		return err
	}
	req.Header.Set("x-ms-meta-upload_status", "completed")
	return c.done(c.blob(req, http.StatusOK))
}

// done drains an answer nobody reads.
func (c *Client) done(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(c.lost(err), resp.Body.Close())
}

func withQuery(address, q string) string {
	if strings.Contains(address, "?") {
		return address + "&" + q
	}
	return address + "?" + q
}

// send uploads every file, several at once. The first error stops the rest.
func (c *Client) send(ctx context.Context, to *folder, u *Upload) error {
	total := u.Size()
	var sent atomic.Int64
	count := func(n int64) {
		if now := sent.Add(n); u.Progress != nil {
			u.Progress(now, total)
		}
	}
	if u.Hashes != nil {
		u.Hashes(u.Files)
	}
	u.begun(to.url)
	rest := c.reuse(ctx, to, u, count)
	together, files := packs(rest)
	if u.Single {
		together, files = nil, rest
	}
	left, err := c.sendPacks(ctx, to, together, count)
	if err != nil {
		return err
	}
	files = append(files, left...)
	return each(ctx, len(files), func(ctx context.Context, i int) error {
		f := files[i]
		err := c.sendFile(ctx, to.at(f.Name), f, count)
		if IsChanged(err) {
			return changed(f)
		}
		if err != nil {
			return fmt.Errorf("upload %s: %w", f.Name, err)
		}
		return nil
	})
}

// changed is the error of a file that is not what was hashed: what is named after the hash would
// have another content.
func changed(f File) error {
	return &berth.Error{
		Code: berth.Invalid, Wire: berth.WireSHA256Mismatch,
		Msg: f.Path + " changed while it was being uploaded; if the job does not need it, name it in .amlignore",
	}
}

// IsChanged reports whether an upload failed because a file is no longer what was hashed.
func IsChanged(err error) bool {
	var e *berth.Error
	return errors.As(err, &e) && e.Wire == berth.WireSHA256Mismatch
}

// each calls f for 0 … n-1, several at once, and returns the first error after all calls have
// returned.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(parallel, n) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Files up to oneShot bytes go in one request, larger ones in blocks, so that little is sent again
// when a connection breaks. A server on this machine reads large files itself; where it does not,
// they go in one request: blocks would be written twice.
const (
	oneShot   = 64 << 20
	blockSize = 16 << 20
)

func (c *Client) sendFile(ctx context.Context, address string, f File, count func(int64)) error {
	file, err := os.Open(f.Path)
	if err != nil {
		return berth.Errorf(berth.Invalid, "%w", err)
	}
	defer file.Close() // opened for reading
	if c.local && f.Size > oneShot && c.nameFile(ctx, address, file, f, count) {
		return nil
	}
	if f.Size <= oneShot || c.local {
		return c.sendPart(ctx, part{address: address, hash: f.Hash, body: io.NewSectionReader(file, 0, f.Size)}, count)
	}
	var ids []string
	for at := int64(0); at < f.Size; at += blockSize {
		id := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%016d", at))
		block := part{
			address: withQuery(address, "comp=block&blockid="+url.QueryEscape(id)), rest: f.Size - at,
			body: io.NewSectionReader(file, at, min(blockSize, f.Size-at)),
		}
		if err := c.sendPart(ctx, block, count); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	var list bytes.Buffer
	list.WriteString(`<?xml version="1.0" encoding="utf-8"?><BlockList>`)
	for _, id := range ids {
		list.WriteString("<Latest>" + id + "</Latest>")
	}
	list.WriteString("</BlockList>")
	body := list.Bytes()
	whole := part{
		address: withQuery(address, "comp=blocklist"), hash: f.Hash,
		body: io.NewSectionReader(bytes.NewReader(body), 0, int64(len(body))),
	}
	return c.sendPart(ctx, whole, nil)
}

// part is the body of one request.
type part struct {
	address string
	rest    int64  // how much of a file is to come, for a server that has no room for it; 0 does not say
	hash    string // of the whole file, if this is or ends it; "" is not checked
	body    *io.SectionReader
}

// sendPart puts one body, again when the connection broke or the server was busy.
func (c *Client) sendPart(ctx context.Context, p part, count func(int64)) error {
	if count == nil {
		count = func(int64) {}
	}
	return c.persist(ctx, http.MethodPut, func() error {
		var counted atomic.Int64
		err := c.sendOnce(ctx, p, func(n int64) {
			counted.Add(n)
			count(n)
		})
		if err != nil {
			count(-counted.Load()) // it is sent again from its beginning, or not at all
		} else {
			count(p.body.Size() - counted.Load())
		}
		return err
	})
}

// counted reports what is read of a body, a block at a time.
type counted struct {
	io.Reader
	count func(int64)
	n     int64
	left  int64
	short atomic.Bool // the file ended early
}

func (r *counted) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.n += int64(n); r.n >= blockSize {
		r.count(r.n)
		r.n = 0
	}
	if r.left -= int64(n); err == io.EOF && r.left > 0 {
		r.short.Store(true)
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (c *Client) sendOnce(ctx context.Context, p part, count func(int64)) error {
	req, err := c.blobRequest(ctx, http.MethodPut, p.address)
	if err != nil {
		return err
	}
	req.Header.Set("x-ms-blob-type", "BlockBlob")
	if p.rest > 0 {
		req.Header.Set("X-Berth-Rest", strconv.FormatInt(p.rest, 10))
	}
	if p.hash != "" {
		req.Header.Set(berth.ContentHashHeader, p.hash)
	}
	req.ContentLength = p.body.Size()
	req.Body = http.NoBody
	body := &counted{Reader: io.NewSectionReader(p.body, 0, p.body.Size()), count: count, left: p.body.Size()}
	if p.body.Size() > 0 {
		req.Body = io.NopCloser(body)
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(p.body, 0, p.body.Size())), nil }
	}
	err = c.done(c.blob(req, http.StatusCreated))
	if body.short.Load() {
		return &berth.Error{Code: berth.Invalid, Wire: berth.WireSHA256Mismatch, Msg: "it became shorter", Err: err}
	}
	return err
}
