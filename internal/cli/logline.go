package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// logHandler is where a server in the foreground logs: lines for people on a terminal, logfmt for
// programs elsewhere.
func (s *session) logHandler(level slog.Level) slog.Handler {
	if !s.err.tty {
		return slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: level})
	}
	return &lineHandler{s: s, level: level, mu: &sync.Mutex{}}
}

// lineHandler writes a time, what happened, and to what.
type lineHandler struct {
	s     *session
	level slog.Level
	mu    *sync.Mutex
	attrs []slog.Attr
	group string
}

func (h *lineHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	var more []string
	add := func(a slog.Attr) bool {
		if a.Key != "" {
			more = append(more, h.group+a.Key+" "+oneLine(a.Value.Resolve().String()))
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	mark := ""
	switch {
	case r.Level >= slog.LevelError:
		mark = h.s.paint(h.s.err, red, "error: ")
	case r.Level >= slog.LevelWarn:
		mark = h.s.paint(h.s.err, yellow, "warning: ")
	}
	line := h.s.paint(h.s.err, dim, r.Time.Format("15:04:05")) + "  " + mark + r.Message
	if len(more) > 0 {
		line += h.s.paint(h.s.err, dim, "  "+strings.Join(more, ", "))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := fmt.Fprintln(h.s.err, line)
	return err
}

func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	other := *h
	other.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)
	return &other
}

func (h *lineHandler) WithGroup(name string) slog.Handler {
	other := *h
	other.group += name + "."
	return &other
}
