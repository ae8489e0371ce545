package runner

import (
	"sync"
	"sync/atomic"
	"time"
)

// Stop is a request to end a task.
type Stop struct {
	Grace time.Duration // between asking and killing; 0 takes the launch's
	Cause string        // for Exit.Cause; empty means canceled
	Why   string        // for Exit.Reason
}

func (s *Stop) cause() string {
	if s.Cause == "" {
		return "canceled"
	}
	return s.Cause
}

func (s *Stop) why() string {
	if s.Why == "" {
		return "it was asked to stop"
	}
	return s.Why
}

// Control lets others act on a task while Run carries it out. The zero value is ready for use.
type Control struct {
	mu   sync.Mutex
	stop *Stop  // the newest request that was not taken yet
	wake func() // tells Run of it; nil while Run looks by itself
}

// Stop asks the task to end. It may be called at any time, and more than once.
func (c *Control) Stop(s Stop) {
	c.mu.Lock()
	c.stop = &s
	wake := c.wake
	c.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// take is the request that waits, nil when there is none.
func (c *Control) take() *Stop {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stop
	c.stop = nil
	return s
}

// OnStop has f called for each request from now on, and for one that waits. Run sets its own while
// it runs.
func (c *Control) OnStop(f func()) {
	c.mu.Lock()
	c.wake = f
	waits := c.stop != nil
	c.mu.Unlock()
	if f != nil && waits {
		f()
	}
}

// event is something that happens to a running command besides its end.
type event uint32

const (
	eventStop    event = 1 << iota // somebody wants it to end
	eventLimit                     // it has run for as long as it may
	eventGrace                     // what was asked to end has not
	eventOutput                    // it wrote something for the first time
	eventWatch                     // it has run for long enough to be watched
	eventSample                    // it is time to look at what it uses
	eventAbandon                   // the runner ends
	eventAltered                   // an input it reads was found altered
	eventThrough                   // there is something to report of outputs that are sent
	eventService                   // the state of a service is another
)

// waker tells the one who waits for a command to end of events. A command waits in the runtime's
// poller, not in a select: that saves short tasks a goroutine and its way to a processor.
type waker struct {
	events    atomic.Uint32
	interrupt atomic.Pointer[func()] // ends the wait under way
	bell      chan struct{}          // rings for those who wait otherwise
}

func newWaker() *waker { return &waker{bell: make(chan struct{}, 1)} }

// ring notes an event and ends the wait.
func (w *waker) ring(e event) {
	w.events.Or(uint32(e))
	if f := w.interrupt.Load(); f != nil {
		(*f)()
		return
	}
	poke(w.bell)
}

// pending says whether something happened that was not taken yet.
func (w *waker) pending() bool { return w.events.Load() != 0 }

// take is what happened since the last time.
func (w *waker) take() event { return event(w.events.Swap(0)) }

// after arranges for an event.
func (w *waker) after(d time.Duration, e event) *time.Timer {
	return time.AfterFunc(d, func() { w.ring(e) })
}

// patient is wait for what cannot be waited for in the poller: a goroutine of its own blocks.
type patient struct {
	once sync.Once
	gone chan error
}

// wait returns true when block has returned, false when something happened before. block must
// return when the runner ends.
func (p *patient) wait(w *waker, block func() error) (bool, error) {
	p.once.Do(func() {
		p.gone = make(chan error, 1)
		go func() { p.gone <- block() }()
	})
	if w.pending() {
		return false, nil
	}
	select {
	case err := <-p.gone:
		return true, err
	case <-w.bell:
		return false, nil
	}
}
