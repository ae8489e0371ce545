package berth

import "time"

// Meter is the cost of a period of a node's time. It is stored as a document of kind "meters" whose
// Own is this and Parent the compute: one for each task that ran on a node, and one for the whole
// life of the node. Time that no task accounts for is idle or start-up time.
type Meter struct {
	Compute string  `json:"compute"`
	Node    string  `json:"node"`
	Size    string  `json:"size"`
	Low     bool    `json:"low,omitempty"`
	Rate    float64 `json:"rate,omitempty"`   // per hour; a task on a node with several slots pays its share
	Priced  bool    `json:"priced,omitempty"` // Rate is known
	// Currency is that of Rate; if empty, it is the size's current one.
	Currency string    `json:"currency,omitempty"`
	Slots    int       `json:"slots,omitempty"`    // tasks the node runs at once; 0 is 1
	Instance bool      `json:"instance,omitempty"` // a node that is somebody's own: never idle
	Job      string    `json:"job,omitempty"`      // empty: the node itself
	User     string    `json:"user,omitempty"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
}

// Cost returns the cost of the period.
func (m Meter) Cost() float64 { return m.Rate * max(0, m.To.Sub(m.From).Hours()) }

// Spending is what was spent in a period, by group.
type Spending struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	By    []string  `json:"by"`
	// Groups have one line each, the most expensive first. Their sums are Totals.
	Groups []CostLine `json:"groups"`
	Totals []CostLine `json:"totals"` // one for each currency; none when nothing was used
}

// CostLine is the use of one group. Only the keys it was grouped by are set: an empty Job means
// time that no job accounts for.
type CostLine struct {
	User    string `json:"user,omitempty"`
	Job     string `json:"job,omitempty"`
	Compute string `json:"compute,omitempty"`
	Size    string `json:"size,omitempty"`
	Tier    string `json:"tier,omitempty"` // dedicated, low_priority
	// Currency is that of the costs; empty if no price is known.
	Currency string `json:"currency,omitempty"`
	// What was used, without the idle time of nodes.
	CostSum
	Idle CostSum `json:"idle"`
}

// CostSum is a number of hours and their cost. A task that shares a node is counted with its share.
type CostSum struct {
	NodeHours float64 `json:"nodeHours"`
	Cost      float64 `json:"cost"`         // of the hours whose price is known
	Unknown   float64 `json:"unknownHours"` // of NodeHours, those whose price is not known: they are not in Cost
}

// Budget limits what a workspace, or one of its users, may spend in a period. It is stored as a
// document of kind "budgets" whose name is its scope: BudgetWorkspace, or BudgetUser and the user.
type Budget struct {
	User     string  `json:"user,omitempty"` // whose; empty is the whole workspace
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"`
	Period   string  `json:"period"` // month, week (of UTC), total: since it was made
}

// Names of budgets.
const (
	BudgetWorkspace = "workspace"
	BudgetUser      = "user:" // the user follows
)

// Periods of budgets.
const (
	PeriodMonth = "month"
	PeriodWeek  = "week"
	PeriodTotal = "total"
)

// Name is the name of the budget's document.
func (b Budget) Name() string {
	if b.User == "" {
		return BudgetWorkspace
	}
	return BudgetUser + b.User
}

// BudgetStatus is the current status of a budget.
type BudgetStatus struct {
	Name string `json:"name"`
	Budget
	From     time.Time `json:"from"`              // of the period
	To       time.Time `json:"to,omitzero"`       // of the period; absent for total
	Spent    float64   `json:"spent"`             // up to now, what runs included
	Reserved float64   `json:"reserved"`          // beyond that, by jobs that have not ended
	Left     float64   `json:"left"`              // Amount without both; below 0 when it is overdrawn
	Rate     float64   `json:"rate"`              // an hour of what runs now
	UsedUpAt time.Time `json:"usedUpAt,omitzero"` // when it is used up if everything goes on as now
	Unknown  float64   `json:"unknownHours"`      // node hours that it cannot count: no price, or another currency
	State    string    `json:"state"`             // ok, warning (80 % are spent), exhausted
}

// Events of budgets. Their subject is budgets/NAME.
const (
	EventBudget          = "budget.changed"   // it was set or deleted
	EventBudgetWarning   = "budget.warning"   // 80 % are spent; once each time that comes true
	EventBudgetExhausted = "budget.exhausted" // it is used up: what is charged to it is stopped
	EventBudgetRenewed   = "budget.renewed"   // it was used up, and has something left again
)
