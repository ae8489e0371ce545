package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// plainError is an error in words for people: what Go's packages say of files and numbers is said
// without the names of their functions.
func plainError(err error) string {
	var path *fs.PathError
	var link *os.LinkError
	var number *strconv.NumError
	var call *os.SyscallError
	switch text := err.Error(); {
	case errors.As(err, &path):
		return replaceIn(text, path.Error(), spelled(path.Path)+": "+reason(path.Err))
	case errors.As(err, &link):
		return replaceIn(text, link.Error(), spelled(link.Old)+": "+reason(link.Err))
	case errors.As(err, &number):
		return replaceIn(text, number.Error(), strconv.Quote(number.Num)+" is not a number")
	case errors.As(err, &call):
		return replaceIn(text, call.Error(), reason(call.Err))
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return replaceIn(text, lastText(err), "the connection was closed")
	default:
		return text
	}
}

// lastText is the text of the innermost error.
func lastText(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

func replaceIn(text, old, with string) string {
	if !strings.Contains(text, old) {
		return text
	}
	return strings.Replace(text, old, with, 1)
}

func spelled(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

// reason is the error of a file operation in words.
func reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file or directory"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied"
	case errors.Is(err, fs.ErrExist):
		return "it exists already"
	case errors.Is(err, syscall.EISDIR):
		return "it is a directory"
	case errors.Is(err, syscall.ENOTDIR):
		return "a part of the path is not a directory"
	case errors.Is(err, syscall.ENOSPC):
		return "the disk is full"
	}
	return err.Error()
}

// spanOf reads a length of time: 90s, 2h, 1d, or a number of seconds, as Azure writes them.
func spanOf(text string) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second, n >= 0
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * 24 * float64(time.Hour)), err == nil && n >= 0 && n < 36500
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}
