package front

import (
	"cmp"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

// authorize lets a request pass that has a good signature, or a bearer token somebody vouches for.
func (c *call) authorize(perm string) error {
	if c.query.Has("sig") {
		g, err := c.h.signer.Verify(c.query, time.Now())
		if err != nil {
			return err
		}
		if c.h.o.Signed != nil {
			if err := c.h.o.Signed(c.r, g); err != nil {
				return err
			}
		}
		c.recheck = func() error {
			if c.h.o.Signed != nil {
				if err := c.h.o.Signed(c.r, g); err != nil {
					return err
				}
			}
			return c.mayWrite(perm, c.name)
		}
		c.recheckRoom = func(n int64) error { return cmp.Or(c.recheck(), c.mayStore(perm, n)) }
		c.grant, c.owner = &g, strings.Contains(g.Perm, "o")
		c.by(g.User)
		name := c.name
		switch {
		case name == "" && perm == "l":
			name = c.prefix()
		case name == "":
			name = g.Prefix // whatever it grants lies in the container
		case isBelow(c.query.Get("comp")):
			name = strings.TrimRight(name, "/") + "/"
		}
		if err := g.Allows(c.container, name, perm); err != nil {
			return err
		}
		return c.mayBegin(perm)
	}
	if c.r.Header.Get("Authorization") == "" || c.h.o.Bearer == nil {
		return coded(berth.Unauthenticated, "NoAuthenticationInformation", "the request has no signature; request one from the workspace")
	}
	user, owner, err := c.h.o.Bearer(c.r)
	if err != nil {
		return err
	}
	c.owner = owner
	c.by(user)
	c.recheck = func() (err error) {
		if _, c.owner, err = c.h.o.Bearer(c.r); err != nil {
			return err
		}
		return c.mayWrite(perm, c.name)
	}
	c.recheckRoom = func(n int64) error { return cmp.Or(c.recheck(), c.mayStore(perm, n)) }
	return c.mayBegin(perm)
}

// mayBegin refuses writes to what belongs to others, and where there is no room.
func (c *call) mayBegin(perm string) error {
	if err := c.mayWrite(perm, c.name); err != nil {
		return err
	}
	return c.mayStore(perm, 0)
}

// mayStore refuses to write where there is no room for more bytes. What is there may be deleted.
func (c *call) mayStore(perm string, more int64) error {
	if c.h.o.Full == nil || c.name == "" || !strings.ContainsAny(perm, "wb") {
		return nil
	}
	return c.h.o.Full(c.r.Context(), c.container, c.grant, more)
}

// mayWrite refuses to write to names that belong to a job of somebody else, or will belong to a job
// that is not there yet. Who signs as an owner has decided that already.
func (c *call) mayWrite(perm string, names ...string) error {
	if c.h.o.Writer == nil || c.owner || c.user == "" || !strings.ContainsAny(perm, "wdb") {
		return nil
	}
	seen := map[string]bool{}
	for _, name := range names {
		parts := strings.SplitN(name, "/", 3)
		folder := strings.Join(parts[:min(2, len(parts))], "/")
		if seen[folder] {
			continue
		}
		seen[folder] = true
		job, user, err := c.h.o.Writer(c.r.Context(), c.container, name)
		if err != nil {
			return err
		}
		if job != "" && user == "" {
			return coded(berth.Denied, "AuthorizationPermissionMismatch",
				folder+" is for what a job of the name "+job+" writes, and there is none: what is there before would be taken for its outputs. Use another folder")
		}
		if job != "" && user != c.user {
			return coded(berth.Denied, "AuthorizationPermissionMismatch",
				folder+" has the outputs of job "+job+", and only "+user+", who submitted it, or an administrator may write there; use another folder")
		}
	}
	return nil
}

// recheckEnd checks again who writes, once all of a body is there: what the blob belongs to may be
// gone since, and another have its name.
func (c *call) recheckEnd(n int64) error {
	if c.grant != nil && c.grant.One {
		return c.recheckRoom(n)
	}
	return c.recheck()
}

// by notes whose request it is.
func (c *call) by(user string) {
	c.user = user
	c.r = c.r.WithContext(blob.WithUser(c.r.Context(), user))
}
