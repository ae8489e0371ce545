//go:build linux && engines

package kubernetes_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/kubernetes/kubetest"
)

// uptime is the command whose first instruction is looked for: what it prints is the same clock in
// a pod and outside.
const uptime = "cat /proc/uptime"

// seconds is the time in what uptime printed.
func seconds(b *testing.B, text string) (s float64) {
	b.Helper()
	if _, err := fmt.Sscan(text, &s); err != nil {
		b.Fatalf("%q: %v", text, err)
	}
	return s
}

func now(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		b.Fatal(err)
	}
	return seconds(b, string(text))
}

// BenchmarkJob is one job at a time on a real kubelet, from the call to its first instruction: a
// task, and beside it, in turns, a job that kubectl creates.
//
//	go test -tags engines -run xxx -bench Job -benchtime 10x ./internal/driver/kubernetes
func BenchmarkJob(b *testing.B) {
	cluster = kubetest.Start(b)
	defer cluster.Stop(b)
	f := open(b)
	var task, bare []float64
	for i := range b.N + 1 { // the first of each is not counted
		l := f.launch(i, uptime)
		from := now(b)
		h, err := f.d.Start(b.Context(), l)
		if err != nil {
			b.Fatal(err)
		}
		drivertest.Wait(b.Context(), b, f.d, l.Task)
		task = append(task, seconds(b, f.log(l))-from)
		if err := f.d.Remove(b.Context(), h); err != nil {
			b.Fatal(err)
		}

		name := fmt.Sprint("bare-", i)
		from = now(b)
		if out, err := cluster.Kubectl(append([]string{"create", "job", name, "-n", f.space, "--image", kubetest.Image, "--"}, strings.Fields(uptime)...)...); err != nil {
			b.Fatal(out)
		}
		if out, err := cluster.Kubectl("wait", "job/"+name, "-n", f.space, "--for=condition=complete", "--timeout=60s"); err != nil {
			b.Fatal(out)
		}
		out, err := cluster.Kubectl("logs", "job/"+name, "-n", f.space)
		if err != nil {
			b.Fatal(out)
		}
		bare = append(bare, seconds(b, out)-from)
		time.Sleep(time.Second) // for what the kubelet still does
	}
	median := func(all []float64) float64 {
		all = slices.Sorted(slices.Values(all[1:]))
		return all[len(all)/2]
	}
	b.ReportMetric(median(task)*1000, "ms/task")
	b.ReportMetric(median(bare)*1000, "ms/kubectl")
	b.ReportMetric(median(task)/median(bare), "times-kubectl")
}
