package attach

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dialout"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// Pauses between attempts to connect to a machine grow from the first to the second. Where an
// attempt was refused for good, only the second is waited: somebody has to change something first.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// Open decrypts the secrets of a compute; it is [auth.Keys.Open].
type Open func(sealed, bound string) ([]byte, error)

// Keep connects to the machines that the server has to connect to, and connects again, until ctx
// ends.
func (g *Gate) Keep(ctx context.Context, open Open) error {
	k := &keeper{gate: g, open: open, now: map[string]*kept{}}
	defer k.wait.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from := g.db.Rev()
	var all []*store.Doc
	if err := g.db.View(ctx, func(tx *store.Tx) (err error) {
		all, err = computes(tx)
		return err
	}); err != nil {
		return err
	}
	for _, d := range all {
		k.look(ctx, d)
	}
	w := g.db.Watch(ctx, from)
	for {
		batch, err := w.Next()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return berth.Errorf(berth.Unavailable, "reading computes again: %w", err)
		}
		for _, e := range batch {
			name, ok := strings.CutPrefix(e.Subject, "computes/")
			if !ok || e.Type != berth.EventResourcePut && e.Type != berth.EventResourceDel && e.Type != berth.EventComputes {
				continue
			}
			if err := k.reload(ctx, e.Workspace, name); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// computes are those of all workspaces.
func computes(tx *store.Tx) (out []*store.Doc, err error) {
	workspaces, err := tx.All(store.Query{Kind: "workspaces", NoBody: true})
	if err != nil {
		return nil, err
	}
	for _, w := range workspaces {
		docs, err := tx.All(store.Query{Workspace: w.Name, Kind: kindCompute})
		if err != nil {
			return nil, err
		}
		out = append(out, docs...)
	}
	return out, nil
}

// keeper keeps one connection for each compute that needs one.
type keeper struct {
	gate *Gate
	open Open
	wait sync.WaitGroup
	now  map[string]*kept // by compute
}

type kept struct {
	how, secrets string
	end          context.CancelFunc
}

// howReached is what a document says of how a machine is reached; tags and the like may change
// while it is connected.
func howReached(body []byte) string {
	var v struct {
		Properties struct {
			ResourceID string          `json:"resourceId"`
			Properties json.RawMessage `json:"properties"`
		} `json:"properties"`
	}
	if json.Unmarshal(body, &v) != nil {
		return string(body)
	}
	return v.Properties.ResourceID + " " + string(v.Properties.Properties)
}

// reload looks at a compute that changed.
func (k *keeper) reload(ctx context.Context, workspace, name string) error {
	var d *store.Doc
	err := k.gate.db.View(ctx, func(tx *store.Tx) (err error) {
		d, err = tx.Get(workspace, kindCompute, name, "")
		return err
	})
	if berth.CodeOf(err) == berth.NotFound {
		k.drop(workspace + "/" + strings.ToLower(name))
		return nil
	}
	if err == nil {
		k.look(ctx, d)
	}
	return err
}

func (k *keeper) drop(key string) {
	if was := k.now[key]; was != nil {
		was.end()
		delete(k.now, key)
	}
}

// look begins to keep a compute connected, begins again where how it is reached has changed, or
// leaves things as they are.
func (k *keeper) look(ctx context.Context, d *store.Doc) {
	g := k.gate
	if spec, err := berth.ReadPool(d.Body); err != nil || !spec.Attached() {
		return
	}
	to, err := g.targets.Of(driver.Compute{Workspace: d.Workspace, Name: d.Name, Body: d.Body})
	if err != nil {
		return // one without a driver, which was said when it was made
	}
	connector, ok := to.Driver().(driver.Connector)
	if _, accepts := to.Driver().(driver.Acceptor); !ok && accepts {
		return
	} else if !ok {
		connector = always(d.Name)
	}
	st, err := target.State(d)
	if err != nil {
		return
	}
	key := d.Workspace + "/" + strings.ToLower(d.Name)
	now := &kept{how: howReached(d.Body), secrets: string(st.Secrets)}
	if was := k.now[key]; was != nil && was.how == now.how && was.secrets == now.secrets {
		return
	}
	k.drop(key)
	cctx, cancel := context.WithCancel(ctx)
	now.end, k.now[key] = cancel, now
	k.wait.Go(func() {
		defer cancel()
		k.keep(cctx, d, to, connector)
	})
}

// always is the connection to a target whose driver has none to open: it stands once the target has
// said what it can do.
type always string

func (a always) Connect(context.Context, driver.Access) (*driver.Connection, error) {
	return &driver.Connection{Machine: string(a), Host: string(a)}, nil
}

func (always) Drop(error) {}

// keep keeps one compute connected until ctx ends.
func (k *keeper) keep(ctx context.Context, d *store.Doc, to *driver.Target, c driver.Connector) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := k.once(ctx, d, to, c)
		if ctx.Err() != nil {
			c.Drop(berth.Errorf(berth.Unavailable, "its connection settings changed, or it was detached"))
			return
		}
		if err == nil || time.Since(began) > lastPause { // it was connected
			pause = firstPause
		}
		switch berth.CodeOf(err) {
		case berth.Denied, berth.Invalid, berth.Unsupported:
			pause = lastPause
		case berth.NotFound: // it is gone, which its event says too
			return
		}
		rest(ctx, pause)
	}
}

// once connects, and returns when the connection has ended or could not be made. What is known of
// the machine is written down either way.
func (k *keeper) once(ctx context.Context, d *store.Doc, to *driver.Target, c driver.Connector) error {
	g := k.gate
	var st berth.ComputeState
	var conn *driver.Connection
	access := driver.Access{Properties: d.Body}
	err := g.db.View(ctx, func(tx *store.Tx) error {
		now, err := tx.Get(d.Workspace, kindCompute, d.Name, "")
		if err == nil && howReached(now.Body) != howReached(d.Body) {
			err = berth.Errorf(berth.Unavailable, "its connection settings changed") // its secrets are not for this address
		}
		if err != nil {
			return err
		}
		st, err = target.State(now)
		return err
	})
	if err != nil {
		return err
	}
	if st.Attached != nil {
		access.HostKeys, access.Machines = st.Attached.HostKeys, map[string]string{}
		for _, m := range st.Attached.Machines {
			access.Machines[m.Name] = m.Machine
		}
	}
	if access.Secrets, err = k.secrets(d, st); err == nil {
		conn, err = c.Connect(ctx, access)
	}
	if err == nil {
		err = g.attend(ctx, d, to, conn, berth.AttachedState{Machine: conn.Machine, Host: conn.Host, Version: conn.Version, HostKeys: conn.HostKeys, Session: berth.NewGUID()})
		if err != nil {
			c.Drop(err)
		}
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	g.log.Info("machine not reachable", "compute", d.Name, "err", err)
	if werr := g.unreached(ctx, d.Workspace, d.Name, dialout.Clean(err.Error(), 500)); werr != nil {
		return werr
	}
	return err
}

// secrets are those of a compute, by path.
func (k *keeper) secrets(d *store.Doc, st berth.ComputeState) (map[string]string, error) {
	if len(st.Secrets) == 0 {
		return nil, nil
	}
	var sealed string
	if err := json.Unmarshal(st.Secrets, &sealed); err != nil {
		return nil, err
	}
	b, err := k.open(sealed, d.Workspace+"/"+kindCompute+"/"+d.Name)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "the key or password of compute %s cannot be decrypted; attach it again", d.Name)
	}
	out := map[string]string{}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	for path, v := range all {
		if s, ok := v.(string); ok {
			out[path] = s
		}
	}
	return out, nil
}

// unreached writes down why a machine could not be connected to.
func (g *Gate) unreached(ctx context.Context, workspace, name, why string) error {
	return change(ctx, g.db, workspace, name, func(_ *store.Doc, st *berth.ComputeState) (string, error) {
		a := st.Attached
		if a == nil {
			a = &berth.AttachedState{}
			st.Attached = a
		}
		if !a.Connected && a.Why == why {
			return "", nil
		}
		if a.Connected || a.Since.IsZero() {
			a.Connected, a.Since = false, g.db.Now()
		}
		a.Why = why
		return "its machine could not be reached: " + why, nil
	})
}
