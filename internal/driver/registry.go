package driver

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/berthml/berth"
)

// Type is a type of compute: how its driver is opened.
type Type struct {
	Open Open
	// Shared is the name of the one target that all computes of this type, and of others with the
	// same name, use; if empty, each compute has its own target.
	Shared string
	// Consent is what a compute does that the operator has to allow, as a sentence; empty where
	// nobody has to be asked.
	Consent string
	// Asks says whether the compute of a document does that; nil is always.
	Asks func(document []byte) bool
	// Check refuses a compute's document that could never work, or that may not replace old, which
	// is nil for a new compute. Nil accepts all.
	Check func(old, document []byte) error
}

// Compute is a compute as its document describes it.
type Compute struct {
	Workspace string // key
	Name      string
	Body      json.RawMessage
}

// Registry opens the targets of computes, each once.
type Registry struct {
	types func(driver string) (Type, bool)
	// config is what a target is opened with: name is a shared one, or the Key of a compute that
	// has a target of its own.
	config func(name string) Config
	log    *slog.Logger

	mu     sync.Mutex
	open   map[string]*Target
	closed bool
}

// NewRegistry returns a registry of the drivers that types knows.
func NewRegistry(types func(driver string) (Type, bool), config func(name string) Config, log *slog.Logger) *Registry {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Registry{types: types, config: config, log: log, open: map[string]*Target{}}
}

// Provided is the driver of clusters whose nodes an attached compute makes.
const Provided = "provided"

// typeOf finds the type of a compute, and the name of its driver.
func (r *Registry) typeOf(c Compute) (t Type, name string, err error) {
	v, err := berth.ReadPool(c.Body)
	if err != nil {
		return Type{}, "", berth.Errorf(berth.Invalid, "compute %s cannot be read: %w", c.Name, err)
	}
	if name = v.Driver(c.Name); v.Provider != "" {
		name = Provided
	}
	t, ok := r.types(name)
	if !ok {
		return t, name, berth.Errorf(berth.Unsupported, "this server has no driver for computes of type %s (%q)", v.ComputeType, name)
	}
	return t, name, nil
}

// Check refuses a compute that this server could never run tasks on, or that cannot replace old,
// which is nil for a new one.
func (r *Registry) Check(c Compute, old json.RawMessage) error {
	t, name, err := r.typeOf(c)
	if err != nil {
		return err
	}
	if old != nil {
		if _, was, err := r.typeOf(Compute{Workspace: c.Workspace, Name: c.Name, Body: old}); err != nil || was != name {
			return berth.Errorf(berth.Conflict, "how compute %s is connected cannot change; detach it, or choose another name", c.Name)
		}
	}
	if err := r.checkDriver(t, name, c); err != nil || t.Check == nil {
		return err
	}
	return t.Check(old, c.Body)
}

// checkDriver refuses a compute whose driver needs what the server does for its own types only.
func (r *Registry) checkDriver(t Type, name string, c Compute) error {
	if t.Shared != "" {
		return checkShared(name, c)
	}
	d, err := r.openOwn(t, name, c)
	if err != nil {
		return err
	}
	_, scales := d.(Scaler)
	if x, ok := d.(Describer); ok {
		scales = x.Describe().Scales
	}
	_, accepts := d.(Acceptor)
	_, connects := d.(Connector)
	if c, ok := d.(io.Closer); ok {
		err = c.Close()
	}
	switch {
	case scales && name != Provided:
		return berth.Errorf(berth.Invalid, "compute %s: driver %q makes nodes, and the server makes nodes for computes of type %s only; attach what is there already", c.Name, name, berth.TypeCluster)
	case accepts && !connects && name != berth.ConnectionAgent:
		return berth.Errorf(berth.Invalid, "compute %s: driver %q waits for its machine to connect, which only machines with an agent can do; attach it with the connection %s", c.Name, name, berth.ConnectionAgent)
	}
	return err
}

// checkShared refuses a compute that would reach a shared target without being of a type that the
// server looks after: limits, prices and quotas of that target would not hold for it.
func checkShared(name string, c Compute) error {
	spec, err := berth.ReadPool(c.Body)
	if err != nil || spec.Attached() && !berth.IsLocal(c.Name) {
		return berth.Errorf(berth.Invalid, "compute %s: %q is not a machine that can be attached", c.Name, name)
	}
	return nil
}

// openOwn opens the driver of a compute that has a target of its own.
func (r *Registry) openOwn(t Type, name string, c Compute) (Driver, error) {
	cfg := r.config(Key(c.Workspace, strings.ToLower(c.Name)))
	if t.Consent != "" && cfg.Consents[name] == "" && (t.Asks == nil || t.Asks(c.Body)) {
		return nil, berth.Errorf(berth.Denied, "%s, and the operator has not allowed that: `%s: true` in berth.yaml does", t.Consent, name)
	}
	cfg.Name, cfg.Properties = c.Name, c.Body
	if v, err := berth.ReadPool(c.Body); err == nil && v.Provider != "" {
		cfg.Provider = func() (Provider, error) { return r.provider(c.Workspace, v.Provider) }
	}
	return t.Open(cfg)
}

// provider is the driver of an attached compute that makes nodes. It is opened by those who keep it
// connected.
func (r *Registry) provider(workspace, name string) (Provider, error) {
	r.mu.Lock()
	t := r.open[own(workspace, name)]
	r.mu.Unlock()
	if t == nil {
		return nil, berth.Errorf(berth.Unavailable, "compute %s, which makes its nodes, is not there", name)
	}
	p, ok := t.d.(Provider)
	if !ok {
		return nil, berth.Errorf(berth.Unsupported, "compute %s cannot make nodes", name)
	}
	return p, nil
}

// CheckProvider refuses a compute that cannot make the nodes of a cluster.
func (r *Registry) CheckProvider(c Compute) error {
	t, name, err := r.typeOf(c)
	if err != nil {
		return err
	}
	if t.Shared == "" && name != Provided {
		d, err := r.openOwn(t, name, c)
		if err != nil {
			return err
		}
		_, ok := d.(Provider)
		if c, closes := d.(io.Closer); closes {
			err = c.Close()
		}
		if ok || err != nil {
			return err
		}
	}
	return berth.Errorf(berth.Invalid, "tag %s: compute %s cannot make nodes; computes of type slurm or kubernetes can", berth.TagProvider, c.Name)
}

// Of returns the target of a compute. Opening it does no I/O that can block.
func (r *Registry) Of(c Compute) (*Target, error) {
	t, name, err := r.typeOf(c)
	if err != nil {
		return nil, err
	}
	if t.Shared != "" {
		return r.shared(t)
	}
	return r.get(own(c.Workspace, c.Name), func() (*Target, error) {
		d, err := r.openOwn(t, name, c)
		if err != nil {
			return nil, err
		}
		return NewTarget(c.Name, d, r.log), nil
	})
}

// Shared returns the target of a name that several types share.
func (r *Registry) Shared(driver string) (*Target, error) {
	t, ok := r.types(driver)
	if !ok || t.Shared == "" {
		return nil, berth.Errorf(berth.Unsupported, "this server has no driver %q that computes share", driver)
	}
	return r.shared(t)
}

func (r *Registry) shared(t Type) (*Target, error) {
	return r.get(t.Shared, func() (*Target, error) {
		cfg := r.config(t.Shared)
		cfg.Name = t.Shared
		d, err := t.Open(cfg)
		if err != nil {
			return nil, err
		}
		return NewTarget(t.Shared, d, r.log), nil
	})
}

// get is the target of a key, made by open the first time.
func (r *Registry) get(key string, open func() (*Target, error)) (*Target, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.open[key]; t != nil {
		return t, nil
	}
	if r.closed {
		return nil, berth.Errorf(berth.Unavailable, "the server is shutting down")
	}
	t, err := open()
	if err == nil {
		r.open[key] = t
	}
	return t, err
}

// Forget closes the target of a compute that has its own. Tasks keep running.
func (r *Registry) Forget(workspace, name string) error {
	r.mu.Lock()
	t := r.open[own(workspace, name)]
	delete(r.open, own(workspace, name))
	r.mu.Unlock()
	if t == nil {
		return nil
	}
	return t.Close()
}

// Close closes all targets. Tasks keep running.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	open := r.open
	r.open = map[string]*Target{}
	r.mu.Unlock()
	var err error
	for _, t := range open {
		err = errors.Join(err, t.Close())
	}
	return err
}

// own is the key of a target that belongs to one compute; a slash is in no shared name.
func own(workspace, name string) string { return workspace + "/" + strings.ToLower(name) }
