package cli

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// The exit codes of berth itself. `run`, `logs --exit-code` and `job stream` end with the job's.
const (
	exitOK          = 0
	exitFailed      = 1   // the request was refused or could not be carried out
	exitUsage       = 2   // the command line is wrong
	exitNotFound    = 3   // the named thing does not exist
	exitConflict    = 4   // it exists already, or its state forbids this
	exitUnreachable = 5   // no answer from the server
	exitInterrupted = 130 // Ctrl-C
)

// exitError ends the program with a code; everything has been said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is a wrong command line. One that is late is such that az finds only when it does the
// work, so that its code is another.
type usageError struct {
	msg  string
	late bool
}

func (e usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return usageError{msg: fmt.Sprintf(format, args...)} }

// noLabel is an asset, or a label of it, that is not there.
type noLabel struct{ error }

func (e noLabel) Unwrap() error { return e.error }

func latef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...), true} }

// exitCode is the exit code of an error.
func exitCode(err error) int {
	var exit exitError
	var use usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &use):
		return exitUsage
	}
	switch berth.CodeOf(err) {
	case berth.Invalid:
		if berth.IsMissing(err) {
			return exitNotFound
		}
	case berth.NotFound, berth.Gone:
		return exitNotFound
	case berth.Conflict, berth.Precondition:
		return exitConflict
	case berth.Unavailable:
		return exitUnreachable
	}
	return exitFailed
}

// azExit is the code az would end with: it knows 1, 2 and 3. Late is what it finds while it works:
// a failed job's own code is 1 too.
func azExit(code int, late bool) int {
	switch {
	case code == exitOK, code == exitInterrupted, !late && (code == exitUsage || code == exitNotFound):
		return code
	}
	return exitFailed
}

// report says what went wrong and returns the exit code.
func (s *session) report(err error) int {
	code := exitCode(err)
	var exit exitError
	said := err == nil || errors.As(err, &exit)
	mark := "berth:"
	if s.format.az {
		var use usageError
		var label noLabel
		mark, code = "ERROR:", azExit(code, said || errors.As(err, &use) && use.late || errors.As(err, &label) || berth.CodeOf(err) == berth.Invalid)
	}
	if said {
		return code
	}
	first, rest, more := strings.Cut(legible(s.answered(err)), "\n")
	fmt.Fprintf(s.err, "%s %s\n", s.paint(s.err, red, mark), first)
	if more {
		fmt.Fprintln(s.err, rest)
	}
	var unknown x509.UnknownAuthorityError
	var lost *client.Unreachable // the server; what an import brings is from another one
	switch {
	case errors.As(err, &unknown):
		fmt.Fprintln(s.err, "set BERTH_CA to a copy of the file tls/ca.pem of that server's home")
	case errors.As(err, &lost) && s.cfg.URL != "":
		by := "BERTH_URL"
		if s.server != "" {
			by = "`berth login`"
		}
		fmt.Fprintf(s.err, "the server is set by %s; `berth doctor` looks for the cause\n", by)
	}
	return code
}

// answered is what is said of an error; of one that the service answered with az says its code too,
// which scripts look for.
func (s *session) answered(err error) string {
	var answer *berth.Error
	text := plainError(err)
	if !s.format.az { // the words are for Azure's clients
		text = strings.ReplaceAll(text, " (not found)", "")
	}
	if !s.format.az || !errors.As(err, &answer) || answer.Wire == "" {
		return text
	}
	return fmt.Sprintf("(%s) %s\nCode: %s\nMessage: %s", answer.Wire, text, answer.Wire, text)
}

// jobExit is the exit code a finished job stands for: that of its process, 130 when it was
// canceled, 1 when there was none.
func jobExit(status berth.JobStatus, e *berth.Exit) int {
	switch {
	case status == berth.Completed:
		return exitOK
	case status == berth.Canceled:
		return exitInterrupted
	case e != nil && e.Code > 0 && e.Code < 256:
		return e.Code
	}
	return exitFailed
}
