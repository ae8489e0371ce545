package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// kubeAPI speaks to a kube-apiserver.
type kubeAPI struct {
	url, token string
	http       *http.Client
}

// newKubeAPI trusts the certificate in a file, which a server that made its own writes when it
// starts.
func newKubeAPI(url, cert, token string) (*kubeAPI, error) {
	b, err := os.ReadFile(cert)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s has no certificate", cert)
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: creators}
	return &kubeAPI{url: url, token: token, http: &http.Client{Transport: t}}, nil
}

func (a *kubeAPI) close() { a.http.CloseIdleConnections() }

// send is the body of the answer to a request, or an error when that is not a good one.
func (a *kubeAPI) send(ctx context.Context, method, path, body, accept string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	res, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 300 {
		defer res.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(res.Body, 300))
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, b)
	}
	return res.Body, nil
}

// call sends a request and reads the answer into v, which may be nil.
func (a *kubeAPI) call(ctx context.Context, method, path, body string, v any) error {
	res, err := a.send(ctx, method, path, body, "application/json")
	if err != nil {
		return err
	}
	defer res.Close()
	if v != nil {
		return json.NewDecoder(res).Decode(v)
	}
	_, err = io.Copy(io.Discard, res)
	return err
}

func (a *kubeAPI) get(ctx context.Context, path string, v any) error {
	return a.call(ctx, http.MethodGet, path, "", v)
}

// deleteAll removes everything at a path at once.
func (a *kubeAPI) deleteAll(ctx context.Context, path string) error {
	return a.call(ctx, http.MethodDelete, path+"?gracePeriodSeconds=0", "", nil)
}

// creators is how many requests make things at a time.
const creators = 16

// create makes n things, each by its own request.
func (a *kubeAPI) create(ctx context.Context, path string, n int, document func(i int) string) error {
	var next atomic.Int64
	errs := make(chan error, creators)
	var wg sync.WaitGroup
	for range creators {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := a.call(ctx, http.MethodPost, path, document(int(i)), nil); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// kubeMeta is what every document has, or a list of them.
type kubeMeta struct{ Name, ResourceVersion string }

// kubeEvent is one line of a watch, as far as it is needed.
type kubeEvent struct {
	Type   string
	Object struct {
		Message  string // of an error
		Metadata kubeMeta
		Status   struct {
			Conditions []struct{ Type, Status string }
		}
	}
}

// ready says whether it is of a node that is ready.
func (e *kubeEvent) ready() bool { return e.has("Ready") }

// has says whether a condition is true.
func (e *kubeEvent) has(condition string) bool {
	for _, c := range e.Object.Status.Conditions {
		if c.Type == condition {
			return c.Status == "True"
		}
	}
	return false
}

// kubeWatch is a stream of events.
type kubeWatch struct {
	api          *kubeAPI
	path, accept string
	query        url.Values // where it goes on, too
	body         io.ReadCloser
	dec          *json.Decoder
}

// watch tells what happens at a path from now on. fields chooses: what comes to match is an event.
// bare leaves everything but the metadata out.
func (a *kubeAPI) watch(ctx context.Context, path, fields string, bare bool) (*kubeWatch, error) {
	var list struct{ Metadata kubeMeta }
	if err := a.get(ctx, path+"?limit=1", &list); err != nil {
		return nil, err
	}
	w := &kubeWatch{api: a, path: path, accept: "application/json"}
	w.query = url.Values{"watch": {"true"}, "resourceVersion": {list.Metadata.ResourceVersion}}
	if fields != "" {
		w.query.Set("fieldSelector", fields)
	}
	if bare {
		w.accept += ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	}
	return w, w.open(ctx)
}

func (w *kubeWatch) open(ctx context.Context) error {
	body, err := w.api.send(ctx, http.MethodGet, w.path+"?"+w.query.Encode(), "", w.accept)
	if err == nil {
		w.body, w.dec = body, json.NewDecoder(body)
	}
	return err
}

// next waits for an event. A server cuts watchers off that are slow to read: then it goes on where
// it was.
func (w *kubeWatch) next(ctx context.Context) (*kubeEvent, error) {
	for {
		var e kubeEvent
		switch err := w.dec.Decode(&e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			w.close()
			if err := w.open(ctx); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		case e.Type == "ERROR":
			return nil, errors.New(e.Object.Message)
		}
		w.query.Set("resourceVersion", e.Object.Metadata.ResourceVersion)
		return &e, nil
	}
}

func (w *kubeWatch) close() { _ = w.body.Close() }
