//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// watchSize calls f whenever the terminal changes its size, until stop.
func watchSize(f func()) (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-c:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(done)
	}
}
