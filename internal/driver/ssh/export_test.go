package ssh

import (
	"context"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// RefusedFor has a machine of a pool refuse a task with an error.
func RefusedFor(ctx context.Context, d driver.Driver, machine string, id berth.TaskID, err error) bool {
	p := d.(*Pool)
	return p.refusedFor(ctx, p.machine(machine), id, err)
}

// SetPatience sets how long a machine may be silent at each step of connecting to it.
func SetPatience(d driver.Driver, most time.Duration) {
	d.(*Driver).patience = patience{dial: most, hello: most, copy: most}
}
