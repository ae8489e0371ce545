package api

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Here is what endpoints of both sorts have; online.go and batch.go have the rest.

var endpointSchema = map[string]schema{
	"properties.authMode": isText, "properties.compute": isText, "properties.traffic": isObject, "properties.mirrorTraffic": isObject,
	"properties.keys": isObject, "properties.defaults": isObject, "properties.endpointComputeType": isText, "properties.instanceType": isText,
}

// authModes are how a caller of an endpoint shows who they are.
var authModes = []string{"key", "amltoken", "aadtoken"}

func checkEndpoint(_ *call, _ *store.Tx, _, version string, p map[string]any) error {
	if version != "" {
		return nil
	}
	if mode := text(p, "authMode"); !slices.Contains(authModes, strings.ToLower(mode)) {
		return berth.Errorf(berth.Invalid, "properties.authMode %q is not Key, AMLToken or AADToken", mode)
	}
	sum, err := checkShares(p, "traffic")
	if err == nil && sum != 0 && sum != 100 {
		return berth.Errorf(berth.Invalid, "properties.traffic adds up to %d: the shares must add up to 100, or all be 0", sum)
	}
	if err != nil {
		return err
	}
	sum, err = checkShares(p, "mirrorTraffic")
	if err == nil && sum > 50 {
		return berth.Errorf(berth.Invalid, "properties.mirrorTraffic adds up to %d: at most 50 percent can be mirrored", sum)
	}
	return err
}

// checkShares adds up the shares of deployments in a property.
func checkShares(p map[string]any, field string) (sum int64, err error) {
	for name, v := range asMap(p[field]) {
		n, ok := v.(json.Number)
		share, err := n.Int64()
		if !ok || err != nil || share < 0 || share > 100 {
			return 0, berth.Errorf(berth.Invalid, "properties.%s.%s must be a whole number from 0 to 100", field, name)
		}
		sum += share
	}
	return sum, nil
}

// wantedEndpoint chooses endpoints by what they run on.
func wantedEndpoint(c *call, d *store.Doc) bool {
	kind := c.q.Get("computeType")
	if d.Version != "" || kind == "" {
		return true
	}
	_, p, err := bodyOf(d)
	return err == nil && strings.EqualFold(kind, "Kubernetes") == (text(p, "compute") != "")
}

const (
	primaryKey   = "primaryKey"
	secondaryKey = "secondaryKey"
)

// endpointKeys answers with the keys of an endpoint. Those that nobody gave are made when they are
// asked for first.
func endpointKeys(c *call, r *resource, name, version string) error {
	keys, err := c.keysOf(r, name, version, "")
	if err != nil {
		return err
	}
	c.w.Header().Set("Cache-Control", "no-store")
	return c.send(http.StatusOK, keys)
}

// newEndpointKey replaces one of the two keys.
func newEndpointKey(c *call, r *resource, name, version string) error {
	var ask struct {
		KeyType  string `json:"keyType"`
		KeyValue string `json:"keyValue"`
	}
	if err := c.into(&ask); err != nil {
		return err
	}
	which := map[string]string{"primary": primaryKey, "secondary": secondaryKey}[strings.ToLower(ask.KeyType)]
	if which == "" {
		return berth.Errorf(berth.Invalid, "keyType %q is not Primary or Secondary", ask.KeyType)
	}
	// Clients send the present key as keyValue: it is not what they wish for.
	if _, err := c.keysOf(r, name, version, which); err != nil {
		return err
	}
	return c.empty(http.StatusOK)
}

// keysOf is the keys of an endpoint, after one of them was renewed where replace names it.
func (c *call) keysOf(r *resource, name, version, replace string) (keys map[string]any, err error) {
	if version != "" {
		return nil, notFound(c)
	}
	if !c.who.CanWrite() {
		return nil, berth.Errorf(berth.Denied, "the token %q may not see secrets", c.who.Token)
	}
	err = c.s.DB.Update(c.ctx(), func(tx *store.Tx) error {
		d, err := tx.Get(c.ws.Key(), r.Collection, name, "")
		if err != nil {
			return c.missing(err, r, name, "")
		}
		if replace != "" {
			if err := c.madeIt(r, d, "change the keys of"); err != nil {
				return err
			}
		}
		_, p, err := bodyOf(d)
		if err != nil {
			return err
		}
		if !strings.EqualFold(text(p, "authMode"), "Key") {
			return berth.Errorf(berth.Invalid, "%s %s has no keys: its authMode is %s", r.Noun, d.Name, text(p, "authMode"))
		}
		had, err := c.s.docs.secrets(c, r, d)
		if err != nil {
			return err
		}
		keys = map[string]any{}
		changed := false
		for _, k := range []string{primaryKey, secondaryKey} {
			if keys[k] = text(asMap(had["keys"]), k); keys[k] == "" || k == replace {
				keys[k], changed = newKey(), true
			}
		}
		if !changed {
			return nil
		}
		if d.Own, err = c.s.docs.seal(c, r, d.Name, map[string]any{"keys": keys}); err != nil {
			return err
		}
		c.emit(tx, berth.EventResourcePut, r, d.Name, "")
		return tx.Save(d)
	})
	return keys, err
}

func newKey() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
