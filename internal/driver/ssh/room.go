package ssh

import (
	"context"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// A machine of a pool that has no room for tasks is drained while it has none: else each task that
// ends there would be followed by one that cannot be taken, although others have room.

const (
	// probeEvery is how often a machine is asked whether it takes tasks.
	probeEvery = 10 * time.Second
	// probeTime is how long it has for its answer: a Start may wait for that.
	probeTime = 2 * time.Second
)

// watch asks a machine again and again whether it takes tasks until its connection ends. It
// returns why, nil when ctx is over.
func (p *Pool) watch(ctx context.Context, m *member, ended <-chan error) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.probe(ctx, m)
		}
	}
}

// probe asks a machine whether it takes tasks. While it does not answer, it is as it was.
func (p *Pool) probe(ctx context.Context, m *member) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	info, err := m.d.Probe(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || len(info.Nodes) == 0 {
		return
	}
	m.seen = time.Now()
	drained := info.Nodes[0].Drained
	switch {
	case drained != "":
		m.full = time.Time{} // and it says when that is over
	case time.Now().Before(m.full):
		drained = noRoom
	}
	p.drain(m, drained)
}

// freshTime is how long what a machine says of itself is good enough to send it a task.
const freshTime = time.Second

// refuses is why a machine takes no tasks.
func (p *Pool) refuses(ctx context.Context, m *member) string {
	p.mu.Lock()
	old := m.away == "" && (m.info.Drained != "" || time.Since(m.seen) > freshTime)
	p.mu.Unlock()
	if old {
		p.probe(ctx, m)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return m.info.Drained
}

// drain notes why a machine takes no tasks. The mutex is held.
func (p *Pool) drain(m *member, why string) {
	if m.info.Drained == why {
		return
	}
	m.info.Drained = why
	if p.run != nil {
		p.run.notify()
	}
}

// noRoom is why a machine takes no tasks that had no room for one, whatever it says of its disk:
// files may be too many, or a quota of the account used up.
const noRoom = "there was no room for a job on its disk, or within the quota of the account there"

// fullTime is how long such a machine takes no tasks.
const fullTime = time.Minute

// refusedFor says whether a machine refused a task for want of room, and has nothing of it. It
// takes no others for a while.
func (p *Pool) refusedFor(ctx context.Context, m *member, id berth.TaskID, err error) bool {
	if !berth.IsDiskFull(err) {
		return false
	}
	p.mu.Lock()
	m.full = time.Now().Add(fullTime)
	if m.info.Drained == "" {
		p.drain(m, noRoom)
	}
	p.mu.Unlock()
	return lacks(ctx, m, id)
}

// lacks says whether a machine certainly has nothing of a task.
func lacks(ctx context.Context, m *member, id berth.TaskID) bool {
	all, err := m.d.Observe(ctx)
	return err == nil && !slices.ContainsFunc(all, func(o driver.Observed) bool { return o.Task == id })
}
