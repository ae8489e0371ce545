package cluster

import (
	"context"

	"github.com/berthml/berth/internal/driver"
)

// Exec is [driver.Execer.Exec].
func (d *Driver) Exec(ctx context.Context, h driver.Handle, c driver.Command) (int, error) {
	n, inner, err := d.find(h)
	if err != nil {
		return 0, err
	}
	return n.local.Exec(ctx, inner, c)
}
