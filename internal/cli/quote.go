package cli

import "strings"

// commandLine is the shell text of a command given as arguments: each is quoted where the shell
// would take it apart. A single argument with blanks in it is shell text already.
func commandLine(args []string) string {
	if len(args) == 1 && strings.ContainsAny(args[0], " \t\n") {
		return args[0]
	}
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = quote(a)
	}
	return strings.Join(quoted, " ")
}

func quote(a string) string {
	plain := a != ""
	for _, r := range a {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_./:=@%+,", r), r > 0x7f:
		default:
			plain = false
		}
	}
	if plain {
		return a
	}
	return "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
}
