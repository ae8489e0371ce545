//go:build linux && engines

package kubernetes_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/kubernetes/kubetest"
)

const (
	manyNodes = 1000
	manyTasks = 1000
)

// scale: a thousand tasks on a thousand simulated nodes, each of them observed from the beginning
// to the end, and nothing is left of them.
func scale(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cluster.Simulate(t, manyNodes)
	f := open(t, `"tolerations":[{"key":"`+kubetest.Taint+`","operator":"Exists"}]`, `"defaultInstanceType":"fake"`,
		`"instanceTypes":{"fake":{"nodeSelector":{"`+kubetest.Taint+`":"yes"},"resources":{"limits":{"cpu":1,"nvidia.com/gpu":1}}}}`)
	info, err := f.d.Probe(ctx)
	if err != nil || info.Nodes[0].GPUs < 8*manyNodes {
		t.Errorf("probe: %+v, %v", info, err)
	}
	began := time.Now()
	handles := f.startMany(ctx, t)
	t.Logf("%d tasks started in %v", manyTasks, time.Since(began))
	for {
		all, err := f.d.Observe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != manyTasks {
			t.Fatalf("Observe lists %d tasks", len(all))
		}
		done := 0
		for _, o := range all {
			if o.State == berth.TaskDone && o.Exit.OK() {
				done++
			}
		}
		if done == manyTasks {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d tasks are done", done, manyTasks)
		case <-time.After(time.Second):
		}
	}
	t.Logf("they were done after %v", time.Since(began))
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for i := part; i < manyTasks; i += 8 {
				if err := f.d.Remove(ctx, handles[i]); err != nil {
					t.Errorf("remove: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if all, err := f.d.Observe(ctx); err != nil || len(all) > 0 {
		t.Errorf("%d tasks are left, %v", len(all), err)
	}
	t.Logf("they were removed after %v", time.Since(began))
}

// startMany starts all tasks, several at a time.
func (f *fixture) startMany(ctx context.Context, t *testing.T) []driver.Handle {
	t.Helper()
	handles := make([]driver.Handle, manyTasks)
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for i := part; i < manyTasks; i += 8 {
				l := f.launch(i, "true")
				h, err := f.d.Start(ctx, l)
				if err != nil {
					t.Errorf("start: %v", err)
				}
				handles[i] = h
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.Fatal(fmt.Sprint("not all of ", manyTasks, " tasks were started"))
	}
	return handles
}
