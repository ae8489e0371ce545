package api

import (
	"bytes"
	"strings"

	"github.com/berthml/berth/internal/batch"
	"github.com/berthml/berth/internal/store"
)

// Addresses of data in documents may bring signatures and passwords along. They are sealed before
// anything else is done with a document: what is kept, shown and logged of it does not have them.

// sealAddresses seals what opens the addresses in a document on behalf of a user: those of members
// that are called uri, or end with it.
func (c *call) sealAddresses(v any, user string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			c.sealAddresses(e, user)
		}
	case map[string]any:
		for k, e := range v {
			if address, ok := e.(string); !ok {
				c.sealAddresses(e, user)
			} else if n := len(k) - len("uri"); n >= 0 && strings.EqualFold(k[n:], "uri") {
				v[k] = c.s.Authority.Keys.SealAddress(address, user)
			}
		}
	}
}

// sealInvocation does so in an invocation of a batch endpoint.
func (c *call) sealInvocation(v *batch.Invocation) {
	for _, all := range []map[string]batch.Data{v.Inputs, v.Outputs} {
		for name, d := range all {
			d.URI = c.s.Authority.Keys.SealAddress(d.URI, c.who.User)
			all[name] = d
		}
	}
}

// sealOlder does so for m, the body of a document that may have been kept before addresses were
// sealed.
func (c *call) sealOlder(d *store.Doc, m map[string]any) {
	if bytes.IndexByte(d.Body, '?') >= 0 || bytes.IndexByte(d.Body, '@') >= 0 {
		c.sealAddresses(m, d.CreatedBy)
	}
}

// sameOpened says whether an address that was sent is the one in a document, where each is sealed
// for another user.
func (c *call) sameOpened(d *store.Doc, sent, kept any) bool {
	a, ok1 := sent.(string)
	b, ok2 := kept.(string)
	if !ok1 || !ok2 {
		return false
	}
	a, err := c.s.Authority.Keys.OpenAddress(a, c.who.User)
	if err != nil {
		return false
	}
	b, err = c.s.Authority.Keys.OpenAddress(b, d.CreatedBy)
	return err == nil && equalURI(c.ws, a, b)
}
