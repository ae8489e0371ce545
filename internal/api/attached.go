package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/attach"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// attachService serves the connections of machines that connect by themselves.
type attachService struct {
	attached Attached
	gate     *gate
	front    *Server
}

// Attached is what the front door needs for computes that are attached.
type Attached interface {
	// Check refuses a compute for which this server has no driver, that could never work, or that
	// cannot take the place of old, which is nil for a new one.
	Check(workspace, name string, old, body json.RawMessage) error
	// CheckProvider refuses an attached compute that cannot make the nodes of a cluster.
	CheckProvider(workspace, name string, body json.RawMessage) error
	// Connect takes the connection of an agent that shows token, or says why not.
	Connect(w http.ResponseWriter, r *http.Request, token string) error
	// Drop ends the connection of a compute's machine.
	Drop(d *store.Doc)
}

// noneAttached is for a server that attaches no machines.
type noneAttached struct{}

var errNoneAttached = berth.Errorf(berth.Unsupported, "this server does not attach machines")

func (noneAttached) Check(string, string, json.RawMessage, json.RawMessage) error {
	return errNoneAttached
}

func (noneAttached) CheckProvider(string, string, json.RawMessage) error { return errNoneAttached }

func (noneAttached) Connect(http.ResponseWriter, *http.Request, string) error { return errNoneAttached }
func (noneAttached) Drop(*store.Doc)                                          {}

// connect is where agents connect. Their tokens open nothing else, and no other token opens this.
func (s *attachService) connect(w http.ResponseWriter, r *http.Request) {
	ctx, end := s.gate.untilStop(r.Context(), w)
	defer end()
	if err := s.attached.Connect(w, r.WithContext(ctx), auth.Bearer(r.Header.Get("Authorization"))); err != nil {
		s.front.fail(w, r, err)
	}
}

// checkAttached refuses a machine that could not be attached.
func (c computeCall) checkAttached(d *store.Doc, body map[string]any, st *berth.ComputeState, created bool) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if spec, err := berth.ReadPool(raw); err == nil && spec.Properties.AgentKey != "" && c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "agentKey names a key of the server's own SSH agent, which only administrators may use; attach the machine with a key file or password, or from the machine itself with `berth compute attach --this-machine`")
	}
	var old json.RawMessage
	if !created {
		old = d.Body
	}
	if err := c.s.Attached.Check(d.Workspace, d.Name, old, raw); err != nil {
		return err
	}
	if created && !attach.Uses(&store.Doc{Name: d.Name, Body: raw}) {
		st.Attached = &berth.AttachedState{Why: "the server is about to connect to it"}
	}
	st.State = "" // there is nothing to make
	return nil
}

// shapeAttached adds what is known of a machine. "berth" is ours. The server's own machine needs no
// connection.
func shapeAttached(d *store.Doc, st berth.ComputeState, p map[string]any) {
	p["isAttachedCompute"] = true
	if berth.IsLocal(d.Name) {
		p["berth"] = map[string]any{"reason": "this machine"}
		return
	}
	a := st.Attached
	if a == nil {
		a = &berth.AttachedState{}
	}
	p["berth"] = map[string]any{
		"connected": a.Connected, "reason": a.Away(d.Name), "host": a.Host, "agentVersion": a.Version, "warnings": a.Warnings,
		"cpus": a.CPUs, "memoryBytes": a.Memory, "gpus": a.GPUs, "os": a.OS, "arch": a.Arch, "slots": a.Slots, "distributed": a.Distributed,
		"maxNodes": max(1, a.MaxNodes),
	}
	if a.Several() {
		p["berth"].(map[string]any)["machines"] = shapeMachines(a.Machines)
	}
	if len(a.HostKeys) > 0 {
		p["berth"].(map[string]any)["hostKeys"] = a.HostKeys
	}
	if !a.Since.IsZero() {
		p["berth"].(map[string]any)["since"] = stamp(a.Since)
	}
}

// shapeMachines are the machines of a pool.
func shapeMachines(all []berth.AttachedMachine) []map[string]any {
	out := make([]map[string]any, len(all))
	for i, m := range all {
		out[i] = map[string]any{
			"name": m.Name, "address": m.Address, "state": "Connected", "cpus": m.CPUs, "memoryBytes": m.Memory, "gpus": m.GPUs, "os": m.OS, "arch": m.Arch, "slots": m.Slots,
		}
		if why := m.Refuses(); why != "" {
			out[i]["state"], out[i]["reason"] = "Drained", why
		}
		if !m.Since.IsZero() {
			out[i]["since"] = stamp(m.Since)
		}
	}
	return out
}

// joinCompute makes a new token for a compute, after which the next machine that connects is the
// compute's. The old one's connection ends.
func joinCompute(c *call, r *resource, name, _ string) error {
	var d *store.Doc
	var token string
	err := c.s.DB.Update(c.ctx(), func(tx *store.Tx) (err error) {
		if d, err = tx.Get(c.ws.Key(), r.Collection, name, ""); err != nil {
			return c.missing(err, r, name, "")
		}
		st, err := target.State(d)
		if err != nil {
			return err
		}
		switch {
		case !attach.Uses(d):
			return berth.Errorf(berth.Unsupported, "compute %s is not one whose machine connects by itself; attach one with `berth compute attach --type agent`", d.Name)
		case d.CreatedBy != c.who.User && c.who.Role != auth.Admin:
			return berth.Errorf(berth.Denied, "compute %s was attached by %s; only they and administrators may choose its machine", d.Name, d.CreatedBy)
		case st.Deleting():
			return berth.Errorf(berth.Conflict, "compute %s is being detached", d.Name)
		case st.Attached != nil && st.Attached.Machine != "":
			// What runs there would be lost: the next machine does not know of it.
			if job, err := busyWith(tx, d); err != nil {
				return err
			} else if job != "" {
				return berth.Errorf(berth.Conflict, "compute %s has jobs (%s) on machine %s; wait for them or cancel them first", d.Name, job, st.Attached.Host)
			}
		}
		token = attach.Issue(&st)
		if err := store.SetState(d, st); err != nil {
			return err
		}
		tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "computes/" + d.Name, Type: berth.EventCompute, Reason: "a machine was invited to join by " + c.who.User})
		return tx.Save(d)
	})
	if err != nil {
		return err
	}
	c.s.Attached.Drop(d)
	return c.send(http.StatusOK, attach.Join{Server: strings.TrimSuffix(c.s.BaseURL, "/"), Workspace: c.ws, Compute: d.Name, Token: token, CA: c.s.CA})
}
