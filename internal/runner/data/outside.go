package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
)

// Sign has requests to storage elsewhere signed, as many as [berth.MaxOutsideRequests] at once: it
// returns where each of them goes.
type Sign func(ctx context.Context, grant string, rs []berth.OutsideRequest) (urls []string, err error)

// Outside is a place in storage elsewhere: a folder, or a file.
type Outside struct {
	c    *Client
	at   *berth.Outside
	sign Sign
	// pages says that a web server shows pages of links, and does not speak WebDAV.
	pages atomic.Bool
}

// Outside reaches a place in storage elsewhere.
func (c *Client) Outside(at *berth.Outside, sign Sign) *Outside {
	if at.Protocol == berth.OutsideShare {
		compares := *c
		compares.compares = true
		c = &compares
	}
	return &Outside{c: c, at: at, sign: sign}
}

// Object is a file there.
type Object struct {
	Path string // below the place; that of a folder ends with a slash; empty is the place itself
	Size int64
	Tag  string // changes with the content
}

// describe says of an error where it comes from, and what to do.
func (o *Outside) describe(doing string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	where := fmt.Sprintf("datastore %s (%s)", o.at.Datastore, o.at.At)
	code := berth.CodeOf(err)
	msg := fmt.Sprintf("%s %s: %v", doing, where, err)
	switch code {
	case berth.Denied, berth.Unauthenticated:
		msg = fmt.Sprintf("%s: %s rejects the credentials: %v; they may be wrong, expired or revoked; set new ones with `berth datastore update`", doing, where, err)
	case berth.Precondition:
		code, msg = berth.Conflict, fmt.Sprintf("%s: a file of %s changed while it was being read: %v", doing, where, err)
	case berth.Unavailable:
		if berth.IsDiskFull(err) {
			break
		}
		msg = fmt.Sprintf("%s: %s does not answer: %v", doing, where, err)
	}
	return &berth.Error{Code: code, Msg: msg, Err: err}
}

// goodFor is how long a signature is used; the server makes it for an hour.
const goodFor = 40 * time.Minute

// batch is requests that are signed some at a time, when they are needed.
type batch struct {
	o  *Outside
	rs []berth.OutsideRequest

	mu   sync.Mutex
	urls []string
	at   []time.Time // when it was signed
}

func (o *Outside) batch(rs []berth.OutsideRequest) *batch {
	return &batch{o: o, rs: rs, urls: make([]string, len(rs)), at: make([]time.Time, len(rs))}
}

// address is where request i goes.
func (b *batch) address(i int) address {
	return func(ctx context.Context) (string, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.urls[i] != "" && time.Since(b.at[i]) < goodFor {
			return b.urls[i], nil
		}
		from := i - i%berth.MaxOutsideRequests
		to := min(from+berth.MaxOutsideRequests, len(b.rs))
		now := time.Now()
		urls, err := b.o.sign(ctx, b.o.at.Grant, b.rs[from:to])
		if err != nil {
			return "", err
		}
		if len(urls) != to-from {
			return "", berth.Errorf(berth.Unavailable, "the server signed %d of %d requests", len(urls), to-from)
		}
		for n, u := range urls {
			b.urls[from+n], b.at[from+n] = u, now
		}
		return b.urls[i], nil
	}
}

// one is the address of a single request.
func (o *Outside) one(r berth.OutsideRequest) address {
	return o.batch([]berth.OutsideRequest{r}).address(0)
}

// most is how many files a folder elsewhere may have: a list that goes on for ever has an end.
const most = 5_000_000

// maxPage bounds a page of a list, in bytes, maxPages how many there are, since some may be empty,
// and maxList the names and tags of all together.
const (
	maxPage  = 64 << 20
	maxPages = 100_000
	maxList  = 512 << 20
	maxDepth = 100 // of folders that are listed one by one
)

// List is what lies below the place, in the order of the names, and names that cannot be files on a
// node. A folder without files is NotFound.
func (o *Outside) List(ctx context.Context) (list []Object, skipped []string, err error) {
	l := lister{files: map[string]bool{}}
	for folders := []string{""}; len(folders) > 0; folders = folders[1:] {
		more, err := o.listFolder(ctx, folders[0], &l)
		if err != nil {
			return nil, nil, o.describe("listing", err)
		}
		folders = append(folders, more...)
	}
	if l.n == 0 {
		return nil, nil, berth.Errorf(berth.NotFound, "there is nothing at %s in datastore %s", o.at.At, o.at.Datastore)
	}
	slices.SortFunc(l.list, func(a, b Object) int { return strings.Compare(a.Path, b.Path) })
	return l.list, l.skipped, nil
}

// listFolder lists everything below the place or, where folders are listed one by one, what is in
// one, and returns the folders in it.
func (o *Outside) listFolder(ctx context.Context, folder string, l *lister) (folders []string, err error) {
	if strings.Count(folder, "/") >= maxDepth {
		return nil, berth.Errorf(berth.Invalid, "it has folders within more than %d others: %.60s…", maxDepth, folder)
	}
	markers := map[string]bool{"": true}
	for marker := ""; ; {
		page, err := o.page(ctx, folder, marker)
		if err != nil {
			return nil, err
		}
		if err := l.add(page); err != nil {
			return nil, err
		}
		folders = append(folders, page.folders...)
		if page.next == "" {
			return folders, nil
		}
		if marker = page.next; markers[marker] {
			return nil, berth.Errorf(berth.Internal, "the list does not end: after %d pages it repeats a page", l.pages)
		}
		markers[marker] = true
	}
}

// lister collects the pages of a list.
type lister struct {
	list    []Object
	skipped []string
	files   map[string]bool
	n       int // how many names there were
	pages   int
	kept    int // how many bytes they take
}

func (l *lister) add(p page) error {
	l.pages++
	l.kept += len(p.next)
	for _, x := range p.objects {
		l.n++
		l.kept += len(x.Path) + len(x.Tag)
		if !berth.TreePath(strings.TrimSuffix(x.Path, "/")) || x.Size < 0 || through(l.files, x.Path) {
			l.skipped = append(l.skipped, x.Path)
			continue
		}
		if l.files[x.Path] {
			return berth.Errorf(berth.Invalid, "the list contains %q twice", x.Path)
		}
		l.files[x.Path] = true
		l.list = append(l.list, x)
	}
	switch {
	case l.pages > maxPages:
		return berth.Errorf(berth.Internal, "the list does not end: it has more than %d pages", maxPages)
	case l.n > most:
		return berth.Errorf(berth.Invalid, "it has more than %d files, the most that can be copied to a node", most)
	case l.kept > maxList:
		return berth.Errorf(berth.Invalid, "its file names take more than %d MB, the most that a node can keep", maxList>>20)
	}
	return nil
}

// through says whether a path leads through a file.
func through(files map[string]bool, path string) bool {
	for i := range len(path) {
		if path[i] == '/' && files[path[:i]] {
			return true
		}
	}
	return false
}

// Stat looks at the place itself, which is a file.
func (o *Outside) Stat(ctx context.Context) (Object, error) {
	x, err := o.head(ctx, "")
	if berth.CodeOf(err) == berth.NotFound {
		return x, berth.Errorf(berth.NotFound, "there is no file at %s in datastore %s", o.at.At, o.at.Datastore)
	}
	return x, o.describe("asking for", err)
}

// head looks at a file.
func (o *Outside) head(ctx context.Context, name string) (x Object, err error) {
	return o.headAt(ctx, name, o.one(berth.OutsideRequest{Do: berth.OutsideHead, Name: name}))
}

func (o *Outside) headAt(ctx context.Context, name string, to address) (x Object, err error) {
	err = o.c.retry(ctx, func() error {
		u, err := to(ctx)
		if err != nil {
			return err
		}
		res, err := o.c.do(ctx, http.MethodHead, u, nil, nil)
		if err != nil {
			return err
		}
		res.Body.Close()
		if res.ContentLength < 0 {
			return berth.Errorf(berth.Unavailable, "the response has no Content-Length")
		}
		x = Object{Path: name, Size: res.ContentLength, Tag: res.Header.Get("ETag")}
		if o.at.Protocol == berth.OutsideHTTP {
			x.Tag = webTag(x.Tag, res.Header.Get("Last-Modified"))
		}
		return nil
	})
	return x, err
}

// strong is a tag as If-Match wants it: quoted, as lists of Azure do not have them. A weak one
// matches nothing.
func strong(tag string) string {
	switch {
	case tag == "" || strings.HasPrefix(tag, "W/"):
		return ""
	case strings.HasPrefix(tag, `"`):
		return tag
	}
	return `"` + tag + `"`
}

// version is that of a file as it was listed.
func (o *Outside) version(x Object) version {
	if o.at.Protocol == berth.OutsideHTTP {
		return webVersion(x.Tag)
	}
	return version{tag: strong(x.Tag)}
}

// Fetch brings files there to paths of this machine, those of list that are in want.
func (o *Outside) Fetch(ctx context.Context, list []Object, want []int, to func(i int) string) error {
	rs := make([]berth.OutsideRequest, len(want))
	for n, i := range want {
		rs[n] = berth.OutsideRequest{Do: berth.OutsideGet, Name: list[i].Path}
	}
	b := o.batch(rs)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(o.c.parallel)
	for n, i := range want {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			err := o.c.fetchTo(gctx, b.address(n), o.version(list[i]), to(i), list[i].Size)
			if berth.CodeOf(err) == berth.NotFound { // whoever lists again goes on without it
				err = &berth.Error{Code: berth.Conflict, Msg: "it was deleted after it was listed", Err: err}
			}
			if err != nil && list[i].Path != "" {
				err = fmt.Errorf("%s: %w", list[i].Path, err)
			}
			return err
		})
	}
	return o.describe("fetching", g.Wait())
}

// PutFolder is [Client.PutFolder].
func (o *Outside) PutFolder(ctx context.Context, d *Dir, sent Sent, t *Total) ([]LeftOut, error) {
	list, err := d.files(ctx)
	if err != nil {
		return list.left, err
	}
	rs, number := make([]berth.OutsideRequest, 0, len(list.files)), map[string]int{}
	for _, rel := range list.files {
		if sent == nil || !sent.Has(rel) {
			number[rel] = len(rs)
			rs = append(rs, berth.OutsideRequest{Do: berth.OutsidePut, Name: rel})
		}
	}
	b := o.batch(rs)
	left, err := o.c.putAll(ctx, d, list, sent, t, func(ctx context.Context, f *os.File, rel string) error {
		return o.put(ctx, f, rel, b.address(number[rel]))
	})
	var shut *Closed
	if errors.As(err, &shut) {
		return left, err
	}
	return left, o.describe("writing to", err)
}

// PutFile is [Client.PutFile]: the place is the file.
func (o *Outside) PutFile(ctx context.Context, d *Dir, name string, t *Total) error {
	to := o.one(berth.OutsideRequest{Do: berth.OutsidePut})
	err := o.c.putFrom(ctx, d, name, func(f *os.File) error { return o.put(ctx, f, "", to) }, t)
	var left *LeftOut
	var shut *Closed
	if errors.As(err, &left) || errors.As(err, &shut) || errors.Is(err, os.ErrNotExist) {
		return err
	}
	return o.describe("writing to", err)
}

// put sends an open file.
func (o *Outside) put(ctx context.Context, f source, rel string, to address) error {
	name := rel
	if name == "" {
		name = path.Base(o.at.At)
	}
	switch o.at.Protocol {
	case berth.OutsideAzure:
		return o.c.send(ctx, f, to, name)
	case berth.OutsideShare:
		return o.putShare(ctx, f, rel, to, contentType(name))
	case berth.OutsideHTTP:
		return o.putWeb(ctx, f, rel, to, contentType(name))
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > o.c.whole {
		return o.putParts(ctx, f, info.Size(), rel, contentType(name))
	}
	return o.putWhole(ctx, f, info.Size(), to, contentType(name))
}

// page is a part of a list.
type page struct {
	objects []Object
	folders []string // those to be listed too, as paths below the place
	next    string
}

// page asks for a page of the list of the place, or of a folder of it.
func (o *Outside) page(ctx context.Context, folder, marker string) (p page, err error) {
	if o.at.Protocol == berth.OutsideHTTP {
		return o.webPage(ctx, folder)
	}
	to := o.one(berth.OutsideRequest{Do: berth.OutsideList, Name: folder, Marker: marker})
	err = o.c.retry(ctx, func() error {
		u, err := to(ctx)
		if err != nil {
			return err
		}
		at, err := url.Parse(u)
		if err != nil {
			return berth.Errorf(berth.Invalid, "the URL of the list is malformed")
		}
		res, err := o.c.do(ctx, http.MethodGet, u, nil, nil)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		prefix, body := at.Query().Get("prefix"), o.c.listBody(res.Body)
		switch o.at.Protocol {
		case berth.OutsideAzure:
			p, err = azurePage(body, prefix)
		case berth.OutsideShare:
			p, err = sharePage(body, folder)
		default:
			p, err = s3Page(body, prefix)
		}
		return err
	})
	return p, err
}

func azurePage(body io.Reader, prefix string) (p page, err error) {
	var l listing
	if err := decode(body, &l); err != nil {
		return p, err
	}
	for _, b := range l.Blobs {
		name := b.Name.Text
		if b.Name.Encoded {
			if name, err = url.PathUnescape(name); err != nil {
				return p, berth.Errorf(berth.Invalid, "the list has a name that cannot be read: %q", b.Name.Text)
			}
		}
		if b.Folder == "true" || b.Resource == "directory" {
			continue // the mark of a directory, not a file
		}
		if err := p.add(name, prefix, b.Size, b.Etag); err != nil {
			return p, err
		}
	}
	p.next = l.NextMarker
	return p, nil
}

// add adds an object to a page. One that does not begin as it was asked for is an error: the
// storage lies.
func (p *page) add(name, prefix string, size int64, tag string) error {
	rel, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return berth.Errorf(berth.Invalid, "the list contains %q, which is outside the folder", name)
	}
	if rel != "" { // else the mark of the folder itself
		if strings.HasSuffix(rel, "/") {
			size = 0
		}
		p.objects = append(p.objects, Object{Path: rel, Size: size, Tag: tag})
	}
	return nil
}
