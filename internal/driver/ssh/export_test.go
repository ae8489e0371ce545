package ssh

import (
	"time"

	"github.com/berthml/berth/internal/driver"
)

// SetPatience sets how long a machine may be silent at each step of connecting to it.
func SetPatience(d driver.Driver, most time.Duration) {
	d.(*Driver).patience = patience{dial: most, hello: most, copy: most}
}
