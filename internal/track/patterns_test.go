package track_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestPatternsWaitTheirTurn: few searches of a user compare texts with patterns at a time, and they
// end when their clients have gone.
func TestPatternsWaitTheirTurn(t *testing.T) {
	s := start(t, t.TempDir())
	for i := range 2 * someItems {
		name := fmt.Sprint("n", i)
		s.must("POST", "experiments/create", obj{"name": name})
		s.must("POST", "registered-models/create", obj{"name": name})
		s.must("POST", "model-versions/create", obj{"name": name, "source": "mlflow-artifacts:/x"})
		s.must("POST", "logged-models", obj{"experiment_id": "0", "name": name})
		s.newRun("0", obj{"run_name": name})
	}
	for call, body := range map[string]string{
		"experiments/search":       `{"filter": "name LIKE '%n%'", "max_results": 1000}`,
		"registered-models/search": `{"filter": "name ILIKE '%n%'"}`,
		"model-versions/search":    `{"filter": "name LIKE '%n%'"}`,
		"logged-models/search":     `{"experiment_ids": ["0"], "filter": "name LIKE '%n%'"}`,
		"runs/search":              `{"experiment_ids": ["0"], "filter": "attributes.run_name LIKE '%n%'"}`,
	} {
		t.Run(call, func(t *testing.T) { s.patternsWait(t, call, body) })
	}
}

// someItems is how many things a search has looked at when a pausing client stops it.
const someItems = 20

// pausing is the context of a client whose search pauses when it has looked at some things.
type pausing struct {
	context.Context
	asked     atomic.Int32
	began, on chan struct{}
}

func (p *pausing) Err() error {
	if p.asked.Add(1) == someItems {
		p.began <- struct{}{}
		<-p.on
	}
	return p.Context.Err()
}

func (s *server) patternsWait(t *testing.T, call, body string) {
	const callers, turns = 8, 2
	began, on, codes := make(chan struct{}, callers), make(chan struct{}), make(chan int, callers)
	send := func(ctx context.Context, user string) int {
		r := httptest.NewRequestWithContext(ctx, "POST", "http://h/api/2.0/mlflow/"+call, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		who := s.who
		who.User = user
		s.s.Serve(w, r, s.ws, who, r.URL.EscapedPath())
		return w.Code
	}
	ctx, leave := context.WithCancel(t.Context())
	for range callers {
		go func() { codes <- send(&pausing{Context: ctx, began: began, on: on}, "u") }()
	}
	for range turns {
		select {
		case <-began:
		case code := <-codes:
			t.Fatalf("a search that was not looked after ends with %d", code)
		}
	}
	if code := send(t.Context(), "other"); code != 200 {
		t.Errorf("another user's search: %d", code)
	}
	leave()
	more := 0
	for left := callers - turns; left > 0; left-- { // those that waited have gone
		select {
		case <-codes:
		case <-began:
			more++
		}
	}
	if more > 0 {
		t.Errorf("%d searches at a time, not %d", turns+more, turns)
	}
	close(on)
	for range turns + more {
		if code := <-codes; code != 503 {
			t.Errorf("a search whose client has gone ends with %d", code)
		}
	}
}
