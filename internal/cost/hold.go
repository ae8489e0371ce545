package cost

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/store"
)

// kindHold is one document of a workspace: the sums of what jobs that have not ended reserve.
// Thousands of jobs may wait, and each that comes has to know.
const kindHold = "holds"

// hold is what a user's jobs reserve in a currency.
type hold struct {
	User     string  `json:"user"`
	Currency string  `json:"currency"`
	Amount   float64 `json:"amount"`
	Jobs     int     `json:"jobs"`
}

// holds are the sums, one for each user and currency.
type holds []hold

// add changes a sum by a number of jobs that reserve amount each. One of no jobs is nothing,
// whatever rounding left of it.
func (h holds) add(user, currency string, amount float64, jobs int) holds {
	for i := range h {
		if x := &h[i]; strings.EqualFold(x.User, user) && x.Currency == currency {
			x.Amount += amount * float64(jobs)
			if x.Jobs += jobs; x.Jobs <= 0 {
				return append(h[:i:i], h[i+1:]...)
			}
			return h
		}
	}
	if jobs <= 0 {
		return h
	}
	return append(h, hold{user, currency, amount * float64(jobs), jobs})
}

// Take notes that a job which is about to be inserted reserves something.
func Take(tx *store.Tx, workspace, user string, st berth.JobState) error {
	return change(tx, workspace, user, st, 1)
}

// Release notes that a job has ended.
func Release(tx *store.Tx, workspace, user string, st berth.JobState) error {
	return change(tx, workspace, user, st, -1)
}

func change(tx *store.Tx, workspace, user string, st berth.JobState, jobs int) error {
	if st.Reserved == 0 {
		return nil
	}
	d, sums, err := readHolds(tx, workspace)
	if err != nil || d == nil && jobs < 0 {
		return err // without sums whoever wants to know reads the jobs
	}
	fresh := d == nil
	if fresh {
		d = &store.Doc{Workspace: workspace, Kind: kindHold, Name: "all", Body: json.RawMessage("{}")}
		if sums, err = countHolds(tx, workspace); err != nil {
			return err
		}
	}
	if d.Own, err = json.Marshal(sums.add(user, st.ReservedIn, st.Reserved, jobs)); err != nil {
		return err
	}
	if fresh {
		return tx.Insert(d)
	}
	return tx.Save(d)
}

// readHolds is the document of the sums and what it says; nil when there is none yet.
func readHolds(tx *store.Tx, workspace string) (*store.Doc, holds, error) {
	d, err := tx.Get(workspace, kindHold, "all", "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	sums, err := store.State[holds](d)
	if err != nil {
		return nil, nil, berth.Errorf(berth.Internal, "the sums of reservations cannot be read: %w", err)
	}
	return d, sums, nil
}

// countHolds makes the sums from the jobs themselves.
func countHolds(tx *store.Tx, workspace string) (sums holds, err error) {
	held, err := held(tx, workspace, berth.ActiveStatuses)
	for _, h := range held {
		sums = sums.add(h.User, h.Currency, h.Amount, 1)
	}
	return sums, err
}

// begun are the statuses of a job that may have a node.
var begun = []berth.JobStatus{
	berth.Preparing, berth.Provisioning, berth.Starting, berth.Running, berth.Finalizing, berth.CancelRequested, berth.NotResponding,
}

// held is what each of the jobs in some statuses reserves.
func held(tx *store.Tx, workspace string, in []berth.JobStatus) ([]Held, error) {
	docs, err := tx.All(store.Query{Workspace: workspace, Kind: "jobs", Status: berth.StatusTexts(in)})
	if err != nil {
		return nil, err
	}
	var out []Held
	for _, d := range docs {
		if !bytes.Contains(d.Own, []byte(`"reserved"`)) {
			continue
		}
		st, err := job.State(d)
		if err != nil {
			return nil, err
		}
		out = append(out, Held{Job: d.Name, User: d.CreatedBy, Currency: st.ReservedIn, Amount: st.Reserved})
	}
	return out, nil
}

// reservations is what jobs that have not ended hold: each of those that have begun, of which a
// part may be spent already, and the sums of the others.
func reservations(tx *store.Tx, workspace string) ([]Held, error) {
	d, sums, err := readHolds(tx, workspace)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return held(tx, workspace, berth.ActiveStatuses)
	}
	out, err := held(tx, workspace, begun)
	if err != nil {
		return nil, err
	}
	for _, h := range out {
		sums = sums.add(h.User, h.Currency, h.Amount, -1)
	}
	for _, h := range sums {
		out = append(out, Held{User: h.User, Currency: h.Currency, Amount: max(0, h.Amount)})
	}
	return out, nil
}
