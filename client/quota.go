package client

import (
	"context"
	"net/http"
	"time"
)

// QuotaAsk requests or sets a limit. Family, Size and User say what it applies to.
type QuotaAsk struct {
	Family  string    `json:"family,omitempty"`
	Size    string    `json:"size,omitempty"` // its family is meant
	User    string    `json:"user,omitempty"` // of this user alone
	Low     bool      `json:"low,omitempty"`
	VCPUs   int       `json:"vCPUs"`
	Expires time.Time `json:"expires,omitzero"`
	Reason  string    `json:"reason,omitempty"`
	Server  bool      `json:"server,omitempty"` // of all workspaces together
}

// QuotaLimit is a limit that applies in a workspace.
type QuotaLimit struct {
	Workspace string    `json:"workspace,omitempty"`
	Family    string    `json:"family,omitempty"`
	User      string    `json:"user,omitempty"`
	Low       bool      `json:"low,omitempty"`
	Title     string    `json:"title"`
	VCPUs     int       `json:"vCPUs"` // -1 is no end
	Used      int       `json:"used"`
	Expires   time.Time `json:"expires,omitzero"`
	By        string    `json:"by,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Request   string    `json:"request,omitempty"`
}

// QuotaRequest is a request for a limit.
type QuotaRequest struct {
	ID        string         `json:"id"`
	Workspace string         `json:"workspace,omitempty"`
	Family    string         `json:"family,omitempty"`
	User      string         `json:"user,omitempty"`
	Low       bool           `json:"low,omitempty"`
	VCPUs     int            `json:"vCPUs"`
	Size      string         `json:"size,omitempty"`
	Reason    string         `json:"reason,omitempty"`
	Expires   time.Time      `json:"expires,omitzero"`
	By        string         `json:"by"`
	At        time.Time      `json:"at"`
	Status    string         `json:"status"` // pending, approved, denied, expired
	Decision  *QuotaDecision `json:"decision,omitempty"`
	Cost      QuotaCost      `json:"cost"`
	Note      string         `json:"note,omitempty"` // of an approval that does not help
}

// QuotaDecision is an administrator's answer.
type QuotaDecision struct {
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"`
	VCPUs   int       `json:"vCPUs,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
}

// QuotaCost is the cost of the vCPUs of a request while all are used; PerHour is nil if unknown.
type QuotaCost struct {
	Size     string   `json:"size,omitempty"`
	Nodes    int      `json:"nodes,omitempty"`
	PerHour  *float64 `json:"perHour"`
	PerMonth *float64 `json:"perMonth"`
	Currency string   `json:"currency,omitempty"`
}

// Quotas are the limits that apply in a workspace, with current use, and its requests, newest
// first.
type Quotas struct {
	Default  int            `json:"default"` // vCPUs of a family where no limit says anything; -1 is no end
	Limits   []QuotaLimit   `json:"limits"`
	Requests []QuotaRequest `json:"requests"`
}

// Quotas reads the limits and requests of the workspace.
func (c *Client) Quotas(ctx context.Context) (Quotas, error) {
	var q Quotas
	err := c.call(ctx, http.MethodGet, c.path("quotas"), nil, &q)
	return q, err
}

// RequestQuota asks for a limit.
func (c *Client) RequestQuota(ctx context.Context, a QuotaAsk) (QuotaRequest, error) {
	var r QuotaRequest
	err := c.Post(ctx, a, &r, "quotaRequests")
	return r, err
}

// ApproveQuota grants a request; the members of a replace those of the request.
func (c *Client) ApproveQuota(ctx context.Context, id string, a QuotaAsk) (QuotaRequest, error) {
	var r QuotaRequest
	err := c.Post(ctx, a, &r, "quotaRequests", id, "approve")
	return r, err
}

// DenyQuota refuses a request.
func (c *Client) DenyQuota(ctx context.Context, id, reason string) (QuotaRequest, error) {
	var r QuotaRequest
	err := c.Post(ctx, QuotaAsk{Reason: reason}, &r, "quotaRequests", id, "deny")
	return r, err
}

// SetQuota sets a limit without a request; -1 vCPUs removes it.
func (c *Client) SetQuota(ctx context.Context, a QuotaAsk) error {
	return c.Post(ctx, a, nil, "quotas")
}
