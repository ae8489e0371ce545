package runner

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/berthml/berth/internal/runner/group"
)

// shell is what commands are written for.
var shell = group.Shell

// argv is the program and arguments that carry out command. A command of plain words is executed
// without a shell around it, as make does: starting a shell costs more than starting most programs.
// Where anything is in doubt the shell decides.
func argv(command string, env []string, dir string) (path string, args []string) {
	if words, ok := plain(command); ok {
		if p := find(words[0], env, dir); p != "" {
			return p, words
		}
	}
	return viaShell(command)
}

func viaShell(command string) (path string, args []string) {
	return shell(), []string{shell(), "-c", command}
}

// plain splits a command that means to a shell what it says: words without quotes, expansions,
// redirections or assignments, the first one no word of the shell's own.
func plain(command string) ([]string, bool) {
	for i := range len(command) {
		switch c := command[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte(" _@%+=:,./-", c) >= 0:
		default:
			return nil, false
		}
	}
	words := strings.Fields(command)
	if len(words) == 0 || strings.ContainsAny(words[0], "=%") || shellWords[words[0]] {
		return nil, false
	}
	return words, true
}

// shellWords are the reserved words and builtins of bash that are made of plain characters.
var shellWords = func() map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(`. : alias bg bind break builtin caller case cd command compgen complete compopt
		continue coproc declare dirs disown do done echo elif else enable esac eval exec exit export false fc fg fi for
		function getopts hash help history if in jobs kill let local logout mapfile popd printf pushd pwd read readarray
		readonly return select set shift shopt source suspend test then time times trap true type typeset ulimit umask
		unalias unset until wait while`) {
		m[w] = true
	}
	return m
}()

// find looks for a program as a shell would. Variables that change what a shell does before it runs
// anything leave the decision to the shell.
func find(name string, env []string, dir string) string {
	path := ""
	for _, v := range env {
		switch k, val, _ := strings.Cut(v, "="); {
		case k == "PATH":
			path = val
		case k == "BASH_ENV" || k == "ENV" || k == "SHELLOPTS" || k == "BASHOPTS" || strings.HasPrefix(k, "BASH_FUNC_"):
			return ""
		}
	}
	if strings.Contains(name, "/") {
		p := name
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		if executable(p) {
			return name // as written: the process is in dir when it is executed, and a script sees its name
		}
		return ""
	}
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		if p := filepath.Join(d, name); executable(p) {
			return p
		}
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
