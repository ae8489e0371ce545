//go:build unix

package alone

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// TunnelFile is the file in the task's directory with the address, on the same machine, at which
// the task reaches the server through its driver. Where there is none the task reaches the server
// itself.
const TunnelFile = "tunnel"

// tunnelTime is how long the driver may take to open the way to the server.
const tunnelTime = 2 * time.Minute

// throughTunnel is the launch of a task that reaches the server through its driver, once the way is
// open.
func throughTunnel(ctx context.Context, l berth.Launch, file string) (berth.Launch, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	at := strings.TrimSpace(string(b))
	ctx, cancel := context.WithTimeout(ctx, tunnelTime)
	defer cancel()
	for {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
		if err == nil {
			c.Close()
			return l.At("https://" + at), nil
		}
		select {
		case <-ctx.Done():
			return l, berth.Errorf(berth.Unavailable, "the server cannot be reached: nobody opened the way to it at %s", at)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
