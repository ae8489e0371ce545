package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berthml/berth/internal/jmes"
)

// The forms tsv and table of az, to the character where scripts cut them apart.

// column is a column of a table: a heading, and where its value is in the entity.
type column struct{ head, path string }

// printTSV prints values without keys: a line for each item, a tab between values, in the order of
// the keys. A list inside is its length, an object nothing. Even makes a column the same member in
// every line, and each of several values stays in its place whatever is in it; az leaves out what
// an item lacks, and writes tabs and ends of lines as they are.
func printTSV(w io.Writer, v any, even bool) error {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	all := map[string]any{}
	for _, item := range list {
		if m, ok := item.(map[string]any); ok && even {
			maps.Copy(all, m)
		}
	}
	names := keys(all)
	var b strings.Builder
	for _, item := range list {
		var cells []string
		switch x := item.(type) {
		case map[string]any:
			if !even {
				names = keys(x)
			}
			for _, k := range names {
				e, there := x[k]
				if !there {
					e = map[string]any{}
				}
				cells = append(cells, tsvCell(e))
			}
		case *jmes.Object:
			for _, k := range x.Keys {
				cells = append(cells, tsvCell(x.Values[k]))
			}
		case []any:
			for _, e := range x {
				cells = append(cells, tsvCell(e))
			}
		case bool:
			cells = []string{fmt.Sprint(x)}
		default:
			cells = []string{tsvCell(x)}
		}
		if even && (len(cells) > 1 || len(list) > 1) {
			for i, cell := range cells {
				cells[i] = parted.Replace(cell)
			}
		}
		b.WriteString(strings.Join(cells, "\t"))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// parted takes out of a value what parts values.
var parted = strings.NewReplacer("\t", " ", "\r\n", " ", "\n", " ", "\r", " ")

// tsvCell is a value as Python writes it.
func tsvCell(v any) string {
	switch x := v.(type) {
	case nil:
		return "None"
	case bool:
		if x {
			return "True"
		}
		return "False"
	case []any:
		return fmt.Sprint(len(x))
	}
	return scalar(v)
}

// scalar is the text of a value; lists and objects have none.
func scalar(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case json.Number:
		return x.String()
	case bool:
		return fmt.Sprint(x)
	}
	return ""
}

// hiddenInTables are members no table shows unless a query asks for them.
var hiddenInTables = map[string]bool{"id": true, "type": true, "etag": true}

// printTable prints objects as a table. Without columns these are the members that are scalars,
// sorted by name where sorted is set, in the order of the query where not.
func printTable(w io.Writer, v any, columns []column, sorted bool) error {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	t := &azTable{at: map[string]int{}}
	for _, c := range columns { // in their order, those that anything stands in
		for _, item := range list {
			if m, ok := item.(map[string]any); ok && shownInTable(at(m, c.path)) {
				t.head(capital(c.head))
			}
		}
	}
	for _, item := range list {
		row := map[string]string{}
		add := func(head string, v any) {
			if shownInTable(v) {
				head = capital(head)
				t.head(head)
				row[head] = azCell(v)
			}
		}
		switch x := item.(type) {
		case map[string]any:
			if len(columns) > 0 {
				for _, c := range columns {
					add(c.head, at(x, c.path))
				}
				break
			}
			for _, k := range keys(x) {
				if !hiddenInTables[k] {
					add(k, x[k])
				}
			}
		case *jmes.Object:
			names := x.Keys
			if sorted {
				names = slices.Sorted(slices.Values(names))
			}
			for _, k := range names {
				if !hiddenInTables[k] {
					add(k, x.Values[k])
				}
			}
		case []any:
			for i, e := range x {
				head := fmt.Sprintf("Column%d", i+1)
				t.head(head)
				row[head] = azCell(e)
			}
		default:
			t.head("Result")
			row["Result"] = azCell(x)
		}
		t.rows = append(t.rows, row)
	}
	_, err := io.WriteString(w, t.String())
	return err
}

func shownInTable(v any) bool {
	switch v.(type) {
	case nil, []any, map[string]any, *jmes.Object:
		return false
	}
	return true
}

// capital is a word with its first letter made large.
func capital(word string) string {
	if word == "" {
		return ""
	}
	return strings.ToUpper(word[:1]) + word[1:]
}

// azCell is any value in a cell.
func azCell(v any) string {
	switch v.(type) {
	case nil:
		return ""
	case []any, map[string]any, *jmes.Object:
		return pythonText(v)
	case bool:
		return tsvCell(v)
	}
	return scalar(v)
}

// pythonText is a value as Python writes it, which is what az puts into a cell.
func pythonText(v any) string {
	var parts []string
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			parts = append(parts, pythonText(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		for _, k := range keys(x) {
			parts = append(parts, pythonText(k)+": "+pythonText(x[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case *jmes.Object:
		for _, k := range x.Keys {
			parts = append(parts, pythonText(k)+": "+pythonText(x.Values[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case string:
		quote := "'"
		if strings.Contains(x, "'") && !strings.Contains(x, `"`) {
			quote = `"`
		}
		return quote + strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, quote, `\`+quote).Replace(x) + quote
	}
	return tsvCell(v)
}

// at is a value deep in an entity: names with dots between; of several with | between the first
// that is there. A name with & after it has to be there for what follows.
func at(m map[string]any, path string) any {
	for _, one := range strings.Split(path, "|") {
		var v any = m
		if needs, rest, ok := strings.Cut(one, "&"); ok {
			if one = rest; m[needs] == nil {
				continue
			}
		}
		for _, k := range strings.Split(one, ".") {
			inner, _ := v.(map[string]any)
			v = inner[k]
		}
		if v != nil {
			return v
		}
	}
	return nil
}

// azTable is a table as az draws it: headings, dashes, two blanks between columns.
type azTable struct {
	heads []string
	at    map[string]int
	rows  []map[string]string
}

func (t *azTable) head(name string) {
	if _, ok := t.at[name]; !ok {
		t.at[name] = len(t.heads)
		t.heads = append(t.heads, name)
	}
}

func (t *azTable) String() string {
	if len(t.heads) == 0 {
		return "\n"
	}
	for _, row := range t.rows {
		for k, text := range row {
			row[k] = legible(text)
		}
	}
	widths := make([]int, len(t.heads))
	for i, h := range t.heads {
		widths[i] = utf8.RuneCountInString(h) + 2 // a column is a little wider than its heading
		for _, row := range t.rows {
			for _, line := range strings.Split(row[h], "\n") {
				widths[i] = max(widths[i], utf8.RuneCountInString(line))
			}
		}
	}
	var b strings.Builder
	line := func(cell func(i int) string) {
		var one strings.Builder
		for i := range t.heads {
			text := cell(i)
			one.WriteString(text)
			one.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+2))
		}
		b.WriteString(strings.TrimRight(one.String(), " "))
		b.WriteByte('\n')
	}
	line(func(i int) string { return t.heads[i] })
	line(func(i int) string { return strings.Repeat("-", widths[i]) })
	for _, row := range t.rows {
		height := 1
		for _, h := range t.heads {
			height = max(height, strings.Count(strings.TrimRight(row[h], "\n"), "\n")+1)
		}
		for k := range height {
			line(func(i int) string {
				if lines := strings.Split(row[t.heads[i]], "\n"); k < len(lines) {
					return lines[k]
				}
				return ""
			})
		}
	}
	return b.String()
}

func keys(m map[string]any) []string { return sortedKeys(m) }
