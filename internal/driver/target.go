package driver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/berthml/berth"
)

// Target is a driver as the rest of Berth uses it: each call has a deadline, is tried again while
// the target is Unavailable, and is logged when it is slow. Errors name the target.
type Target struct {
	name string
	d    Driver
	log  *slog.Logger
	// Limits; see NewTarget.
	deadline time.Duration
	attempts int
	backoff  time.Duration
}

// NewTarget wraps d, the driver of the compute called name. A call may take 30 seconds and is tried
// three times.
func NewTarget(name string, d Driver, log *slog.Logger) *Target {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Target{name: name, d: d, log: log, deadline: 30 * time.Second, attempts: 3, backoff: 50 * time.Millisecond}
}

// Driver is the driver underneath, for looking at its optional interfaces.
func (t *Target) Driver() Driver { return t.d }

// Probe is [Driver.Probe].
func (t *Target) Probe(ctx context.Context) (info Info, err error) {
	err = t.do(ctx, "probe", "", func(ctx context.Context) error {
		info, err = t.d.Probe(ctx)
		return err
	})
	return info, err
}

// Start is [Driver.Start].
func (t *Target) Start(ctx context.Context, l berth.Launch) (h Handle, err error) {
	sent := false
	err = t.do(ctx, "start", string(l.Task), func(ctx context.Context) error {
		h, err = t.d.Start(ctx, l)
		u, unsent := errors.AsType[*Unsent](err)
		if unsent && sent { // but an earlier attempt may have come through
			return u.Err
		}
		sent = !unsent
		return err
	})
	return h, err
}

// StartGang is [Ganger.StartGang], or Unsupported.
func (t *Target) StartGang(ctx context.Context, all []berth.Launch) (hs []Handle, err error) {
	g, ok := t.d.(Ganger)
	if !ok {
		return nil, t.cannot("run jobs of several nodes")
	}
	err = t.do(ctx, "start gang", string(all[0].Task), func(ctx context.Context) error {
		hs, err = g.StartGang(ctx, all)
		return err
	})
	if err == nil && len(hs) != len(all) {
		err = t.wrap("start gang", berth.Errorf(berth.Internal, "%d tasks have %d handles", len(all), len(hs)))
	}
	return hs, err
}

// Turn is [Turner.Turn], or Unsupported. The runner asks again itself.
func (t *Target) Turn(ctx context.Context, id berth.TaskID, ask berth.Turn) (berth.TurnAnswer, error) {
	if d, ok := t.d.(Turner); ok {
		answer, err := d.Turn(ctx, id, ask)
		return answer, t.wrap("turn", err)
	}
	return berth.TurnAnswer{Task: berth.NoTurn}, t.cannot("give runners several tasks")
}

// Observe is [Driver.Observe].
func (t *Target) Observe(ctx context.Context) (all []Observed, err error) {
	err = t.do(ctx, "observe", "", func(ctx context.Context) error {
		all, err = t.d.Observe(ctx)
		return err
	})
	return all, err
}

// Stop is [Driver.Stop].
func (t *Target) Stop(ctx context.Context, h Handle, s Stop) error {
	return t.do(ctx, "stop", string(h), func(ctx context.Context) error { return t.d.Stop(ctx, h, s) })
}

// Remove is [Driver.Remove].
func (t *Target) Remove(ctx context.Context, h Handle) error {
	return t.do(ctx, "remove", string(h), func(ctx context.Context) error { return t.d.Remove(ctx, h) })
}

// Watch is [Watcher.Watch], or Unsupported.
func (t *Target) Watch(ctx context.Context) (<-chan struct{}, error) {
	if w, ok := t.d.(Watcher); ok {
		return w.Watch(ctx)
	}
	return nil, t.cannot("tell of changes")
}

// Dial is [Dialer.Dial], or Unsupported.
func (t *Target) Dial(ctx context.Context, h Handle, port int) (net.Conn, error) {
	if d, ok := t.d.(Dialer); ok {
		c, err := d.Dial(ctx, h, port)
		return c, t.wrap("dial", err)
	}
	return nil, t.cannot("reach ports of tasks")
}

// Exec is [Execer.Exec], or Unsupported.
func (t *Target) Exec(ctx context.Context, h Handle, c Command) (int, error) {
	if e, ok := t.d.(Execer); ok {
		code, err := e.Exec(ctx, h, c)
		return code, t.wrap("exec", err)
	}
	return 0, t.cannot("run commands beside tasks")
}

// Log is [Logger.Log], or Unsupported.
func (t *Target) Log(ctx context.Context, h Handle, offset int64) (io.ReadCloser, error) {
	if l, ok := t.d.(Logger); ok {
		r, err := l.Log(ctx, h, offset)
		return r, t.wrap("log", err)
	}
	return nil, t.cannot("read logs of tasks")
}

// addTime is how long a node may take to be made.
const addTime = 2 * time.Minute

// AddNode is [Scaler.AddNode], or Unsupported. It is tried once: whoever wants the node decides
// whether to try again.
func (t *Target) AddNode(ctx context.Context, n NodeSpec) error {
	s, ok := t.d.(Scaler)
	if !ok {
		return t.cannot("make nodes")
	}
	one := *t
	one.attempts, one.deadline = 1, addTime
	return one.do(ctx, "add node", n.Name, func(ctx context.Context) error { return s.AddNode(ctx, n) })
}

// RemoveNode is [Scaler.RemoveNode], or Unsupported.
func (t *Target) RemoveNode(ctx context.Context, name string) error {
	s, ok := t.d.(Scaler)
	if !ok {
		return t.cannot("remove nodes")
	}
	return t.do(ctx, "remove node", name, func(ctx context.Context) error { return s.RemoveNode(ctx, name) })
}

// Close lets go of what the driver holds, where it holds something. Tasks run on.
func (t *Target) Close() error {
	if c, ok := t.d.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (t *Target) cannot(what string) error {
	return berth.Errorf(berth.Unsupported, "compute %s cannot %s", t.name, what)
}

func (t *Target) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	var e *berth.Error
	if errors.As(err, &e) {
		return &berth.Error{Code: e.Code, Wire: e.Wire, Msg: "compute " + t.name + ": " + err.Error(), Err: err}
	}
	return berth.Errorf(berth.Internal, "compute %s: %s: %w", t.name, op, err)
}

// do calls f with a deadline until it succeeds, fails for good, or the attempts are used up.
func (t *Target) do(ctx context.Context, op, subject string, f func(context.Context) error) error {
	began := time.Now()
	var err error
	for i := range t.attempts {
		if i > 0 {
			t.log.Debug("driver call tried again", "compute", t.name, "op", op, "subject", subject, "err", err)
			if !pause(ctx, t.backoff<<(i-1)) {
				break
			}
		}
		c, cancel := context.WithTimeout(ctx, t.deadline)
		err = f(c)
		if err != nil && c.Err() != nil && ctx.Err() == nil {
			err = berth.Errorf(berth.Unavailable, "no answer within %v", t.deadline)
		}
		cancel()
		if berth.CodeOf(err) != berth.Unavailable {
			break
		}
	}
	if d := time.Since(began); d > 5*time.Second {
		t.log.Warn("driver call was slow", "compute", t.name, "op", op, "subject", subject, "took", d)
	}
	return t.wrap(op, err)
}

// pause waits about d, or says false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
