package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// computeCall is a call that creates or changes a compute.
type computeCall struct{ *call }

// putCompute creates or changes a compute.
func putCompute(c *call, r *resource, name string) error {
	if err := berth.CheckName(r.Noun, name); err != nil {
		return err
	}
	if reservedCompute(name) {
		return berth.Errorf(berth.Conflict, "compute %q is always there and cannot be changed", strings.ToLower(name))
	}
	if strings.HasPrefix(strings.ToLower(name), serverlessPrefix) {
		return berth.Errorf(berth.Conflict, "names that begin with %s are those of pools that the server creates for jobs without a compute; choose another", serverlessPrefix)
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	props, err := object(body, "properties")
	if err != nil {
		return err
	}
	if err := checkForm(r, body); err != nil {
		return err
	}
	w := writing{r: r, name: name, body: body, secrets: takeSecrets(r, props)}
	var d *store.Doc
	created := false
	err = c.s.DB.Update(c.ctx(), func(tx *store.Tx) (err error) {
		d, created, err = computeCall{c}.writeCompute(tx, w)
		return err
	})
	if err != nil {
		return err
	}
	c.operation("put", c.docID(r, d))
	return c.sendDoc(map[bool]int{true: http.StatusCreated, false: http.StatusOK}[created], r, d)
}

// writeCompute keeps a compute, over one that is there as far as that may change.
func (c computeCall) writeCompute(tx *store.Tx, w writing) (d *store.Doc, created bool, err error) {
	r, patch := w.r, c.r.Method == http.MethodPatch
	if err := c.ifMatch(tx, r.Collection, w.name, ""); err != nil {
		return nil, false, err
	}
	body, props, err := cloneBody(w.body)
	if err != nil {
		return nil, false, err
	}
	var st berth.ComputeState
	d, err = tx.Get(c.ws.Key(), r.Collection, w.name, "")
	created = berth.CodeOf(err) == berth.NotFound
	switch {
	case created && patch:
		return nil, false, c.missing(err, r, w.name, "")
	case created:
		d = &store.Doc{Workspace: c.ws.Key(), Kind: r.Collection, Name: w.name, CreatedBy: c.who.User}
	case err != nil:
		return nil, false, err
	default:
		if st, err = target.State(d); err != nil {
			return nil, false, err
		}
		if st.Attached != nil { // who changes how a machine is reached has its key, and its jobs
			if err := c.madeIt(r, d, "change"); err != nil {
				return nil, false, err
			}
		}
		if st.State == "Deleting" {
			return nil, false, berth.Errorf(berth.Conflict, "compute %s is being deleted; wait until it is gone, or choose another name", d.Name)
		}
		if body, props, err = c.mergeCompute(tx, r, d, body, props, patch); err != nil {
			return nil, false, err
		}
	}
	was := st.IdleCost
	if err := c.checkCompute(tx, d, body, props, &st, created); err != nil {
		return nil, false, err
	}
	if err := c.sealInto(&st, r, d, w.secrets); err != nil {
		return nil, false, err
	}
	if err := writeCall(c).setBody(d, body, patch); err != nil {
		return nil, false, err
	}
	if err := store.SetState(d, st); err != nil {
		return nil, false, err
	}
	c.tellOfCompute(tx, r, d, st, was)
	if created {
		return d, true, tx.Insert(d)
	}
	return d, false, tx.Save(d)
}

// sealInto keeps secrets in a compute's state.
func (c computeCall) sealInto(st *berth.ComputeState, r *resource, d *store.Doc, secrets map[string]any) error {
	if len(secrets) == 0 {
		return nil
	}
	sealed, err := c.s.docs.seal(c.call, r, d.Name, secrets)
	if err != nil {
		return err
	}
	return json.Unmarshal(sealed, st)
}

// tellOfCompute emits that a compute was written, and what there is to know about it; was is what
// was told of its cost before.
func (c computeCall) tellOfCompute(tx *store.Tx, r *resource, d *store.Doc, st berth.ComputeState, was string) {
	c.emit(tx, berth.EventResourcePut, r, d.Name, "")
	tell := st.Warnings
	if st.IdleCost != was {
		tell = warnings(st)
	}
	for _, w := range tell {
		tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "computes/" + d.Name, Type: berth.EventWarning, Reason: w})
	}
}
