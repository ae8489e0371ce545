//go:build linux

package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
)

// TestGPUsOfTasks: each task that asks for GPUs gets such as no other task has, also from a server
// that was started again. A program in the place of nvidia-smi tells of three.
func TestGPUsOfTasks(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte("#!/bin/sh\nfor i in 0 1 2; do echo $i, NVIDIA H200, 143771; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	d, dir := open(t)
	info, err := d.Probe(t.Context())
	if err != nil || info.Nodes[0].GPUs != 3 || info.Nodes[0].GPUModel != "NVIDIA H200" {
		t.Errorf("probe: %+v, %v", info, err)
	}
	start := func(d driver.Driver, id string, gpus int) (driver.Handle, error) {
		return d.Start(t.Context(), berth.Launch{
			Task: berth.TaskID(id), Job: id, GPUCount: gpus, LogFile: filepath.Join(dir, id),
			Command: `echo "${CUDA_VISIBLE_DEVICES-all}"; until [ -e ` + dir + `/over ]; do sleep 0.05; done`,
		})
	}
	seen := func(id string) (text string) {
		for text == "" && t.Context().Err() == nil {
			b, _ := os.ReadFile(filepath.Join(dir, id))
			text = strings.TrimSpace(string(b))
		}
		return text
	}
	one, err := start(d, "one", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := start(d, "two", 1); err != nil {
		t.Fatal(err)
	}
	if got := seen("one") + " " + seen("two"); got != "0 1" {
		t.Errorf("one GPU each: %s", got)
	}
	d = reopen(t, dir)
	if _, err := start(d, "pair", 2); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "1 of 3 on its machine are free") {
		t.Errorf("two of one that is free: %v", err)
	}
	if _, err := start(d, "many", 4); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("four of three: %v", err)
	}
	if again, err := start(d, "one", 1); err != nil || again != one {
		t.Errorf("started again: %v, %v", again, err)
	}
	if _, err := start(d, "three", 1); err != nil || seen("three") != "2" {
		t.Errorf("the third: %v, %s", err, seen("three"))
	}
	if _, err := start(d, "rest", 0); err != nil || seen("rest") != "all" {
		t.Errorf("one that asks for none: %v, %s", err, seen("rest"))
	}
	if err := os.WriteFile(filepath.Join(dir, "over"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []berth.TaskID{"one", "two", "three", "rest"} {
		if o := drivertest.Wait(t.Context(), t, d, id); !o.Exit.OK() {
			t.Errorf("%s: %+v", id, o.Exit)
		}
	}
	if _, err := start(d, "pair", 2); err != nil || seen("pair") != "0,1" {
		t.Errorf("two at last: %v, %s", err, seen("pair"))
	}
}
