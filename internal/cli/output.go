package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/internal/jmes"
)

// format is how a result is printed.
type format struct {
	name  string
	az    bool // Azure's default, JSON, instead of tables for people
	query string
	expr  *jmes.Expr    // of query
	kept  func() string // the form that az config keeps
}

var formats = []string{"json", "jsonc", "yaml", "yamlc", "table", "tsv", "none"}

// flags adds -o and --query to a command that prints a result.
func (f *format) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.name, "output", "o", "", "format of the result: json, jsonc, yaml, yamlc, table, tsv or none")
	cmd.Flags().StringVar(&f.query, "query", "", "JMESPath query to apply to the result")
}

// chosen reports whether the user asked for a machine's form.
func (f *format) chosen() bool { return f.az || f.query != "" || (f.name != "" && f.name != "table") }

// plainly reports whether nothing was said about the form, so that people get what reads best.
func (f *format) plainly() bool { return !f.az && f.query == "" && f.name == "" }

// check refuses a form nobody knows and a query that does not parse, before anything is done.
func (f *format) check() error {
	if f.name == "" && f.az {
		if f.name = os.Getenv("AZURE_CORE_OUTPUT"); f.name == "" && f.kept != nil {
			f.name = f.kept()
		}
	}
	f.name = strings.ToLower(f.name)
	if f.name != "" && !slices.Contains(formats, f.name) {
		return usagef("-o %s: the formats are %s", f.name, strings.Join(formats, ", "))
	}
	if f.query == "" || f.expr != nil {
		return nil
	}
	var err error
	if f.expr, err = jmes.Parse(f.query); err != nil {
		if bad, ok := err.(*jmes.SyntaxError); ok && bad.Call {
			return latef("--query: %v", err)
		}
		return usagef("--query: %v", err)
	}
	return nil
}

// print prints a result in the format chosen, YAML when none is. Nothing found by a query prints
// nothing, as in az.
func (s *session) print(v any) error { return s.printAs(v, nil) }

// printAs is print with the columns a table has, where the noun has some of its own.
func (s *session) printAs(v any, columns []column) error {
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
	if name == "none" {
		return nil
	}
	v, err := plain(v)
	if err != nil {
		return err
	}
	if s.format.az {
		addGroups(v)
	}
	if s.format.expr != nil {
		if v, err = s.format.expr.Search(v); err != nil {
			return latef("--query %s: %v", s.format.query, err)
		}
		columns = nil
	}
	if v == nil {
		return nil
	}
	if s.format.az && name != "table" && name != "tsv" {
		v = unordered(v)
	}
	color := s.out.color && strings.HasSuffix(name, "c")
	var out io.Writer = s.out
	if s.out.tty {
		out = &legibleWriter{w: s.out, colors: color}
	}
	switch name {
	case "yaml", "yamlc":
		return printYAML(out, v, color)
	case "tsv":
		return printTSV(out, v, !s.format.az)
	case "table":
		return printTable(out, v, columns, s.format.expr == nil)
	}
	return printJSON(out, v, color)
}

// plain turns any value into what JSON knows: maps, lists, text, numbers.
func plain(v any) (any, error) {
	if isPlain(v) {
		return v, nil
	}
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

// isPlain reports whether a value is plain already, as entities are.
func isPlain(v any) bool {
	switch x := v.(type) {
	case nil, string, bool, json.Number, *jmes.Object:
		return true
	case map[string]any:
		for _, e := range x {
			if !isPlain(e) {
				return false
			}
		}
		return true
	case []any:
		return !slices.ContainsFunc(x, func(e any) bool { return !isPlain(e) })
	}
	return false
}

// addGroups adds the resource group to everything that has an ARM id, as az does.
func addGroups(v any) {
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			addGroups(e)
		}
	case map[string]any:
		if id, ok := x["id"].(string); ok && x["resourceGroup"] == nil {
			parts := strings.Split(strings.TrimPrefix(id, "azureml:"), "/")
			if len(parts) > 5 && parts[0] == "" && strings.EqualFold(parts[1], "subscriptions") && strings.EqualFold(parts[3], "resourceGroups") {
				x["resourceGroup"] = parts[4]
			}
		}
		for _, e := range x {
			addGroups(e)
		}
	}
}

func printJSON(w io.Writer, v any, color bool) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	text := b.Bytes()
	if color {
		text = colorJSON(text)
	}
	_, err := w.Write(text)
	return err
}

// unordered makes plain maps of objects that have an order: az prints JSON and YAML with sorted
// keys.
func unordered(v any) any {
	switch x := v.(type) {
	case *jmes.Object:
		m := make(map[string]any, len(x.Keys))
		for k, e := range x.Values {
			m[k] = unordered(e)
		}
		return m
	case map[string]any:
		for k := range x {
			x[k] = unordered(x[k])
		}
	case []any:
		for i := range x {
			x[i] = unordered(x[i])
		}
	}
	return v
}

// jsonLine prints one value on one line, for streams.
func jsonLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
