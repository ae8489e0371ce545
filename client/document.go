package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/ordered"
)

// Document is a resource as the server shows it: its id, name, and properties. It remembers the
// order in which the server wrote its members, and is encoded in that order again.
type Document struct {
	// Members are the members of the JSON object, with numbers as json.Number.
	Members map[string]any
	text    []byte
}

// Text is the JSON that the document was decoded from.
func (d Document) Text() []byte { return d.text }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Document) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	d.Members, d.text = nil, bytes.Clone(b)
	return dec.Decode(&d.Members)
}

// MarshalJSON implements json.Marshaler.
func (d Document) MarshalJSON() ([]byte, error) { return ordered.Marshal(d.Members, d.text) }

// Name is the resource's name; for a version of an asset that is the version.
func (d Document) Name() string { s, _ := d.Members["name"].(string); return s }

// ID is the resource's ARM id.
func (d Document) ID() string { s, _ := d.Members["id"].(string); return s }

// Properties returns the resource's properties, which it creates if there are none.
func (d Document) Properties() map[string]any {
	if p, ok := d.Members["properties"].(map[string]any); ok {
		return p
	}
	p := map[string]any{}
	if d.Members != nil {
		d.Members["properties"] = p
	}
	return p
}

// Get reads a resource below the workspace, for example Get(ctx, "data", "d", "versions", "1"). No
// segments means the workspace.
func (c *Client) Get(ctx context.Context, segments ...string) (Document, error) {
	var d Document
	return d, c.call(ctx, http.MethodGet, c.path(segments...), nil, &d)
}

// Put creates or replaces a resource. body is anything that encodes as JSON.
func (c *Client) Put(ctx context.Context, body any, segments ...string) (Document, error) {
	var d Document
	return d, c.call(ctx, http.MethodPut, c.path(segments...), body, &d)
}

// Patch changes the members of a resource that body has.
func (c *Client) Patch(ctx context.Context, body any, segments ...string) (Document, error) {
	var d Document
	return d, c.call(ctx, http.MethodPatch, c.path(segments...), body, &d)
}

// Post calls an action of a resource, for example Post(ctx, nil, &out, "datastores", "d",
// "listSecrets").
func (c *Client) Post(ctx context.Context, in, out any, segments ...string) error {
	return c.call(ctx, http.MethodPost, c.path(segments...), in, out)
}

// Delete removes a resource. It is an error if the resource does not exist.
func (c *Client) Delete(ctx context.Context, segments ...string) error {
	if _, err := c.Get(ctx, segments...); err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, c.path(segments...), nil, nil)
}

// Drain removes a compute once the jobs that run on it have ended; those that wait for it are
// canceled.
func (c *Client) Drain(ctx context.Context, segments ...string) error {
	if _, err := c.Get(ctx, segments...); err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, c.path(segments...)+"?drain=true", nil, nil)
}

// Detach removes an attached compute from the workspace and leaves the machine alone. With drain,
// running jobs end first.
func (c *Client) Detach(ctx context.Context, drain bool, segments ...string) error {
	if _, err := c.Get(ctx, segments...); err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, c.path(segments...)+fmt.Sprintf("?underlyingResourceAction=Detach&drain=%t", drain), nil, nil)
}

// page is one answer of a list.
type page[T any] struct {
	Value    []T    `json:"value"`
	NextLink string `json:"nextLink"`
}

// List iterates over a collection, page by page: List(ctx, query, "data", "d", "versions").
func (c *Client) List(ctx context.Context, q url.Values, segments ...string) iter.Seq2[Document, error] {
	return list[Document](ctx, c, c.path(segments...), q)
}

// Workspaces iterates over the workspaces of the client's resource group, or of its whole
// subscription.
func (c *Client) Workspaces(ctx context.Context, everywhere bool) iter.Seq2[Document, error] {
	path := "/subscriptions/" + url.PathEscape(c.Workspace.Subscription)
	if !everywhere {
		path += "/resourceGroups/" + url.PathEscape(c.Workspace.Group)
	}
	return list[Document](ctx, c, path+"/providers/"+berth.Provider+"/workspaces", nil)
}

func list[T any](ctx context.Context, c *Client, path string, q url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		next := path
		if len(q) > 0 {
			next += "?" + q.Encode()
		}
		for next != "" {
			var p page[T]
			if err := c.call(ctx, http.MethodGet, next, nil, &p); err != nil {
				yield(zero, err)
				return
			}
			for _, v := range p.Value {
				if !yield(v, nil) {
					return
				}
			}
			next = relative(p.NextLink)
		}
	}
}

// relative is the path and query of a URL of the server, so that pages come over the connection we
// have.
func relative(link string) string {
	if link == "" {
		return ""
	}
	u, err := url.Parse(link)
	if err != nil {
		return ""
	}
	return u.RequestURI()
}

// About describes a server and the caller.
type About struct {
	Version   string          `json:"version"`
	URL       string          `json:"url"`
	Location  string          `json:"location"`
	CABundle  string          `json:"caBundle"`
	Workspace berth.Workspace `json:"workspace"`
	Rev       berth.Rev       `json:"rev"`
	User      string          `json:"user"`
	Role      string          `json:"role"`
	// Trouble is why the server's data may be out of date, such as a full disk; empty if all is
	// well.
	Trouble string `json:"trouble"`
	// Unlimited is why nodes have no CPU and memory limits; empty if they have.
	Unlimited string `json:"unlimited"`
	// Servers are those that share the database, where there can be several.
	Servers []ServerInfo `json:"servers"`
}

// ServerInfo is one of the servers that share a database.
type ServerInfo struct {
	Name  string    `json:"name"`
	URL   string    `json:"url"`
	Since time.Time `json:"since"`
	Alive bool      `json:"alive"`
	Leads bool      `json:"leads"`
}

// About asks the server about itself and the caller.
func (c *Client) About(ctx context.Context) (About, error) {
	var a About
	return a, c.call(ctx, http.MethodGet, "/berth/v1/server", nil, &a)
}

// resolve is the storage place, an azureml:// URI of a datastore, of every asset id given.
func (c *Client) resolve(ctx context.Context, ids []string) (map[string]string, error) {
	var out struct {
		Values map[string]struct{ URI string }
	}
	path := "/data/v1.0" + c.path("dataversion", "batchGetResolvedUris")
	if err := c.call(ctx, http.MethodPost, path, map[string]any{"values": ids}, &out); err != nil {
		return nil, err
	}
	uris := make(map[string]string, len(out.Values))
	for id, v := range out.Values {
		uris[id] = v.URI
	}
	return uris, nil
}

// CuratedEnvironments are the names of the environments that are always there.
func (c *Client) CuratedEnvironments(ctx context.Context) ([]string, error) {
	var p page[string]
	err := c.call(ctx, http.MethodGet, "/berth/v1/environments/curated", nil, &p)
	return p.Value, err
}
