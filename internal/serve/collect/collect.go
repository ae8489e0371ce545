// Package collect keeps samples of the requests and answers of online deployments in data assets,
// for deployments that ask for it.
//
// A sample is a line of JSON, in the form of a CloudEvent as Azure's data collector writes it. They
// are gathered in memory, within bounds, and written as a new file in the folder of the data asset
// every half minute, when there are many, and when the server stops. One that is killed loses what
// it has not written.
package collect

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"path"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/store"
)

// Options is what a Collector is made of.
type Options struct {
	DB      *store.DB
	Blobs   *blob.Store
	Locator locate.Locator
	Log     *slog.Logger
}

const (
	// flushTime is how long a sample waits until it is written, and flushSize how many bytes of a
	// collection are.
	flushTime = 30 * time.Second
	flushSize = 1 << 20
	// maxWaiting bounds the bytes of all samples that wait. Further ones are dropped.
	maxWaiting = 32 << 20
)

// A Sample is one request and its answer. The bytes are the collector's from now on.
type Sample struct {
	Workspace, Endpoint, Deployment string
	User                            string // who made the deployment, and may write to the data assets
	Collecting                      *serve.Collecting
	Chance                          float64 // from 0 to 1: collections with a larger rate keep it
	ID, ClientID                    string
	Time                            time.Time
	Request, Response               []byte
	RequestType, ResponseType       string            // media types
	Headers                         map[string]string // of the request
	Status                          int               // of the model
}

// target is where samples of a collection of a deployment go: a folder of a data asset.
type target struct{ workspace, endpoint, deployment, user, collection, data, folder string }

// batch is the samples of a collection that wait.
type batch struct {
	lines   bytes.Buffer
	dropped int
}

// A Collector keeps samples. It is safe for concurrent use.
type Collector struct {
	o Options

	mu      sync.Mutex
	waiting map[target]*batch
	size    int
	full    chan struct{} // has room for one
	failed  map[target]string
}

// New returns a Collector that writes nothing until Run.
func New(o Options) *Collector {
	return &Collector{o: o, waiting: map[target]*batch{}, full: make(chan struct{}, 1), failed: map[target]string{}}
}

// Run writes samples until ctx ends, and then those that are left.
func (c *Collector) Run(ctx context.Context) error {
	t := time.NewTicker(flushTime)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-c.full:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			c.flush(last)
			return nil
		}
		c.flush(ctx)
	}
}

// Add takes a sample. It does not wait.
func (c *Collector) Add(s Sample) {
	for _, one := range s.Collecting.Collections {
		if s.Chance >= one.Rate {
			continue
		}
		line, err := s.event(one.Name)
		if err != nil {
			c.o.Log.Error("sample not encoded", "deployment", s.Deployment, "err", err)
			continue
		}
		c.add(target{s.Workspace, s.Endpoint, s.Deployment, s.User, one.Name, one.Data, folderOf(s.Collecting.Rolling, s.Time)}, line)
	}
}

func (c *Collector) add(t target, line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.waiting[t]
	if b == nil {
		b = &batch{}
		c.waiting[t] = b
	}
	if c.size+len(line) > maxWaiting {
		b.dropped++
		return
	}
	b.lines.Write(line)
	c.size += len(line)
	if b.lines.Len() >= flushSize {
		select {
		case c.full <- struct{}{}:
		default: // it is known already
		}
	}
}

// folderOf is the folder, below that of the data asset, of samples of a time.
func folderOf(rolling string, at time.Time) string {
	form := map[string]string{"minute": "2006/01/02/15/04", "day": "2006/01/02"}[rolling]
	if form == "" {
		form = "2006/01/02/15"
	}
	return at.UTC().Format(form)
}

// event is a sample as a line of JSON.
func (s Sample) event(collection string) ([]byte, error) {
	body, media := s.Request, s.RequestType
	if collection == serve.CollectResponse {
		body, media = s.Response, s.ResponseType
	}
	v := map[string]any{
		"specversion": "1.0", "id": berth.NewGUID(), "type": "azureml.inference." + collection, "time": s.Time.UTC().Format(time.RFC3339Nano),
		"source":          s.Workspace + "/" + serve.Collection + "/" + s.Endpoint + "/deployments/" + s.Deployment,
		"datacontenttype": media, "xrequestid": s.ID, "correlationid": s.ID, "modelversion": "default", "agent": "berth/" + berth.Version,
	}
	if s.ClientID != "" {
		v["correlationid"] = s.ClientID
	}
	switch {
	case json.Valid(body):
		v["data"] = json.RawMessage(body)
	case utf8.Valid(body):
		v["data"] = string(body)
	default:
		v["data_base64"] = base64.StdEncoding.EncodeToString(body)
	}
	if collection == serve.CollectResponse {
		v["statuscode"] = s.Status
	} else if len(s.Headers) > 0 {
		v["headers"] = s.Headers
	}
	line, err := json.Marshal(v)
	return append(line, '\n'), err
}

// flush writes everything that waits.
func (c *Collector) flush(ctx context.Context) {
	c.mu.Lock()
	all := c.waiting
	c.waiting, c.size = map[target]*batch{}, 0
	c.mu.Unlock()
	for t, b := range all {
		err := c.write(ctx, t, b)
		c.note(ctx, t, b, err)
	}
}

// write writes the samples of a collection as a file.
func (c *Collector) write(ctx context.Context, t target, b *batch) error {
	if b.lines.Len() == 0 {
		return nil
	}
	var place locate.Place
	err := c.o.DB.View(ctx, func(tx *store.Tx) error {
		w, err := tx.Get("", "workspaces", t.workspace, "")
		if err != nil {
			return err
		}
		ws, err := locate.WorkspaceOf(w)
		if err != nil {
			return err
		}
		place, err = c.o.Locator.Resolve(tx, ws, t.user, t.data)
		return err
	})
	if err != nil {
		return err
	}
	if !place.Ours() {
		return berth.Errorf(berth.Unsupported, "the data asset %s is not in this server's own storage", t.data)
	}
	name := path.Join(place.Name, t.folder, berth.NewGUID()+".jsonl")
	_, err = c.o.Blobs.Put(blob.WithUser(ctx, t.user), place.Container, name, &b.lines, blob.PutOptions{ContentType: "application/jsonl", IfNoneMatch: true})
	return err
}

// note says in the history of a deployment, once for each reason, why samples of it are lost.
func (c *Collector) note(ctx context.Context, t target, b *batch, err error) {
	why := ""
	switch {
	case err != nil:
		why = "samples of " + t.collection + " are not kept: " + err.Error()
	case b.dropped > 0:
		why = "some samples of " + t.collection + " are not kept: more came than could be written"
	}
	t.folder = ""
	c.mu.Lock()
	known := c.failed[t] == why
	if c.failed[t] = why; why == "" {
		delete(c.failed, t)
	}
	c.mu.Unlock()
	if known || why == "" {
		return
	}
	c.o.Log.Warn("samples not kept", "endpoint", t.endpoint, "deployment", t.deployment, "err", why)
	err = c.o.DB.Update(ctx, func(tx *store.Tx) error {
		tx.Emit(berth.Event{
			Workspace: t.workspace, Subject: serve.Collection + "/" + t.endpoint + "/deployments/" + t.deployment,
			Type: berth.EventDeployment, Reason: why,
		})
		return nil
	})
	if err != nil {
		c.o.Log.Warn("history of a deployment not written", "endpoint", t.endpoint, "err", err)
	}
}
