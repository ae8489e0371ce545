package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMovedHome moves the home while two jobs run. The server notices and ends, and starts at the
// new place. The job that ended while there was no server and the one that ended after have their
// outputs, and a new job runs at the new place.
func TestMovedHome(t *testing.T) {
	w := newChaos(t, "")
	gate := func(name string) string { return filepath.Join(w.marks, name) }
	for _, name := range []string{"early", "late"} {
		w.put(name, fmt.Sprintf("echo begun; while [ ! -e %s ]; do sleep 0.02; done; echo %s > outputs/made; echo over", gate(name), name), "local")
		w.until(name+" to run", time.Minute, func() (bool, error) {
			o, err := w.outcome(name)
			return err == nil && o.Status == "Running", err
		})
	}
	server := w.server()
	if !w.move() {
		t.Fatal("the server is not ready")
	}
	if err := os.WriteFile(gate("early"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.until("the server to start anew", time.Minute, func() (bool, error) { return w.server() != server, nil })
	if log := w.log(); !strings.Contains(log, "was moved or removed") {
		t.Errorf("the server does not say why it ended:\n%s", log)
	}
	w.put("new", "pwd -P", "local")
	ended := func(name string) {
		t.Helper()
		w.until("end of "+name, 2*time.Minute, func() (bool, error) {
			o, err := w.outcome(name)
			return err == nil && o.Status == "Completed", fmt.Errorf("%+v %w", o, err)
		})
	}
	ended("new")
	if log := string(w.sure("GET", w.ws+"/jobs/new/logs", nil)); !strings.HasPrefix(log, w.home()+"/") {
		t.Errorf("the new job ran at %q, the home is %s", log, w.home())
	}
	if err := os.WriteFile(gate("late"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"early", "late"} {
		ended(name)
		if log := string(w.sure("GET", w.ws+"/jobs/"+name+"/logs", nil)); log != "begun\nover\n" {
			t.Errorf("the log of %s is %q", name, log)
		}
		if made := w.sure("GET", "/history/v1.0"+w.ws+"/experiments/e/runs/"+name+"/artifacts", nil); !strings.Contains(string(made), "outputs/made") {
			t.Errorf("%s left %s", name, made)
		}
	}
}
