package cli

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// progress is one line at the bottom of a terminal that tells what goes on. On anything else it is
// silent.
type progress struct {
	s     *session
	mu    sync.Mutex
	text  string
	since time.Time
	shown bool
	cell  bool // the terminal is the output of a notebook's cell, which shows escape sequences
	wide  int  // columns of the line that is shown there
	quit  chan struct{}
	done  chan struct{}
}

// newProgress returns a line; stop ends it.
func (s *session) newProgress() *progress {
	p := &progress{s: s, cell: os.Getenv("JPY_PARENT_PID") != ""} // set in kernels of Jupyter
	if !s.err.tty || s.quiet {
		return p
	}
	p.quit, p.done = make(chan struct{}), make(chan struct{})
	go p.tick()
	return p
}

func (p *progress) active() bool { return p.quit != nil }

func (p *progress) tick() {
	defer close(p.done)
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-t.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// set changes what the line says; "" hides it. The seconds begin again when the text's first word
// changes.
func (p *progress) set(format string, args ...any) {
	if !p.active() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if text == p.text {
		return
	}
	if word(text) != word(p.text) {
		p.since = time.Now()
	}
	p.text = text
	if p.shown { // what is over before the next tick is not worth a flicker
		p.draw()
	}
}

func word(text string) string {
	for i, r := range text {
		if r == ' ' || r == ':' {
			return text[:i]
		}
	}
	return text
}

// draw writes the line. The caller holds the lock.
func (p *progress) draw() {
	if p.text == "" {
		p.clear()
		return
	}
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	frame := string(frames[int(time.Since(p.since)/(100*time.Millisecond))%len(frames)])
	line := frame + " " + clip(oneLine(p.text), max(20, p.s.err.width()-16)) + "  " + span(time.Since(p.since).Truncate(100*time.Millisecond))
	columns := wide(line)
	if p.cell {
		fmt.Fprint(p.s.err, "\r"+line+blanks(p.wide-columns))
	} else {
		fmt.Fprint(p.s.err, "\r\x1b[K"+p.s.paint(p.s.err, cyan, line))
	}
	p.shown, p.wide = true, columns
}

func (p *progress) clear() {
	if p.shown {
		if p.cell {
			fmt.Fprint(p.s.err, "\r"+blanks(p.wide)+"\r")
		} else {
			fmt.Fprint(p.s.err, "\r\x1b[K")
		}
		p.shown, p.wide = false, 0
	}
}

// blanks hide what a line leaves behind.
func blanks(n int) string { return strings.Repeat(" ", max(0, n)) }

// aside runs f with the line out of the way, so that f may print.
func (p *progress) aside(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	f()
}

// stop removes the line for good.
func (p *progress) stop() {
	if !p.active() {
		return
	}
	p.mu.Lock()
	p.text = ""
	p.clear()
	p.mu.Unlock()
	close(p.quit)
	<-p.done
	p.quit = nil
}
