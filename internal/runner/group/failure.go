package group

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode"
)

// How much of the end of a log is looked at for what went wrong, and how much of it is told.
const (
	failureTail = 32 << 10
	failureLen  = 300
)

// LastError is the line of the log of a program that ended with code which says what went wrong, ""
// when none does. With code 1 end sys.exit("text") and the like, which only print the text: then it
// is the last line, and says so.
func LastError(path string, code int) string {
	tail := readTail(path)
	line := failureLine(tail)
	if line == "" && code == 1 {
		if line = lastLine(tail); line != "" {
			line = "its last line was: " + line
		}
	}
	return line
}

// readTail reads the end of a log.
func readTail(path string) string {
	// The command may be able to write where logs are: neither is a link followed nor a pipe waited
	// for.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-failureTail), failureTail))
	if err != nil {
		return ""
	}
	return string(tail)
}

// lastLine is the last line that has text, "" when it is one of the runner's own.
func lastLine(tail string) string {
	lines := strings.Split(strings.ReplaceAll(tail, "\r\n", "\n"), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if line := oneLine(lines[i]); line != "" {
			if strings.HasPrefix(line, "berth: ") {
				return ""
			}
			return line
		}
	}
	return ""
}

// traceback begins what Python says of an exception.
const traceback = "Traceback (most recent call last)"

// failureLine is the line of a program's last output that says what went wrong: the end of Python's
// last traceback, or else the last line that has the words with which shells, compilers, R, Julia
// and others begin such lines.
func failureLine(tail string) string {
	lines := strings.Split(strings.ReplaceAll(tail, "\r\n", "\n"), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "  + Exception Group "+traceback) {
			if line := groupLine(lines[i+1:]); line != "" {
				return oneLine(line)
			}
		}
		if strings.HasPrefix(lines[i], traceback) {
			for _, l := range lines[i+1:] {
				if l != "" && l[0] != ' ' {
					return oneLine(l)
				}
			}
		}
	}
	for i := len(lines) - 1; i >= 0; i-- {
		if !saysFailure(lines[i]) {
			continue
		}
		line := strings.TrimSpace(lines[i])
		if compiles().MatchString(line) { // the first is the reason of those after it
			first := slices.IndexFunc(lines, func(l string) bool { return compiles().MatchString(strings.TrimSpace(l)) })
			return oneLine(lines[first])
		}
		if shell, rest, ok := strings.Cut(line, ": line "); ok && strings.HasSuffix(shell, "bash") {
			if _, said, ok := strings.Cut(rest, ": "); ok {
				line = said
			}
		}
		if strings.HasSuffix(line, ":") && i+1 < len(lines) { // R and others go on in the next
			line += " " + strings.TrimSpace(lines[i+1])
		}
		return oneLine(line)
	}
	return ""
}

// groupLine is what the lines after the beginning of Python's traceback of a group of exceptions
// say: the group, and the first of its exceptions.
func groupLine(lines []string) string {
	group := ""
	for _, l := range lines {
		edge, said, ok := strings.Cut(l, "| ")
		switch {
		case !ok || strings.TrimSpace(edge) != "" || said == "" || said[0] == ' ' || strings.HasPrefix(said, traceback):
		case group == "":
			group = said
		default:
			return group + ": " + said
		}
	}
	return group
}

// compiles matches an error of a compiler, which names a place in a file.
var compiles = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[^\s:]+:\d+(:\d+)?: (fatal )?error: `) })

// saysFailure says whether a line tells that something failed.
func saysFailure(line string) bool {
	for _, words := range []string{
		"Error:", "error:", "ERROR:", "Error in ", "Exception:", "exception:", "fatal:", "Fatal:", "FATAL", "panic:", "panicked at",
		"command not found", ": not found", "No such file or directory", "Permission denied", "Is a directory", "Segmentation fault",
		": *** No ", // make
	} {
		if strings.Contains(line, words) {
			return true
		}
	}
	return false
}

// oneLine is text without what would control a terminal, and not too long.
func oneLine(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if i := strings.LastIndexByte(strings.TrimRight(text, "\r"), '\r'); i >= 0 { // what a progress bar left
		text = text[i+1:]
	}
	for i := strings.Index(text, "\x1b["); i >= 0; i = strings.Index(text, "\x1b[") { // colours
		end := strings.IndexFunc(text[i+2:], unicode.IsLetter)
		if end < 0 {
			text = text[:i]
			break
		}
		text = text[:i] + text[i+2+end+1:]
	}
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == ' ' {
			return r
		}
		return -1
	}, text))
	if r := []rune(text); len(r) > failureLen {
		text = string(r[:failureLen]) + "…"
	}
	return text
}
