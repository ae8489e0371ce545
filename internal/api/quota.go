package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

// quotaService serves limits, what is used of them, and requests for more.
type quotaService struct {
	db           *store.DB
	quotaDefault int
}

// checkSize is the size of a name, if a compute of that type can have it at a location: it is
// known, the location has it, it supports the type and low priority where that is asked for, and
// the caller's quota has room for at least one node of it.
func (s *sizeService) checkSize(c *call, tx *store.Tx, name, location, computeType string, low bool) (berth.Size, error) {
	catalogue, err := sizes.LoadTx(tx)
	if err != nil {
		return berth.Size{}, err
	}
	size, ok := catalogue.Find(name)
	if !ok {
		return size, unknownSize(catalogue, name)
	}
	switch {
	case !sizes.Available(size, location):
		return size, berth.Errorf(berth.Invalid, "size %s is not available in location %s; `berth compute list-sizes --location %s` lists what is", size.Name, location, location)
	case !sizes.Supports(size, computeType):
		return size, berth.Errorf(berth.Invalid, "size %s cannot be used for computes of type %s, only for %s", size.Name, computeType, strings.Join(size.Computes, " and "))
	case low && !size.LowPriority:
		return size, berth.Errorf(berth.Invalid, "size %s is not available with low priority; use tier dedicated", size.Name)
	}
	limits, err := quota.LoadTx(tx, s.quotaDefault)
	if err != nil {
		return size, err
	}
	return size, limits.Check(size, c.ws.Key(), c.who.User, low, tx.Now())
}

func unknownSize(c sizes.Catalogue, name string) error {
	if name == "" {
		return berth.Errorf(berth.Invalid, "the size is missing; `berth compute list-sizes` lists them")
	}
	hint := "`berth compute list-sizes` lists them"
	if near := c.Nearest(name); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return berth.Missingf("there is no size %s; %s", name, hint)
}

// workspaceQuota serves our own part of quotas, below a workspace: what counts there, and requests
// for more.
//
//	GET  quotas                          limits with what is in use, and the requests
//	POST quotas                          set or remove a limit (administrators)
//	GET  quotaRequests[/ID]
//	POST quotaRequests                   ask for a limit
//	POST quotaRequests/ID/approve|deny   (administrators)
func (s *quotaService) workspaceQuota(c *call, p []string) error {
	post := c.r.Method == http.MethodPost
	if !post && c.r.Method != http.MethodGet {
		return methodError(c)
	}
	requests := fold(p, 0, "quotaRequests")
	switch {
	case !requests && len(p) == 1 && post:
		return s.limitQuota(c)
	case !requests && len(p) == 1:
		return s.showQuota(c)
	case requests && len(p) == 1 && post:
		return s.requestQuota(c)
	case requests && len(p) == 1:
		return s.listRequests(c)
	case requests && len(p) == 2 && !post:
		return s.showRequest(c, p[1])
	case requests && len(p) == 3 && post && (fold(p, 2, "approve") || fold(p, 2, "deny")):
		return s.decideQuota(c, p[1], fold(p, 2, "approve"))
	}
	return notFound(c)
}

// quotaAsk is the body of a request and of a limit that is set.
type quotaAsk struct {
	Family  string    `json:"family"`
	Size    string    `json:"size"` // its family is meant
	User    string    `json:"user"`
	Low     bool      `json:"low"`
	VCPUs   int       `json:"vCPUs"`
	Expires time.Time `json:"expires"`
	Reason  string    `json:"reason"`
	Server  bool      `json:"server"` // for all workspaces together; of a limit only
}

// scope is what the ask is about, with the family as the catalogue has it.
func (a *quotaAsk) scope(c *call, tx *store.Tx) (quota.Scope, error) {
	scope := quota.Scope{Workspace: c.ws.Key(), User: a.User, Low: a.Low}
	if a.Server {
		scope.Workspace = ""
	}
	catalogue, err := sizes.LoadTx(tx)
	if err != nil {
		return scope, err
	}
	if a.Size != "" {
		size, ok := catalogue.Find(a.Size)
		if !ok {
			return scope, unknownSize(catalogue, a.Size)
		}
		if a.Family != "" && !sizes.SameFamily(a.Family, size.Family) {
			return scope, berth.Errorf(berth.Invalid, "size %s is of family %s, not %s; give one of them", size.Name, size.Family, a.Family)
		}
		a.Size, a.Family = size.Name, size.Family
	}
	if a.Family != "" {
		family, ok := catalogue.FindFamily(a.Family)
		if !ok {
			return scope, berth.Missingf("there is no family %s; the families are %s", a.Family, strings.Join(catalogue.Families(), ", "))
		}
		scope.Family = family
	}
	return scope, nil
}

// requestQuota takes a request down.
func (s *quotaService) requestQuota(c *call) error {
	var a quotaAsk
	if err := c.into(&a); err != nil {
		return err
	}
	if a.Server {
		return berth.Errorf(berth.Invalid, "a request is about one workspace")
	}
	if a.User != "" && !strings.EqualFold(a.User, c.who.User) && c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "you are %s; only an administrator may ask for %s", c.who.User, a.User)
	}
	var out map[string]any
	err := s.db.Update(c.ctx(), func(tx *store.Tx) error {
		scope, err := a.scope(c, tx)
		if err != nil {
			return err
		}
		if scope.Family == "" && scope.User == "" {
			return berth.Errorf(berth.Invalid, "say for what: a family, a size or a user")
		}
		r := quota.Request{
			ID: "q-" + berth.NewGUID()[:8], Scope: scope, VCPUs: a.VCPUs, Size: a.Size, Reason: a.Reason, Expires: a.Expires,
			By: c.who.User, At: tx.Now(), Status: quota.Pending,
		}
		if err := r.Check(tx.Now()); err != nil {
			return err
		}
		if err := r.Put(tx); err != nil {
			return err
		}
		c.emitQuota(tx, r, quota.EventRequested, c.who.User+" asked for "+asked(r)+because(r.Reason))
		out, err = renderRequest(tx, r)
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusCreated, out)
}

// decideQuota approves or denies a request.
func (s *quotaService) decideQuota(c *call, id string, approve bool) error {
	if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may decide on quota requests")
	}
	var a quotaAsk
	if err := c.into(&a); err != nil {
		return err
	}
	var out map[string]any
	err := s.db.Update(c.ctx(), func(tx *store.Tx) error {
		r, err := quota.Get(tx, c.ws.Key(), id)
		if err != nil {
			return err
		}
		note := ""
		if approve {
			note, err = s.approve(c, tx, &r, a)
		} else if r, err = r.Deny(c.who.User, a.Reason, tx.Now()); err == nil {
			c.emitQuota(tx, r, quota.EventDenied, c.who.User+" denied "+r.By+" "+asked(r)+because(a.Reason))
		}
		if err != nil {
			return err
		}
		if err := r.Put(tx); err != nil {
			return err
		}
		if out, err = renderRequest(tx, r); note != "" {
			out["note"] = note
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, out)
}

// approve makes the limit of a request. note says when another limit still stands in the way.
func (s *quotaService) approve(c *call, tx *store.Tx, r *quota.Request, a quotaAsk) (note string, err error) {
	decided, grant, err := r.Approve(c.who.User, a.Reason, a.VCPUs, a.Expires, tx.Now())
	if err != nil {
		return "", err
	}
	*r = decided
	c.emitQuota(tx, *r, quota.EventApproved, c.who.User+" approved "+asked(*r)+because(grant.Reason))
	if err := s.setQuota(c, tx, r.Scope, grant); err != nil {
		return "", err
	}
	if r.Family == "" {
		return "", nil
	}
	limits, err := quota.LoadTx(tx, s.quotaDefault)
	if err != nil {
		return "", err
	}
	user := r.User
	if user == "" {
		user = r.By
	}
	room, unlimited, why := limits.Room(nil, quota.Use{Workspace: r.Workspace, Family: r.Family, User: user, Low: r.Low, VCPUs: grant.VCPUs}, tx.Now())
	if unlimited || room >= grant.VCPUs {
		return "", nil
	}
	return "another limit is lower: " + why, nil
}

// limitQuota sets a limit without a request, or removes one.
func (s *quotaService) limitQuota(c *call) error {
	if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may set quotas; ask for one with `berth quota request`")
	}
	var a quotaAsk
	if err := c.into(&a); err != nil {
		return err
	}
	var out quota.Limit
	err := s.db.Update(c.ctx(), func(tx *store.Tx) error {
		scope, err := a.scope(c, tx)
		if err != nil {
			return err
		}
		out = quota.Limit{Scope: scope, Grants: []quota.Grant{}}
		switch {
		case a.VCPUs == noLimit:
			return s.unsetQuota(c, tx, scope)
		case a.VCPUs < 0:
			return berth.Errorf(berth.Invalid, "%d vCPUs is not a limit; %d removes it", a.VCPUs, noLimit)
		case !a.Expires.IsZero() && !a.Expires.After(tx.Now()):
			return berth.Errorf(berth.Invalid, "%s has passed; give a time in the future", a.Expires.Format(time.RFC3339))
		}
		g := quota.Grant{VCPUs: a.VCPUs, Since: tx.Now(), Expires: a.Expires, By: c.who.User, Reason: a.Reason}
		out.Grants = []quota.Grant{g}
		return s.setQuota(c, tx, scope, g)
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, out)
}

// showQuota is the limits that count in the workspace, with what is in use, and its requests.
func (s *quotaService) showQuota(c *call) error {
	out := map[string]any{"default": noLimit}
	if s.quotaDefault > 0 {
		out["default"] = s.quotaDefault
	}
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		limits, err := quota.LoadTx(tx, s.quotaDefault)
		if err != nil {
			return err
		}
		use, err := quota.Used(tx)
		if err != nil {
			return err
		}
		rows := []any{}
		for _, r := range limits.Rows(c.ws.Key(), use, tx.Now()) {
			rows = append(rows, r)
		}
		out["limits"] = rows
		out["requests"], err = renderRequests(c, tx)
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, out)
}

func (s *quotaService) listRequests(c *call) error {
	var value []any
	err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		value, err = renderRequests(c, tx)
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}

func (s *quotaService) showRequest(c *call, id string) error {
	var out map[string]any
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		r, err := quota.Get(tx, c.ws.Key(), id)
		if err != nil {
			return err
		}
		out, err = renderRequest(tx, r)
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, out)
}

func renderRequests(c *call, tx *store.Tx) ([]any, error) {
	all, err := quota.Requests(tx, c.ws.Key())
	value := []any{}
	for _, r := range all {
		m, err := renderRequest(tx, r)
		if err != nil {
			return nil, err
		}
		value = append(value, m)
	}
	return value, err
}

// renderRequest is a request with its state now and what it would cost.
func renderRequest(tx *store.Tx, r quota.Request) (map[string]any, error) {
	catalogue, err := sizes.LoadTx(tx)
	if err != nil {
		return nil, err
	}
	vcpus := r.VCPUs
	if r.Decision != nil && r.Decision.VCPUs > 0 {
		vcpus = r.Decision.VCPUs
	}
	r.Status = r.State(tx.Now())
	m := map[string]any{}
	if err := decodeJSON(eventData(r), &m); err != nil {
		return nil, err
	}
	m["cost"] = quota.Price(catalogue, r.Family, r.Size, vcpus, r.Low)
	return m, nil
}

func (c *call) emitQuota(tx *store.Tx, r quota.Request, typ, reason string) {
	tx.Emit(berth.Event{Workspace: c.ws.Key(), Subject: "quotas/" + r.ID, Type: typ, Reason: reason, Data: eventData(r)})
}

// asked is a request for people.
func asked(r quota.Request) string {
	n := r.VCPUs
	if r.Decision != nil && r.Decision.VCPUs > 0 {
		n = r.Decision.VCPUs
	}
	return quota.Cores(n) + " as " + r.Title()
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// eventData is a value of ours as JSON; none of them can fail to be.
func eventData(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}
