//go:build !windows

package cluster

import (
	"context"

	"github.com/berthml/berth/internal/driver/local"
)

// GPU is one of this machine's.
type GPU = local.GPU

// GPUs lists this machine's GPUs, see [local.GPUs].
func GPUs(ctx context.Context) ([]GPU, error) { return local.GPUs(ctx) }

func find(all []GPU, index int) (GPU, bool) {
	for _, g := range all {
		if g.Index == index {
			return g, true
		}
	}
	return GPU{}, false
}

func modelOf(all []GPU, index int) string {
	g, _ := find(all, index)
	return g.Model
}
