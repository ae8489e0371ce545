package runner

import "syscall"

// empty says whether a directory holds nothing or is not there. It is on the way of every task, so
// it goes without the runtime's poller.
func empty(dir string) bool {
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err == syscall.ENOENT
	}
	defer syscall.Close(fd)
	var buf [1024]byte
	for {
		n, err := syscall.ReadDirent(fd, buf[:])
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return err == nil
		}
		if _, count, _ := syscall.ParseDirent(buf[:n], 1, nil); count > 0 { // . and .. are not counted
			return false
		}
	}
}
