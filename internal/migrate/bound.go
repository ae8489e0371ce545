package migrate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/berthml/berth"
)

// What a server that is imported from may send. MLflow's answers are far below; a server that is
// none, or is broken, ends here.
const (
	maxAnswer   = 128 << 20 // bytes of an answer that is read whole
	maxHistory  = 16 << 30  // bytes of an answer with points, which are not held
	maxPoint    = 1 << 20   // bytes of a point
	maxList     = 256 << 20 // bytes of the pages of a list that is read whole
	maxElements = 1_000_000 // elements of the lists, also those inside of others, that are held
	maxPages    = 100_000   // of a list
	maxEmpty    = 100       // pages without anything, one after the other
	maxName     = 8 << 10   // bytes of an id, a name or a path
	maxUnlisted = 8 << 30   // bytes of a file that is listed without a size
	// progress is how many bytes of a file have to come in the time that a server has for an
	// answer.
	progress = 1 << 20
)

// Patience is how long people wait for an answer of a server.
const Patience = 5 * time.Minute

// maxText is how much of a text about a source is told, in bytes.
const maxText = 2000

// clip is a text for people, without the end of a long one.
func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// The ends of sentences about what a source sends.
const (
	checkSource = "check that --from is an MLflow server"
	makeLess    = "delete what is not needed there, then import again"
	copyFiles   = "copy its files by hand"
)

// notMLflow says that an answer is not one of MLflow.
func (s *server) notMLflow(path string, err error) error {
	return berth.Errorf(berth.Invalid, "the response of the MLflow server %s to %s is not as MLflow's: %s; "+checkSource, s.base, path, clip(err.Error()))
}

// checkName refuses a name that no thing of MLflow has.
func checkName(name string) error {
	if len(name) > maxName {
		return berth.Errorf(berth.Invalid, "its id, name or path has %d bytes; at most %d are imported: rename it there, or copy it by hand", len(name), maxName)
	}
	return nil
}

// checkPath refuses the path of a file that programs would misread, which list files by lines.
func checkPath(path string) error {
	if strings.ContainsFunc(path, unicode.IsControl) {
		return berth.Errorf(berth.Invalid, "its path has control characters, such as ends of lines: rename it there")
	}
	return checkName(path)
}

// pages watches over the pages of a list.
type pages struct {
	of, key  string // what is listed, and the list's name in the answers
	whole    bool   // the list is held in memory
	n, empty int
	size     int64
	elements int               // of a list that is held
	seen     map[[16]byte]bool // tokens
}

// decode decodes an element of the list. It bounds how many elements of lists are held: those of a
// list that is read whole, otherwise those inside of this element. An element of a few bytes takes
// a hundred in memory, so that a bound on bytes is not enough.
func (p *pages) decode(raw json.RawMessage, out ...any) error {
	if !p.whole {
		p.elements = 0
	}
	p.elements += 1 + elements(raw)
	switch {
	case p.elements <= maxElements:
	case p.whole:
		return p.tooMany()
	default:
		return &tooLong{berth.Errorf(berth.Invalid, "its lists have more than %d elements; copy it by hand", maxElements)}
	}
	for _, to := range out {
		if err := json.Unmarshal(raw, to); err != nil {
			return err
		}
	}
	return nil
}

func (p *pages) tooMany() error {
	return &tooLong{berth.Errorf(berth.Invalid, "the list of %s has more than %d elements, with the lists inside of them; "+makeLess, p.of, maxElements)}
}

// tooLong is an answer that is one of MLflow, and is beyond a limit.
type tooLong struct{ error }

func (t *tooLong) Unwrap() error { return t.error }

// isTooLong reports whether an error has a sentence of its own about a limit.
func isTooLong(err error) bool {
	var long *tooLong
	return errors.As(err, &long)
}

// nameOf is what people call an element of a list that is not decoded.
func nameOf(raw json.RawMessage) string {
	var v struct {
		Name string `json:"name"`
		Info struct {
			Run   string `json:"run_id"`
			Model string `json:"model_id"`
		} `json:"info"`
	}
	_ = json.Unmarshal(raw, &v) // it may be anything
	return cmp.Or(v.Info.Run, v.Info.Model, v.Name)
}

// elements is how many elements the lists in valid JSON have, and how many lists there are.
func elements(raw []byte) (n int) {
	var inList []bool // whether each value around the byte is a list
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '[':
			n++
			inList = append(inList, true)
		case '{':
			inList = append(inList, false)
		case ']', '}':
			inList = inList[:len(inList)-1]
		case ',':
			if inList[len(inList)-1] {
				n++
			}
		}
	}
	return n
}

// more says whether there is another page after one with some things, from the token of the next.
func (p *pages) more(token string, things int, size int64) (bool, error) {
	p.n++
	p.size += size
	if p.empty++; things > 0 {
		p.empty = 0
	}
	if p.whole && p.size > maxList {
		return false, berth.Errorf(berth.Invalid, "the list of %s has more than %d MiB; "+makeLess, p.of, maxList>>20)
	}
	if token == "" {
		return false, nil
	}
	h := sha256.Sum256([]byte(token))
	key := [16]byte(h[:])
	switch {
	case p.seen[key]:
		return false, berth.Errorf(berth.Invalid, "the list of %s does not end: page %d has the token of an earlier page; "+checkSource, p.of, p.n)
	case p.empty == maxEmpty:
		return false, berth.Errorf(berth.Invalid, "the list of %s does not end: %d pages in a row have nothing; "+checkSource, p.of, maxEmpty)
	case p.n == maxPages:
		return false, berth.Errorf(berth.Invalid, "the list of %s has more than %d pages; "+makeLess, p.of, maxPages)
	}
	if p.seen == nil {
		p.seen = map[[16]byte]bool{}
	}
	p.seen[key] = true
	return true, nil
}

// errTimeout is the cause of a request that took too long.
var errTimeout = errors.New("it did not finish in time")

// timeoutOr says that the server took too long, if it did, and is err otherwise.
func (s *server) timeoutOr(ctx context.Context, path string, err error) error {
	if err == nil || context.Cause(ctx) != errTimeout {
		return err
	}
	return berth.Errorf(berth.Unavailable, "the MLflow server %s took more than %s to answer %s: %w; import again to go on", s.base, s.patience, clip(path), errTimeout)
}
