//go:build unix

package alone

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/cache"
)

// array is what this process knows of an array of tasks, which it takes in turn, see berth.Turn.
type array struct {
	name   string
	script []byte // has the launches of all
	index  int    // of the task that it was started for
	dir    string
	origin runner.Origin
	log    *slog.Logger

	patience patience // the usual where it is zero
}

// run runs tasks until the server has none for this process, one has failed, or the process is to
// end. It returns the exit code of the last.
func (a array) run(ctx context.Context) int {
	becomeSubreaper() // of what a task leaves behind
	first, err := berth.ReadLaunch(a.script, a.index)
	if err != nil {
		return a.broken(err)
	}
	w, err := newWorker(ctx, first, a.dir, a.log)
	if err != nil {
		return a.broken(err)
	}
	defer w.close()
	if a.patience == (patience{}) {
		a.patience = newPatience(first.Home.URL, a.log)
	}
	ask := berth.Turn{Array: a.name, Runner: a.index}
	for {
		n, err := w.turn(ctx, runner.Task{ID: first.Task, Token: first.Home.Token}, ask, a.patience)
		if errors.Is(err, errHurried) || err == nil && n != berth.NoTurn && w.asked.ended.Load() {
			return 128 + int(syscall.SIGTERM)
		}
		if berth.CodeOf(err) == berth.Unavailable {
			return berth.ExitAway
		}
		if err != nil {
			return a.broken(err)
		}
		if n == berth.NoTurn {
			return 0
		}
		l := first
		if n != a.index {
			if l, err = berth.ReadLaunch(a.script, n); err != nil {
				return a.broken(err)
			}
		}
		exit, told, err := w.run(ctx, l, false)
		alone := childless()
		if !alone {
			sweep(a.dir, a.origin)
			alone = childless()
		}
		if rerr := cache.RemoveAll(w.options.Dir); rerr != nil {
			a.log.Warn("the directory of a task is left behind", "dir", w.options.Dir, "err", rerr)
			told = false
		}
		switch {
		case err != nil:
			return a.broken(err)
		case !exit.OK() || !told || w.asked.ended.Load():
			return ofCommand(code(exit))
		case !alone:
			return 0 // what the task left running ends with the job, and not beside the next task
		}
		ask.Ended = &n
	}
}

// ofCommand is the exit code of a process whose command had one. Those that could be taken for
// ExitAway, also by accounts that take 128 off, would have what has run start again.
func ofCommand(code int) int {
	if code%128 == berth.ExitAway {
		return 1
	}
	return code
}

func (a array) broken(err error) int {
	a.log.Error("the task cannot be run", "err", err)
	return berth.ExitRunner
}

// errHurried is the end of a question that was not answered before the process was to end. A task
// may have been given to it meanwhile, of which nothing has run: it must not end as if all were
// well.
var errHurried = errors.New("the process is to end")

// turn asks for the next task until the server answers. The error is Unavailable when it has not
// for too long.
func (w *worker) turn(ctx context.Context, t runner.Task, ask berth.Turn, p patience) (int, error) {
	const least = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, p.left())
	defer cancel()
	for wait := least; ; wait = min(2*wait, 10*time.Second) {
		n, err := w.home.Turn(ctx, t, ask)
		if berth.CodeOf(err) != berth.Unavailable {
			p.answered()
			return n, err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-w.asked.hurry:
			return berth.NoTurn, errHurried
		case <-ctx.Done():
			p.over()
			return n, err
		}
	}
}
