package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/storage"
	"github.com/berthml/berth/internal/store"
)

// takeSecrets takes the secret members out of props, by path.
func takeSecrets(r *resource, props map[string]any) map[string]any {
	found := map[string]any{}
	for _, path := range r.Secrets {
		if v, ok := cut(props, path); ok {
			found[path] = v
		}
	}
	return found
}

// seal is what is kept of a document's secrets. name is the document's own, which a client may
// write in another case.
func (s *documentService) seal(c *call, r *resource, name string, secrets map[string]any) (json.RawMessage, error) {
	b, err := json.Marshal(secrets)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]string{"secrets": s.authority.Keys.Seal(b, bound(c, r, name))})
}

// reseal is what is kept of a document's secrets after a PUT that gave some, or none: those it had
// stay, as long as their kind does. old and now are the properties before and after.
func (s *documentService) reseal(c *call, r *resource, d *store.Doc, old, now, given map[string]any) (json.RawMessage, error) {
	kept := map[string]any{}
	if old != nil && r.opensSame(old, now) {
		had, err := s.secrets(c, r, d)
		if err != nil {
			return nil, err
		}
		for path, v := range had {
			kept[path] = v
		}
	}
	for path, v := range given {
		if !blank(v) {
			kept[path] = v
		}
	}
	if len(kept) == 0 {
		return nil, nil
	}
	return s.seal(c, r, d.Name, kept)
}

// opensSame says whether the secrets of a document are of the same kind as before, and open the
// same.
func (r *resource) opensSame(old, now map[string]any) bool {
	if r.SecretKind != "" && !reflect.DeepEqual(dig(old, r.SecretKind), dig(now, r.SecretKind)) {
		return false
	}
	return !slices.ContainsFunc(r.SecretFor, func(path string) bool { return !reflect.DeepEqual(dig(old, path), dig(now, path)) })
}

// blank says whether v holds no secret: clients send the frame of what they were not shown.
func blank(v any) bool {
	switch x := v.(type) {
	case nil:
		return true
	case string:
		return x == ""
	case map[string]any:
		for k, v := range x {
			if k != "secretsType" && !blank(v) {
				return false
			}
		}
		return true
	}
	return false
}

func bound(c *call, r *resource, name string) string {
	return c.ws.Key() + "/" + r.Collection + "/" + name
}

// secrets is what takeSecrets took, by path.
func (s *documentService) secrets(c *call, r *resource, d *store.Doc) (map[string]any, error) {
	return openSecrets(s.authority.Keys, bound(c, r, d.Name), d)
}

// openSecrets opens what is kept sealed beside a document, for the place it was sealed for.
func openSecrets(keys *auth.Keys, bound string, d *store.Doc) (map[string]any, error) {
	own, err := store.State[struct {
		Secrets string `json:"secrets"`
	}](d)
	if err != nil || own.Secrets == "" {
		return nil, err
	}
	b, err := keys.Open(own.Secrets, bound)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, json.Unmarshal(b, &out)
}

// sasLife is how long a signature handed to a client opens its container, and longestSAS how long
// one to storage elsewhere may.
const (
	sasLife    = 8 * time.Hour
	longestSAS = 7 * 24 * time.Hour
)

// listSecrets answers with a signature for our own storage, and with what the user stored for a
// datastore elsewhere; of an account's key a client may ask for what ends.
func listSecrets(c *call, r *resource, name, _ string) error {
	if !c.who.CanWrite() {
		return berth.Errorf(berth.Denied, "the token %q may not see secrets", c.who.Token)
	}
	ask := struct {
		Ends  bool    `json:"expirableSecret"`
		Hours float64 `json:"expireAfterHours"`
	}{Hours: 1}
	if err := c.into(&ask); err != nil {
		return err
	}
	d, err := c.s.docs.load(c, r, name, "")
	if err != nil {
		return err
	}
	if container, ok := c.ownContainer(d); ok {
		g := front.Grant{Container: container, Perm: "rwld", Expiry: c.now.Add(sasLife)}
		return c.send(http.StatusOK, map[string]any{"secretsType": "Sas", "sasToken": "?" + c.sign(g)})
	}
	sec, err := c.s.docs.secrets(c, r, d)
	if err != nil {
		return err
	}
	_, props, err := bodyOf(d)
	if err != nil {
		return err
	}
	v, ok := sec["credentials.secrets"]
	if key := text(asMap(v), "key"); ok && ask.Ends && key != "" {
		life := time.Duration(ask.Hours * float64(time.Hour))
		if life <= 0 || life > longestSAS {
			return berth.Errorf(berth.Invalid, "expireAfterHours %v is not between 0 and %v", ask.Hours, longestSAS.Hours())
		}
		sas, err := storage.AccountSAS(text(props, "accountName"), key, "https", c.now.Add(life))
		if err != nil {
			return err
		}
		return c.send(http.StatusOK, map[string]any{"secretsType": "Sas", "sasToken": sas})
	}
	if ok {
		return c.send(http.StatusOK, v)
	}
	return berth.Errorf(berth.Invalid, "datastore %s has no secrets: it was created without credentials", name)
}
