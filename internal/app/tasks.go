package app

import (
	"context"
	"net"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/sshd"
	"github.com/berthml/berth/internal/store"
)

// reachTasks is how the front door gets to tasks that run.
func (a *App) reachTasks() api.Tasks {
	return api.Tasks{
		Dial: func(ctx context.Context, task *berth.Task, port int) (net.Conn, error) {
			t, compute, err := a.placeOf(ctx, task)
			if err != nil {
				return nil, err
			}
			return a.dialTask(ctx, t, task.ID, compute, port)
		},
		Shell: func(ctx context.Context, task *berth.Task) (func(context.Context, net.Conn) error, error) {
			t, compute, err := a.placeOf(ctx, task)
			if err != nil {
				return nil, err
			}
			target, h, err := a.handleOf(ctx, t, task.ID, compute)
			if err != nil {
				return nil, err
			}
			if _, ok := target.Driver().(driver.Execer); !ok {
				return nil, berth.Errorf(berth.Unsupported, "compute %s runs no shells beside jobs: only this server's machine and its clusters do", compute.Name)
			}
			key := a.keys.ShellKey()
			return func(ctx context.Context, c net.Conn) error {
				return sshd.Serve(ctx, c, key, func(ctx context.Context, cmd driver.Command) (int, error) { return target.Exec(ctx, h, cmd) })
			}, nil
		},
		Turn: func(ctx context.Context, task *berth.Task, ask berth.Turn) (berth.TurnAnswer, error) {
			t, compute, err := a.placeOf(ctx, task)
			if err != nil {
				return berth.TurnAnswer{}, err
			}
			target, err := t.targets.Of(compute)
			if err != nil {
				return berth.TurnAnswer{}, err
			}
			return target.Turn(t.bind(ctx), task.ID, ask)
		},
	}
}

// placeOf is where a task runs. Only the server that leads has the connections to that.
func (a *App) placeOf(ctx context.Context, task *berth.Task) (*term, driver.Compute, error) {
	t, _ := a.terms.get()
	if t == nil {
		return nil, driver.Compute{}, berth.Errorf(berth.Unavailable, "job %s is reached by the server that leads, which is another: use its address", task.Job)
	}
	var c driver.Compute
	err := a.db.View(ctx, func(tx *store.Tx) error {
		d, err := tx.Get(task.Workspace, "computes", task.Compute, "")
		if err == nil {
			c = driver.Compute{Workspace: d.Workspace, Name: d.Name, Body: d.Body}
		}
		return err
	})
	return t, c, err
}

// handleOf finds a task on its target.
func (a *App) handleOf(ctx context.Context, t *term, task berth.TaskID, compute driver.Compute) (*driver.Target, driver.Handle, error) {
	target, err := t.targets.Of(compute)
	if err != nil {
		return nil, "", err
	}
	if h, known := a.handles.Load(task); known {
		return target, h.(driver.Handle), nil
	}
	seen, err := target.Observe(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, o := range seen {
		if o.Task == task {
			a.handles.Store(task, o.Handle)
			return target, o.Handle, nil
		}
	}
	return nil, "", berth.Errorf(berth.Unavailable, "compute %s knows nothing of task %s", compute.Name, task)
}

// dialTask connects to a port of a task.
func (a *App) dialTask(ctx context.Context, t *term, task berth.TaskID, compute driver.Compute, port int) (net.Conn, error) {
	target, h, err := a.handleOf(ctx, t, task, compute)
	if err != nil {
		return nil, err
	}
	conn, err := target.Dial(ctx, h, port)
	if err != nil {
		a.handles.Delete(task)
	}
	return conn, err
}
