package crash_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A ledger is the writes that a server has acknowledged.
type ledger struct {
	mu    sync.Mutex
	acked map[string]bool // by path below the workspace
	other map[string]int  // how many requests had each other outcome
}

// write makes a PUT and notes what came of it.
func (l *ledger) write(w *chaos, path string, body any) {
	code, b, err := w.do("PUT", w.ws+"/"+path, body)
	if err != nil {
		time.Sleep(5 * time.Millisecond) // it is away
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.other["no answer"]++
	case code/100 == 2:
		l.acked[path] = true
		if !json.Valid(b) {
			w.t.Errorf("PUT %s: %d with the body %q", path, code, b)
		}
	default:
		l.other[fmt.Sprint(code)]++
	}
}

// check asks for every write that was acknowledged.
func (l *ledger) check(w *chaos) (lost int) {
	for path := range l.acked {
		var got int
		w.until("GET "+path, time.Minute, func() (bool, error) {
			code, b, err := w.do("GET", w.ws+"/"+path, nil)
			got = code
			return err == nil && code != http.StatusServiceUnavailable, fmt.Errorf("%d %s %w", code, b, err)
		})
		if got != http.StatusOK {
			lost++
			w.t.Errorf("%s was acknowledged and is not there after the restart: %d", path, got)
		}
	}
	return lost
}

// TestTermKeepsWrites stops the server with SIGTERM while jobs, computes and budgets are written,
// again and again. A connection on which nothing was sent yet is open meanwhile, as browsers and
// pools of connections have them.
func TestTermKeepsWrites(t *testing.T) {
	_, kills, _ := sizes()
	rounds := max(3, kills/5)
	w := newChaos(t, "")
	w.sure("GET", w.ws+"/jobs", nil)
	l := &ledger{acked: map[string]bool{}, other: map[string]int{}}
	for round := range rounds {
		idle, err := net.Dial("unix", filepath.Join(w.home(), "run", "api.sock"))
		if err != nil {
			t.Fatal(err)
		}
		server := w.server()
		stopped := make(chan struct{})
		var writers sync.WaitGroup
		for n := range 3 {
			writers.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stopped:
						return
					default:
					}
					name := fmt.Sprintf("r%dw%dn%d", round, n, i)
					switch n {
					case 0:
						l.write(w, "jobs/"+name, map[string]any{"properties": map[string]any{"jobType": "Command", "command": "true", "computeId": "azureml:local"}})
					case 1:
						l.write(w, "computes/"+name, map[string]any{"location": "local", "properties": map[string]any{"computeType": "AmlCompute", "properties": map[string]any{
							"vmSize": "Standard_DS1_v2", "scaleSettings": map[string]any{"minNodeCount": 0, "maxNodeCount": 1},
						}}})
					case 2:
						l.write(w, "budgets/user:"+name, map[string]any{"amount": 5, "period": "month"})
					}
				}
			})
		}
		w.until("some writes", time.Minute, func() (bool, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.acked) > 20*(round+1), nil
		})
		if err := syscall.Kill(server, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		w.until("another server", time.Minute, func() (bool, error) {
			code, _, err := w.do("GET", w.ws+"/jobs", nil)
			return err == nil && code == http.StatusOK && w.server() != server, err
		})
		close(stopped)
		writers.Wait()
		idle.Close()
	}
	lost := l.check(w)
	t.Logf("%d stops, %d writes acknowledged, %d lost; the other requests: %v", rounds, len(l.acked), lost, l.other)
	if log := w.log(); strings.Contains(log, "requests interrupted") {
		t.Errorf("a stop did not wait for the requests that were under way:\n%s", log)
	}
}
