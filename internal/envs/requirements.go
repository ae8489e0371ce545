package envs

import (
	"slices"
	"strings"
	"unicode"

	"github.com/berthml/berth"
)

// An option is a line of a requirements file that is not a requirement, for example
// --extra-index-url URL.
type option struct{ Name, Value string }

// uvOptions are the options of requirements files that are passed on, and what uv calls them.
var uvOptions = map[string]string{
	"-i": "--index-url", "--index-url": "--index-url",
	"--extra-index-url": "--extra-index-url",
	"-f":                "--find-links", "--find-links": "--find-links",
	"--no-binary": "--no-binary", "--only-binary": "--only-binary",
	"--trusted-host": "--allow-insecure-host",
	"--no-index":     "--no-index", "--require-hashes": "--require-hashes",
	"--pre": "--prerelease",
}

// quiet are options that mean nothing to uv.
var quiet = map[string]bool{
	"--prefer-binary": true, "--use-pep517": true, "--no-cache-dir": true, "--use-feature": true,
	"--disable-pip-version-check": true, "-q": true, "--quiet": true, "-v": true, "--verbose": true, "-U": true, "--upgrade": true,
}

var (
	comment = pattern(`(^|\s)#.*$`)
	// remote is an address elsewhere, by itself or with a version control system before it.
	remote = pattern(`(?i)^((git|hg|svn|bzr)\+)?(https?|ssh|git|ftps?|sftp)://[^/\s]`)
	scp    = pattern(`(?i)^git\+[a-z0-9_.-]+@[a-z0-9.-]+:`)
	// direct is a requirement with the address it is at: name[extra]@address, with or without
	// blanks.
	direct = pattern(`^\s*[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[[^\]]*\])?\s*@\s*(.*)$`)
)

// addRequirements adds the lines of a requirements file; where names it in errors.
func (r *request) addRequirements(text, where string) error {
	for _, line := range logical(text) {
		if err := r.addRequirement(line, where); err != nil {
			return err
		}
	}
	return nil
}

// logical splits a requirements file into lines without comments and with continuations joined.
func logical(text string) []string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.TrimPrefix(text, "\ufeff")
	var out []string
	var pending string
	for line := range strings.SplitSeq(text, "\n") {
		line = comment().ReplaceAllString(line, "")
		if l, ok := strings.CutSuffix(strings.TrimRight(line, " \t"), `\`); ok {
			pending += l + " "
			continue
		}
		if line = strings.TrimSpace(pending + line); line != "" {
			out = append(out, line)
		}
		pending = ""
	}
	if pending = strings.TrimSpace(pending); pending != "" {
		out = append(out, pending)
	}
	return out
}

func (r *request) addRequirement(line, where string) error {
	if strings.ContainsFunc(line, func(c rune) bool { return unicode.IsControl(c) && c != '\t' }) {
		return berth.Errorf(berth.Invalid, "%s: %q has a control character in it", where, line)
	}
	if strings.HasPrefix(line, "-") {
		return r.addOption(line, where)
	}
	// "name --hash=…" and per-requirement options stay with the requirement: uv reads them.
	if local(line) {
		return berth.Errorf(berth.Invalid, "%s: %q is a path, and files of the machine the job was sent from are not on the node: "+
			"put the package into the job's code folder and install it in the command, or name a version of an index", where, line)
	}
	r.Requirements = append(r.Requirements, line)
	return nil
}

// local reports whether a requirement names files.
func local(line string) bool {
	if remote().MatchString(line) || scp().MatchString(line) {
		return false
	}
	if m := direct().FindStringSubmatch(line); m != nil { // what it is at must be elsewhere
		return !remote().MatchString(m[1]) && !scp().MatchString(m[1])
	}
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "~") {
		return true
	}
	spec, _, _ := strings.Cut(line, ";")
	spec, _, _ = strings.Cut(spec, " -") // --hash=… and the like
	spec = strings.TrimSpace(spec)
	return strings.ContainsAny(spec, `/\:`) || strings.HasSuffix(spec, ".whl") || strings.HasSuffix(spec, ".tar.gz") || strings.HasSuffix(spec, ".zip")
}

func (r *request) addOption(line, where string) error {
	name, value, ok := strings.Cut(line, "=")
	if !ok || strings.ContainsAny(name, " \t") {
		name, value, _ = strings.Cut(line, " ")
	}
	name, value = strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"'`)
	switch name {
	case "-r", "--requirement", "-c", "--constraint":
		return berth.Errorf(berth.Invalid, "%s: %q names another file, which is not part of the environment: put the lines of %s here", where, line, value)
	case "-e", "--editable":
		return berth.Errorf(berth.Invalid, "%s: %q asks for an editable install, which an environment that jobs share cannot have: "+
			"put the package into the job's code folder, or name a version of an index", where, line)
	}
	if quiet[name] {
		return nil
	}
	uv, ok := uvOptions[name]
	if !ok {
		// -fURL and the like: short options may be glued to their value.
		if len(name) > 2 && name[1] != '-' && uvOptions[name[:2]] != "" {
			return r.addOption(line[:2]+" "+line[2:], where)
		}
		return berth.Errorf(berth.Invalid, "%s: option %s is not supported: take it out", where, name)
	}
	if strings.ContainsAny(value, " \t") {
		return berth.Errorf(berth.Invalid, "%s: %q has more than one option on a line: put each on a line of its own", where, line)
	}
	if name == "--pre" {
		value = "allow"
	}
	if addressed[uv] && !remote().MatchString(value) {
		return berth.Errorf(berth.Invalid, "%s: %q names a folder, and files of the machine the job was sent from are not on the node", where, line)
	}
	if uv == "--no-binary" || uv == "--only-binary" {
		for v := range strings.SplitSeq(value, ",") {
			r.Options = append(r.Options, option{uv, strings.TrimSpace(v)})
		}
		return nil
	}
	r.Options = append(r.Options, option{uv, value})
	return nil
}

// file is the text of a requirements file for uv. Options that carry addresses are in it rather
// than on the command line, where anybody on the node could read their passwords.
func (r *request) file() string {
	var b strings.Builder
	for _, o := range r.Options {
		if addressed[o.Name] {
			b.WriteString(o.Name + " " + o.Value + "\n")
		}
	}
	for _, q := range slices.Concat(r.Requirements, r.Implied) {
		b.WriteString(q + "\n")
	}
	return b.String()
}

var addressed = map[string]bool{"--index-url": true, "--extra-index-url": true, "--find-links": true}

// args are the other options, as uv takes them.
func (r *request) args() []string {
	var out []string
	mixed := false
	for _, o := range r.Options {
		mixed = mixed || o.Name == "--extra-index-url"
		if addressed[o.Name] {
			continue
		}
		out = append(out, o.Name)
		if o.Value != "" {
			out = append(out, o.Value)
		}
	}
	if mixed {
		// What pip does, and what whoever wrote the file saw: the best version of all indexes, not
		// of the first.
		out = append(out, "--index-strategy", "unsafe-best-match")
	}
	return out
}
