package migrate

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// What a server that is imported from may send. MLflow's answers are far below; a server that is
// none, or is broken, ends here.
const (
	maxAnswer   = 128 << 20 // bytes of an answer that is not a file
	maxList     = 512 << 20 // bytes of the pages of a list that is read whole
	maxPages    = 100_000   // of a list
	maxEmpty    = 100       // pages without anything, one after the other
	maxName     = 8 << 10   // bytes of an id, a name or a path
	maxUnlisted = 64 << 30  // bytes of a file that is listed without a size
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

// strange says that an answer is not one of MLflow.
func (s *server) strange(path string, err error) error {
	return berth.Errorf(berth.Invalid, "the response of the MLflow server %s to %s is not as MLflow's: %s", s.base, path, clip(err.Error()))
}

// checkName refuses a name that no thing of MLflow has.
func checkName(name string) error {
	if len(name) > maxName {
		return berth.Errorf(berth.Invalid, "its id, name or path has %d bytes; at most %d are imported", len(name), maxName)
	}
	return nil
}

// pages watches over the pages of a list.
type pages struct {
	of       string // what is listed
	whole    bool   // the list is held in memory
	n, empty int
	size     int64
	seen     map[[16]byte]bool // tokens
}

// more says whether there is another page after one with some things, from the token of the next.
func (p *pages) more(token string, things int, size int64) (bool, error) {
	p.n++
	p.size += size
	if p.empty++; things > 0 {
		p.empty = 0
	}
	if p.whole && p.size > maxList {
		return false, berth.Errorf(berth.Invalid, "the list of %s has more than %d MiB", p.of, maxList>>20)
	}
	if token == "" {
		return false, nil
	}
	h := sha256.Sum256([]byte(token))
	key := [16]byte(h[:])
	switch {
	case p.seen[key]:
		return false, berth.Errorf(berth.Invalid, "the list of %s does not end: page %d has the token of an earlier page", p.of, p.n)
	case p.empty == maxEmpty:
		return false, berth.Errorf(berth.Invalid, "the list of %s does not end: %d pages in a row have nothing", p.of, maxEmpty)
	case p.n == maxPages:
		return false, berth.Errorf(berth.Invalid, "the list of %s has more than %d pages", p.of, maxPages)
	}
	if p.seen == nil {
		p.seen = map[[16]byte]bool{}
	}
	p.seen[key] = true
	return true, nil
}

// errSilent is the cause of a request that took too long.
var errSilent = errors.New("it did not finish in time")

// silent says that the server took too long, if it did, and is err otherwise.
func (s *server) silent(ctx context.Context, path string, err error) error {
	if err == nil || context.Cause(ctx) != errSilent {
		return err
	}
	return berth.Errorf(berth.Unavailable, "the MLflow server %s took more than %s to answer %s: %w; import again to go on", s.base, s.patience, clip(path), errSilent)
}

// answer is what a server sends, up to a number of bytes.
type answer struct {
	body io.Reader
	n    int64
	most int64
}

func (a *answer) Read(b []byte) (int, error) {
	if a.n > a.most {
		return 0, berth.Errorf(berth.Invalid, "it has more than %d MiB", a.most>>20)
	}
	n, err := a.body.Read(b)
	a.n += int64(n)
	return n, err
}

// remote is a file that a server sends. It has to keep coming, and ends where its list says.
type remote struct {
	s    *server
	ctx  context.Context
	end  context.CancelCauseFunc
	body io.ReadCloser
	name string
	room int64 // bytes that may come still
	// left is how much of the server's time is left, for so many bytes that came in it.
	left time.Duration
	came int64
}

func (f *remote) Read(b []byte) (int, error) {
	timer, begun := time.AfterFunc(f.left, func() { f.end(errSilent) }), time.Now()
	n, err := f.body.Read(b)
	timer.Stop()
	f.left -= time.Since(begun) // and not while others take what came
	if f.came += int64(n); f.came >= progress {
		f.left, f.came = f.s.patience, 0
	}
	if f.room -= int64(n); f.room < 0 {
		return 0, berth.Errorf(berth.Invalid, "it has more bytes than the MLflow server has listed; import again when nothing writes to it")
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	if late := f.s.silent(f.ctx, "with the file "+f.name, err); late != err {
		return n, late
	}
	return n, berth.Errorf(berth.Unavailable, "reading the file %s from the MLflow server %s: %w", clip(f.name), f.s.base, err)
}

func (f *remote) Close() error {
	f.end(context.Canceled)
	return f.body.Close()
}
