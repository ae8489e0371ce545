package socket

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth"
)

// Peer is the process on the other end of a Unix socket.
func Peer(conn net.Conn) (pid int, err error) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, berth.Errorf(berth.Internal, "not a local connection")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { pid, failed = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID) }); err != nil {
		return 0, err
	}
	return pid, failed
}
