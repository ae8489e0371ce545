package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
)

// format is how a result is printed.
type format struct {
	name  string
	az    bool // Azure's default, JSON, instead of tables for people
	query string
}

var formats = []string{"json", "jsonc", "yaml", "yamlc", "table", "tsv", "none"}

// flags adds -o to a command that prints a result.
func (f *format) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.name, "output", "o", "", "format of the result: json, jsonc, yaml, yamlc, table, tsv or none")
	cmd.Flags().StringVar(&f.query, "query", "", "JMESPath query of the result (not supported yet)")
}

// chosen reports whether the user asked for a machine's form.
func (f *format) chosen() bool { return f.az || f.query != "" || (f.name != "" && f.name != "table") }

func (f *format) check() error {
	if f.name != "" && !slices.Contains(formats, f.name) {
		return usagef("-o %s: the formats are %s", f.name, strings.Join(formats, ", "))
	}
	return nil
}

// print prints a result in the format chosen, YAML when none is.
func (s *session) print(v any) error {
	if err := s.format.check(); err != nil {
		return err
	}
	name := s.format.name
	switch {
	case name != "":
	case s.format.az, s.format.query != "":
		name = "json"
	default:
		name = "yaml"
	}
	v, err := plain(v)
	if err != nil {
		return err
	}
	if s.format.query != "" {
		return usagef("--query is not supported yet; use -o json and a program such as jq")
	}
	switch name {
	case "none":
		return nil
	case "yaml", "yamlc":
		return printYAML(s.out, v)
	case "tsv":
		return printTSV(s.out, v)
	case "table":
		return s.printTable(v)
	}
	return printJSON(s.out, v)
}

// plain turns any value into what JSON knows: maps, lists, text, numbers.
func plain(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var out any
	err = dec.Decode(&out)
	return out, err
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func printYAML(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(numbers(v)); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// numbers turns json.Number into numbers, which YAML would quote otherwise.
func numbers(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k := range x {
			x[k] = numbers(x[k])
		}
	case []any:
		for i := range x {
			x[i] = numbers(x[i])
		}
	case json.Number:
		if n, err := x.Int64(); err == nil {
			return n
		}
		if f, err := x.Float64(); err == nil {
			return f
		}
		return x.String()
	}
	return v
}

// printTSV prints values without keys: a line per item, a tab between values. What is not a scalar is left empty, as az does.
func printTSV(w io.Writer, v any) error {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	columns := map[string]any{} // of all items, so that a column is the same value in every line
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			maps.Copy(columns, m)
		}
	}
	for _, item := range list {
		var cells []string
		switch x := item.(type) {
		case map[string]any:
			for _, k := range keys(columns) {
				cells = append(cells, scalar(x[k]))
			}
		case []any:
			for _, e := range x {
				cells = append(cells, scalar(e))
			}
		default:
			cells = []string{scalar(x)}
		}
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return nil
}

// scalar is the text of a value; lists and objects have none.
func scalar(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case json.Number:
		return x.String()
	case bool:
		return strconv.FormatBool(x)
	}
	return ""
}

func keys(m map[string]any) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// printTable prints objects whose columns nobody chose: those members that are scalars in any of them.
func (s *session) printTable(v any) error {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	seen := map[string]any{}
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			return printTSV(s.out, v)
		}
		for k, e := range m {
			if scalar(e) != "" {
				seen[k] = nil
			}
		}
	}
	t := table{}
	columns := keys(seen)
	for _, k := range columns {
		t.header = append(t.header, strings.ToUpper(k))
	}
	for _, item := range list {
		row := make([]cell, len(columns))
		for i, k := range columns {
			row[i].text = scalar(item.(map[string]any)[k])
		}
		t.rows = append(t.rows, row)
	}
	return s.printRows(t)
}

// table is rows for people. The last column takes what room is left.
type table struct {
	header []string
	rows   [][]cell
}

type cell struct{ text, color string }

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

func (s *session) printRows(t table) error {
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
				if limit > 0 {
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

// oneLine is text without line breaks and control characters, for a cell.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
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

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// jsonLine prints one value on one line, for streams.
func jsonLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
