package dialout

import (
	"time"

	"github.com/berthml/berth/internal/driver"
)

// OpenWithPings is Open with heartbeats at another pace.
func OpenWithPings(after, wait time.Duration) *Driver {
	d, _ := Open(driver.Config{Name: "laptop"})
	x := d.(*Driver)
	x.pingAfter, x.pingWait = after, wait
	return x
}
