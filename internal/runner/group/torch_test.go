package group_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
)

// TestTorch runs the example: a real all-reduce, and a model trained in step, over two nodes of two
// processes. BERTH_TORCH_PYTHON is a Python that has torch.
func TestTorch(t *testing.T) {
	python := os.Getenv("BERTH_TORCH_PYTHON")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.Command(python, "-c", "import torch.distributed").CombinedOutput(); err != nil {
		if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "torch") {
			t.Fatalf("torch is required (BERTH_REQUIRE_ENGINES): %v: %s", err, out)
		}
		t.Skipf("%s has no torch: set BERTH_TORCH_PYTHON to one that has", python)
	}
	program, err := filepath.Abs("../../../examples/distributed/torch_allreduce/train.py")
	if err != nil {
		t.Fatal(err)
	}
	j := start(t, "pytorch", "mkdir -p outputs && exec "+python+" "+program, []int{2, 2})
	for i, e := range j.wait() {
		if d := cmp.Diff(berth.Exit{}, e); d != "" {
			t.Errorf("node %d: %s; log %s", i, d, j.log(i, 0)+j.log(i, 1))
		}
	}
	for rank := range 4 {
		log := j.log(rank/2, rank%2)
		if want := fmt.Sprintf("rank %d of 4 on node %d: the sum is 10\n", rank, rank/2); !strings.Contains(log, want) {
			t.Errorf("rank %d: %q", rank, log)
		}
	}
	if _, err := os.Stat(filepath.Join(j.nodes[0].dir, "wd", "outputs", "model.pt")); err != nil {
		t.Error(err)
	}
}
