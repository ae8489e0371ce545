package data

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
)

// A web server has no protocol for lists. One that speaks WebDAV is asked for the properties of
// what is in a folder; another for the page that it shows of the folder, whose links are the names.

// propfind asks for what a list needs of each file.
const propfind = `<?xml version="1.0" encoding="utf-8"?>
<propfind xmlns="DAV:"><prop><resourcetype/><getcontentlength/><getetag/><getlastmodified/></prop></propfind>`

var errNoDAV = berth.Errorf(berth.Unsupported, "the server does not speak WebDAV")

// multistatus is the answer.
type multistatus struct {
	XMLName   xml.Name `xml:"multistatus"`
	Responses []struct {
		Href  string `xml:"href"`
		Props []struct {
			Status string `xml:"status"`
			Prop   struct {
				Folder   *struct{} `xml:"resourcetype>collection"`
				Size     string    `xml:"getcontentlength"`
				Tag      string    `xml:"getetag"`
				Modified string    `xml:"getlastmodified"`
			} `xml:"prop"`
		} `xml:"propstat"`
	} `xml:"response"`
}

// webPage is what is in a folder of a web server.
func (o *Outside) webPage(ctx context.Context, folder string) (p page, err error) {
	at, err := url.Parse(o.at.At)
	if err != nil {
		return p, berth.Errorf(berth.Invalid, "%s is not a URL", o.at.At)
	}
	at.Path, at.RawPath = strings.TrimSuffix(at.Path, "/")+"/", ""
	if folder != "" {
		at.Path += folder + "/"
	}
	to := o.one(berth.OutsideRequest{Do: berth.OutsideList, Name: folder})
	var list multistatus
	var names []named
	if err = errNoDAV; !o.pages.Load() {
		list, err = o.dav(ctx, to)
	}
	switch code := berth.CodeOf(err); {
	case err == nil:
		names, err = list.names(at)
	case ctx.Err() == nil && code != berth.Unavailable && code != berth.Unauthenticated:
		if names, err = o.index(ctx, to, at); err == nil {
			o.pages.Store(true) // and so are the folders in it
		}
	}
	if err != nil {
		return p, err
	}
	return o.complete(ctx, folder, names)
}

// named is what a list says of a name in a folder.
type named struct {
	name   string
	folder bool
	size   int64 // negative where it is not known
	tag    string
}

// dav asks a server that speaks WebDAV.
func (o *Outside) dav(ctx context.Context, to address) (list multistatus, err error) {
	h := http.Header{"Depth": {"1"}, "Content-Type": {"application/xml; charset=utf-8"}}
	err = o.answered(ctx, "PROPFIND", to, h, propfind, func(res *http.Response, body io.Reader) error {
		if res.StatusCode != http.StatusMultiStatus {
			return errNoDAV
		}
		list = multistatus{}
		return decode(body, &list)
	})
	return list, err
}

// names are what it says of the folder at a URL.
func (list *multistatus) names(at *url.URL) (names []named, err error) {
	for _, r := range list.Responses {
		ref, err := url.Parse(r.Href)
		if err != nil {
			return nil, berth.Errorf(berth.Invalid, "the list has a name that cannot be read: %q", r.Href)
		}
		// Servers behind others do not know their own name: the path alone counts.
		leads := at.ResolveReference(ref).Path
		if leads == at.Path || leads+"/" == at.Path {
			continue // the folder itself
		}
		rel, ok := strings.CutPrefix(leads, at.Path)
		x := named{name: strings.TrimSuffix(rel, "/"), size: -1}
		if !ok || !isName(x.name) {
			return nil, berth.Errorf(berth.Invalid, "the list contains %q, which is not a name in the folder", r.Href)
		}
		x.folder = strings.HasSuffix(rel, "/")
		for _, s := range r.Props {
			if !strings.Contains(s.Status, " 200 ") && !strings.HasSuffix(s.Status, " 200") {
				continue
			}
			x.folder = x.folder || s.Prop.Folder != nil
			if n, err := strconv.ParseInt(strings.TrimSpace(s.Prop.Size), 10, 64); err == nil && n >= 0 {
				x.size = n
			}
			x.tag = webTag(s.Prop.Tag, s.Prop.Modified)
		}
		names = append(names, x)
	}
	return names, nil
}

func isName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.Contains(s, "/")
}

// link finds the links of a page.
var link = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?is)<a\s(?:[^>]*?\s)?href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))`)
})

// index reads the page of a folder. Links to elsewhere, and those that sort the page, are none of
// its names.
func (o *Outside) index(ctx context.Context, to address, at *url.URL) (names []named, err error) {
	var text []byte
	err = o.answered(ctx, http.MethodGet, to, nil, "", func(res *http.Response, body io.Reader) (err error) {
		if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "text/html" && kind != "application/xhtml+xml" {
			return berth.Errorf(berth.Unsupported, "the server lists no folders: it neither speaks WebDAV nor has a page of links for %s", at.Path)
		}
		if text, err = io.ReadAll(body); err != nil && ctx.Err() == nil && berth.CodeOf(err) != berth.Invalid {
			err = berth.Errorf(berth.Unavailable, "reading the list: %w", err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, m := range link().FindAllSubmatch(text, -1) {
		ref, err := url.Parse(html.UnescapeString(strings.TrimSpace(string(m[1]) + string(m[2]) + string(m[3]))))
		if err != nil || ref.RawQuery != "" || ref.Opaque != "" {
			continue
		}
		leads := at.ResolveReference(ref)
		rel, ok := strings.CutPrefix(leads.Path, at.Path)
		name := strings.TrimSuffix(rel, "/")
		if ok && leads.Scheme == at.Scheme && leads.Host == at.Host && isName(name) && !seen[rel] {
			seen[rel] = true
			names = append(names, named{name: name, folder: name != rel, size: -1})
		}
	}
	// Some pages have two links for a folder, with and without the slash.
	return slices.DeleteFunc(names, func(x named) bool { return !x.folder && seen[x.name+"/"] }), nil
}

// maxAsked is for how many files of a folder the size is asked for, one by one.
const maxAsked = 100_000

// complete asks for the files of which a list does not say how large they are.
func (o *Outside) complete(ctx context.Context, folder string, names []named) (p page, err error) {
	var rs []berth.OutsideRequest
	var unknown []int // in p.objects
	for _, x := range names {
		path := x.name
		if folder != "" {
			path = folder + "/" + path
		}
		if x.folder {
			p.objects = append(p.objects, Object{Path: path + "/"})
			if berth.TreePath(path) {
				p.folders = append(p.folders, path)
			}
			continue
		}
		if x.size < 0 {
			if !berth.TreePath(path) { // it will be skipped
				x.size = 0
			} else {
				rs, unknown = append(rs, berth.OutsideRequest{Do: berth.OutsideHead, Name: path}), append(unknown, len(p.objects))
			}
		}
		p.objects = append(p.objects, Object{Path: path, Size: x.size, Tag: x.tag})
	}
	if len(rs) > maxAsked {
		return p, berth.Errorf(berth.Invalid, "the list has %d files and not their sizes, and each is asked for: there may be %d in a folder; a server that speaks WebDAV says them", len(rs), maxAsked)
	}
	b := o.batch(rs)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(o.c.parallel)
	for n, i := range unknown {
		g.Go(func() error {
			x, err := o.headAt(gctx, rs[n].Name, b.address(n))
			if err != nil {
				return fmt.Errorf("%s: %w", rs[n].Name, err)
			}
			p.objects[i] = x
			return nil
		})
	}
	return p, g.Wait()
}

// SendsParts is why the files of a list cannot be read in parts; nil where they can. Only web
// servers have to be asked.
func (o *Outside) SendsParts(ctx context.Context, list []Object) error {
	i := slices.IndexFunc(list, func(x Object) bool { return x.Size > 0 })
	if o.at.Protocol != berth.OutsideHTTP || i < 0 {
		return nil
	}
	return o.Reader(list).Read(ctx, i, 0, [][]byte{make([]byte, 1)}, func(int) {})
}

// answered sends a request and has its answer read, as often as that fails for a passing reason.
func (o *Outside) answered(ctx context.Context, method string, to address, h http.Header, body string, read func(*http.Response, io.Reader) error) error {
	return o.c.retry(ctx, func() error {
		u, err := to(ctx)
		if err != nil {
			return err
		}
		var r io.Reader
		if body != "" {
			r = section{io.NewSectionReader(strings.NewReader(body), 0, int64(len(body)))}
		}
		res, err := o.c.do(ctx, method, u, h, r)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		return read(res, o.c.listBody(res.Body))
	})
}

// putWeb sends an open file to a web server, and makes the folder that it is in where the server
// wants that.
func (o *Outside) putWeb(ctx context.Context, f source, rel string, to address, kind string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size, status := info.Size(), 0
	send := func() error {
		return o.c.retry(ctx, func() error {
			u, err := to(ctx)
			if err != nil {
				return err
			}
			var body io.Reader = http.NoBody
			if size > 0 {
				body = section{io.NewSectionReader(f, 0, size)}
			}
			res, err := o.c.do(ctx, http.MethodPut, u, http.Header{"Content-Type": {kind}}, body)
			if err != nil {
				return err
			}
			status = res.StatusCode
			return res.Body.Close()
		})
	}
	err = send()
	if code := berth.CodeOf(err); code == berth.NotFound || code == berth.Conflict {
		if merr := o.makeWebFolder(ctx, rel, 1); merr != nil {
			return berth.Errorf(berth.CodeOf(merr), "%w; nor can the folder that it is in be made there: %w", err, merr)
		}
		err = send()
	}
	if err == nil && status != http.StatusCreated && status != http.StatusNoContent {
		err = o.confirm(ctx, f, rel, size)
	}
	return err
}

// confirm reads back what was sent: servers that know nothing of PUT answer it as they answer GET.
func (o *Outside) confirm(ctx context.Context, f source, rel string, size int64) error {
	to := o.one(berth.OutsideRequest{Do: berth.OutsideGet, Name: rel})
	return o.c.retry(ctx, func() error {
		res, err := o.c.get(ctx, to, new(pin), http.Header{})
		if berth.CodeOf(err) == berth.NotFound {
			return errNotKept
		}
		if err != nil {
			return err
		}
		defer res.Body.Close()
		n, err := io.Copy(&comparison{r: io.NewSectionReader(f, 0, size)}, res.Body)
		if errors.Is(err, errOther) || err == nil && n != size {
			return errNotKept
		}
		return cutShort(ctx, err)
	})
}

var errNotKept = berth.Errorf(berth.Unsupported, "the server accepts the file and does not keep it; it may not take files by PUT")

// comparison is written what should be the same as it reads.
type comparison struct {
	r   io.Reader
	buf []byte
}

var errOther = errors.New("it has other content")

func (c *comparison) Write(p []byte) (int, error) {
	c.buf = slices.Grow(c.buf[:0], len(p))[:len(p)]
	if _, err := io.ReadFull(c.r, c.buf); err != nil || !bytes.Equal(p, c.buf) {
		return 0, errOther
	}
	return len(p), nil
}

// makeWebFolder makes the folder some levels above a file, and those above it that are not there. A
// server that answers that it does not make folders may have it already.
func (o *Outside) makeWebFolder(ctx context.Context, rel string, up int) error {
	to := o.one(berth.OutsideRequest{Do: berth.OutsideMkdir, Name: rel, Part: up})
	create := func() error {
		return o.answered(ctx, "MKCOL", to, nil, "", func(*http.Response, io.Reader) error { return nil })
	}
	err := create()
	if code := berth.CodeOf(err); code == berth.NotFound || code == berth.Conflict {
		if merr := o.makeWebFolder(ctx, rel, up+1); merr != nil {
			return err
		}
		err = create()
	}
	if code := berth.CodeOf(err); code == berth.Invalid || code == berth.Unsupported {
		return nil
	}
	return err
}

// modified begins the tag of a file whose server has none: when it was changed last, which tells
// little about changes within a second.
const modified = `W/"modified `

// webTag is the tag of a file from what its server says of it.
func webTag(etag, changed string) string {
	if etag != "" {
		return etag
	}
	t, err := http.ParseTime(changed)
	if err != nil {
		return ""
	}
	return modified + t.UTC().Format(http.TimeFormat) + `"`
}

// webVersion is the version that such a tag stands for.
func webVersion(tag string) version {
	if since, ok := strings.CutPrefix(tag, modified); ok {
		return version{since: strings.TrimSuffix(since, `"`)}
	}
	if strings.HasPrefix(tag, "W/") {
		return version{weak: tag}
	}
	return version{tag: strong(tag)}
}
