package envs

import (
	"strings"
)

// password matches the user information of an address.
var password = pattern(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/@\s]+@`)

// mask hides passwords in addresses.
func mask(s string) string { return password().ReplaceAllString(s, "${1}****@") }

const distilled = 15 // lines of an error message

// summarizeError takes what explains a failure out of a program's output: from the first line that
// says error to the end, without stack traces; fallback when there is nothing.
func summarizeError(lines []string, fallback string) string {
	start := -1
	for i, l := range lines {
		t := strings.TrimSpace(l)
		if strings.HasPrefix(t, "error") || strings.HasPrefix(t, "×") || strings.HasPrefix(t, "ERROR") || strings.HasPrefix(t, "critical") {
			start = i
			break
		}
	}
	if start < 0 {
		start = max(0, len(lines)-distilled)
	}
	var out []string
	for _, l := range lines[start:] {
		t := strings.TrimSpace(l)
		if t == "" || strings.HasPrefix(t, "File \"") || strings.Trim(t, "^~ ") == "" || strings.HasPrefix(t, "Traceback ") {
			continue
		}
		if strings.HasPrefix(t, "hint:") && strings.Contains(t, "pyproject.toml") {
			break // advice for projects, not for environments
		}
		out = append(out, strings.TrimRight(l, " "))
	}
	if len(out) > distilled {
		head, end := out[:distilled/2], out[len(out)-distilled/2:]
		out = append(append(append([]string{}, head...), "…"), end...)
	}
	if len(out) == 0 {
		return fallback
	}
	return strings.Join(out, "\n")
}

// tail is the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

var netTrouble = pattern(`(?i)error sending request|dns error|connection (refused|reset)|timed out|temporary failure|network is unreachable|5\d\d (internal|bad gateway|service unavailable|gateway)|429 too many`)

// unreachable reports whether the output speaks of a network that did not answer, rather than of a
// wrong environment.
func unreachable(lines []string) bool {
	for _, l := range lines {
		if netTrouble().MatchString(l) {
			return true
		}
	}
	return false
}
