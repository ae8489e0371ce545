package control_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// TestUnreadableTask: a task whose row cannot be read ends its job with the reason. Other jobs go
// on, a server starts, and the clock is followed.
func TestUnreadableTask(t *testing.T) {
	for name, body := range map[string]string{"no JSON": `{"id":`, "another type": `{"attempt":"first"}`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := build(t, 3)
				p.submit("odd", "forever")
				p.submit("fine", "forever")
				p.until("odd", berth.Running)
				p.until("fine", berth.Running)
				p.stop()
				p.spoilTasks("odd", body)
				p.run()
				if st := p.until("odd", berth.Failed); !strings.Contains(st.Reason, "cannot be read") {
					t.Errorf("reason %q", st.Reason)
				}
				p.jump(time.Hour)
				p.submit("next", "true")
				p.until("next", berth.Completed)
				p.settle("the clock is followed", func() bool { return !p.db.Jumped() })
				if got, _ := p.job("fine"); got != berth.Running {
					t.Errorf("the other job is %s", got)
				}
			})
		})
	}
}

// TestUnreadableTaskAndClock: the clock is followed while a row cannot be read whose job has not
// ended yet.
func TestUnreadableTaskAndClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.submit("odd", "forever")
		p.until("odd", berth.Running)
		p.spoilTasks("odd", `{"id":`)
		p.jump(time.Hour)
		p.settle("the clock is followed", func() bool { return !p.db.Jumped() })
		if st := p.until("odd", berth.Failed); !strings.Contains(st.Reason, "cannot be read") {
			t.Errorf("reason %q", st.Reason)
		}
	})
}

// spoilTasks makes the rows of a job's tasks unreadable.
func (p *fixture) spoilTasks(job, body string) {
	p.t.Helper()
	raw, err := sql.Open("sqlite", filepath.Join(filepath.Dir(p.options.Keep), "db"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer raw.Close()
	res, err := raw.Exec("UPDATE tasks SET body = ? WHERE job = ?", []byte(body), job)
	if err != nil {
		p.t.Fatal(err)
	}
	if n, err := res.RowsAffected(); n == 0 || err != nil {
		p.t.Fatalf("%d rows, %v", n, err)
	}
	// What the store remembers of its own writes goes with an update that is undone.
	undone := errors.New("undone")
	if err := p.db.Update(p.t.Context(), func(*store.Tx) error { return undone }); !errors.Is(err, undone) {
		p.t.Fatal(err)
	}
}
