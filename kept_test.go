package berth_test

import (
	"testing"

	"github.com/berthml/berth"
)

func TestIsByTools(t *testing.T) {
	for name, want := range map[string]bool{
		"__pycache__": true, "lib/__pycache__/": true, "node_modules": true, "wandb": true, "lib/a.pyc": true, "a.pyo": true,
		"a.py": false, "outputs": false, "mlruns": false, "wandb.py": false, "model.pkl": false,
	} {
		if got := berth.IsByTools(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
