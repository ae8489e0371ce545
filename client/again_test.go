package client_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// TestEmptyAnswerIsNone: a 200 without a body is what a server says that has ended in the middle;
// it has not done what it was asked.
func TestEmptyAnswerIsNone(t *testing.T) {
	for _, body := range []string{"", " \n", "null"} {
		c := open(t, map[string]http.HandlerFunc{
			"PUT computes/c": answer(body), "GET jobs/j": answer(body), "PUT jobs/j": answer(body), "POST datastores/d/listSecrets": answer(body), "PUT budgets/workspace": answer(body),
		})
		if d, err := c.Put(t.Context(), map[string]any{}, "computes", "c"); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("Put of %q: %v, %v", body, d, err)
		}
		if _, err := c.Job(t.Context(), "j"); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("Job of %q: %v", body, err)
		}
		if _, _, err := c.Submit(t.Context(), "j", []byte("{}")); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("Submit of %q: %v", body, err)
		}
		var out map[string]any
		if err := c.Post(t.Context(), nil, &out, "datastores", "d", "listSecrets"); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("Post of %q: %v", body, err)
		}
	}
	if p := (client.Document{}).Properties(); len(p) != 0 {
		t.Errorf("the properties of no document are %v", p)
	}
}

// TestStoppingServerIsWaitedFor: a server that refuses requests while it stops is asked again, for
// longer than one that is out of order, and with POSTs too, of which it has carried out none.
func TestStoppingServerIsWaitedFor(t *testing.T) {
	var asked atomic.Int32
	stopping := func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%7 != 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, `{"name":"x"}`)
	}
	c := open(t, map[string]http.HandlerFunc{"PUT jobs/j": stopping, "POST computes/c/start": stopping})
	if d, _, err := c.Submit(t.Context(), "j", []byte("{}")); err != nil || d.Name() != "x" {
		t.Errorf("%v, %v", d, err)
	}
	var out client.Document
	if err := c.Post(t.Context(), nil, &out, "computes", "c", "start"); err != nil || asked.Load() != 14 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}

// TestPostIsNotRepeated: a POST that a server has begun to carry out is not sent again.
func TestPostIsNotRepeated(t *testing.T) {
	var asked atomic.Int32
	c := open(t, map[string]http.HandlerFunc{"POST computes/c/start": func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}})
	if err := c.Post(t.Context(), nil, nil, "computes", "c", "start"); berth.CodeOf(err) != berth.Unavailable || asked.Load() != 1 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}
