package host

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The protocol of a host's socket: a request is a frame of an operation and its JSON, an answer is
// a frame of an outcome and its JSON, one after the other on a connection. A frame is a length of
// four bytes, big end first, the byte that says what it is, and the JSON. It is not HTTP because
// starting a task must cost less than HTTP does.

// Operations.
const (
	opStart   = 's' // a berth.Launch, or several in a list; answers a startAnswer
	opTasks   = 't' // a tasksRequest or nothing; answers []Status
	opStop    = 'k' // a stopRequest
	opRemove  = 'r' // a removeRequest; answers a removeAnswer
	opInfo    = 'i' // nothing; answers an Info
	opQuit    = 'q' // nothing
	opRestart = 'x' // a restartRequest
)

// Outcomes.
const (
	outOK    = '+'
	outError = '-' // a failure
)

// maxFrame bounds what is read into memory: a launch with everything inline is far smaller.
const maxFrame = 64 << 20

// appendFrame adds a frame to b.
func appendFrame(b []byte, kind byte, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)+1))
	b = append(b, kind)
	return append(b, body...)
}

// readFrame reads a frame; the body is the caller's own.
func readFrame(r io.Reader) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 1 || n > maxFrame {
		return 0, nil, fmt.Errorf("frame of %d bytes", n)
	}
	body = make([]byte, n-1)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, fmt.Errorf("reading a frame: %w", err)
	}
	return head[4], body, nil
}
