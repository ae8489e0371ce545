package data

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
)

// shareName is a name in the list of a share's folder.
type shareName struct {
	Encoded bool   `xml:"Encoded,attr"`
	Text    string `xml:",chardata"`
}

// shareListing is the answer to a list request of Azure's file shares.
type shareListing struct {
	Files []struct {
		Name shareName `xml:"Name"`
		Size int64     `xml:"Properties>Content-Length"`
		Etag string    `xml:"Properties>Etag"`
	} `xml:"Entries>File"`
	Folders []struct {
		Name shareName `xml:"Name"`
	} `xml:"Entries>Directory"`
	Next string `xml:"NextMarker"`
}

// in is the path of a name in a folder.
func (n shareName) in(folder string) (string, error) {
	name := n.Text
	if n.Encoded {
		var err error
		if name, err = url.PathUnescape(name); err != nil {
			return "", berth.Errorf(berth.Invalid, "the list has a name that cannot be read: %q", n.Text)
		}
	}
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return "", berth.Errorf(berth.Invalid, "the list contains %q, which is not a name in the folder", name)
	}
	if folder != "" {
		name = folder + "/" + name
	}
	return name, nil
}

// sharePage reads a page of the list of a folder. Folders are listed too, so that those without
// files are there.
func sharePage(body io.Reader, folder string) (p page, err error) {
	var l shareListing
	if err := decode(body, &l); err != nil {
		return p, err
	}
	for _, f := range l.Files {
		name, err := f.Name.in(folder)
		if err != nil {
			return p, err
		}
		p.objects = append(p.objects, Object{Path: name, Size: f.Size, Tag: f.Etag})
	}
	for _, f := range l.Folders {
		name, err := f.Name.in(folder)
		if err != nil {
			return p, err
		}
		p.objects = append(p.objects, Object{Path: name + "/"})
		if berth.TreePath(name) {
			p.folders = append(p.folders, name)
		}
	}
	p.next = l.Next
	return p, nil
}

// shareRange is how much of a file one request may write.
const shareRange = 4 << 20

// putShare sends an open file to a share: it is made with its size, and then written in ranges.
func (o *Outside) putShare(ctx context.Context, f source, rel string, to address, kind string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	create := func() error {
		return o.c.put(ctx, to, "", http.Header{
			"X-Ms-Type": {"file"}, "X-Ms-Content-Length": {strconv.FormatInt(size, 10)}, "X-Ms-Content-Type": {kind},
			"X-Ms-File-Attributes": {"None"}, "X-Ms-File-Creation-Time": {"now"}, "X-Ms-File-Last-Write-Time": {"now"}, "X-Ms-File-Permission": {"inherit"},
		}, nil, 0, 0)
	}
	err = create()
	if berth.CodeOf(err) == berth.NotFound { // the folder that it is in is not there yet
		if merr := o.makeFolder(ctx, rel, 1); merr != nil {
			return merr
		}
		err = create()
	}
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(o.c.parallel/4, 2))
	for at := int64(0); at < size; at += shareRange {
		n := min(shareRange, size-at)
		h := http.Header{"X-Ms-Write": {"update"}, "X-Ms-Range": {fmt.Sprintf("bytes=%d-%d", at, at+n-1)}}
		g.Go(func() error { return o.c.put(gctx, to, "comp=range", h, f, at, n) })
	}
	return g.Wait()
}

// makeFolder makes the folder some levels above a file, and those above it that are not there.
func (o *Outside) makeFolder(ctx context.Context, rel string, up int) error {
	to := o.one(berth.OutsideRequest{Do: berth.OutsideMkdir, Name: rel, Part: up})
	create := func() error {
		return o.c.put(ctx, to, "", http.Header{
			"X-Ms-File-Attributes": {"Directory"}, "X-Ms-File-Creation-Time": {"now"}, "X-Ms-File-Last-Write-Time": {"now"}, "X-Ms-File-Permission": {"inherit"},
		}, nil, 0, 0)
	}
	err := create()
	if berth.CodeOf(err) == berth.NotFound {
		if merr := o.makeFolder(ctx, rel, up+1); merr != nil {
			if berth.CodeOf(merr) == berth.Invalid { // there is none above it: the share is missing
				return err
			}
			return merr
		}
		err = create()
	}
	if berth.CodeOf(err) == berth.Conflict { // it is there
		return nil
	}
	return err
}
