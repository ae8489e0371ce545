package control_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
)

// hung is a target that does not answer while it is on.
type hung struct {
	*fake.Driver
	on   *atomic.Bool
	node string // only this one does not answer; all when empty
}

func (h hung) wait(ctx context.Context) error {
	for h.on.Load() {
		select {
		case <-ctx.Done():
			return berth.Errorf(berth.Unavailable, "no answer: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

func (h hung) Observe(ctx context.Context) ([]driver.Observed, error) {
	if h.node != "" && h.on.Load() {
		all, err := h.Driver.Observe(ctx)
		all = slices.DeleteFunc(all, func(o driver.Observed) bool { return o.Node == h.node })
		if err == nil {
			err = berth.Errorf(berth.Unavailable, "%w", &driver.Unseen{Nodes: []string{h.node}, Err: context.DeadlineExceeded})
		}
		return all, err
	}
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.Driver.Observe(ctx)
}

func (h hung) Remove(ctx context.Context, handle driver.Handle) error {
	if err := h.wait(ctx); err != nil {
		return err
	}
	return h.Driver.Remove(ctx, handle)
}

// TestHungTarget: a target that does not answer keeps nobody else waiting, and what happened on it
// meanwhile is found when it does.
func TestHungTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		synctest.Wait()
		p.stop()
		var on atomic.Bool
		p.options.Targets = p.registry(hung{p.cluster, &on, ""})
		p.run()
		p.clusterOf("cpu", 0, 2, nil)
		p.on("cpu", "far", "forever", nil)
		p.on("cpu", "lost", "forever", nil)
		p.until("far", berth.Running)
		p.until("lost", berth.Running)
		on.Store(true)
		for i := range 20 {
			time.Sleep(1700 * time.Millisecond)
			name := fmt.Sprint("near", i)
			began := time.Now()
			p.submit(name, "true")
			p.until(name, berth.Completed)
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s took %v", name, took)
			}
		}
		p.cluster.Lose(p.tasks("lost")[0].ID)
		on.Store(false)
		p.until("lost", berth.Failed)
		if s, _ := p.job("far"); s != berth.Running {
			t.Errorf("far is %s", s)
		}
	})
}

// TestHungNode: what is lost on a node is found although another does not answer, and what is on
// that one is not given up.
func TestHungNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		p.clusterOf("cpu", 0, 2, nil)
		p.on("cpu", "stays", "forever", nil)
		p.on("cpu", "lost", "forever", nil)
		p.until("stays", berth.Running)
		p.until("lost", berth.Running)
		p.stop()
		var on atomic.Bool
		on.Store(true)
		p.options.Targets = p.registry(hung{p.cluster, &on, p.tasks("stays")[0].Node})
		p.run()
		p.cluster.Lose(p.tasks("lost")[0].ID)
		p.until("lost", berth.Failed)
		time.Sleep(time.Minute)
		if s, _ := p.job("stays"); s != berth.Running {
			t.Errorf("stays is %s", s)
		}
	})
}
