package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/serve"
)

// proofTime is how long a worker may take to prove that it is one.
const proofTime = 10 * time.Second

var errProof = errors.New("what listens there is not the worker of the replica")

// dial opens a connection to a worker, which has to prove first that it is the one of its replica:
// another program may have got its port.
func (g *Gateway) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := g.prove(ctx, conn); err != nil {
		conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: conn.RemoteAddr(), Err: err}
	}
	return conn, nil
}

func (g *Gateway) prove(ctx context.Context, conn net.Conn) error {
	s, ok := ctx.Value(slotKey{}).(*slot)
	if !ok {
		return errProof
	}
	patience := proofTime
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		patience = max(patience, x.d.patience)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	nonce := berth.NewGUID()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: worker\r\n"+serve.NonceHeader+": "+nonce+"\r\n\r\n"); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, 4<<10); !errors.Is(err, io.EOF) {
		return errProof
	}
	if in.Buffered() > 0 || !serve.Proves(resp.Header, g.o.Secret(s.job), nonce) {
		return errProof
	}
	return conn.SetDeadline(time.Time{})
}
