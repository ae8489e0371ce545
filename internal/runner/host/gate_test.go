package host

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestGate(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { testGate(t, dir) })
}

func testGate(t *testing.T, dir string) {
	save := func(slots int) {
		t.Helper()
		if err := (Settings{Slots: slots}).Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	save(2)
	g := &gate{dir: dir}
	a, b, c, d := g.enter(false), g.enter(false), g.enter(false), g.enter(false)
	if a.waits() || b.waits() || !c.waits() || !d.waits() {
		t.Fatal("two of four should run")
	}
	if r := g.enter(true); r.waits() { // found running after a restart
		t.Error("a task that runs was told to wait")
	} else {
		g.leave(r)
	}
	g.leave(c) // it was stopped in line
	g.leave(a)
	if d.waits() {
		t.Error("the next in line was not let in")
	}
	e := g.enter(false)
	save(3)
	time.Sleep(lookEvery)
	f := g.enter(false) // sees the new limit, and that somebody came before
	g.leave(b)
	if e.waits() || f.waits() {
		t.Error("a larger limit was not noticed")
	}
	g.leave(d)
	g.leave(e)
	g.leave(f)
	if g.used != 0 || len(g.line) != 0 {
		t.Errorf("%d places are still taken, %d wait", g.used, len(g.line))
	}
}
