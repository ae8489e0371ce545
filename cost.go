package berth

import "time"

// Meter is what a stretch of a node's time cost. It is kept as a document of kind "meters" whose Own is this and Parent the
// compute: one for each task that ran on a node, and one for the whole life of the node. What the tasks do not account for, the
// node was idle or starting.
type Meter struct {
	Compute string    `json:"compute"`
	Node    string    `json:"node"`
	Size    string    `json:"size"`
	Low     bool      `json:"low,omitempty"`
	Rate    float64   `json:"rate,omitempty"`   // per hour; a task on a node with several slots pays its share
	Priced  bool      `json:"priced,omitempty"` // Rate is known
	Job     string    `json:"job,omitempty"`    // empty: the node itself
	User    string    `json:"user,omitempty"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
}

// Cost is what the stretch cost.
func (m Meter) Cost() float64 { return m.Rate * m.To.Sub(m.From).Hours() }
