package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Plan asks what would happen to a job. body is what Submit takes; references to what would be
// uploaded or created first begin with local:.
func (c *Client) Plan(ctx context.Context, name string, body any) (*berth.Plan, error) {
	var p berth.Plan
	return &p, c.call(ctx, http.MethodPost, c.path("jobs", name, "plan"), body, &p)
}

// ExplainCompute asks why a compute has its current number of nodes.
func (c *Client) ExplainCompute(ctx context.Context, name string) (*berth.ComputeExplanation, error) {
	var e berth.ComputeExplanation
	return &e, c.call(ctx, http.MethodGet, c.path("computes", name, "explain"), nil, &e)
}

// Spending asks what the workspace spent from since to until, grouped by user, job, compute, size
// or tier. A zero until is now.
func (c *Client) Spending(ctx context.Context, by []string, since, until time.Time) (*berth.Spending, error) {
	q := url.Values{"by": {strings.Join(by, ",")}, "since": {since.UTC().Format(time.RFC3339Nano)}}
	if !until.IsZero() {
		q.Set("until", until.UTC().Format(time.RFC3339Nano))
	}
	var s berth.Spending
	return &s, c.call(ctx, http.MethodGet, c.path("cost")+"?"+q.Encode(), nil, &s)
}

// Budgets lists the budgets of the workspace with their status.
func (c *Client) Budgets(ctx context.Context) ([]berth.BudgetStatus, error) {
	var p page[berth.BudgetStatus]
	err := c.call(ctx, http.MethodGet, c.path("budgets"), nil, &p)
	return p.Value, err
}

// SetBudget creates a budget, or changes the one of the same workspace or user. Only administrators
// may. An empty currency means that of the prices.
func (c *Client) SetBudget(ctx context.Context, b berth.Budget) (*berth.BudgetStatus, error) {
	var s berth.BudgetStatus
	return &s, c.call(ctx, http.MethodPut, c.path("budgets", b.Name()), b, &s)
}

// DeleteBudget deletes a budget. Only administrators may.
func (c *Client) DeleteBudget(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, c.path("budgets", name), nil, nil)
}

// Advise asks where to run something, and what earlier runs used: those of job, or recent ones if
// job is empty.
func (c *Client) Advise(ctx context.Context, n berth.AdviceNeeds, job string) (*berth.Advice, error) {
	q := url.Values{}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	number := func(v float64) string {
		if v == 0 {
			return ""
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	set("case", n.Case)
	set("dataGB", number(n.DataGB))
	set("modelGB", number(n.ModelGB))
	set("ramGB", number(n.RAMGB))
	set("job", job)
	if n.GPU {
		q.Set("gpu", "true")
	}
	var a berth.Advice
	return &a, c.call(ctx, http.MethodGet, c.path("advise")+"?"+q.Encode(), nil, &a)
}
