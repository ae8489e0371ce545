package kubernetes

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // the protocol's own
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/berthml/berth"
)

// channels is the protocol of exec and of port forwarding over a WebSocket: the first byte of each
// message is the number of a stream.
const channels = "v4.channel.k8s.io"

// maxMessage is how long a message of the cluster may be.
const maxMessage = 1 << 20

// WebSocket's kinds of frames.
const (
	frameBinary = 2
	frameClose  = 8
	framePing   = 9
	framePong   = 10
)

// socket is a WebSocket to the cluster's API server.
type socket struct {
	conn io.ReadWriteCloser
	in   *bufio.Reader

	writing sync.Mutex
}

// upgrade opens a WebSocket at a path of the API.
func (c *client) upgrade(ctx context.Context, path string, query url.Values) (*socket, error) {
	var nonce [16]byte
	rand.Read(nonce[:]) // never fails
	key := base64.StdEncoding.EncodeToString(nonce[:])
	r, err := c.request(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range map[string]string{
		"Accept": "*/*", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key, "Sec-WebSocket-Protocol": channels,
	} {
		r.Header.Set(k, v)
	}
	res, err := c.upgrades.RoundTrip(r)
	if err != nil {
		return nil, c.silent(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		defer res.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		return nil, refusal(res.StatusCode, b)
	}
	conn, ok := res.Body.(io.ReadWriteCloser)
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	if !ok || res.Header.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) || res.Header.Get("Sec-WebSocket-Protocol") != channels {
		res.Body.Close()
		return nil, berth.Errorf(berth.Unsupported, "the cluster at %s does not speak %s over WebSockets", c.server, channels)
	}
	return &socket{conn: conn, in: bufio.NewReader(conn)}, nil
}

// send writes a message to a stream.
func (s *socket) send(stream byte, b []byte) error {
	return s.frame(frameBinary, append([]byte{stream}, b...))
}

// frame writes a frame, masked as those of clients are.
func (s *socket) frame(kind byte, payload []byte) error {
	head := []byte{0x80 | kind}
	switch n := len(payload); {
	case n < 126:
		head = append(head, 0x80|byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 0x80|126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 0x80|127), uint64(n))
	}
	var mask [4]byte
	rand.Read(mask[:]) // never fails
	out := append(head, mask[:]...)
	begin := len(out)
	out = append(out, payload...)
	for i := range payload {
		out[begin+i] ^= mask[i&3]
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := s.conn.Write(out)
	return err
}

// receive reads the next message. The end of the connection is io.EOF.
func (s *socket) receive() (stream byte, b []byte, err error) {
	var message []byte
	for {
		final, kind, payload, err := s.read(maxMessage - len(message))
		if err != nil {
			return 0, nil, err
		}
		switch kind {
		case framePing:
			_ = s.frame(framePong, payload) // one that is closed may have more to read
			continue
		case framePong:
			continue
		case frameClose:
			return 0, nil, io.EOF
		}
		message = append(message, payload...)
		if final && len(message) > 0 {
			return message[0], message[1:], nil
		}
	}
}

// read reads a frame of at most so many bytes.
func (s *socket) read(most int) (final bool, kind byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return false, 0, nil, io.EOF
	}
	n := uint64(head[1] & 0x7f)
	long := map[uint64]int{126: 2, 127: 8}[n]
	if long > 0 {
		var size [8]byte
		if _, err := io.ReadFull(s.in, size[8-long:]); err != nil {
			return false, 0, nil, err
		}
		n = binary.BigEndian.Uint64(size[:])
	}
	if head[1]&0x80 != 0 || n > uint64(most) {
		return false, 0, nil, berth.Errorf(berth.Invalid, "the cluster sent a message that is masked or longer than %d bytes", maxMessage)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(s.in, payload)
	return head[0]&0x80 != 0, head[0] & 0x0f, payload, err
}

// Close ends the connection.
func (s *socket) Close() error {
	_ = s.frame(frameClose, []byte{0x03, 0xe8}) // 1000: it is over
	return s.conn.Close()
}
