package socket

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth"
)

// Peer is the process on the other end of a Unix socket; 0 is one of another PID namespace.
func Peer(conn net.Conn) (pid int, err error) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, berth.Errorf(berth.Internal, "not a local connection")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return int(cred.Pid), nil
}
