package api

import (
	"strings"
	"unicode/utf8"

	"github.com/berthml/berth"
)

// What a document may carry along besides what it is. Azure allows 50 tags with values of 256
// characters on resources such as computes, and more on jobs and assets, where it gives no number;
// MLflow writes tags of up to 8,000.
const (
	maxTags       = 100
	maxProperties = 500
	maxTagName    = 512
	maxTagValue   = 8_000
	// maxDocument is how large a document may be that has no steps.
	maxDocument = 1 << 20
	// maxDatastore is how large that of a datastore may be: all of them are read to find the one
	// for an address.
	maxDatastore = 16 << 10
	// maxInputs is how many inputs a job or a step may have, and maxLiteral how long the value of
	// one may be.
	maxInputs  = 1_000
	maxLiteral = 64 << 10
	// maxStepInputs is how much the inputs of all steps may come to when each has the longest
	// value: every step is a job of its own.
	maxStepInputs = 64 << 20
)

// bounded are the maps of a document that have limits, and how many members each may have.
var bounded = map[string]int{"tags": maxTags, "properties.tags": maxTags, "properties.properties": maxProperties}

// checkLimits refuses a document with more tags, properties or inputs than anybody could mean.
// Every list of documents carries the first two, and every step of a pipeline its inputs.
func checkLimits(body map[string]any) error {
	for path, most := range bounded {
		m, ok := dig(body, path).(map[string]any)
		if !ok {
			continue
		}
		if len(m) > most {
			return berth.Errorf(berth.Limit, "%s has %d members; at most %d are possible", path, len(m), most)
		}
		for k, v := range m {
			if n := utf8.RuneCountInString(k); n > maxTagName {
				return berth.Errorf(berth.Limit, "a name in %s is %d characters long; at most %d are possible", path, n, maxTagName)
			}
			text, ok := v.(string)
			if n := utf8.RuneCountInString(text); ok && n > maxTagValue {
				return berth.Errorf(berth.Limit, "%s.%s is %d characters long; at most %d are possible", path, k, n, maxTagValue)
			}
		}
	}
	return checkInputs(body)
}

// checkSize refuses a document that is larger than its kind may be. Pipelines and components have
// steps inside.
func checkSize(kind string, raw []byte) error {
	kind, _, _ = strings.Cut(kind, "/")
	if len(raw) > maxDatastore && kind == "datastores" {
		return berth.Errorf(berth.Limit, "the document is larger than %s", sizeText(maxDatastore))
	}
	if len(raw) > maxDocument && kind != "jobs" && kind != "components" {
		return berth.Errorf(berth.Limit, "the document is larger than %s", sizeText(maxDocument))
	}
	return nil
}

// checkInputs refuses a job or component with more inputs, or longer values, than any command could
// take.
func checkInputs(body map[string]any) error {
	var all inputCount
	if err := all.add(body); err != nil {
		return err
	}
	if all.inputs*all.longest > maxStepInputs {
		return berth.Errorf(berth.Limit, "the steps have %d inputs, and one value is %s long: together they may come to %s; put long values into a file", all.inputs, sizeText(int64(all.longest)), sizeText(maxStepInputs))
	}
	return nil
}

// inputCount is what the inputs of a job and of its steps come to.
type inputCount struct{ inputs, longest int }

// add counts the inputs in v, at any depth.
func (n *inputCount) add(v any) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := n.add(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, e := range v {
			if m, ok := e.(map[string]any); ok && strings.EqualFold(k, "inputs") {
				if err := n.addInputs(m); err != nil {
					return err
				}
			}
			if err := n.add(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *inputCount) addInputs(m map[string]any) error {
	if len(m) > maxInputs {
		return berth.Errorf(berth.Limit, "there are %d inputs; at most %d are possible", len(m), maxInputs)
	}
	n.inputs += len(m)
	for name, v := range m {
		for _, value := range []any{v, asMap(v)["value"], asMap(v)["uri"], asMap(v)["default"]} {
			text, _ := value.(string)
			if len(text) > maxLiteral {
				return berth.Errorf(berth.Limit, "the value of input %s is %s long; at most %s are possible: put it into a file", name, sizeText(int64(len(text))), sizeText(maxLiteral))
			}
			n.longest = max(n.longest, len(text))
		}
	}
	return nil
}
