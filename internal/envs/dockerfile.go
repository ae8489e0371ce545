package envs

import (
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/docker"
)

// maxDockerfile bounds a Dockerfile.
const maxDockerfile = 1 << 20

// readDockerfile reads a Dockerfile, and refuses one that names an image which this cache made of
// somebody's files.
func (e *engine) readDockerfile(ctx context.Context, root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDockerfile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxDockerfile {
		return nil, berth.Errorf(berth.Invalid, "%s is larger than %d bytes", name, maxDockerfile)
	}
	refs, err := imagesOf(string(text))
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "%s: %w", name, err)
	}
	for _, ref := range refs {
		if err := e.mayName(ctx, ref); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// mayName refuses an image that this cache made, by whatever name an engine knows it.
func (e *engine) mayName(ctx context.Context, ref string) error {
	low := strings.ToLower(ref)
	for _, own := range []string{ownDerived, ownBuilt} {
		if strings.Contains(low, strings.TrimPrefix(own, "localhost/")) {
			return ownImageError(ref)
		}
	}
	res, err := e.cli.Image(ctx, ref)
	switch {
	case err == nil && onlyOwn(res.Names):
		return ownImageError(ref) // it was named by its id
	case err != nil && docker.Status(err) != http.StatusNotFound && docker.Status(err) != http.StatusBadRequest:
		return engineError("looking for image "+ref, err)
	}
	return nil
}

// onlyOwn says whether an image has names, and none but those that this cache gave it.
func onlyOwn(names []string) bool {
	return len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return !isOwnImage(n) })
}

// dockerfileForms find images in the instructions of a Dockerfile.
type dockerfileForms struct{ from, flag, mount, arg, variable *regexp.Regexp }

var dockerForms = sync.OnceValue(func() dockerfileForms {
	return dockerfileForms{
		from:     regexp.MustCompile(`(?i)^\s*FROM((?:\s+--\S+)*)\s+(\S+)(?:\s+AS\s+(\S+))?`),
		flag:     regexp.MustCompile(`(?i)^\s*(?:ONBUILD\s+)?(?:COPY|ADD)\s.*?--from[=\s]\s*(\S+)`),
		mount:    regexp.MustCompile(`(?i)--mount[=\s]\S*\bfrom=([^,\s]+)`),
		arg:      regexp.MustCompile(`(?i)^\s*ARG\s+(.*)$`),
		variable: regexp.MustCompile(`\$(?:\{(\w+)(?::-([^}$]*))?\}|(\w+))`),
	}
})

// imagesOf are the images that a Dockerfile names. Lines are read both as they are and joined to
// the instructions they are parts of: whatever else they may be, an instruction is not missed.
func imagesOf(text string) ([]string, error) {
	forms := dockerForms()
	args, stages := map[string]string{}, map[string]bool{"scratch": true}
	var out []string
	add := func(ref string) error {
		ref = strings.Trim(ref, `"'`)
		if strings.HasSuffix(ref, `\`) || strings.HasSuffix(ref, "`") {
			return nil // it goes on, and was seen joined
		}
		if ref == "" || stages[strings.ToLower(ref)] || strings.Trim(ref, "0123456789") == "" && len(ref) < 4 {
			return nil
		}
		if strings.ContainsAny(ref, "$\\`") {
			return berth.Errorf(berth.Invalid, "image %s cannot be told before the build: write its name, or use a variable that an ARG before FROM sets", ref)
		}
		out = append(out, ref)
		return nil
	}
	for _, line := range append(instructions(text), strings.Split(text, "\n")...) {
		if m := forms.arg.FindStringSubmatch(line); m != nil {
			for word := range strings.FieldsSeq(m[1]) {
				if name, value, ok := strings.Cut(word, "="); ok {
					args[name] = expandArgs(strings.Trim(value, `"'`), args)
				}
			}
		}
		if m := forms.from.FindStringSubmatch(line); m != nil {
			if err := add(expandArgs(m[2], args)); err != nil {
				return nil, err
			}
			stages[strings.ToLower(m[3])] = true
		}
		for _, form := range []*regexp.Regexp{forms.flag, forms.mount} {
			for _, m := range form.FindAllStringSubmatch(line, -1) {
				if err := add(m[1]); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// expandArgs fills in the variables that are known.
func expandArgs(s string, args map[string]string) string {
	return dockerForms().variable.ReplaceAllStringFunc(s, func(v string) string {
		m := dockerForms().variable.FindStringSubmatch(v)
		value, ok := args[m[1]+m[3]]
		switch {
		case ok && value != "":
			return value
		case m[2] != "":
			return m[2]
		}
		return v
	})
}

// instructions are the lines of a Dockerfile, with those that go on joined, without comments. A
// line goes on after a backslash, or after a backquote where the file says so.
func instructions(text string) (out []string) {
	joined := ""
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, " \t\r")
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		if rest, ok := strings.CutSuffix(line, `\`); ok {
			joined += rest
			continue
		}
		if rest, ok := strings.CutSuffix(line, "`"); ok {
			joined += rest
			continue
		}
		out = append(out, joined+line)
		joined = ""
	}
	return append(out, joined)
}
