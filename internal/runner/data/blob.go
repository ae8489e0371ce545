package data

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/berthml/berth"
)

// folder is a place in blob storage: a container, a prefix in it, and the signature that opens it.
type folder struct {
	base   string // URL of the container
	prefix string // "" or ends with a slash
	query  string // the signature
}

// parse reads the URL of a folder, see berth.BlobFolder; its query is the signature.
func parse(rawURL string) (folder, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return folder{}, berth.Errorf(berth.Invalid, "%s is not the URL of a folder", berth.CleanURL(rawURL))
	}
	container, path, err := berth.BlobFolder(u)
	if err != nil {
		return folder{}, err
	}
	f := folder{query: u.RawQuery}
	base := url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host, Path: "/" + container}
	f.base = base.String()
	if p := strings.Trim(path, "/"); p != "" {
		f.prefix = p + "/"
	}
	return f, nil
}

// url is the URL of a blob of the folder's container.
func (f folder) url(name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	u := f.base + "/" + strings.Join(parts, "/")
	if f.query != "" {
		u += "?" + f.query
	}
	return u
}

// blob is one entry of a list.
type blob struct {
	name string
	size int64
	tag  string
}

// listing is the answer to a list request.
type listing struct {
	Blobs []struct {
		Name struct {
			Encoded bool   `xml:"Encoded,attr"`
			Text    string `xml:",chardata"`
		} `xml:"Name"`
		Size     int64  `xml:"Properties>Content-Length"`
		Etag     string `xml:"Properties>Etag"`
		Resource string `xml:"Properties>ResourceType"`
		Folder   string `xml:"Metadata>hdi_isfolder"`
	} `xml:"Blobs>Blob"`
	NextMarker string `xml:"NextMarker"`
}

// listBody is the text of a page of a list, which is bounded.
type listBody struct {
	r          io.Reader
	left, most int64
}

func (c *Client) listBody(r io.Reader) *listBody { return &listBody{r, c.page, c.page} }

func (b *listBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, berth.Errorf(berth.Invalid, "a page of it has more than %d MB, the most that a node can keep", b.most>>20)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// decode reads a page of a list.
func decode(body io.Reader, page any) error {
	err := xml.NewDecoder(body).Decode(page)
	var ours *berth.Error
	if err == nil || errors.As(err, &ours) {
		return err
	}
	return berth.Errorf(berth.Unavailable, "reading the list: %w", err)
}

// list calls f for each blob of a folder, in order.
func (c *Client) list(ctx context.Context, dir folder, f func(blob) error) error {
	marker := ""
	markers := map[string]bool{"": true}
	for n, kept := 0, 0; ; {
		q := url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {dir.prefix}}
		if marker != "" {
			q.Set("marker", marker)
		}
		u := dir.base + "?" + q.Encode()
		if dir.query != "" {
			u += "&" + dir.query
		}
		var page listing
		err := c.retry(ctx, func() error {
			page = listing{}
			res, err := c.do(ctx, http.MethodGet, u, nil, nil)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			return decode(c.listBody(res.Body), &page)
		})
		if err != nil {
			return err
		}
		for _, b := range page.Blobs {
			name := b.Name.Text
			if b.Name.Encoded {
				if name, err = url.PathUnescape(name); err != nil {
					return berth.Errorf(berth.Invalid, "the folder's list has a name that cannot be read: %q", b.Name.Text)
				}
			}
			if b.Folder == "true" {
				continue // the mark of a directory, not a file
			}
			if err := f(blob{name, b.Size, b.Etag}); err != nil {
				return err
			}
		}
		if marker = page.NextMarker; marker == "" {
			return nil
		}
		n, kept = n+len(page.Blobs), kept+len(marker)
		switch {
		case markers[marker]:
			return berth.Errorf(berth.Internal, "the folder's list does not end: after %d pages it repeats a page", len(markers))
		case len(markers) >= maxPages || kept > maxList:
			return berth.Errorf(berth.Internal, "the folder's list does not end: it has more than %d pages", len(markers))
		case n > most:
			return berth.Errorf(berth.Invalid, "the folder has more than %d files, the most that can be copied to a node", most)
		}
		markers[marker] = true
	}
}

// do sends a request and turns every answer but success into an error.
func (c *Client) do(ctx context.Context, method, u string, header http.Header, body io.Reader) (*http.Response, error) {
	g := newGuard(ctx, c.stalled)
	n, sized := body.(interface{ Len() int64 })
	if sized {
		body = watched{body, g}
	}
	req, err := http.NewRequestWithContext(g.ctx, method, u, body)
	if err != nil {
		g.stop()
		return nil, berth.Errorf(berth.Invalid, "%s is not a URL", berth.CleanURL(u))
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if sized {
		req.ContentLength = n.Len()
	}
	req.Header.Set("X-Ms-Version", "2023-11-03")
	res, err := c.http.Do(req)
	if err != nil {
		defer g.stop()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// The library's error names the URL with its signature.
		if ue, ok := err.(*url.Error); ok {
			err = ue.Err
		}
		if changed := new(Changed); errors.As(err, &changed) {
			return nil, changed
		}
		if cut := g.cut(); cut != nil {
			return nil, cut
		}
		return nil, unreachable(req.URL.Host, err)
	}
	res.Body = answerBody{watched{res.Body, g}, res.Body}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	return nil, answer(res, text)
}

// answer is the error a storage server answered with.
func answer(res *http.Response, body []byte) error {
	code := berth.CodeOfHTTP(res.StatusCode)
	switch {
	case res.StatusCode == http.StatusNotImplemented:
		code = berth.Unsupported
	case res.StatusCode >= 500 || res.StatusCode == http.StatusRequestTimeout || res.StatusCode == http.StatusLocked:
		code = berth.Unavailable
	}
	msg := res.Status
	var e struct{ Code, Message string }
	_ = xml.Unmarshal(body, &e) // others answer in other forms
	switch c := cmp.Or(res.Header.Get("X-Ms-Error-Code"), e.Code); c {
	case "":
	case "UnsupportedOperation":
		code, msg = berth.Unsupported, msg+" "+c
	case "InsufficientStorage": // our own: the message says how much room is missing
		text, _, _ := strings.Cut(e.Message, "\n")
		msg += " " + c + ": " + text
	default:
		msg += " " + c
	}
	return berth.Errorf(code, "the server answered %s", msg)
}
