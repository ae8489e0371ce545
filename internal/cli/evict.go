package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
)

// evictVerb takes nodes of a cluster away from their jobs, as the owner of low-priority machines
// may at any time.
func evictVerb(s *session, n noun) *cobra.Command {
	var node string
	var simulate, dry bool
	cmd := s.about(n, "evict", "Take nodes away from their jobs, which start again elsewhere", func(ctx context.Context, c *client.Client, t *target) error {
		in := map[string]any{"node": node, "simulate": simulate, "dryRun": dry}
		var hit struct {
			Nodes []string `json:"nodes"`
			Jobs  []string `json:"jobs"`
		}
		if err := c.Post(ctx, in, &hit, append(t.path(n), "evict")...); err != nil {
			return err
		}
		for _, j := range hit.Jobs {
			if dry {
				s.say("job %s would be asked to stop, and start again on another node", j)
			} else {
				s.say("job %s is asked to stop, and starts again on another node; `berth logs -f %s` follows it", j, j)
			}
		}
		if len(hit.Nodes) == 0 {
			s.say("compute %s has no node that could be taken away", t.name)
		}
		return s.print(map[string]any{"nodes": hit.Nodes, "jobs": hit.Jobs})
	})
	f := cmd.Flags()
	f.StringVar(&node, "node", "", "this node only (default: all)")
	f.BoolVar(&simulate, "simulate", false, "a drill: jobs see an eviction, the node stays")
	f.BoolVar(&dry, "dry-run", false, "only show what would happen")
	return cmd
}
