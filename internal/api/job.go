package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/batch"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/ordered"
	"github.com/berthml/berth/internal/space"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// jobCall is a call that submits, checks or deletes jobs.
type jobCall struct{ *call }

// jobMutable are the properties a PUT on an existing job changes; it never runs the job again.
var jobMutable = []string{"tags", "displayName", "description", "isArchived", "properties"}

// putJob submits a job, or edits one that exists.
func putJob(c *call, r *resource, name string) error {
	if err := berth.CheckName(r.Noun, name); err != nil {
		return err
	}
	if c.r.Method == http.MethodPatch {
		return methodError(c)
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	props, err := object(body, "properties")
	if err != nil {
		return err
	}
	if err := oneReading(body, props); err != nil {
		return err
	}
	if err := checkForm(r, body); err != nil {
		return err
	}
	w := submission{name: name, body: body, props: props}
	if w.room, err = c.s.quota.Room(c.ctx(), c.ws.Key()); err != nil {
		return err
	}
	stripReadOnly(body)
	jobDefaults(props, name)
	if k, ok := c.s.jobs.composite(text(props, "jobType")).(kind.Completer); ok {
		k.Defaults(props)
	}
	if w.raw, err = ordered.Marshal(body, c.received); err != nil {
		return err
	}
	if err := checkTables(c, props); err != nil {
		return err
	}
	var d *store.Doc
	created := false
	err = c.s.DB.Update(c.ctx(), func(tx *store.Tx) (err error) {
		d, created, err = jobCall{c}.writeJob(tx, w)
		return err
	})
	if err != nil {
		return err
	}
	if !created {
		return c.sendDoc(http.StatusOK, r, d)
	}
	c.w.Header().Set("Location", c.s.BaseURL+c.r.URL.RequestURI())
	if err := c.addServerFields(r, d, body); err != nil { // what was stored, without reading it again
		return err
	}
	return c.sendBody(http.StatusCreated, d, body)
}

// submission is a job that somebody sent.
type submission struct {
	name        string
	body, props map[string]any
	raw         []byte // body, encoded
	room        space.Room
	// Of an invocation, see berth.JobState.
	invokes, asked string
}

// writeJob keeps a new job, or what may change of one that there is.
func (c jobCall) writeJob(tx *store.Tx, w submission) (d *store.Doc, created bool, err error) {
	d, err = tx.Get(c.ws.Key(), "jobs", w.name, "")
	created = berth.CodeOf(err) == berth.NotFound
	switch {
	case err != nil && !created:
		return nil, false, err
	case !created && c.r.Header.Get("If-None-Match") == "*":
		return nil, false, berth.Errorf(berth.Conflict, "a job named %s exists; choose another name", w.name)
	}
	if err := c.ifMatch(tx, "jobs", w.name, ""); err != nil {
		return nil, false, err
	}
	if created {
		if err := checkJobName(w.name); err != nil {
			return nil, false, err
		}
		if err := w.room.Full(c.ws.Name); err != nil {
			return nil, false, err
		}
		d, err = c.submit(tx, w)
		return d, true, err
	}
	return d, false, editJob(c.call, tx, d, func(old map[string]any) {
		for _, k := range jobMutable {
			if v, ok := w.props[k]; ok {
				old[k] = v
			}
		}
	})
}

// checkJobName refuses names of folders that lie beside those of jobs.
func checkJobName(name string) error {
	if strings.EqualFold(name, "versions") || strings.EqualFold(name, "ExperimentRun") {
		return berth.Errorf(berth.Invalid, "a job cannot be called %s: the server keeps other things in the folder of that name", name)
	}
	return nil
}

// submit checks a new job and keeps it.
func (c jobCall) submit(tx *store.Tx, w submission) (d *store.Doc, err error) {
	if err := track.CheckJob(tx, c.ws.Key(), w.name, c.who.User); err != nil {
		return nil, err
	}
	if err := track.CheckExperiment(tx, c.ws.Key(), text(w.props, "experimentName")); err != nil {
		return nil, err
	}
	st := berth.JobState{Times: berth.Waterfall{Submitted: c.now}, Reason: "accepted", Admin: c.who.Role == auth.Admin, Invokes: w.invokes, Asked: w.asked}
	if k := c.s.jobs.composite(text(w.props, "jobType")); k != nil {
		if err = noServices(w.props); err == nil {
			err = c.checkChildren(tx, k, w.name, w.props, &st)
		}
		if err == nil {
			w.raw, err = ordered.Marshal(w.body, c.received, c.adoptedOrder(tx, w.props)) // it may have got its steps only now
		}
	} else if st.Compute, err = checkJob(c.call, tx, w.props); err == nil {
		err = c.reserve(tx, st.Compute, w.props, w.name, &st)
	}
	if err != nil {
		return nil, err
	}
	own, err := json.Marshal(st)
	if err != nil {
		return nil, err
	}
	d = &store.Doc{
		Workspace: c.ws.Key(), Kind: "jobs", Name: w.name, Status: string(berth.NotStarted), CreatedBy: c.who.User,
		Parent: text(w.props, "experimentName"), Body: w.raw, Own: own,
	}
	d.Archived, _ = w.props["isArchived"].(bool)
	if err := tx.Insert(d); err != nil {
		return nil, err
	}
	if err := space.NoteTags(tx, d); err != nil {
		return nil, err
	}
	tx.Emit(berth.Event{Workspace: c.ws.Key(), Subject: "jobs/" + d.Name, Type: berth.EventJobCreated, Reason: "submitted by " + c.who.User})
	if says := w.room.Warning(c.ws.Name); says != "" {
		tx.Emit(berth.Event{Workspace: c.ws.Key(), Subject: "jobs/" + d.Name, Type: berth.EventJobWarning, Reason: says})
	}
	return d, nil
}

// defaultModes writes the modes the service writes when the client gave none.
func defaultModes(props map[string]any) {
	if in, ok := props["inputs"].(map[string]any); ok {
		for _, v := range in {
			if m, ok := v.(map[string]any); ok && !strings.EqualFold(text(m, "jobInputType"), "literal") && m["jobInputType"] != nil {
				setDefault(m, "mode", "ReadOnlyMount")
			}
		}
	}
	if out, ok := props["outputs"].(map[string]any); ok {
		for _, v := range out {
			if m, ok := v.(map[string]any); ok && m["jobOutputType"] != nil {
				setDefault(m, "mode", "ReadWriteMount")
			}
		}
	}
}

// editJob changes a job's document without touching what it runs.
func editJob(c *call, tx *store.Tx, d *store.Doc, edit func(props map[string]any)) error {
	if err := c.madeIt(c.s.docs.row("jobs"), d, "change"); err != nil {
		return err
	}
	m := map[string]any{}
	if err := decodeJSON(d.Body, &m); err != nil {
		return err
	}
	c.sealOlder(d, m)
	props, err := object(m, "properties")
	if err != nil {
		return err
	}
	edit(props)
	if err := checkLimits(m); err != nil {
		return err
	}
	d.Archived, _ = props["isArchived"].(bool)
	if d.Body, err = ordered.Marshal(m, d.Body, c.received); err != nil {
		return err
	}
	tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "jobs/" + d.Name, Type: berth.EventJobChanged, Reason: "edited by " + c.who.User})
	if err := space.NoteTags(tx, d); err != nil {
		return err
	}
	return tx.Save(d)
}

// checkJob refuses what could not run, and says where the job goes.
func checkJob(c *call, tx *store.Tx, props map[string]any) (compute string, err error) {
	k, err := c.s.KindOf(text(props, "jobType"))
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(props)
	if err != nil {
		return "", err
	}
	if err := k.Validate(raw); err != nil {
		return "", err
	}
	if compute, err = checkTarget(c, tx, raw); err != nil {
		return "", err
	}
	if err := (jobCall{c}).checkServices(tx, compute, props); err != nil {
		return "", err
	}
	return compute, jobCall{c}.checkReferences(tx, props, false)
}

// checkReferences refuses a job that names what is not there. Of one that is only planned the code
// need not be there, nor what a client would make before it submits it.
func (c jobCall) checkReferences(tx *store.Tx, props map[string]any, planned bool) error {
	if err := c.mayUse(tx, props); err != nil {
		return err
	}
	for key, coll := range map[string]string{"codeId": "codes", "environmentId": "environments"} {
		id := text(props, key)
		if id == "" || planned && (coll == "codes" || strings.HasPrefix(id, placeholder)) {
			continue
		}
		ref, err := berth.ParseRef(id, coll)
		if err != nil {
			return berth.Errorf(berth.Invalid, "properties.%s: %w", key, err)
		}
		if _, ok := c.willMake(ref, coll); ok {
			continue
		}
		if err := c.checkAsset(tx, coll, ref); err != nil {
			return berth.Errorf(berth.Invalid, "properties.%s: %w", key, err)
		}
	}
	modes := map[string]string{}
	for name, v := range asMap(props["inputs"]) {
		if m := asMap(v); text(m, "uri") != "" {
			modes[name] = text(m, "mode")
		}
	}
	if _, err := berth.StreamedInputs(text(asMap(props["properties"]), berth.StreamProperty), modes); err != nil {
		return err
	}
	for _, side := range []string{"inputs", "outputs"} {
		for name, v := range asMap(props[side]) {
			if err := c.checkData(tx, side, name, asMap(v)); err != nil {
				return err
			}
		}
	}
	return nil
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// cancelJob asks a job to end.
func cancelJob(c *call, r *resource, name, _ string) error {
	var d *store.Doc
	err := c.s.DB.Update(c.ctx(), func(tx *store.Tx) (err error) {
		if d, err = tx.Get(c.ws.Key(), "jobs", name, ""); err != nil {
			return c.missing(err, r, name, "")
		}
		if err := c.madeIt(r, d, "cancel"); err != nil {
			return err
		}
		return job.Cancel(tx, d, job.Stop{Event: "cancel requested by " + c.who.User})
	})
	if err != nil {
		return err
	}
	if berth.JobStatus(d.Status).Terminal() {
		if c.q.Get("strict") != "" {
			return berth.Errorf(berth.Conflict, "job %s has ended already: it is %s", name, d.Status)
		}
		return c.empty(http.StatusOK)
	}
	c.operation("cancel", c.docID(r, d))
	return c.empty(http.StatusAccepted)
}

func isCommand(props map[string]any) bool {
	return strings.EqualFold(text(props, "jobType"), "Command")
}

// shapeJob adds the status, the links and the state we keep.
func shapeJob(c *call, d *store.Doc, p map[string]any) {
	p["status"] = d.Status
	p["isArchived"] = d.Archived
	for _, k := range []string{"tags", "properties", "inputs", "outputs"} {
		setDefault(p, k, map[string]any{})
	}
	texts(p, "tags", "properties", "environmentVariables")
	orNull(p, "description", "computeId", "componentId", "identity", "notificationSetting", "parentJobName")
	if k := c.s.jobs.composite(text(p, "jobType")); k != nil || isStep(d) {
		if st, err := job.State(d); err == nil {
			lineage(asMap(p["properties"]), st, k)
			if st.Parent != "" {
				p["parentJobName"] = st.Parent
			}
		}
	}
	if jobs := asMap(p["jobs"]); jobs[batch.Step] != nil && text(asMap(jobs[batch.Step]), "componentId") == "" && bytes.Contains(d.Own, []byte(`"invokes":"`)) {
		p["jobs"] = map[string]any{} // Azure's clients cannot read a step without a component
	}
	if isCommand(p) {
		orNull(p, "codeId", "distribution", "limits")
		setDefault(p, "environmentVariables", map[string]any{})
		setDefault(p, "resources", map[string]any{})
		if res, ok := p["resources"].(map[string]any); ok {
			setDefault(res, "instanceCount", 1)
		}
	}
	p["services"] = c.shownServices(d, asMap(p["services"]))
	// "berth" is ours, a berth.JobState: Azure has no word for why a job waits, how it ended and
	// where its time went.
	if len(d.Own) > 0 {
		p["berth"] = d.Own
	}
}
