//go:build linux

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/cluster"
)

// smi puts an nvidia-smi on PATH that tells of two GPUs.
func smi(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestGPUs(t *testing.T) {
	t.Setenv("PATH", "/nowhere")
	if all, err := cluster.GPUs(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("without nvidia-smi: %+v, %v", all, err)
	}
	t.Setenv("PATH", "/usr/bin:/bin")
	smi(t, `echo "0, NVIDIA H200, 143771"; echo "1, NVIDIA A100-SXM4, 80GB, 81920"`)
	all, err := cluster.GPUs(t.Context())
	if err != nil || len(all) != 2 || all[0] != (cluster.GPU{Index: 0, Model: "NVIDIA H200", Memory: 143771 << 20}) || all[1].Model != "NVIDIA A100-SXM4, 80GB" {
		t.Fatalf("%+v, %v", all, err)
	}
	d, _ := open(t)
	add(t, d, driver.NodeSpec{Name: "none", Slots: 1})
	add(t, d, driver.NodeSpec{Name: "one", Slots: 1, GPUs: []int{1}})
	if err := d.AddNode(limited(t), driver.NodeSpec{Name: "two", GPUs: []int{2}}); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("a GPU that is not there: %v", err)
	}
	const show = `echo "${CUDA_VISIBLE_DEVICES-unset}"`
	for _, tt := range []struct {
		l    berth.Launch
		want string
	}{
		{berth.Launch{Node: "none"}, ""},
		{berth.Launch{Node: "none", GPUs: []int{0}}, ""},
		{berth.Launch{Node: "one"}, "1"},
		{berth.Launch{Node: "one", NoGPU: true}, ""},
		{berth.Launch{Node: "one", Env: map[string]string{"CUDA_VISIBLE_DEVICES": "0"}}, "1"},
	} {
		tt.l.Task, tt.l.Command = berth.TaskID(fmt.Sprintf("t%d.1", time.Now().UnixNano())), show
		if exit, out := run(t, d, tt.l); !exit.OK() || strings.TrimSpace(out) != tt.want {
			t.Errorf("%+v: exit %+v, sees %q, want %q", tt.l, exit, out, tt.want)
		}
	}
	info, err := d.Probe(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range info.Nodes {
		if n.Name == "one" && (n.GPUs != 1 || n.GPUModel != "NVIDIA A100-SXM4, 80GB") {
			t.Errorf("%+v", n)
		}
	}
	smi(t, "echo 'No devices were found'; exit 6")
	if _, err := cluster.GPUs(t.Context()); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "No devices") {
		t.Errorf("%v", err)
	}
}

// TestRealGPUs counts what CUDA itself sees, on a machine that has GPUs.
func TestRealGPUs(t *testing.T) {
	all, err := cluster.GPUs(t.Context())
	if err != nil || len(all) == 0 {
		t.Skipf("no GPUs: %v", err)
	}
	if all[0].Model == "" || all[0].Memory < 1<<30 {
		t.Errorf("%+v", all[0])
	}
	d, _ := open(t)
	add(t, d, driver.NodeSpec{Name: "none", Slots: 1})
	add(t, d, driver.NodeSpec{Name: "one", Slots: 1, GPUs: []int{all[0].Index}})
	const count = `python3 -c "
import ctypes
c, n = ctypes.CDLL('libcuda.so.1'), ctypes.c_int(0)
print(c.cuInit(0), c.cuDeviceGetCount(ctypes.byref(n)), n.value)"`
	for node, want := range map[string]string{"none": "100 3 0", "one": "0 0 1"} { // 100 is no device, 3 not initialised
		exit, out := run(t, d, berth.Launch{Task: berth.TaskID(node + ".1"), Node: node, Command: count})
		if !exit.OK() || strings.TrimSpace(out) != want {
			t.Errorf("on node %s: %q, want %q; exit %+v", node, out, want, exit)
		}
	}
}
