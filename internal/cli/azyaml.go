package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/berthml/berth/internal/jmes"
)

// printYAML prints a value as az does: text in single quotes where it would be read as something
// else.
func printYAML(w io.Writer, v any, color bool) error {
	var b bytes.Buffer
	out, err := yaml.NewDumper(&b, yaml.WithV4Defaults())
	if err != nil {
		return err
	}
	root := yamlNode(v)
	if err := out.Dump(root); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	text := []byte(strings.NewReplacer(quoteMark+"'", "'", quoteMark+`"`, `"`).Replace(b.String()))
	if first := text[0]; root.Kind == yaml.ScalarNode && first != '\'' && first != '"' {
		text = append(text, "...\n"...) // a plain word has no end of its own
	}
	if color {
		text = colorYAML(text)
	}
	_, err = w.Write(text)
	return err
}

// yamlNode is a plain value as a node.
func yamlNode(v any) *yaml.Node {
	scalar := func(tag, text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text} }
	switch x := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, k := range keys(x) {
			n.Content = append(n.Content, yamlNode(k), yamlNode(x[k]))
		}
		return n
	case *jmes.Object:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, k := range x.Keys {
			n.Content = append(n.Content, yamlNode(k), yamlNode(x.Values[k]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, e := range x {
			n.Content = append(n.Content, yamlNode(e))
		}
		return n
	case string:
		n := scalar("!!str", x)
		if strings.Contains(x, "\n") || yaml11().MatchString(x) {
			n.Style = yaml.SingleQuotedStyle
		}
		if strings.HasSuffix(x, "\n") && !strings.Contains(x, quoteMark) {
			n.Value += quoteMark
		}
		return n
	case bool:
		if x {
			return scalar("!!bool", "true")
		}
		return scalar("!!bool", "false")
	case json.Number:
		if strings.ContainsAny(x.String(), ".eE") {
			return scalar("!!float", x.String())
		}
		return scalar("!!int", x.String())
	}
	return scalar("!!null", "null")
}

// quoteMark stands before the closing quote of text that ends with a new line while it is written:
// the emitter (yaml 4.0.0-rc.6) would put the quote at the beginning of a line, where strict
// readers take it for the end of the mapping.
const quoteMark = "\ue000"

// yaml11 is text that was something else in YAML 1.1, which az writes and most programs still read:
// truths, times of day, = and <<.
var yaml11 = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|=|<<|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$`)
})
