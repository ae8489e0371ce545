package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/store"
)

// takeSecrets moves the secret members of props into one sealed text. Empty when there were none.
func (s *Server) takeSecrets(c *call, r *resource, name string, props map[string]any) (string, error) {
	found := map[string]any{}
	for _, path := range r.Secrets {
		if v, ok := cut(props, path); ok {
			found[path] = v
		}
	}
	if len(found) == 0 {
		return "", nil
	}
	b, err := json.Marshal(found)
	if err != nil {
		return "", err
	}
	return s.Authority.Keys.Seal(b, bound(c, r, name)), nil
}

func bound(c *call, r *resource, name string) string {
	return c.ws.Key() + "/" + r.Collection + "/" + name
}

// secrets is what takeSecrets took, by path.
func (s *Server) secrets(c *call, r *resource, d *store.Doc) (map[string]any, error) {
	var own struct {
		Secrets string `json:"secrets"`
	}
	if len(d.Own) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(d.Own, &own); err != nil || own.Secrets == "" {
		return nil, err
	}
	b, err := s.Authority.Keys.Open(own.Secrets, bound(c, r, d.Name))
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, json.Unmarshal(b, &out)
}

// sasLife is how long a signature handed to a client opens its container.
const sasLife = 8 * time.Hour

// listSecrets answers with a signature for our own storage, and with what the user stored for a datastore elsewhere.
func listSecrets(c *call, r *resource, name, _ string) error {
	if !c.who.CanWrite() {
		return berth.Errorf(berth.Denied, "the token %q may not see secrets", c.who.Token)
	}
	d, err := c.s.load(c, r, name, "")
	if err != nil {
		return err
	}
	if container, ok := c.ownContainer(d); ok {
		g := front.Grant{Container: container, Perm: "rwld", Expiry: c.now.Add(sasLife)}
		return c.send(http.StatusOK, map[string]any{"secretsType": "Sas", "sasToken": c.s.Signer.Sign(g)})
	}
	sec, err := c.s.secrets(c, r, d)
	if err != nil {
		return err
	}
	if v, ok := sec["credentials.secrets"]; ok {
		return c.send(http.StatusOK, v)
	}
	return berth.Errorf(berth.Invalid, "datastore %s has no secrets: it was created without credentials", name)
}

// connectionSecrets is the connection with its credentials filled in.
func connectionSecrets(c *call, r *resource, name, _ string) error {
	if !c.who.CanWrite() {
		return berth.Errorf(berth.Denied, "the token %q may not see secrets", c.who.Token)
	}
	d, err := c.s.load(c, r, name, "")
	if err != nil {
		return err
	}
	m, err := c.render(r, d)
	if err != nil {
		return err
	}
	sec, err := c.s.secrets(c, r, d)
	if err != nil {
		return err
	}
	props, err := object(m, "properties")
	if err != nil {
		return err
	}
	props["credentials"] = sec["credentials"]
	return c.send(http.StatusOK, m)
}
