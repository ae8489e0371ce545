package drivertest

import (
	"context"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// PastTerm shows that a server that led before, and does not know that it leads no more, cannot
// start a task again that the next one has removed, and is not told what runs. again is called
// before that is shown once more.
func PastTerm(ctx context.Context, t *testing.T, d driver.Driver, l berth.Launch, again func()) {
	t.Helper()
	before, after := berth.WithTerm(ctx, 5), berth.WithTerm(ctx, 7)
	h, err := d.Start(before, l)
	if err != nil {
		t.Fatal(err)
	}
	Wait(after, t, d, l.Task)
	if err := d.Remove(after, h); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if i > 0 {
			again()
		}
		if _, err := d.Start(before, l); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("the task was started again: %v", err)
		}
		if _, err := d.Observe(before); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("a server that led before is told what runs: %v", err)
		}
		if all, err := d.Observe(after); err != nil || len(all) != 0 {
			t.Errorf("the server that leads sees %+v, %v", all, err)
		}
	}
}
