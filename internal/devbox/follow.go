package devbox

import (
	"context"
	"time"
)

// A follower listens to an agent.
type follower struct {
	run  int
	stop context.CancelFunc
	said chan report
}

type report struct {
	status Status
	err    error
}

// syncFollower follows the agent of the instance's node, and no other.
func (k *keeper) syncFollower(ctx context.Context, v *view) {
	run := v.it.Runs
	if v.it.Node == "" {
		run = 0
	}
	if k.follow != nil && k.follow.run == run {
		return
	}
	k.unfollow()
	if run == 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{run: run, stop: cancel, said: make(chan report)}
	k.follow = f
	agent := k.l.o.Agent(k.dir())
	k.l.group.Go(func() { f.listen(ctx, agent) })
}

func (k *keeper) unfollow() {
	if k.follow != nil {
		k.follow.stop()
		k.follow = nil
	}
	k.status, k.lost = nil, time.Time{}
}

// askAgain is how soon an agent that does not answer is asked again.
const askAgain = 250 * time.Millisecond

// listen passes on what the agent says until ctx ends.
func (f *follower) listen(ctx context.Context, agent Agent) {
	after := 0
	for ctx.Err() == nil {
		s, err := agent.Status(ctx, after)
		if err == nil && s.Run == f.run {
			if s.Seq == after {
				continue
			}
			after = s.Seq
		} else if err == nil {
			err = errStale
		}
		if err != nil {
			after = 0
		}
		select {
		case f.said <- report{s, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			t := time.NewTimer(askAgain)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return
			}
		}
	}
}
