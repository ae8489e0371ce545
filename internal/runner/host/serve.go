package host

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// server answers drivers on a listener.
type server struct {
	w *worker

	mu    sync.Mutex
	conns map[net.Conn]bool
	shut  bool
	group sync.WaitGroup
}

// serve accepts until the listener is closed.
func (s *server) serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		s.mu.Lock()
		if s.shut {
			c.Close()
		} else {
			s.conns[c] = true
			s.group.Go(func() { s.talk(c) })
		}
		s.mu.Unlock()
	}
}

// close ends every conversation and waits for them.
func (s *server) close() {
	s.mu.Lock()
	s.shut = true
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.group.Wait()
}

func (s *server) talk(c net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		c.Close()
	}()
	r := bufio.NewReaderSize(c, 16<<10)
	var out []byte
	for {
		op, body, err := readFrame(r)
		if err != nil {
			return
		}
		answer, err := s.w.answer(op, body)
		kind := byte(outOK)
		if err != nil {
			kind, answer = outError, encodeFailure(err)
		}
		out = appendFrame(out[:0], kind, answer)
		if _, err := c.Write(out); err != nil {
			return
		}
		switch { // once answered
		case err != nil:
		case op == opQuit:
			s.w.quit(errQuit)
		case op == opRestart:
			s.w.quit(errRestart)
		}
	}
}

// answer carries out one operation.
func (w *worker) answer(op byte, body []byte) ([]byte, error) {
	switch op {
	case opStart:
		w.memory.Used()
		return w.startAll(body)
	case opTasks:
		var r tasksRequest
		if len(body) > 0 {
			if err := json.Unmarshal(body, &r); err != nil {
				return nil, berth.Errorf(berth.Invalid, "tasks: %w", err)
			}
		}
		if err := w.kick(r.Term, r.TermProof); err != nil {
			return nil, err
		}
		return json.Marshal(w.list())
	case opStop:
		var r stopRequest
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, berth.Errorf(berth.Invalid, "stop: %w", err)
		}
		w.stop(r)
		return nil, nil
	case opRemove:
		var r removeRequest
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, berth.Errorf(berth.Invalid, "remove: %w", err)
		}
		failed, err := w.remove(r)
		if err != nil {
			return nil, err
		}
		return json.Marshal(failed)
	case opInfo:
		w.mu.Lock()
		n := len(w.jobs)
		w.mu.Unlock()
		return json.Marshal(Info{Version: berth.Version, Build: w.build, PID: os.Getpid(), Reaper: os.Getppid(), Tasks: n})
	case opQuit:
		return nil, nil
	case opRestart:
		var r restartRequest
		if err := json.Unmarshal(body, &r); err != nil || len(r.Command) == 0 {
			return nil, berth.Errorf(berth.Invalid, "restart needs a command (%v)", err)
		}
		return nil, saveProgram(w.dir, r.Command)
	}
	return nil, berth.Errorf(berth.Unsupported, "the runner host does not know operation %q: it is older than the server", op)
}

// startAll starts one task or a list of them.
func (w *worker) startAll(body []byte) ([]byte, error) {
	if len(body) == 0 || body[0] != '[' {
		var l berth.Launch
		if err := json.Unmarshal(body, &l); err != nil {
			return nil, berth.Errorf(berth.Invalid, "launch: %w", err)
		}
		return []byte("null"), w.start(l, body)
	}
	failed := startAnswer{}
	dec := json.NewDecoder(bytes.NewReader(body)) // it reads each launch once, and says where it ends
	_, err := dec.Token()
	for err == nil && dec.More() {
		var l berth.Launch
		from := dec.InputOffset()
		err = dec.Decode(&l)
		var wrong *json.UnmarshalTypeError
		switch {
		case errors.As(err, &wrong):
			failed[l.Task], err = failureOf(berth.Errorf(berth.Invalid, "launch: %w", err)), nil
		case err == nil:
			if err := w.start(l, bytes.TrimLeft(body[from:dec.InputOffset()], ", \t\r\n")); err != nil {
				failed[l.Task] = failureOf(err)
			}
		}
	}
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "start: %w", err)
	}
	return json.Marshal(failed)
}

// kick notes that a server is there.
func (w *worker) kick(term int64, proof string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admit(term, proof); err != nil {
		return err
	}
	w.used = time.Now()
	for _, r := range w.homes {
		r.Kick()
	}
	return nil
}
