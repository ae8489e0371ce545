package fake_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/fake"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Fixture {
		d := fake.New(fake.Options{})
		t.Cleanup(func() { d.Close() })
		dir, n := t.TempDir(), 0
		return drivertest.Fixture{Driver: d, Launch: func(command string) berth.Launch {
			n++
			id := berth.TaskID(fmt.Sprintf("job-%d.1", n))
			return berth.Launch{Task: id, Command: command, LogFile: filepath.Join(dir, string(id))}
		}}
	})
}
