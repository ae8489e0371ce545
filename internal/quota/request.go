package quota

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// KindRequest is the kind of the documents that hold requests: Own is a Request, Parent its
// workspace, Status its status.
const KindRequest = "quotaRequests"

// The states of a request. Approved becomes expired by itself.
const (
	Pending  = "pending"
	Approved = "approved"
	Denied   = "denied"
	Expired  = "expired"
)

// Events of requests, in their workspace. Their subject is quotas/ID. A limit that changes is a
// berth.EventQuota besides.
const (
	EventRequested = "quota.requested"
	EventApproved  = "quota.approved"
	EventDenied    = "quota.denied"
)

// Request asks for a limit.
type Request struct {
	ID string `json:"id"`
	Scope
	VCPUs   int       `json:"vCPUs"`            // the limit asked for, not the difference
	Size    string    `json:"size,omitempty"`   // that it is for, where one was named
	Reason  string    `json:"reason,omitempty"` // of the one who asks
	Expires time.Time `json:"expires,omitzero"` // never when zero
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	Status  string    `json:"status"`
	// Decision is set once there is one.
	Decision *Decision `json:"decision,omitempty"`
}

// Decision is an administrator's answer.
type Decision struct {
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"`
	VCPUs   int       `json:"vCPUs,omitempty"`  // granted
	Expires time.Time `json:"expires,omitzero"` // of the grant
}

// State is the request's status at a time.
func (r Request) State(now time.Time) string {
	if r.Status == Approved && r.Decision != nil && !r.Decision.Expires.IsZero() && !now.Before(r.Decision.Expires) {
		return Expired
	}
	return r.Status
}

// Check says what is wrong with a request.
func (r Request) Check(now time.Time) error {
	switch {
	case r.VCPUs < 1:
		return berth.Errorf(berth.Invalid, "ask for at least 1 vCPU, not %d", r.VCPUs)
	case !r.Expires.IsZero() && !r.Expires.After(now):
		return berth.Errorf(berth.Invalid, "%s has passed; give a time in the future", r.Expires.Format(time.RFC3339))
	}
	return nil
}

// Approve is the request with an administrator's consent, and the grant that follows from it. vcpus
// and expires are what the administrator says instead of the request, or zero.
func (r Request) Approve(by, reason string, vcpus int, expires, now time.Time) (Request, Grant, error) {
	if r.Status != Pending {
		return r, Grant{}, r.decided(now)
	}
	if vcpus == 0 {
		vcpus = r.VCPUs
	}
	if expires.IsZero() {
		expires = r.Expires
	}
	switch {
	case vcpus < 1:
		return r, Grant{}, berth.Errorf(berth.Invalid, "%d vCPUs cannot be approved; deny the request instead", vcpus)
	case !expires.IsZero() && !expires.After(now):
		return r, Grant{}, berth.Errorf(berth.Invalid, "%s has passed; give a time in the future with --expires", expires.Format(time.RFC3339))
	}
	r.Status, r.Decision = Approved, &Decision{By: by, At: now, Reason: reason, VCPUs: vcpus, Expires: expires}
	if reason == "" {
		reason = r.Reason
	}
	return r, Grant{VCPUs: vcpus, Since: now, Expires: expires, By: by, Reason: reason, Request: r.ID}, nil
}

// Deny is the request with an administrator's refusal.
func (r Request) Deny(by, reason string, now time.Time) (Request, error) {
	if r.Status != Pending {
		return r, r.decided(now)
	}
	if strings.TrimSpace(reason) == "" {
		return r, berth.Errorf(berth.Invalid, "say why: `berth quota deny %s --reason …`", r.ID)
	}
	r.Status, r.Decision = Denied, &Decision{By: by, At: now, Reason: reason}
	return r, nil
}

func (r Request) decided(now time.Time) error {
	return berth.Errorf(berth.Conflict, "request %s is %s already, by %s; create a new request", r.ID, r.State(now), r.Decision.By)
}

// Put writes a request, a new one or one that was decided.
func (r Request) Put(tx *store.Tx) error {
	own, err := json.Marshal(r)
	if err != nil {
		return err
	}
	d, err := tx.Get("", KindRequest, r.ID, "")
	if berth.CodeOf(err) == berth.NotFound {
		d = &store.Doc{Kind: KindRequest, Name: r.ID, Parent: strings.ToLower(r.Workspace), CreatedBy: r.By, Status: r.Status, Own: own}
		return tx.Insert(d)
	}
	if err != nil {
		return err
	}
	d.Status, d.Own = r.Status, own
	return tx.Save(d)
}

// Get reads a request of a workspace.
func Get(tx *store.Tx, workspace, id string) (Request, error) {
	var r Request
	d, err := tx.Get("", KindRequest, id, "")
	if err == nil {
		r, err = store.State[Request](d)
	}
	if berth.CodeOf(err) == berth.NotFound || err == nil && !strings.EqualFold(r.Workspace, workspace) {
		return Request{}, berth.Errorf(berth.NotFound, "there is no quota request %s in this workspace; `berth quota list` lists them", id)
	}
	return r, err
}

// Requests is the requests of a workspace, newest first.
func Requests(tx *store.Tx, workspace string) ([]Request, error) {
	docs, err := tx.All(store.Query{Kind: KindRequest, Parent: strings.ToLower(workspace)})
	if err != nil {
		return nil, err
	}
	out := make([]Request, len(docs))
	for i, d := range docs {
		if out[i], err = store.State[Request](d); err != nil {
			return nil, berth.Errorf(berth.Internal, "quota request %s cannot be read: %w", d.Name, err)
		}
	}
	return out, nil
}

// Forget removes the limits and requests of a workspace that is deleted: one of the same name
// begins again.
func Forget(tx *store.Tx, workspace string) error {
	for _, kind := range []string{Kind, KindRequest} {
		docs, err := tx.All(store.Query{Kind: kind, Parent: strings.ToLower(workspace), NoBody: true})
		if err != nil {
			return err
		}
		for _, d := range docs {
			if err := tx.Delete("", kind, d.Name, ""); err != nil {
				return err
			}
		}
	}
	return nil
}
