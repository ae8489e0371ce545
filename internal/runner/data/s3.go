package data

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
)

// s3Listing is the answer to a list request of S3.
type s3Listing struct {
	Encoding string `xml:"EncodingType"`
	Contents []struct {
		Key  string
		Size int64
		ETag string
	}
	Truncated bool   `xml:"IsTruncated"`
	Next      string `xml:"NextContinuationToken"`
}

func s3Page(body io.Reader, prefix string) (p page, err error) {
	var l s3Listing
	if err := decode(body, &l); err != nil {
		return p, err
	}
	for _, c := range l.Contents {
		name := c.Key
		if l.Encoding == "url" {
			if name, err = url.QueryUnescape(name); err != nil {
				return p, berth.Errorf(berth.Invalid, "the list has a name that cannot be read: %q", c.Key)
			}
		}
		if err := p.add(name, prefix, c.Size, c.ETag); err != nil {
			return p, err
		}
	}
	if l.Truncated {
		if p.next = l.Next; p.next == "" {
			return p, berth.Errorf(berth.Unavailable, "the list is truncated and has no continuation token")
		}
	}
	return p, nil
}

// exchange sends n bytes of r from offset at, and returns the answer.
func (o *Outside) exchange(ctx context.Context, method string, to address, h http.Header, r io.ReaderAt, at, n int64) (head http.Header, answer []byte, err error) {
	err = o.c.retry(ctx, func() error {
		u, err := to(ctx)
		if err != nil {
			return err
		}
		var body io.Reader = http.NoBody
		if n > 0 {
			body = section{io.NewSectionReader(r, at, n)}
		}
		res, err := o.c.do(ctx, method, u, h, body)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if answer, err = io.ReadAll(io.LimitReader(res.Body, 1<<20)); err != nil {
			return berth.Errorf(berth.Unavailable, "reading the answer: %w", err)
		}
		head = res.Header
		return nil
	})
	return head, answer, err
}

// putWhole sends a file to S3 in one request, with its checksum: there are servers that keep what
// came of a request that was cut off.
func (o *Outside) putWhole(ctx context.Context, f source, size int64, to address, kind string) error {
	sum := md5.New() // the checksum that S3 takes in a header which need not be signed
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size)); err != nil {
		return err
	}
	h := http.Header{"Content-Type": {kind}, "Content-Md5": {base64.StdEncoding.EncodeToString(sum.Sum(nil))}}
	_, _, err := o.exchange(ctx, http.MethodPut, to, h, f, 0, size)
	if err != nil && strings.Contains(err.Error(), "BadDigest") {
		err = berth.Errorf(berth.Unavailable, "the file was written to while it was sent: %w", err)
	}
	return err
}

// putParts sends a large file to S3, in parallel. What is cut off is dropped, so that nobody pays
// for it.
func (o *Outside) putParts(ctx context.Context, f source, size int64, rel, kind string) (err error) {
	ask := func(do berth.OutsideVerb, upload string) berth.OutsideRequest {
		return berth.OutsideRequest{Do: do, Name: rel, Upload: upload}
	}
	_, answer, err := o.exchange(ctx, http.MethodPost, o.one(ask(berth.OutsideBegin, "")), http.Header{"Content-Type": {kind}}, nil, 0, 0)
	if err != nil {
		return err
	}
	var begun struct{ UploadId string } //nolint:revive // as S3 writes it
	if err := xml.Unmarshal(answer, &begun); err != nil || begun.UploadId == "" {
		return berth.Errorf(berth.Internal, "the server started an upload without an upload id")
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			_, _, _ = o.exchange(ctx, http.MethodDelete, o.one(ask(berth.OutsideDrop, begun.UploadId)), nil, nil, 0, 0)
		}
	}()
	piece := max(o.c.piece, 5<<20, size/9000+1) // S3 takes 10,000 parts at most, of 5 MiB at least but for the last
	count := int((size + piece - 1) / piece)
	rs := make([]berth.OutsideRequest, count)
	for i := range rs {
		rs[i] = ask(berth.OutsidePart, begun.UploadId)
		rs[i].Part = i + 1
	}
	type part struct {
		PartNumber int
		ETag       string
	}
	done := struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []part
	}{Part: make([]part, count)}
	b := o.batch(rs)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(o.c.parallel/4, 2))
	for i := range count {
		g.Go(func() error {
			at := int64(i) * piece
			head, _, err := o.exchange(gctx, http.MethodPut, b.address(i), nil, f, at, min(piece, size-at))
			done.Part[i] = part{i + 1, head.Get("ETag")}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	body, err := xml.Marshal(done)
	if err != nil {
		return err
	}
	return o.finish(ctx, ask(berth.OutsideFinish, begun.UploadId), body, size)
}

// finish has the parts of an upload joined to a file of size.
func (o *Outside) finish(ctx context.Context, r berth.OutsideRequest, body []byte, size int64) error {
	to, tries := o.one(r), 0
	counted := func(ctx context.Context) (string, error) {
		tries++
		return to(ctx)
	}
	_, answer, err := o.exchange(ctx, http.MethodPost, counted, http.Header{"Content-Type": {"application/xml"}}, bytes.NewReader(body), 0, int64(len(body)))
	if berth.CodeOf(err) == berth.NotFound && tries > 1 {
		// The answer to an earlier try may have been lost: then the upload is over, and the file is
		// there.
		if x, herr := o.head(ctx, r.Name); herr == nil && x.Size == size {
			return nil
		}
	}
	if err != nil {
		return err
	}
	// The status came before the parts were joined: the answer may still be an error.
	var failed struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if xml.Unmarshal(answer, &failed) == nil {
		return berth.Errorf(berth.Unavailable, "the server could not join the parts: %s", failed.Code)
	}
	return nil
}
