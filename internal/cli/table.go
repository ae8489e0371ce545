package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berthml/berth/internal/spec"
)

// table is rows for people. The last column takes what room is left.
type table struct {
	header []string
	rows   [][]cell
	whole  bool // the last column is not cut off at the width of the terminal
}

type cell struct{ text, color string }

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

func (s *session) printRows(t table) error {
	for _, row := range t.rows {
		for i := range row {
			row[i].text = legible(row[i].text)
		}
	}
	widths := make([]int, len(t.header))
	for i, h := range t.header {
		widths[i] = len(h)
	}
	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	limit := s.out.width()
	var b strings.Builder
	line := func(row []cell) {
		used := 0
		for i, c := range row {
			text := c.text
			if i == len(row)-1 {
				if limit > 0 && !t.whole {
					text = clip(text, max(10, limit-used))
				}
				b.WriteString(s.paint(s.out, c.color, text))
				break
			}
			b.WriteString(s.paint(s.out, c.color, text))
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+2))
			used += widths[i] + 2
		}
		b.WriteByte('\n')
	}
	head := make([]cell, len(t.header))
	for i, h := range t.header {
		head[i] = cell{h, bold}
	}
	line(head)
	for _, row := range t.rows {
		line(row)
	}
	_, err := io.WriteString(s.out, b.String())
	return err
}

// clip shortens text to n characters.
func clip(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// legible is text whose control characters are shown, not obeyed; line breaks stay.
func legible(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = spec.Printable(line)
	}
	return strings.Join(lines, "\n")
}

// oneLine is text without line breaks and control characters, for a cell.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.TrimSpace(text))
}

// span is a duration for people.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// size is a number of bytes for people.
func size(n int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	f := float64(n)
	i := 0
	for f >= 1000 && i < len(units)-1 {
		f, i = f/1000, i+1
	}
	if i == 0 || f >= 100 {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

func plural[N int | int64](n N, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
