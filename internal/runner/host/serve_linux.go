package host

import (
	"encoding/json"
	"io"
	"net/http"
	"os"

	"github.com/berthml/berth"
)

// handler is the worker's face to drivers.
func (w *worker) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /start", call(func(b []byte) (any, error) { return nil, w.start(b) }))
	mux.HandleFunc("GET /tasks", call(func([]byte) (any, error) {
		w.kick()
		return w.list(), nil
	}))
	mux.HandleFunc("POST /stop", call(func(b []byte) (any, error) {
		var r stopRequest
		if err := json.Unmarshal(b, &r); err != nil {
			return nil, berth.Errorf(berth.Invalid, "stop: %w", err)
		}
		w.stop(r)
		return nil, nil
	}))
	mux.HandleFunc("POST /remove", call(func(b []byte) (any, error) {
		var r removeRequest
		if err := json.Unmarshal(b, &r); err != nil {
			return nil, berth.Errorf(berth.Invalid, "remove: %w", err)
		}
		return nil, w.remove(r.Task)
	}))
	mux.HandleFunc("GET /info", call(func([]byte) (any, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return Info{Version: berth.Version, PID: os.Getpid(), Reaper: os.Getppid(), Tasks: len(w.jobs)}, nil
	}))
	mux.HandleFunc("POST /quit", call(func([]byte) (any, error) {
		w.quit(errQuit)
		return nil, nil
	}))
	mux.HandleFunc("POST /restart", call(func([]byte) (any, error) {
		w.quit(errRestart)
		return nil, nil
	}))
	return mux
}

// kick tells the reporters that a server is there.
func (w *worker) kick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.homes {
		r.Kick()
	}
}

func call(f func([]byte) (any, error)) http.HandlerFunc {
	return func(rw http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(io.LimitReader(req.Body, 64<<20))
		var out any
		if err == nil {
			out, err = f(b)
		}
		if err != nil {
			rw.WriteHeader(berth.CodeOf(err).HTTPStatus())
			_, _ = rw.Write(encodeFailure(err))
			return
		}
		if out != nil {
			b, _ := json.Marshal(out)
			_, _ = rw.Write(b)
		}
	}
}
