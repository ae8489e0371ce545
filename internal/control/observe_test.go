package control_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
)

// TestLostAmongMany: many tasks are looked at less often, but once one is missing it is looked for
// as soon as ever.
func TestLostAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 600
		p := build(t, many)
		for i := range many {
			p.submit(fmt.Sprintf("j%d", i), "forever")
		}
		p.until(fmt.Sprintf("j%d", many-1), berth.Running)
		lost := p.task("j7")
		p.driver.Lose(lost)
		began := time.Now()
		p.until("j7", berth.Failed)
		// It is found missing after at most 15 seconds, and believed to be when it was missed three
		// times, 5 seconds apart.
		if took := time.Since(began); took > 26*time.Second {
			t.Errorf("found out after %v", took)
		}
	})
}
