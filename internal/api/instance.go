package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/ordered"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// Compute instances. What is asked for is written into the compute's state; package devbox makes it
// true.

// checkInstance refuses an instance that could not be, and writes what is wanted into st.
func checkInstance(c *call, tx *store.Tx, d *store.Doc, props map[string]any, st *berth.ComputeState, created bool) error {
	inner, err := object(props, "properties")
	if err != nil {
		return err
	}
	for _, k := range instanceAnswers { // what a client read and sends back
		delete(inner, k)
	}
	was, err := instanceProps(d)
	if err != nil {
		return err
	}
	if text(inner, "vmSize") == "" {
		inner["vmSize"] = text(was, "vmSize")
	}
	raw, err := json.Marshal(props)
	if err != nil {
		return err
	}
	spec, err := devbox.Parse(raw)
	if err != nil {
		return err
	}
	if created || !sameJSON(inner["schedules"], was["schedules"]) {
		if err := spec.Check(c.now); err != nil {
			return err
		}
	}
	resized := !created && !strings.EqualFold(spec.Size, text(was, "vmSize"))
	if created || resized {
		if err := (computeCall{c}).checkInstanceSize(tx, d.Name, spec.Size, st); err != nil {
			return err
		}
	}
	if st.IdleCost, err = (computeCall{c}).awakeCost(tx, spec); err != nil {
		return err
	}
	if created {
		user, err := computeCall{c}.assigned(tx, inner)
		if err != nil {
			return err
		}
		st.State = berth.InstanceCreating
		st.Instance = &berth.InstanceState{State: berth.InstanceCreating, User: user, Since: c.now}
		st.Instance.Ask("Create", berth.InstanceRunning, "User", "asked for by "+c.who.User, c.now)
		return nil
	}
	if st.Instance == nil {
		return berth.Errorf(berth.Internal, "the record of instance %s is damaged", d.Name)
	}
	if err := (computeCall{c}).mayOperate(d, st.Instance); err != nil {
		return err
	}
	if resized {
		computeCall{c}.resized(st.Instance)
	}
	return nil
}

// checkInstanceSize refuses a size that instances cannot have here.
func (c computeCall) checkInstanceSize(tx *store.Tx, name, size string, st *berth.ComputeState) error {
	s, err := c.s.sizes.checkSize(c.call, tx, size, c.s.Location, berth.TypeInstance, false)
	if err != nil {
		return err
	}
	st.Warnings, err = c.s.sizes.fits(name, s)
	return err
}

// resized asks for the size the document now has: at once when the instance runs, at its next start
// when it does not.
func (c computeCall) resized(it *berth.InstanceState) {
	it.Ask("Resize", it.Want, "User", "another size was asked for by "+c.who.User, c.now)
	if it.Want == berth.InstanceStopped && it.Node == "" {
		it.LastOperation.Status = "Succeeded"
	}
}

// instanceAnswers are the members of an instance's properties that only the service writes.
var instanceAnswers = []string{
	"state", "connectivityEndpoints", "applications", "errors", "lastOperation", "createdBy", "osImageMetadata", "versions", "containers",
	"dataDisks", "dataMounts",
}

// instanceProps are the inner properties of an instance's document, empty for a new one.
func instanceProps(d *store.Doc) (map[string]any, error) {
	if len(d.Body) == 0 {
		return map[string]any{}, nil
	}
	body := map[string]any{}
	if err := decodeJSON(d.Body, &body); err != nil {
		return nil, err
	}
	p, _ := dig(body, "properties.properties").(map[string]any)
	return p, nil
}

func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// assigned is the user an instance is for: who makes it, or whom an administrator names.
func (c computeCall) assigned(tx *store.Tx, inner map[string]any) (string, error) {
	id, _ := dig(inner, "personalComputeInstanceSettings.assignedUser.objectId").(string)
	if id == "" || strings.EqualFold(id, c.who.User) || strings.EqualFold(id, auth.ObjectID(c.who.User)) {
		return c.who.User, nil
	}
	if c.who.Role != auth.Admin {
		return "", berth.Errorf(berth.Denied, "only an administrator may create an instance for somebody else (create_on_behalf_of)")
	}
	user, ok, err := auth.FindUser(tx, id)
	if err != nil || ok {
		return user, err
	}
	return "", berth.Errorf(berth.Invalid, "create_on_behalf_of: %q is not the name or the object id of a user with a token here; `berth token list` shows the users", id)
}

// mayOperate lets those start, stop and change an instance whose it is, who made it, and
// administrators.
func (c computeCall) mayOperate(d *store.Doc, it *berth.InstanceState) error {
	if c.who.Role == auth.Admin || c.who.User == it.User || c.who.User == d.CreatedBy {
		return nil
	}
	return berth.Errorf(berth.Denied, "instance %s belongs to %s; only they and administrators may change it", d.Name, it.User)
}

// instanceActions are the POSTs on an instance.
func instanceActions() map[string]func(*call, *resource, string, string) error {
	return map[string]func(*call, *resource, string, string) error{
		"start": startInstance, "stop": stopInstance, "restart": restartInstance, "resize": resizeInstance,
		"open": openInstance, "log": instanceLog,
	}
}

// withActions is b and a together.
func withActions(a, b map[string]func(*call, *resource, string, string) error) map[string]func(*call, *resource, string, string) error {
	for k, f := range b {
		a[k] = f
	}
	return a
}

// operate changes what is wanted of an instance and answers 202.
func (c computeCall) operate(r *resource, name, verb string, f func(tx *store.Tx, d *store.Doc, st *berth.ComputeState) error) error {
	var d *store.Doc
	err := c.s.DB.Update(c.ctx(), func(tx *store.Tx) (err error) {
		if d, err = tx.Get(c.ws.Key(), r.Collection, name, ""); err != nil {
			return c.missing(err, r, name, "")
		}
		st, err := target.State(d)
		if err != nil {
			return err
		}
		if st.Instance == nil {
			return berth.Errorf(berth.Conflict, "compute %s is not a compute instance: only instances can %s", d.Name, verb)
		}
		if err := c.mayOperate(d, st.Instance); err != nil {
			return err
		}
		if st.State == berth.InstanceDeleting {
			return berth.Errorf(berth.Conflict, "instance %s is being deleted", d.Name)
		}
		before := st.Instance.Attempt
		if err := f(tx, d, &st); err != nil || st.Instance.Attempt == before {
			return err
		}
		if err := store.SetState(d, st); err != nil {
			return err
		}
		tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "computes/" + d.Name, Type: berth.EventComputes, Reason: verb + " asked for by " + c.who.User})
		return tx.Save(d)
	})
	if err != nil {
		return err
	}
	c.operation(verb, c.docID(r, d))
	return c.empty(http.StatusAccepted)
}

func startInstance(c *call, r *resource, name, _ string) error {
	return computeCall{c}.operate(r, name, "start", func(tx *store.Tx, d *store.Doc, st *berth.ComputeState) error {
		it := st.Instance
		if it.Want == berth.InstanceRunning && it.State != berth.InstanceSetupFailed {
			return nil // it runs, or is about to
		}
		spec, err := instanceProps(d)
		if err != nil {
			return err
		}
		if err := (computeCall{c}).checkInstanceSize(tx, d.Name, text(spec, "vmSize"), st); err != nil {
			return err
		}
		if it.State == berth.InstanceStopped || it.State == berth.InstanceCreateFailed {
			it.State, it.Since = berth.InstanceStarting, c.now
		}
		it.Ask("Start", berth.InstanceRunning, "User", "started by "+c.who.User, c.now)
		return nil
	})
}

func stopInstance(c *call, r *resource, name, _ string) error {
	return computeCall{c}.operate(r, name, "stop", func(_ *store.Tx, _ *store.Doc, st *berth.ComputeState) error {
		if st.Instance.Want != berth.InstanceStopped {
			st.Instance.Ask("Stop", berth.InstanceStopped, "User", "stopped by "+c.who.User, c.now)
		}
		return nil
	})
}

func restartInstance(c *call, r *resource, name, _ string) error {
	return computeCall{c}.operate(r, name, "restart", func(_ *store.Tx, d *store.Doc, st *berth.ComputeState) error {
		it := st.Instance
		if it.Want != berth.InstanceRunning {
			return berth.Errorf(berth.Conflict, "instance %s is %s; start it instead: `berth compute start -n %s`", d.Name, it.State, d.Name)
		}
		it.Ask("Restart", berth.InstanceRunning, "User", "restarted by "+c.who.User, c.now)
		return nil
	})
}

func resizeInstance(c *call, r *resource, name, _ string) error {
	var ask struct {
		Size string `json:"targetVMSize"`
	}
	if err := c.into(&ask); err != nil {
		return err
	}
	if ask.Size == "" {
		return berth.Errorf(berth.Invalid, "targetVMSize is missing: say which size the instance should have")
	}
	return computeCall{c}.operate(r, name, "resize", func(tx *store.Tx, d *store.Doc, st *berth.ComputeState) error {
		if err := (computeCall{c}).checkInstanceSize(tx, d.Name, ask.Size, st); err != nil {
			return err
		}
		body := map[string]any{}
		if err := decodeJSON(d.Body, &body); err != nil {
			return err
		}
		inner, ok := dig(body, "properties.properties").(map[string]any)
		if !ok || strings.EqualFold(text(inner, "vmSize"), ask.Size) {
			return nil
		}
		inner["vmSize"] = ask.Size
		var err error
		if d.Body, err = ordered.Marshal(body, d.Body); err != nil {
			return err
		}
		computeCall{c}.resized(st.Instance)
		return nil
	})
}

// wantDeleted notes in an instance's state that it is to be deleted.
func wantDeleted(c *call, d *store.Doc, st *berth.ComputeState) error {
	it := st.Instance
	if err := (computeCall{c}).mayOperate(d, it); err != nil {
		return err
	}
	it.State, it.Since = berth.InstanceDeleting, c.now
	it.Ask("Delete", berth.InstanceStopped, "User", "deleted by "+c.who.User, c.now)
	return nil
}

// shapeInstance adds what the service knows of an instance.
func shapeInstance(c *call, d *store.Doc, st berth.ComputeState, props map[string]any) {
	inner, ok := props["properties"].(map[string]any)
	it := st.Instance
	if !ok || it == nil {
		return
	}
	if (computeCall{c}).mayOperate(d, it) != nil || !c.who.CanWrite() {
		conceal(inner)
	}
	inner["state"] = it.State
	inner["createdBy"] = map[string]any{"userName": d.CreatedBy, "userOrgId": auth.TenantID, "userId": auth.ObjectID(d.CreatedBy)}
	inner["lastOperation"] = it.LastOperation
	setDefault(inner, "applicationSharingPolicy", "Personal")
	setDefault(inner, "computeInstanceAuthorizationType", "personal")
	setDefault(inner, "schedules", map[string]any{"computeStartStop": []any{}})
	inner["connectivityEndpoints"] = map[string]any{"publicIpAddress": nil, "privateIpAddress": nil}
	apps := []any{}
	if it.Up() {
		inner["connectivityEndpoints"] = map[string]any{"publicIpAddress": nil, "privateIpAddress": "127.0.0.1"}
		for _, a := range it.Apps {
			if a.Error == "" {
				apps = append(apps, map[string]any{"displayName": a.Title, "endpointUri": c.s.BaseURL + devbox.Prefix(d.Workspace, d.Name) + "/" + a.Name + a.Path})
			}
		}
	}
	inner["applications"] = apps
	inner["errors"] = []any{}
	if len(it.Errors) > 0 {
		inner["errors"] = []any{map[string]any{"error": map[string]any{"code": it.State, "message": strings.Join(it.Errors, "\n")}}}
	}
	if ssh, ok := inner["sshSettings"].(map[string]any); ok {
		ssh["adminUserName"], ssh["sshPort"] = "berth", 22
	}
	all := slices.Concat(warnings(st), it.Warnings)
	if devbox.Full(it.DiskBytes, it.DiskLimit) {
		all = append(all, devbox.DiskWarning(d.Name, it.DiskBytes, it.DiskLimit))
	}
	own := map[string]any{
		"reason": it.Reason, "since": stampOrNil(it.Since), "user": it.User, "node": it.Node, "warnings": all, "disk": map[string]any{"used": it.DiskBytes, "size": it.DiskLimit},
		"hostKey": it.HostKey, "apps": it.Apps, "sshEndpoint": devbox.Prefix(d.Workspace, d.Name) + "/ssh",
	}
	if it.Up() || it.State == berth.InstanceSetupFailed {
		own["awake"], own["awakeAt"], own["stopsAt"] = it.Awake, stampOrNil(it.AwakeAt), stampOrNil(it.StopsAt)
	}
	if raw, err := json.Marshal(props); err == nil {
		if spec, err := devbox.Parse(raw); err == nil {
			if f, ok := spec.Next(d.Created, c.now); ok {
				own["nextSchedule"] = map[string]any{"at": stamp(f.At), "action": map[bool]string{true: "start", false: "stop"}[f.Start]}
			}
		}
	}
	props["berth"] = own
}

// conceal takes out what the user of an instance tells its scripts and applications, which may hold
// secrets.
func conceal(inner map[string]any) {
	delete(inner, "setupScripts")
	apps, _ := inner["customServices"].([]any)
	for _, a := range apps {
		delete(asMap(a), "environmentVariables")
	}
}

func stampOrNil(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return stamp(t)
}

// instanceOp is what an instance's state says about an operation on it.
func instanceOp(it *berth.InstanceState) (status, failure string) {
	op := it.LastOperation
	switch {
	case op == nil || op.Status == "Succeeded":
		return "Succeeded", ""
	case op.Status == "InProgress":
		return "InProgress", ""
	}
	return "Failed", strings.Join(it.Errors, "\n")
}
