package pty_test

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/internal/pty"
)

// TestTerminal asks a program on a terminal how large it is.
func TestTerminal(t *testing.T) {
	ours, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	pty.Resize(ours, 33, 77)
	pty.Resize(ours, 0, 5) // is no size
	cmd := exec.Command("stty", "size")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	line, err := bufio.NewReader(ours).ReadString('\n')
	if strings.TrimSpace(line) != "33 77" {
		t.Errorf("the terminal's size is %q, %v", line, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
