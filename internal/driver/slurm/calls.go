package slurm

import (
	"context"
	"time"
)

// calls are what the driver asks of Slurm. Each may be called at any time, returns within a time
// limit, and is Unavailable where Slurm does not answer. An error that is a [commandError] is
// Slurm's own answer: what was asked for was not done.
type calls interface {
	// submit submits work by a name and returns the number of its job, which is an array where
	// there are several tasks.
	submit(ctx context.Context, name string, w work, tasks int) (number string, err error)
	// jobs lists the account's jobs, those that ended a short while ago too.
	jobs(ctx context.Context) ([]job, error)
	// past asks the accounts about a job that the controller has forgotten. The job has no state
	// when they do not know it; kept says that there are accounts.
	past(ctx context.Context, number string) (j job, kept bool, err error)
	// ask has the script of a job that runs end its task, at once or within its grace.
	ask(ctx context.Context, number string, atOnce bool) error
	// cancel ends a job, some of an array too, and cancelWaiting one that has not begun. A job that
	// has ended is success.
	cancel(ctx context.Context, number string) error
	cancelWaiting(ctx context.Context, number string) error
	// throttle sets how many jobs of an array may run at a time; 0 is no limit.
	throttle(ctx context.Context, number string, most int) error
	// cluster asks the controller about its cluster.
	cluster(ctx context.Context) (about, error)
	// nodes lists the nodes of a partition, of all when it is empty.
	nodes(ctx context.Context, partition string) ([]node, error)
	// addresses are where the nodes are reached, by name.
	addresses(ctx context.Context) (map[string]string, error)
}

// job is a job as Slurm lists it.
type job struct {
	number, name, state, why, node string
	code                           int
	vague                          bool // code may stand for itself or for 128 more
	unsaid                         bool // the accounts do not have the code
	// restarts is how often Slurm has put it into its queue again. It does that to a job that may
	// not be requeued, too, when the job's node does not answer, and cancels it then.
	restarts int
}

// about is what a controller says of its cluster.
type about struct {
	name, version string
	machine       string // tells the cluster from others
	maxArray      int64  // how many tasks an array may have; 1 where there are none
}

// node is a node of the cluster.
type node struct {
	CPUs   float64
	Memory int64 // bytes
	GPUs   int
	Down   bool
	// Longest is how long a job of its partition may run; 0 is no limit.
	Longest time.Duration
}
