package track_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A slowBody is spaces, of which a part comes, and the rest when it is let.
type slowBody struct {
	part, rest int
	began      chan struct{}
	let        <-chan struct{}
}

func (b *slowBody) Read(p []byte) (int, error) {
	switch {
	case b.part > 0:
		p = p[:min(len(p), b.part)]
		b.part -= len(p)
	case b.rest > 0:
		if b.began != nil {
			b.began <- struct{}{}
			b.began = nil
			<-b.let
		}
		p = p[:min(len(p), b.rest)]
		b.rest -= len(p)
	default:
		return 0, io.EOF
	}
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestBodiesWaitTheirTurn: however many large bodies a user sends slowly, few are in memory, of
// known length or not. Small ones are read meanwhile, and those of others.
func TestBodiesWaitTheirTurn(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	const senders, size, known, unknown = 20, 16 << 20, 4, 2
	for length, most := range map[int64]int{size: known, -1: unknown} {
		began, let, ended := make(chan struct{}), make(chan struct{}), make(chan int, senders)
		ctx, leave := context.WithCancel(t.Context())
		send := func(ctx context.Context, s *server, ended chan<- int) {
			r := httptest.NewRequestWithContext(ctx, "POST", "http://h/api/2.0/mlflow/runs/log-inputs", &slowBody{part: 100 << 10, rest: size - 100<<10, began: began, let: let})
			r.Header.Set("Content-Type", "application/json")
			r.ContentLength = length
			w := httptest.NewRecorder()
			s.s.Serve(w, r, s.ws, s.who, r.URL.EscapedPath())
			ended <- w.Code
		}
		for range senders {
			go send(ctx, s, ended)
		}
		for range most {
			<-began
		}
		s.must("POST", "runs/set-tag", obj{"run_id": run, "key": "k", "value": strings.Repeat("v", 5000)})
		other, others := *s, make(chan int, 1)
		other.who.User = "other"
		go send(t.Context(), &other, others)
		<-began
		leave()
		more := 0
		for left := senders - most; left > 0; left-- { // those that waited have gone
			select {
			case <-ended:
			case <-began:
				more++
			}
		}
		if more > 0 {
			t.Errorf("%d bodies of %d were read at a time, not %d", most+more, length, most)
		}
		close(let)
		for range most + more {
			<-ended
		}
		if code := <-others; code != http.StatusBadRequest {
			t.Errorf("spaces are answered with %d", code)
		}
	}
}

// TestBatchesAreBounded: a batch that is larger than any may be is not read.
func TestBatchesAreBounded(t *testing.T) {
	s := start(t, t.TempDir())
	for _, length := range []int64{9 << 20, -1} {
		body := &slowBody{part: 9 << 20}
		r := httptest.NewRequest("POST", "http://h/api/2.0/mlflow/runs/log-batch", body)
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = length
		w := httptest.NewRecorder()
		s.s.Serve(w, r, s.ws, s.who, r.URL.EscapedPath())
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "larger than 8 MiB") || length > 0 && body.part < 9<<20 {
			t.Errorf("%d %s; %d bytes are left", w.Code, w.Body, body.part)
		}
	}
}
