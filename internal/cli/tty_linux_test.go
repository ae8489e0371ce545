package cli_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// tty runs a command on a terminal of $COLUMNS columns, or 120, and writes what it showed to
// tty.out.
func tty(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: tty command [args...]")
	}
	terminal, other, err := openPTY()
	ts.Check(err)
	defer terminal.Close()
	if columns := ts.Getenv("COLUMNS"); columns != "" {
		n, err := strconv.ParseUint(columns, 10, 16)
		ts.Check(err)
		ts.Check(unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: uint16(n)}))
	}
	path, err := exec.LookPath(args[0])
	ts.Check(err)
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = other, other, other
	cmd.Dir = ts.Getenv("WORK")
	for _, key := range []string{"PATH", "HOME", "BERTH_HOME", "NO_COLOR"} {
		cmd.Env = append(cmd.Env, key+"="+ts.Getenv(key))
	}
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ts.Check(cmd.Start())
	ts.Check(other.Close())
	out, _ := io.ReadAll(terminal) // ends with an error when the last writer has closed it
	if err := cmd.Wait(); err != nil {
		ts.Fatalf("%v: %s", err, out)
	}
	ts.Check(os.WriteFile(ts.MkAbs("tty.out"), out, 0o600))
}

func openPTY() (terminal, other *os.File, err error) {
	terminal, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(terminal.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
		return nil, nil, err
	}
	other, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	return terminal, other, err
}
