package runner_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// TestGPUVars checks that a command sees its own GPUs and no others, whatever its job asks for.
func TestGPUVars(t *testing.T) {
	asks := func(v string) map[string]string { return map[string]string{"CUDA_VISIBLE_DEVICES": v} }
	for _, tt := range []struct {
		name  string
		l     berth.Launch
		more  map[string]string
		boxed bool
		want  string
	}{
		{"nothing said", berth.Launch{}, nil, false, ""},
		{"none", berth.Launch{NoGPU: true}, nil, false, "CUDA_VISIBLE_DEVICES= NVIDIA_VISIBLE_DEVICES=void"},
		{"none although asked", berth.Launch{NoGPU: true}, asks("0"), false, "CUDA_VISIBLE_DEVICES= NVIDIA_VISIBLE_DEVICES=void"},
		{"its own", berth.Launch{GPUs: []int{2, 5}}, nil, false, "CUDA_VISIBLE_DEVICES=2,5"},
		{"one of its own", berth.Launch{GPUs: []int{2, 5}}, asks("1"), false, "CUDA_VISIBLE_DEVICES=5"},
		{"in another order", berth.Launch{GPUs: []int{2, 5}}, asks(" 1, 0"), false, "CUDA_VISIBLE_DEVICES=5,2"},
		{"none of its own", berth.Launch{GPUs: []int{2, 5}}, asks(""), false, "CUDA_VISIBLE_DEVICES="},
		{"somebody else's", berth.Launch{GPUs: []int{2, 5}}, asks("0,2,1"), false, "CUDA_VISIBLE_DEVICES=2"},
		{"in a container", berth.Launch{GPUs: []int{2, 5}}, nil, true, ""},
		{"none in a container", berth.Launch{NoGPU: true}, nil, true, "CUDA_VISIBLE_DEVICES= NVIDIA_VISIBLE_DEVICES=void"},
	} {
		if got := strings.Join(runner.GPUVars(&tt.l, tt.more, tt.boxed), " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
