package serve

import (
	"encoding/json"
	"sort"
	"strings"

	"github.com/berthml/berth"
)

// The collections that are kept without code of the user's.
const (
	CollectRequest  = "request"
	CollectResponse = "response"
)

// Collecting is what a deployment asks to be kept of its requests and answers.
type Collecting struct {
	Collections []Collected
	Rolling     string   // how often another folder begins: minute, hour or day
	Headers     []string // of requests, which are kept with them
	Ignored     []string // collections that scripts would have to write
}

// Collected is one of the collections that are kept.
type Collected struct {
	Name string
	Data string  // id of the data asset
	Rate float64 // part of the requests, up to 1
}

// collector is the form of dataCollector in the document of a deployment.
type collector struct {
	Collections map[string]struct {
		Mode string   `json:"dataCollectionMode"`
		Data string   `json:"dataId"`
		Rate *float64 `json:"samplingRate"`
	} `json:"collections"`
	Rolling string `json:"rollingRate"`
	Logging struct {
		Headers []string `json:"captureHeaders"`
	} `json:"requestLogging"`
}

// maxHeaders bounds how many headers are kept with a request.
const maxHeaders = 20

// parseCollecting reads the dataCollector of a deployment; nil where nothing is to be kept.
func parseCollecting(raw json.RawMessage) (*Collecting, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var d collector
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, berth.Errorf(berth.Invalid, "properties.dataCollector cannot be read: %w", err)
	}
	c := &Collecting{Rolling: strings.ToLower(d.Rolling), Headers: d.Logging.Headers}
	switch c.Rolling {
	case "":
		c.Rolling = "hour"
	case "minute", "hour", "day":
	default:
		return nil, berth.Errorf(berth.Invalid, "properties.dataCollector.rollingRate must be Minute, Hour or Day, not %q", d.Rolling)
	}
	if len(c.Headers) > maxHeaders {
		return nil, berth.Errorf(berth.Limit, "properties.dataCollector.requestLogging.captureHeaders names %d headers: up to %d can be kept", len(c.Headers), maxHeaders)
	}
	for name, v := range d.Collections {
		at := "properties.dataCollector.collections." + name
		if !strings.EqualFold(v.Mode, "Enabled") {
			continue
		}
		name = strings.ToLower(name)
		if name != CollectRequest && name != CollectResponse {
			c.Ignored = append(c.Ignored, name)
			continue
		}
		one := Collected{Name: name, Data: v.Data, Rate: 1}
		if v.Rate != nil {
			one.Rate = *v.Rate
		}
		switch {
		case !(one.Rate >= 0 && one.Rate <= 1):
			return nil, berth.Errorf(berth.Invalid, "%s.samplingRate must be a number from 0 to 1", at)
		case one.Data == "":
			return nil, berth.Errorf(berth.Invalid, "%s.dataId is missing: name the data asset of type uri_folder that the samples go to", at)
		}
		c.Collections = append(c.Collections, one)
	}
	sort.Slice(c.Collections, func(i, j int) bool { return c.Collections[i].Name < c.Collections[j].Name })
	sort.Strings(c.Ignored)
	if len(c.Collections)+len(c.Ignored) == 0 {
		return nil, nil
	}
	return c, nil
}
