package world

import (
	"math/rand/v2"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// run is a task that runs until the farm ends, as its runner tells the server of it: over a
// connection of the node's own, first that it runs, and then a sample of what it uses every so
// often, at a phase of its own.
func (f *Farm) run(l *berth.Launch) {
	home, err := runner.NewHTTPHome(l.Home.URL, l.Home.CA)
	if err != nil {
		f.fail(err)
		return
	}
	defer home.Close()
	now := time.Now()
	r := berth.Report{
		Task: l.Task, Token: l.Home.Token, State: berth.TaskRunning, Phase: "running",
		Times: berth.Waterfall{Submitted: l.Submitted, Staging: now, Started: now},
	}
	send := func() bool {
		r.Seq++
		r.At = time.Now()
		_, err := home.Report(f.ctx, []berth.Report{r})
		if err != nil {
			f.fail(err)
		}
		return err == nil
	}
	if !send() {
		return
	}
	f.count(&f.started)
	r.Usage = &berth.Usage{MemoryBytes: 1 << 30, ReadBytes: 1 << 20}
	for wait := rand.N(f.every); ; wait = f.every {
		select {
		case <-time.After(wait):
		case <-f.ctx.Done():
			return
		}
		u := *r.Usage
		u.At, u.CPUPercent = time.Now(), 95+5*rand.Float64()
		u.CPUSeconds += u.CPUPercent / 100 * wait.Seconds()
		u.MemoryBytes += rand.Int64N(1 << 20)
		u.ReadBytes += 1 << 20
		u.WriteBytes += 1 << 18
		r.Usage = &u
		if !send() {
			return
		}
		f.count(&f.sent)
	}
}

func (f *Farm) count(n *int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*n++
}

// Counts are how many tasks run, and how many samples the server has taken.
func (f *Farm) Counts() (running, samples int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.started, f.sent
}
