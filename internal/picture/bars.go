package picture

import (
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
)

// Limits is what limits how many tasks a user has.
type Limits struct {
	PerUser int            // tasks of one user on the server's own machine; 0 is no limit
	Here    map[string]int // tasks on that machine by user
	// Personal are the limits of single users, and Running what their tasks use now.
	Personal quota.Limits
	Running  func() ([]quota.Task, error)
	// Users are those to find out about. Neither function is called where there is no limit.
	Users func() []string
	Now   time.Time
}

// Bar fills in how many more tasks users may have on a pool of a workspace, for those who are
// limited. An instance counts as a whole, whether jobs are on it or not, and a pool without nodes
// grows by quota.
func (p *Pool) Bar(workspace string, l Limits) error {
	p.Bars = nil
	if berth.IsLocal(p.Name) && l.PerUser > 0 {
		for _, user := range l.Users() {
			p.bar(user, sched.LocalBar(l.PerUser, l.Here[user]))
		}
	}
	if !p.Scales() || len(p.Nodes) == 0 || len(l.Personal.All) == 0 {
		return nil
	}
	users := l.Users()
	if len(users) == 0 {
		return nil
	}
	running, err := l.Running()
	if err != nil {
		return err
	}
	n := p.Nodes[0]
	for _, user := range users {
		ask := quota.Task{Workspace: workspace, Family: n.Family, User: user, Low: n.Low, VCPUs: quota.PartOf(*n.Node)}
		if tasks, unlimited, why := l.Personal.Left(running, ask, l.Now); !unlimited {
			p.bar(user, sched.Bar{Nodes: tasks, Why: why})
		}
	}
	return nil
}

func (p *Pool) bar(user string, b sched.Bar) {
	if p.Bars == nil {
		p.Bars = map[string]sched.Bar{}
	}
	p.Bars[user] = b
}
