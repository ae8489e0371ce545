package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// server is an MLflow server.
type server struct {
	base, token string
	user        *url.Userinfo
	http        *http.Client
}

// Server is the MLflow server at an address, which may have a user and a password in it. token is a
// bearer token, or empty.
func Server(address, token string) (Source, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, berth.Errorf(berth.Invalid, "%q is not the URL of an MLflow server", address)
	}
	s := &server{token: token, user: u.User, http: http.DefaultClient}
	u.User = nil
	s.base = strings.TrimSuffix(u.String(), "/")
	return s, nil
}

func (s *server) Name() string { return s.base }

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
	if err != nil {
		return nil, berth.Errorf(berth.Unavailable, "the MLflow server %s does not answer: %w", s.base, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	return nil, &refused{berth.Errorf(berth.Unavailable, "the MLflow server %s answered %s to %s %s: %s", s.base, resp.Status, method, path, b), resp.StatusCode}
}

// refused is an answer of the server that is not what was asked for.
type refused struct {
	error
	status int
}

// unknown says that the server is too old to know a call.
func unknown(err error) bool {
	var r *refused
	return errors.As(err, &r) && (r.status == http.StatusNotFound || r.status == http.StatusMethodNotAllowed)
}

func (s *server) call(ctx context.Context, method, path string, in, out any) error {
	resp, err := s.send(ctx, method, "/api/2.0/mlflow/"+path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return berth.Errorf(berth.Unavailable, "reading the response of the MLflow server %s to %s: %w", s.base, path, err)
	}
	return nil
}

// pages calls each with the pages of a search.
func (s *server) pages(ctx context.Context, path string, in map[string]any, each func(raw map[string]json.RawMessage) error) error {
	for {
		var out map[string]json.RawMessage
		if err := s.call(ctx, http.MethodPost, path, in, &out); err != nil {
			return err
		}
		if err := each(out); err != nil {
			return err
		}
		var token string
		if raw := out["next_page_token"]; raw != nil {
			if err := json.Unmarshal(raw, &token); err != nil {
				return err
			}
		}
		if token == "" {
			return nil
		}
		in["page_token"] = token
	}
}

// items decodes a list of an answer, which may be missing.
func items[T any](raw json.RawMessage, each func(*T) error) error {
	var list []T
	if raw != nil {
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
	}
	for i := range list {
		if err := each(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) Experiments(ctx context.Context) (all []Experiment, err error) {
	err = s.pages(ctx, "experiments/search", map[string]any{"max_results": 1000}, func(out map[string]json.RawMessage) error {
		return items(out["experiments"], func(e *Experiment) error {
			all = append(all, *e)
			return nil
		})
	})
	return all, err
}

func (s *server) Runs(ctx context.Context, experiment string, each func(*Run) error) error {
	in := map[string]any{"experiment_ids": []string{experiment}, "max_results": 200, "order_by": []string{"attributes.start_time ASC"}}
	return s.pages(ctx, "runs/search", in, func(out map[string]json.RawMessage) error { return items(out["runs"], each) })
}

func (s *server) History(ctx context.Context, run *Run, key string, each func([]Metric) error) error {
	q := url.Values{"run_id": {run.Info.ID}, "metric_key": {key}, "max_results": {"25000"}}
	for {
		var out struct {
			Metrics []Metric `json:"metrics"`
			Next    string   `json:"next_page_token"`
		}
		if err := s.call(ctx, http.MethodGet, "metrics/get-history?"+q.Encode(), nil, &out); err != nil {
			return err
		}
		if err := each(out.Metrics); err != nil || out.Next == "" {
			return err
		}
		q.Set("page_token", out.Next)
	}
}

func (s *server) LoggedModels(ctx context.Context, experiment string, each func(*LoggedModel) error) error {
	in := map[string]any{"experiment_ids": []string{experiment}, "max_results": 50}
	err := s.pages(ctx, "logged-models/search", in, func(out map[string]json.RawMessage) error { return items(out["models"], each) })
	if unknown(err) { // before MLflow 3
		return nil
	}
	return err
}

func (s *server) Models(ctx context.Context, each func(*Model) error) error {
	q := url.Values{"max_results": {"100"}}
	for {
		var out struct {
			Models []json.RawMessage `json:"registered_models"`
			Next   string            `json:"next_page_token"`
		}
		if err := s.call(ctx, http.MethodGet, "registered-models/search?"+q.Encode(), nil, &out); err != nil {
			return err
		}
		for _, raw := range out.Models {
			m, err := s.model(ctx, raw)
			if err != nil {
				return err
			}
			if err := each(m); err != nil {
				return err
			}
		}
		if out.Next == "" {
			return nil
		}
		q.Set("page_token", out.Next)
	}
}

// model is a registered model with its versions.
func (s *server) model(ctx context.Context, raw json.RawMessage) (*Model, error) {
	m := &Model{Aliases: map[string]string{}}
	var more struct {
		Aliases []struct{ Alias, Version string } `json:"aliases"`
	}
	if err := errors.Join(json.Unmarshal(raw, m), json.Unmarshal(raw, &more)); err != nil {
		return nil, err
	}
	for _, a := range more.Aliases {
		m.Aliases[a.Alias] = a.Version
	}
	q := url.Values{"max_results": {"1000"}, "filter": {"name='" + strings.ReplaceAll(m.Name, "'", "''") + "'"}}
	for {
		var out struct {
			Versions []struct {
				Version
				Text string `json:"version"`
			} `json:"model_versions"`
			Next string `json:"next_page_token"`
		}
		if err := s.call(ctx, http.MethodGet, "model-versions/search?"+q.Encode(), nil, &out); err != nil {
			return nil, err
		}
		for _, v := range out.Versions {
			n, err := strconv.Atoi(v.Text)
			if err != nil {
				return nil, fmt.Errorf("version %q of model %s: %w", v.Text, m.Name, err)
			}
			v.Number = n
			m.Versions = append(m.Versions, v.Version)
		}
		if q.Set("page_token", out.Next); out.Next == "" {
			break
		}
	}
	slices.SortFunc(m.Versions, func(a, b Version) int { return a.Number - b.Number })
	return m, nil
}

func (s *server) Files(ctx context.Context, of Owner) ([]File, error) {
	return walk(func(folder string) ([]listed, error) {
		path := "artifacts/list?" + url.Values{"run_id": {of.Run}, "path": {folder}}.Encode()
		if of.Model != "" {
			path = "logged-models/" + url.PathEscape(of.Model) + "/artifacts/directories?" + url.Values{"artifact_directory_path": {folder}}.Encode()
		}
		var out struct {
			Files []listed `json:"files"`
		}
		err := s.call(ctx, http.MethodGet, path, nil, &out)
		return out.Files, err
	})
}

// listed is an entry of a folder.
type listed struct {
	Path string `json:"path"`
	Dir  bool   `json:"is_dir"`
	Size int64  `json:"file_size"`
}

// walk is the files of a tree whose folders are listed one at a time.
func walk(list func(folder string) ([]listed, error)) ([]File, error) {
	var out []File
	for todo := []string{""}; len(todo) > 0; todo = todo[1:] {
		entries, err := list(todo[0])
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Dir {
				todo = append(todo, e.Path)
			} else {
				out = append(out, File{e.Path, e.Size})
			}
		}
	}
	return out, nil
}

func (s *server) Open(ctx context.Context, of Owner, path string) (io.ReadCloser, error) {
	at := "/get-artifact?" + url.Values{"run_uuid": {of.Run}, "path": {path}}.Encode()
	if of.Model != "" {
		at = "/ajax-api/2.0/mlflow/logged-models/" + url.PathEscape(of.Model) + "/artifacts/files?" + url.Values{"artifact_file_path": {path}}.Encode()
	}
	resp, err := s.send(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
