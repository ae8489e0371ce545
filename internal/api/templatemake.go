package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/arm"
	"github.com/berthml/berth/internal/auth"
)

// beside are the resources around a workspace that templates make. The server keeps files, secrets
// and logs itself, as for workspaces of other clients that name such resources: nothing is made for
// them, and the deployment says so.
var beside = map[string]string{
	"microsoft.storage/storageaccounts":        "a storage account",
	"microsoft.keyvault/vaults":                "a key vault",
	"microsoft.insights/components":            "application insights",
	"microsoft.operationalinsights/workspaces": "a log analytics workspace",
	"microsoft.containerregistry/registries":   "a container registry",
}

// known says whether resources of a type can be made by a template.
func (s *templateService) known(typ string) error {
	low := strings.ToLower(typ)
	if beside[low] != "" {
		return nil
	}
	provider, rest, _ := strings.Cut(typ, "/")
	parts := strings.Split(rest, "/")
	if strings.EqualFold(provider, berth.Provider) && fold(parts, 0, "workspaces") {
		if len(parts) == 1 {
			return nil
		}
		if r := s.docs.row(parts[1]); r != nil && !r.Unserved && !r.InGroup && (len(parts) == 2 || len(parts) == 3 && strings.EqualFold(parts[2], r.Child)) {
			return nil
		}
	}
	if strings.EqualFold(provider, berth.Provider) && len(parts) == 1 {
		if r := s.docs.row(parts[0]); r != nil && r.InGroup && !r.Unserved {
			return nil
		}
	}
	return berth.Errorf(berth.Unsupported, "this server has no resources of type %s; it makes those of %s/workspaces and what lies below them", typ, berth.Provider)
}

// maker makes the resources of a template by calls to this server in the name of the caller.
type maker struct {
	s *templateService
	c *call
	d *deployment
	// stands are the resources for which nothing is made, by their ids in lower case.
	stands map[string]map[string]any
}

func (m *maker) Known(typ string) error { return m.s.known(typ) }

func (m *maker) Make(r arm.Resource) error {
	done := deployed{ID: r.ID, Type: r.Type, Name: r.Name}
	if what := beside[strings.ToLower(r.Type)]; what != "" {
		done.Note = r.Type + " " + r.Name + " was accepted and not made: this server needs no " + strings.TrimPrefix(strings.TrimPrefix(what, "an "), "a ")
		body := map[string]any{"id": r.ID, "name": r.Name, "type": r.Type}
		overlay(body, r.Body)
		props, err := object(body, "properties")
		if err != nil {
			return err
		}
		props["provisioningState"] = "Succeeded"
		m.stands[strings.ToLower(r.ID)] = body
		m.d.Resources = append(m.d.Resources, done)
		return nil
	}
	if props, ok := r.Body["properties"].(map[string]any); ok && strings.EqualFold(r.Type, berth.Provider+"/workspaces") {
		dropUnset(props)
	}
	b, err := json.Marshal(r.Body)
	if err != nil {
		return err
	}
	if m.s.front.gate.stop.Err() != nil {
		return errStopping
	}
	if _, err := m.s.ask(m.c, http.MethodPut, r.ID, b); err != nil {
		return err
	}
	m.d.Resources = append(m.d.Resources, done)
	return nil
}

// dropUnset drops the properties of a workspace that a template sets to nothing: those that have a
// parameter nobody gave. Azure takes the words true and false for values, which some parameters
// are.
func dropUnset(props map[string]any) {
	for k, v := range props {
		if word, ok := v.(string); ok && (strings.EqualFold(word, "true") || strings.EqualFold(word, "false")) && k != "friendlyName" && k != "description" {
			props[k] = strings.EqualFold(word, "true")
		}
		inner, ok := v.(map[string]any)
		if ok {
			dropUnset(inner)
		}
		if list, isList := v.([]any); v == nil || v == "" || ok && len(inner) == 0 || isList && len(list) == 0 {
			delete(props, k)
		}
	}
}

func (m *maker) Get(id, _ string) (map[string]any, error) {
	if body := m.stands[strings.ToLower(id)]; body != nil {
		return body, nil
	}
	b, err := m.s.ask(m.c, http.MethodGet, id, nil)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, decodeJSON(b, &out)
}

// ask calls this server as the caller. The answer of a long-running operation is the resource as it
// is.
func (s *templateService) ask(c *call, method, id string, body []byte) ([]byte, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	to := url.URL{Path: id, RawQuery: "api-version=2024-10-01"}
	req, err := http.NewRequestWithContext(auth.With(c.ctx(), c.who), method, to.String(), r)
	if err != nil {
		return nil, err
	}
	w := &answer{header: http.Header{}}
	if err := w.take(s.front.subscriptions, req); err != nil {
		return nil, err
	}
	if w.status < 300 {
		return w.body.Bytes(), nil
	}
	var told struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(w.body.Bytes(), &told) != nil || told.Error.Message == "" {
		return nil, errors.New("the resource's service did not answer")
	}
	return nil, &berth.Error{Code: berth.CodeOfHTTP(w.status), Wire: told.Error.Code, Msg: told.Error.Message}
}

// maxAnswer is how much of an answer is read: no resource is larger.
const maxAnswer = 1 << 20

// answer takes up what this server answers itself.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
	over   bool // there was more than fits
}

// take has h answer r.
func (a *answer) take(h http.Handler, r *http.Request) (err error) {
	defer func() {
		switch p := recover(); {
		case a.over:
			err = berth.Errorf(berth.Limit, "%s: its answer is larger than %s", r.URL.Path, sizeText(maxAnswer))
		case p == http.ErrAbortHandler:
			err = berth.Errorf(berth.Unavailable, "%s: its answer broke off; try again", r.URL.Path)
		case p != nil:
			panic(p)
		}
	}()
	h.ServeHTTP(a, r)
	return nil
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.over = a.over || a.body.Len()+len(p) > maxAnswer; a.over {
		return 0, berth.Errorf(berth.Limit, "the answer is larger than %s", sizeText(maxAnswer))
	}
	return a.body.Write(p)
}
