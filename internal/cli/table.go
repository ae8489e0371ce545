package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth/internal/spec"
)

// table is rows for people. The last column takes what room is left, unless flex says otherwise.
type table struct {
	header []string
	rows   [][]cell
	flex   [][]flexible // shortened where a terminal is too narrow, the first group before the others
}

type cell struct{ text, color string }

// A flexible column can be shortened to least columns of the terminal.
type flexible struct {
	column, least int
	cut           func(text string, n int) string // clip if nil
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

// drop leaves out a column.
func (t *table) drop(column int) {
	t.header = slices.Delete(t.header, column, column+1)
	for i, row := range t.rows {
		t.rows[i] = slices.Delete(row, column, column+1)
	}
	for g, group := range t.flex {
		group = slices.DeleteFunc(group, func(f flexible) bool { return f.column == column })
		for i := range group {
			if group[i].column > column {
				group[i].column--
			}
		}
		t.flex[g] = group
	}
}

// fit makes the cells legible and returns how wide the columns are within limit characters; 0 is no
// limit.
func (t *table) fit(limit int) []int {
	widths := make([]int, len(t.header))
	for i, h := range t.header {
		widths[i] = wide(h)
	}
	for _, row := range t.rows {
		for i := range row {
			row[i].text = legible(row[i].text)
			widths[i] = max(widths[i], wide(row[i].text))
		}
	}
	if limit == 0 {
		return widths
	}
	over := 2*(len(widths)-1) - limit
	for _, w := range widths {
		over += w
	}
	for _, group := range t.flex {
		over = shorten(widths, group, over)
	}
	return widths
}

// shorten takes over characters from the widest columns of a group. It returns how many it could
// not take.
func shorten(widths []int, group []flexible, over int) int {
	for over > 0 {
		widest := -1
		for _, f := range group {
			if w := widths[f.column]; w > f.least && (widest < 0 || w > widths[widest]) {
				widest = f.column
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		over--
	}
	return over
}

func (s *session) printRows(t table) error {
	limit := s.out.width()
	widths := t.fit(limit)
	cut := make([]func(string, int) string, len(widths))
	for _, group := range t.flex {
		for _, f := range group {
			if cut[f.column] = f.cut; f.cut == nil {
				cut[f.column] = clip
			}
		}
	}
	var b strings.Builder
	line := func(row []cell, head bool) {
		used := 0
		for i, c := range row {
			text := c.text
			switch {
			case cut[i] != nil && head:
				text = clip(text, widths[i])
			case cut[i] != nil:
				text = cut[i](text, widths[i])
			case i == len(row)-1 && limit > 0:
				text = clip(text, max(10, limit-used))
			}
			b.WriteString(s.paint(s.out, c.color, text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-wide(text)+2))
				used += widths[i] + 2
			}
		}
		b.WriteByte('\n')
	}
	head := make([]cell, len(t.header))
	for i, h := range t.header {
		head[i] = cell{h, bold}
	}
	line(head, true)
	for _, row := range t.rows {
		line(row, false)
	}
	_, err := io.WriteString(s.out, b.String())
	return err
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
