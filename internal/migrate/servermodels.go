package migrate

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

func (s *server) Models(ctx context.Context, each func(*Model) error) error {
	p := &pages{of: "registered models", key: "registered_models"}
	q := url.Values{"max_results": {"100"}}
	for {
		list, size, token, err := s.page(ctx, p, http.MethodGet, "registered-models/search?"+q.Encode(), nil)
		if err != nil {
			return err
		}
		for _, raw := range list {
			m, err := s.model(ctx, p, raw)
			if err != nil && !leaves(err) {
				return err
			}
			m.Err = err
			if err := each(m); err != nil {
				return err
			}
		}
		if more, err := p.more(token, len(list), size); err != nil || !more {
			return err
		}
		q.Set("page_token", token)
	}
}

// model is a registered model of a list, with its versions.
func (s *server) model(ctx context.Context, list *pages, raw json.RawMessage) (*Model, error) {
	m := &Model{Aliases: map[string]string{}}
	var more struct {
		Aliases []struct{ Alias, Version string } `json:"aliases"`
	}
	if err := list.decode(raw, m, &more); isTooLong(err) {
		m.Name = nameOf(raw)
		return m, err
	} else if err != nil {
		return m, s.notMLflow("registered-models/search", err)
	}
	for _, a := range more.Aliases {
		m.Aliases[a.Alias] = a.Version
	}
	p := &pages{of: "versions", key: "model_versions", whole: true}
	q := url.Values{"max_results": {"1000"}, "filter": {"name='" + strings.ReplaceAll(m.Name, "'", "''") + "'"}}
	for {
		list, size, token, err := s.page(ctx, p, http.MethodGet, "model-versions/search?"+q.Encode(), nil)
		if err != nil {
			return m, err
		}
		for _, raw := range list {
			var v struct {
				Version
				Text string `json:"version"`
			}
			if err := p.decode(raw, &v); isTooLong(err) {
				return m, err
			} else if err != nil {
				return m, s.notMLflow("model-versions/search", err)
			}
			if v.Number, v.Err = strconv.Atoi(v.Text); v.Err != nil {
				v.Err = berth.Errorf(berth.Invalid, "%.100q is not the number of a version; "+checkSource, v.Text)
			}
			if v.Err == nil && v.ofVersion() {
				if err := s.storage(ctx, m, &v.Version); err != nil {
					return m, err
				}
			}
			m.Versions = append(m.Versions, v.Version)
		}
		more, err := p.more(token, len(list), size)
		if err != nil {
			return m, err
		}
		if !more {
			break
		}
		q.Set("page_token", token)
	}
	slices.SortFunc(m.Versions, func(a, b Version) int { return a.Number - b.Number })
	return m, nil
}

// storage asks where the files of a version are that was made of another one. That may be deleted,
// or be imported later.
func (s *server) storage(ctx context.Context, m *Model, v *Version) error {
	path := "model-versions/get-download-uri?" + url.Values{"name": {m.Name}, "version": {strconv.Itoa(v.Number)}}.Encode()
	var out struct {
		URI string `json:"artifact_uri"`
	}
	err := s.value(ctx, path, &out)
	if err != nil && leaves(err) {
		v.Err = err
		return nil
	}
	v.Storage = out.URI
	return err
}
