package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berthml/berth"
)

// Job is the typed view of a job: what lists and watchers show.
type Job struct {
	Rev        berth.Rev `json:"-"` // of the document, where it was read by itself
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Properties struct {
		JobType        string                     `json:"jobType"`
		DisplayName    string                     `json:"displayName"`
		ExperimentName string                     `json:"experimentName"`
		Status         berth.JobStatus            `json:"status"`
		Command        string                     `json:"command"`
		ComputeID      string                     `json:"computeId"`
		Outputs        map[string]berth.JobOutput `json:"outputs"`
		Berth          berth.JobState             `json:"berth"`
	} `json:"properties"`
	SystemData struct {
		CreatedAt time.Time `json:"createdAt"`
		CreatedBy string    `json:"createdBy"`
	} `json:"systemData"`
}

// Status is the job's status.
func (j *Job) Status() berth.JobStatus { return j.Properties.Status }

// State is the server's own state of the job.
func (j *Job) State() berth.JobState { return j.Properties.Berth }

// JobQuery selects jobs. The zero value is every job that is not archived.
type JobQuery struct {
	View   string // ActiveOnly, ArchivedOnly, All
	Status []berth.JobStatus
	Type   string
	Mine   bool // only those the caller created
	// User, Experiment and Tag (NAME or NAME=VALUE) select the jobs of one.
	User, Experiment, Tag string
	// Since leaves out jobs that were created earlier.
	Since time.Time
	Max   int // 0 is no limit
}

// Values returns the query as URL parameters.
func (q JobQuery) Values() url.Values {
	v := url.Values{}
	if q.View != "" {
		v.Set("listViewType", q.View)
	}
	if len(q.Status) > 0 {
		all := ""
		for i, s := range q.Status {
			if i > 0 {
				all += ","
			}
			all += string(s)
		}
		v.Set("status", all)
	}
	if q.Type != "" {
		v.Set("jobType", q.Type)
	}
	for key, value := range map[string]string{"createdBy": q.User, "experimentName": q.Experiment, "tag": q.Tag} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if q.Mine {
		v.Set("createdBy", "me")
	}
	if q.Max > 0 && q.Max <= 200 {
		v.Set("$top", strconv.Itoa(q.Max))
	}
	return v
}

// Jobs iterates over jobs, newest first.
func (c *Client) Jobs(ctx context.Context, q JobQuery) iter.Seq2[*Job, error] {
	return func(yield func(*Job, error) bool) {
		n := 0
		for j, err := range list[*Job](ctx, c, c.path("jobs"), q.Values()) {
			if err == nil && j == nil {
				err = berth.Errorf(berth.Internal, "%s answered with a list that contains null instead of a job", c.where())
			}
			if err == nil && j.SystemData.CreatedAt.Before(q.Since) {
				return
			}
			if !yield(j, err) || err != nil {
				return
			}
			if n++; n == q.Max {
				return
			}
		}
	}
}

// Job reads one job.
func (c *Client) Job(ctx context.Context, name string) (*Job, error) {
	var j Job
	rev, err := c.callRev(ctx, http.MethodGet, c.path("jobs", name), nil, &j)
	j.Rev = rev
	return &j, err
}

// Children iterates over the names of a job's children.
func (c *Client) Children(ctx context.Context, name string) iter.Seq2[string, error] {
	type run struct {
		ID string `json:"runId"`
	}
	return func(yield func(string, error) bool) {
		for r, err := range list[run](ctx, c, "/history/v1.0"+c.path("runs", name, "children"), nil) {
			if !yield(r.ID, err) {
				return
			}
		}
	}
}

// Submit creates a job and returns its document and the revision at which it was created. If a job
// with this name exists, it is a conflict, not an update.
func (c *Client) Submit(ctx context.Context, name string, body json.RawMessage) (Document, berth.Rev, error) {
	var d Document
	var rev berth.Rev
	first := true
	err := c.persist(ctx, http.MethodPut, func() (err error) {
		d, rev, err = c.submit(ctx, name, body)
		if berth.CodeOf(err) == berth.Conflict && !first {
			// The attempt before may have arrived although its answer did not.
			rev = 0
			d, err = c.Get(ctx, "jobs", name)
		}
		first = false
		return err
	})
	return d, rev, err
}

func (c *Client) submit(ctx context.Context, name string, body json.RawMessage) (d Document, rev berth.Rev, err error) {
	req, err := c.request(ctx, http.MethodPut, c.path("jobs", name), body)
	if err != nil {
		return Document{}, 0, err
	}
	req.Header.Set("If-None-Match", "*")
	rev, err = c.answer(req, &d)
	return d, rev, err
}

// Cancel asks a job to end. A job that has ended is a conflict.
func (c *Client) Cancel(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodPost, c.path("jobs", name, "cancel")+"?strict=true", nil, nil)
}

// CancelJobs asks many jobs to end in one call.
func (c *Client) CancelJobs(ctx context.Context, q berth.CancelJobs) (out berth.CanceledJobs, err error) {
	err = c.call(ctx, http.MethodPost, c.path("cancelJobs"), q, &out)
	return out, err
}

// Tasks is the tasks of a job, the newest attempt last.
func (c *Client) Tasks(ctx context.Context, name string) ([]*berth.Task, error) {
	var p page[*berth.Task]
	err := c.call(ctx, http.MethodGet, c.path("jobs", name, "tasks"), nil, &p)
	return p.Value, err
}

// Explain asks why a job is in its current state.
func (c *Client) Explain(ctx context.Context, name string) (*berth.Explanation, error) {
	var e berth.Explanation
	return &e, c.call(ctx, http.MethodGet, c.path("jobs", name, "explain"), nil, &e)
}

// Token describes a token; Secret is set only by CreateToken.
type Token struct {
	Name    string    `json:"name"`
	User    string    `json:"user,omitempty"`
	Role    string    `json:"role,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	Secret  string    `json:"token,omitempty"`
}

// Tokens lists every token, without secrets.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	var p page[Token]
	err := c.call(ctx, http.MethodGet, "/tokens", nil, &p)
	return p.Value, err
}

// CreateToken creates a token and returns it with its secret.
func (c *Client) CreateToken(ctx context.Context, t Token) (Token, error) {
	made := t
	err := c.call(ctx, http.MethodPost, "/tokens", t, &made)
	return made, err
}

// RevokeToken revokes a token.
func (c *Client) RevokeToken(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/tokens/"+url.PathEscape(name), nil, nil)
}
