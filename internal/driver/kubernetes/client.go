package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kubeconfig"
)

// How much is read of an answer, and of a page of a list, and how many pages and objects: the
// cluster is whatever somebody named.
const (
	maxAnswer = 1 << 20
	maxPage   = 16 << 20
	pageItems = 250
	maxPages  = 200
)

// client speaks to the API of one cluster.
type client struct {
	server    string
	token     func() (string, error)
	http      *http.Client
	upgrades  *http.Transport // of connections that become streams, which HTTP/2 cannot
	namespace string

	mu    sync.Mutex
	kueue string // version of Kueue's objects, once it was asked for
}

// newClient makes a client of a cluster.
func newClient(c kubeconfig.Cluster) (*client, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if len(c.CA) > 0 {
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, berth.Errorf(berth.Invalid, "certificate-authority-data of the kubeconfig has no certificate")
		}
	}
	if len(c.Cert) > 0 {
		pair, err := tls.X509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, berth.Errorf(berth.Invalid, "client-certificate-data and client-key-data of the kubeconfig are not a certificate and its key")
		}
		t.Certificates = []tls.Certificate{pair}
	}
	var one http.Protocols
	one.SetHTTP1(true)
	return &client{
		server: c.Server, namespace: c.Namespace, token: func() (string, error) { return c.Token, nil },
		upgrades: &http.Transport{TLSClientConfig: t.Clone(), Protocols: &one, DisableKeepAlives: true, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second},
		http: &http.Client{
			Transport: &http.Transport{TLSClientConfig: t, ForceAttemptHTTP2: true, DisableCompression: true, MaxConnsPerHost: 32, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("the cluster redirects to another address, which is not followed")
			},
		},
	}, nil
}

// accountDir is where a pod has the token of its service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// inCluster makes a client with the service account of the pod that the server runs in.
func inCluster() (*client, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	ca, err := os.ReadFile(accountDir + "/ca.crt")
	if host == "" || err != nil {
		return nil, berth.Errorf(berth.Invalid, "the compute has no kubeconfig, and the server does not run in a cluster whose service account it could use")
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	namespace, _ := os.ReadFile(accountDir + "/namespace") // without it the compute has to name one
	c, err := newClient(kubeconfig.Cluster{Server: "https://" + host + ":" + port, CA: ca, Namespace: strings.TrimSpace(string(namespace))})
	if err != nil {
		return nil, err
	}
	c.token = func() (string, error) { // it is renewed
		b, err := os.ReadFile(accountDir + "/token")
		return strings.TrimSpace(string(b)), err
	}
	return c, nil
}

// statusError is an answer of the cluster other than success.
type statusError struct {
	code            int
	reason, message string
}

func (e *statusError) Error() string {
	if e.message != "" {
		return e.message
	}
	return "the cluster answered " + http.StatusText(e.code)
}

// has says whether an error is an answer with that status.
func has(err error, code int) bool {
	s, ok := errors.AsType[*statusError](err)
	return ok && s.code == code
}

// do sends a request and decodes the answer into out, unless that is nil. Errors have a code: a
// cluster that does not answer, or answers with a fault of its own, is Unavailable.
func (c *client) do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	res, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	limit := int64(maxAnswer)
	if query.Has("limit") {
		limit = maxPage
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return berth.Errorf(berth.Unavailable, "the answer of the cluster broke off: %w", err)
	}
	if int64(len(b)) > limit {
		return berth.Errorf(berth.Invalid, "the cluster at %s answers with more than %d bytes", c.server, limit)
	}
	if res.StatusCode >= 300 {
		return refusal(res.StatusCode, b)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return berth.Errorf(berth.Unavailable, "%s does not answer as a Kubernetes cluster does", c.server)
	}
	return nil
}

func (c *client) send(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Response, error) {
	r, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, c.silent(err)
	}
	return res, nil
}

// silent is the error of a cluster that does not answer.
func (c *client) silent(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the address is said already
	}
	return berth.Errorf(berth.Unavailable, "the cluster at %s does not answer: %w", c.server, err)
}

// request is a request to the cluster, with the account's token.
func (c *client) request(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	address := c.server + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "the address of the cluster: %w", err)
	}
	token, err := c.token()
	if err != nil {
		return nil, berth.Errorf(berth.Unavailable, "the token of the service account cannot be read: %w", err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "berth")
	if body != nil {
		kind := "application/json"
		if method == http.MethodPatch {
			kind = "application/merge-patch+json"
		}
		r.Header.Set("Content-Type", kind)
	}
	return r, nil
}

// refusal is the error of an answer. Only what a cluster says of it is passed on, so that the
// answers of other servers stay there.
func refusal(code int, body []byte) error {
	var s struct{ Kind, Reason, Message string }
	if json.Unmarshal(body, &s) != nil || s.Kind != "Status" {
		s.Reason, s.Message = "", ""
	}
	err := &statusError{code: code, reason: s.Reason, message: s.Message}
	kind := berth.Invalid
	switch {
	case code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		kind = berth.Unavailable
	case code == http.StatusUnauthorized:
		return berth.Errorf(berth.Denied, "the cluster does not know the account of the kubeconfig: its token or certificate may have expired (%w)", err)
	case code == http.StatusForbidden:
		kind = berth.Denied
	case code == http.StatusNotFound:
		kind = berth.NotFound
	case code == http.StatusConflict:
		kind = berth.Conflict
	}
	return berth.Errorf(kind, "the cluster refused: %w", err)
}

// in is the path of a collection of the namespace, or of one object in it.
func (c *client) in(group, collection, name string) string {
	path := "/api/v1"
	if group != "" {
		path = "/apis/" + group
	}
	path += "/namespaces/" + url.PathEscape(c.namespace) + "/" + collection
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

// list decodes all objects of a collection of the namespace, a part at a time.
func list[T any](ctx context.Context, c *client, path, labels, fields string) (all []T, err error) {
	query := url.Values{"limit": {strconv.Itoa(pageItems)}}
	if labels != "" {
		query.Set("labelSelector", labels)
	}
	if fields != "" {
		query.Set("fieldSelector", fields)
	}
	for range 3 {
		all, err = listOnce[T](ctx, c, path, query)
		if !has(err, http.StatusGone) { // it took too long, and has to begin again
			return all, err
		}
	}
	return nil, berth.Errorf(berth.Unavailable, "the cluster's list changes faster than it can be read: %w", err)
}

func listOnce[T any](ctx context.Context, c *client, path string, query url.Values) (all []T, err error) {
	query.Del("continue")
	for range maxPages {
		var page struct {
			Metadata struct{ Continue string }
			Items    items[T]
		}
		if err := c.do(ctx, http.MethodGet, path, query, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Metadata.Continue == "" {
			return all, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
	return nil, berth.Errorf(berth.Invalid, "the cluster at %s lists more than %d objects", c.server, maxPages*pageItems)
}

// items are the objects of a page, no more than were asked for: small ones would take many times
// the room of the page.
type items[T any] []T

// UnmarshalJSON reads one object after the other.
func (i *items[T]) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return err // null is none
	}
	for d.More() {
		if len(*i) == pageItems {
			return errors.New("more objects than were asked for")
		}
		var x T
		if err := d.Decode(&x); err != nil {
			return err
		}
		*i = append(*i, x)
	}
	return nil
}

// version is the release of the cluster.
func (c *client) version(ctx context.Context) (string, error) {
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := c.do(ctx, http.MethodGet, "/version", nil, nil, &v); err != nil {
		return "", err
	}
	if v.GitVersion == "" {
		return "", berth.Errorf(berth.Unavailable, "%s does not answer as a Kubernetes cluster does", c.server)
	}
	return v.GitVersion, nil
}
