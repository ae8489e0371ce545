package peer

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/berthml/berth/bench/measure"
)

// kwokPodsYAML is what KWOK does with pods that were given a node.
//
//go:embed source/kwokpods.yaml
var kwokPodsYAML []byte

// StartKubeJobs starts a control plane as [StartKube] does, with the scheduler and the controllers
// of Jobs besides: pods that are given one of the simulated nodes succeed at once. The controllers
// send at most 100 requests a second: the default, 20, would be all that is measured.
func StartKubeJobs(ctx context.Context, group *measure.Group, dir string, nodes int) (*Kube, error) {
	bin, err := KubeKit()
	if err != nil {
		return nil, err
	}
	k := newKube(bin, group, dir, nodes)
	if _, err := exec.LookPath(k.program("kube-controller-manager")); err != nil {
		return nil, errors.New("no kube-controller-manager beside kube-apiserver")
	}
	k.stages = slices.Concat(kwokYAML, kwokPodsYAML)
	if err := k.begin(ctx); err != nil {
		return nil, err
	}
	_, err = k.daemons.start(ctx, k.program("kube-scheduler"), "--config", k.file("scheduler.yaml"), "--secure-port", "0")
	if err == nil {
		_, err = k.daemons.start(ctx, k.program("kube-controller-manager"), "--kubeconfig", k.file("kubeconfig"), "--leader-elect=false", "--secure-port", "0",
			"--controllers", "job-controller,garbage-collector-controller", "--kube-api-qps", "100", "--kube-api-burst", "200")
	}
	if err != nil {
		k.Stop()
		return nil, err
	}
	return k, nil
}

// Kubeconfig is the file with which clients reach it.
func (k *Kube) Kubeconfig() string { return k.file("kubeconfig") }

// CPU is the time of its processes, where that is known.
func (k *Kube) CPU() time.Duration {
	used, _ := k.daemons.group.Usage()
	return used
}

const kubeJobs = "/apis/batch/v1/namespaces/default/jobs"

// Jobs makes n Jobs of one pod each, by as many requests, 16 at a time, and times them to the end
// of the last. Then it deletes them.
func (k *Kube) Jobs(ctx context.Context, n int) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	w, err := k.api.watch(ctx, kubeJobs, "", false)
	if err != nil {
		return Result{}, err
	}
	defer w.close()
	k.round++
	cpu, t := k.CPU(), time.Now()
	made := make(chan error, 1)
	go func() {
		made <- k.api.create(ctx, kubeJobs, n, func(i int) string {
			return fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"r%d-j%06d"},"spec":{"backoffLimit":0,"template":{"spec":{"restartPolicy":"Never",`+
				`"containers":[{"name":"task","image":"none","command":["/bin/true"]}]}}}}`, k.round, i)
		})
	}()
	done := map[string]bool{}
	for len(done) < n {
		e, err := w.next(ctx)
		if err != nil {
			if ended := k.daemons.check(); ended != nil {
				err = ended
			}
			return Result{}, fmt.Errorf("%d of %d Jobs are complete: %w", len(done), n, err)
		}
		if e.has("Complete") {
			done[e.Object.Metadata.Name] = true
		}
	}
	r := Result{PerSecond: float64(n) / time.Since(t).Seconds(), CPU: Ms(k.CPU()-cpu) / float64(n)}
	if err := <-made; err != nil {
		return r, err
	}
	return r, k.api.call(ctx, "DELETE", kubeJobs+"?propagationPolicy=Background", "", nil)
}

// Empty waits until no pods are left.
func (k *Kube) Empty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		var list struct {
			Items []struct{ Metadata kubeMeta }
		}
		if err := k.api.get(ctx, "/api/v1/namespaces/default/pods?limit=1", &list); err != nil || len(list.Items) == 0 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
