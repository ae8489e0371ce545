package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/berthml/berth"
)

// parallel is how many transfers go on at once.
const parallel = 8

// stores remembers the signatures of datastores.
type stores struct {
	mu sync.Mutex
	by map[string]*folder
}

// folder is a place in a blob store: a container or a prefix of one, and the signature that opens
// it.
type folder struct {
	url string // without query and trailing slash
	sas string
}

// at is the address of a name below the folder.
func (f *folder) at(name string) string {
	u := f.url
	if name != "" {
		u += "/" + escapePath(name)
	}
	if f.sas != "" {
		u += "?" + f.sas
	}
	return u
}

// datastore is the container of a datastore with a signature for it.
func (c *Client) datastore(ctx context.Context, name string) (*folder, error) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if f := c.store.by[name]; f != nil {
		return f, nil
	}
	var d struct {
		Properties struct{ DatastoreType, AccountName, ContainerName, Endpoint, Protocol string }
	}
	if err := c.call(ctx, http.MethodGet, c.path("datastores", name), nil, &d); err != nil {
		return nil, err
	}
	p := d.Properties
	if p.DatastoreType != "AzureBlob" {
		return nil, berth.Errorf(berth.Unsupported, "datastore %s is of type %s; files can be sent to and read from blob datastores only", name, p.DatastoreType)
	}
	var s struct{ SecretsType, SASToken string }
	if err := c.Post(ctx, map[string]any{"expirableSecret": true}, &s, "datastores", name, "listSecrets"); err != nil {
		return nil, err
	}
	if s.SASToken == "" {
		return nil, berth.Errorf(berth.Unsupported, "datastore %s uses a %s; only SAS tokens can be used from here", name, s.SecretsType)
	}
	if p.Protocol == "" {
		p.Protocol = "https"
	}
	f := &folder{url: p.Protocol + "://" + p.AccountName + ".blob." + strings.Trim(p.Endpoint, "/") + "/" + p.ContainerName, sas: strings.TrimPrefix(s.SASToken, "?")}
	if c.store.by == nil {
		c.store.by = map[string]*folder{}
	}
	c.store.by[name] = f
	return f, nil
}

// blobRequest makes a request of a blob. The server's own blobs come over the connection we have:
// those of a local home over its socket, and path-style ones at the address we were given, which
// may be a tunnel.
func (c *Client) blobRequest(ctx context.Context, method, address string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	if c.local || strings.Contains(first, ".blob.") {
		base, err := url.Parse(c.base)
		if err != nil {
			return nil, err
		}
		req.Host = req.URL.Host // where blobs have a name of their own, it is how the server knows them
		req.URL.Scheme, req.URL.Host = base.Scheme, base.Host
	}
	req.Header.Set("User-Agent", "berth/"+berth.Version)
	req.Header.Set("x-ms-version", "2024-11-04")
	return req, nil
}

// blob sends a request to the blob store. The answer is a failure unless its status is among ok.
func (c *Client) blob(req *http.Request, ok ...int) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.lost(err)
	}
	for _, s := range ok {
		if resp.StatusCode == s {
			return resp, nil
		}
	}
	defer resp.Body.Close() // opened for reading
	return nil, failure(resp)
}

// splitURI reads azureml://datastores/D/paths/P and its long form.
func splitURI(uri string) (datastore, path string, err error) {
	rest, ok := strings.CutPrefix(uri, "azureml://")
	p := strings.Split(rest, "/")
	if ok && len(p) > 6 && strings.EqualFold(p[0], "subscriptions") {
		p = p[6:]
	}
	if !ok || len(p) < 3 || !strings.EqualFold(p[0], "datastores") || !strings.EqualFold(p[2], "paths") {
		return "", "", berth.Errorf(berth.Unsupported, "%s is not in a datastore, so it cannot be downloaded from here", uri)
	}
	return p[1], strings.Trim(strings.Join(p[3:], "/"), "/"), nil
}
