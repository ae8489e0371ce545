package migrate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// server is an MLflow server.
type server struct {
	base, token string
	user        *url.Userinfo
	http        *http.Client
	patience    time.Duration
}

// Server is the MLflow server at an address, which may have a user and a password in it. token is a
// bearer token, or empty. roots are the authorities its certificate may come from; nil means the
// system's. An answer has to come within patience; for files see progress.
func Server(address, token string, roots *x509.CertPool, patience time.Duration) (Source, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Hostname() == "", u.Scheme != "http" && u.Scheme != "https": // not told: it may have a password
		return nil, noSource("this is not the address of an MLflow server; use one like http://mlflow:5000")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, noSource("the address of an MLflow server has nothing after ? or #; use one like http://mlflow:5000")
	}
	through := http.DefaultTransport.(*http.Transport).Clone()
	through.MaxResponseHeaderBytes = 64 << 10
	through.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	s := &server{token: token, user: u.User, http: &http.Client{CheckRedirect: sameHost, Transport: through}, patience: patience}
	u.User = nil
	s.base = strings.TrimRight(u.String(), "/")
	return s, nil
}

// sameHost follows no redirect to another host or port: what an import brings is what its source
// has, and not what this machine can reach, and the token is the source's. Another scheme is
// another port.
func sameHost(r *http.Request, via []*http.Request) error {
	from, upgraded := *via[0].URL, *via[0].URL
	if from.Scheme == "http" && portOf(&from) == "80" {
		upgraded = url.URL{Scheme: "https", Host: from.Hostname()}
	}
	same := func(u *url.URL) bool {
		return strings.EqualFold(r.URL.Hostname(), u.Hostname()) && r.URL.Scheme == u.Scheme && portOf(r.URL) == portOf(u)
	}
	if !same(&from) && !same(&upgraded) || len(via) > 5 {
		return berth.Errorf(berth.Invalid, "it redirects to %.500s, which is not followed; give the address of the server itself with --from", r.URL.Redacted())
	}
	return nil
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

func (s *server) Name() string { return s.base }

func (s *server) Same(name string) bool {
	place := placeOf(name)
	return place != "" && place == placeOf(s.base)
}

// placeOf is an address in the one form that those of a server on this machine, those with and
// without the usual port, and those in capitals have; "" is none of a server.
func placeOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if port == "" {
		return ""
	}
	host := strings.ToLower(u.Hostname())
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		host = "localhost"
	}
	return u.Scheme + "://" + net.JoinHostPort(host, cmp.Or(u.Port(), port)) + strings.TrimRight(u.EscapedPath(), "/")
}

func (s *server) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch {
	case s.token != "":
		req.Header.Set("Authorization", "Bearer "+s.token)
	case s.user != nil:
		password, _ := s.user.Password()
		req.SetBasicAuth(s.user.Username(), password)
	}
	resp, err := s.http.Do(req)
	if berth.CodeOf(err) == berth.Invalid { // a redirect
		return nil, berth.Errorf(berth.Invalid, "the MLflow server %s: %w", s.base, err)
	}
	if err != nil {
		return nil, berth.Errorf(berth.Unavailable, "the MLflow server %s does not answer: %w", s.base, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	return nil, &refused{berth.Errorf(berth.Unavailable, "the MLflow server %s answered %.100s to %s %s: %s", s.base, resp.Status, method, clip(path), b), resp.StatusCode}
}

// refused is an answer of the server that is not what was asked for.
type refused struct {
	error
	status int
}

// leaves says whether something cannot be brought over for a reason of its own: others can. In a
// full workspace they cannot.
func leaves(err error) bool {
	if client.IsFull(err) {
		return false
	}
	var answer *refused
	if errors.As(err, &answer) {
		return !slices.Contains([]int{
			http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		}, answer.status)
	}
	var file *fs.PathError
	if errors.As(err, &file) {
		return true
	}
	return slices.Contains([]berth.Code{
		berth.Invalid, berth.NotFound, berth.Conflict, berth.Precondition, berth.Limit, berth.Gone, berth.Unsupported,
	}, berth.CodeOf(err))
}

// unknown says that the server is too old to know a call.
func unknown(err error) bool {
	var r *refused
	return errors.As(err, &r) && (r.status == http.StatusNotFound || r.status == http.StatusMethodNotAllowed)
}

// page reads a page of a list: its elements, its size in bytes and the token of the next page.
func (s *server) page(ctx context.Context, p *pages, method, path string, in any) (list []json.RawMessage, size int64, token string, err error) {
	size, token, err = s.whole(ctx, p.key, method, path, in, func(d *json.Decoder) error {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if list = append(list, raw); len(list) > maxElements {
			return p.tooMany()
		}
		return nil
	})
	return list, size, token, err
}

// whole reads an answer with a list that is held. each decodes an element.
func (s *server) whole(ctx context.Context, key, method, path string, in any, each func(*json.Decoder) error) (size int64, token string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.patience, errTimeout)
	defer cancel()
	resp, err := s.send(ctx, method, api+path, in)
	if err != nil {
		return 0, "", s.timeoutOr(ctx, path, err)
	}
	defer resp.Body.Close()
	a := &answer{body: resp.Body, most: maxAnswer}
	token, err = a.readList(key, each)
	return a.n, token, s.unread(ctx, path, err)
}

// value reads an answer that is one object.
func (s *server) value(ctx context.Context, path string, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.patience, errTimeout)
	defer cancel()
	resp, err := s.send(ctx, http.MethodGet, api+path, nil)
	if err != nil {
		return s.timeoutOr(ctx, path, err)
	}
	defer resp.Body.Close()
	return s.unread(ctx, path, json.NewDecoder(&answer{body: resp.Body, most: maxAnswer}).Decode(out))
}

// api is where MLflow's calls are.
const api = "/api/2.0/mlflow/"

// unread is the error of reading an answer.
func (s *server) unread(ctx context.Context, path string, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil, berth.CodeOf(err) == berth.Unavailable:
		return err
	case isTooLong(err):
		return berth.Errorf(berth.Invalid, "the response of the MLflow server %s to %s is too long: %w", s.base, path, err)
	case errors.As(err, &syntax), errors.As(err, &kind), berth.CodeOf(err) == berth.Invalid:
		return s.notMLflow(path, err)
	}
	return s.timeoutOr(ctx, path, berth.Errorf(berth.Unavailable, "reading the response of the MLflow server %s to %s: %w; import again to go on", s.base, path, err))
}

// pages calls each with the things on the pages of a search. A page is read to its end before: an
// MLflow server with one worker answers nothing else until then.
func (s *server) pages(ctx context.Context, p *pages, path string, in map[string]any, each func(things []json.RawMessage) error) error {
	for {
		things, size, token, err := s.page(ctx, p, http.MethodPost, path, in)
		if err != nil {
			return err
		}
		if err := each(things); err != nil {
			return err
		}
		if more, err := p.more(token, len(things), size); err != nil || !more {
			return err
		}
		in["page_token"] = token
	}
}

// items decodes the things of a page. One that cannot be decoded has what could.
func items[T any, P interface {
	*T
	fail(name string, err error)
}](p *pages, list []json.RawMessage, each func(P) error) error {
	for _, b := range list {
		t := P(new(T))
		if err := p.decode(b, t); err != nil {
			switch {
			case !isTooLong(err):
				err = berth.Errorf(berth.Invalid, "the answer of the server is not as MLflow's: %s; "+checkSource, clip(err.Error()))
			case p.whole:
				return err
			}
			t.fail(nameOf(b), err)
		}
		if err := each(t); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) Experiments(ctx context.Context) (all []Experiment, err error) {
	p := &pages{of: "experiments", key: "experiments", whole: true}
	err = s.pages(ctx, p, "experiments/search", map[string]any{"max_results": 1000}, func(things []json.RawMessage) error {
		return items(p, things, func(e *Experiment) error {
			all = append(all, *e)
			return nil
		})
	})
	return all, err
}

func (s *server) Runs(ctx context.Context, experiment string, each func(*Run) error) error {
	in := map[string]any{"experiment_ids": []string{experiment}, "max_results": 200, "order_by": []string{"attributes.start_time ASC"}}
	p := &pages{of: "runs", key: "runs"}
	return s.pages(ctx, p, "runs/search", in, func(things []json.RawMessage) error { return items(p, things, each) })
}

func (s *server) ExperimentOf(ctx context.Context, run string) (string, error) {
	var out struct {
		Run struct {
			Info struct {
				Experiment string `json:"experiment_id"`
			} `json:"info"`
		} `json:"run"`
	}
	err := s.value(ctx, "runs/get?run_id="+url.QueryEscape(run), &out)
	return out.Run.Info.Experiment, err
}

// What of a history is held, and handed on at once.
const (
	heldPoints = 25_000
	heldBytes  = 4 << 20
)

func (s *server) History(ctx context.Context, run *Run, key string, each func([]Metric) error) error {
	p := &pages{of: "points"}
	q := url.Values{"run_id": {run.Info.ID}, "metric_key": {key}, "max_results": {strconv.Itoa(heldPoints)}}
	for {
		n, size, token, err := s.points(ctx, "metrics/get-history?"+q.Encode(), key, each)
		if err != nil {
			return err
		}
		if more, err := p.more(token, n, size); err != nil || !more {
			return err
		}
		q.Set("page_token", token)
	}
}

// points calls each with the points of an answer while it is read: servers that do not page send
// all points of a metric in one. It returns how many there are, and the size of the answer.
func (s *server) points(ctx context.Context, path, key string, each func([]Metric) error) (n int, size int64, token string, err error) {
	b, err := s.open(ctx, api+path, "points of metric "+key)
	if err != nil {
		return 0, 0, "", err
	}
	defer b.Close()
	a := &answer{body: b, most: maxHistory, value: maxPoint}
	var held []Metric
	var handed int64 // where the last points that were handed on end
	var refusal error
	token, err = a.readList("metrics", func(d *json.Decoder) error {
		var m Metric
		if err := d.Decode(&m); err != nil {
			return err
		}
		n, held = n+1, append(held, m)
		if len(held) < heldPoints && d.InputOffset()-handed < heldBytes {
			return nil
		}
		refusal = each(held)
		held, handed = held[:0], d.InputOffset()
		return refusal
	})
	if refusal != nil {
		return n, a.n, "", refusal
	}
	err = s.unread(b.ctx, path, err)
	if refusal := each(held); refusal != nil && (err == nil || leaves(err)) { // also of points before an error
		err = refusal
	}
	return n, a.n, token, err
}

func (s *server) LoggedModels(ctx context.Context, experiment string, each func(*LoggedModel) error) error {
	in := map[string]any{"experiment_ids": []string{experiment}, "max_results": 50}
	p := &pages{of: "models", key: "models"}
	err := s.pages(ctx, p, "logged-models/search", in, func(things []json.RawMessage) error { return items(p, things, each) })
	if unknown(err) { // before MLflow 3
		return nil
	}
	return err
}

func (s *server) Files(ctx context.Context, of Owner) ([]File, error) {
	return walk(func(folder string) ([]client.RunFile, error) {
		path := "artifacts/list?" + url.Values{"run_id": {of.Run}, "path": {folder}}.Encode()
		if of.Model != "" {
			path = "logged-models/" + url.PathEscape(of.Model) + "/artifacts/directories?" + url.Values{"artifact_directory_path": {folder}}.Encode()
		}
		var out []client.RunFile
		_, _, err := s.whole(ctx, "files", http.MethodGet, path, nil, func(d *json.Decoder) error {
			var f listed
			if err := d.Decode(&f); err != nil {
				return err
			}
			if out = append(out, f.entry()); len(out) > maxEntries {
				return &tooLong{berth.Errorf(berth.Invalid, "the folder %.500q has more than %d files and folders; "+copyFiles, folder, maxEntries)}
			}
			return nil
		})
		return out, err
	})
}

func (s *server) Open(ctx context.Context, of Owner, file File) (io.ReadCloser, error) {
	at := "/get-artifact?" + url.Values{"run_uuid": {of.Run}, "path": {file.Path}}.Encode()
	if of.Model != "" {
		at = "/ajax-api/2.0/mlflow/logged-models/" + url.PathEscape(of.Model) + "/artifacts/files?" + url.Values{"artifact_file_path": {file.Path}}.Encode()
	}
	b, err := s.open(ctx, at, "the file "+file.Path)
	if err != nil {
		return nil, err
	}
	return &remoteFile{body: b, name: file.Path, size: file.Size}, nil
}

// open asks for something that is read while it comes. what names it in errors.
func (s *server) open(ctx context.Context, path, what string) (*body, error) {
	ctx, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(s.patience, func() { end(errTimeout) })
	resp, err := s.send(ctx, http.MethodGet, path, nil) //nolint:bodyclose // closed with the body
	timer.Stop()
	if err != nil {
		err = s.timeoutOr(ctx, path, err)
		end(err)
		return nil, err
	}
	return &body{s: s, ctx: ctx, end: end, from: resp.Body, what: what, left: s.patience}, nil
}
