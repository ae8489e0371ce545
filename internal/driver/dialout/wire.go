package dialout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// Protocol is what the agent asks to upgrade to. Its number changes when the requests do.
const Protocol = "berth-agent/1"

// Headers of the agent's request.
const (
	HeaderID      = "Berth-Agent-Id"      // tells machines apart, see Agent.ID
	HeaderHost    = "Berth-Agent-Host"    // what the machine calls itself
	HeaderVersion = "Berth-Agent-Version" // of the agent's program
)

// headerTerm is the server's term in each of its requests, see [berth.WithTerm]. The machine's
// runner host refuses what is over.
const (
	headerTerm      = "Berth-Term"
	headerTermProof = "Berth-Term-Proof"
)

// Heartbeats. A side that has heard nothing for pingAfter asks, and gives the connection up when
// there is no answer within pingWait.
const (
	pingAfter = 15 * time.Second
	pingWait  = 15 * time.Second
)

// maxStreams is how many requests the server may have under way at once.
const maxStreams = 1000

// maxAnswer and maxValues bound an answer of an agent, which may be hostile: it is decoded in
// memory, where {} takes more than two bytes. maxText bounds a sentence of its. maxRequest bounds
// what the server asks of it.
const (
	maxAnswer  = 4 << 20
	maxValues  = 200_000
	maxText    = 500
	maxRequest = 64 << 20
)

type stopRequest struct {
	Task  berth.TaskID  `json:"task"`
	Grace time.Duration `json:"grace,omitempty"`
	Cause string        `json:"cause,omitempty"`
	Why   string        `json:"why,omitempty"`
}

type removeRequest struct {
	Task berth.TaskID `json:"task"`
}

// failure is how an error travels.
type failure struct {
	Code berth.Code `json:"code"`
	Msg  string     `json:"message"`
}

// readAnswer decodes an answer into out, or is the error that it tells.
func readAnswer(res *http.Response, out any) error {
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return berth.Errorf(berth.Unavailable, "reading the agent's answer: %w", err)
	case len(b) > maxAnswer:
		return berth.Errorf(berth.Limit, "the agent's answer is larger than %d MiB", maxAnswer>>20)
	case bytes.Count(b, []byte{','}) > maxValues:
		return berth.Errorf(berth.Limit, "the agent's answer has more than %d values", maxValues)
	}
	if res.StatusCode != http.StatusOK {
		return told(res.StatusCode, b)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return berth.Errorf(berth.Internal, "the agent's answer is not understood: %w", err)
	}
	return nil
}

// told is the error that an agent tells. What is not ours is not passed on: its status has to do.
func told(status int, body []byte) error {
	var f failure
	if json.Unmarshal(body, &f) != nil || !f.Code.Known() {
		f.Code = berth.CodeOfHTTP(status)
	}
	if f.Msg = Clean(f.Msg, maxText); f.Msg == "" {
		f.Msg = fmt.Sprintf("the agent answered %d %s", status, http.StatusText(status))
	}
	return &berth.Error{Code: f.Code, Msg: f.Msg}
}

// Clean is text of another machine, in one line and not longer than n bytes.
func Clean(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\ufffd' {
			return ' '
		}
		return r
	}, s)
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return strings.TrimSpace(s)
}

// link is a connection that tells when it is closed, by either side of the program that uses it. It
// hides what is underneath: net/http would look for TLS's own way of choosing HTTP/2.
type link struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func newLink(c net.Conn) *link { return &link{Conn: c, closed: make(chan struct{})} }

func (l *link) Close() error {
	var err error
	l.once.Do(func() {
		err = l.Conn.Close()
		close(l.closed)
	})
	return err
}

// stream makes a connection of what an upgraded HTTP request leaves: something to read from and
// write to. It has no deadlines; heartbeats do their work.
type stream struct{ io.ReadWriteCloser }

type addr struct{}

func (addr) Network() string { return "agent" }
func (addr) String() string  { return "agent" }

func (stream) LocalAddr() net.Addr              { return addr{} }
func (stream) RemoteAddr() net.Addr             { return addr{} }
func (stream) SetDeadline(time.Time) error      { return nil }
func (stream) SetReadDeadline(time.Time) error  { return nil }
func (stream) SetWriteDeadline(time.Time) error { return nil }
