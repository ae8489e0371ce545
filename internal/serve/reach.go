package serve

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/store"
)

// A Reach connects to a port of the task of a replica, wherever that is.
type Reach func(ctx context.Context, job string, port int) (net.Conn, error)

// elsewhere ends the host in addresses of workers that are not on this machine; before it is the
// job of the replica. No such host exists.
const elsewhere = ".replica.invalid"

// addressOf is the address of a worker of a replica.
func addressOf(job, port string, far bool) string {
	if far {
		return net.JoinHostPort(job+elsewhere, port)
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// dialTime is how long a worker may take to accept a connection.
const dialTime = 2 * time.Second

// Dial connects to a worker at the address that its replica has in the state of a deployment.
func (r Reach) Dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	name, far := strings.CutSuffix(host, elsewhere)
	if !far {
		return (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", address)
	}
	n, err := strconv.Atoi(port)
	if err == nil && r == nil {
		err = berth.Errorf(berth.Unsupported, "this server reaches no replicas on other machines")
	}
	if err == nil {
		var c net.Conn
		if c, err = r(ctx, name, n); err == nil {
			return c, nil
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
}

// isFar says whether the workers of a replica are not on this machine: it runs on a compute that
// was attached.
func isFar(tx *store.Tx, d *store.Doc) (bool, error) {
	st, err := job.State(d)
	if err != nil || berth.IsLocal(st.Compute) {
		return false, err
	}
	c, err := tx.Get(d.Workspace, "computes", st.Compute, "")
	if berth.CodeOf(err) == berth.NotFound {
		return false, nil // and so is the replica, soon
	}
	if err != nil {
		return false, err
	}
	spec, err := berth.ReadPool(c.Body)
	return spec.Attached(), err
}
