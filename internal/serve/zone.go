package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strings"

	"github.com/berthml/berth"
)

// Zone is a DNS zone in which online endpoints have host names. Each is one label below the zone,
// so that one certificate with a wildcard is for all: ENDPOINT in the workspace Home, and
// ENDPOINT--MARK in others, where MARK is made of the workspace. The zero value has no host names.
type Zone struct {
	Name string // with a port where clients have to name one
	Home berth.Workspace
}

// markLength is how many digits a mark has.
const markLength = 16

// marked says whether a label ends with a mark. An endpoint of Home whose own name does has a mark
// as well, so that no endpoint can be called by the name of another.
func marked(label string) bool {
	at := len(label) - markLength
	return at >= 2 && label[at-2:at] == "--" && strings.Trim(label[at:], "0123456789abcdef") == ""
}

// Mark is what stands for a workspace in a label, given its key.
func Mark(workspace string) string {
	sum := sha256.Sum256([]byte(workspace))
	return hex.EncodeToString(sum[:markLength/2])
}

// URL is the address of an endpoint by its host name, with a slash at the end; "" where there are
// no host names.
func (z Zone) URL(ws berth.Workspace, endpoint string) string {
	if z.Name == "" {
		return ""
	}
	label := strings.ToLower(endpoint)
	if ws.Key() != z.Home.Key() || marked(label) {
		label += "--" + Mark(ws.Key())
	}
	return "https://" + label + "." + z.Name + "/"
}

// Host is the domain of the zone, without the port.
func (z Zone) Host() string {
	if h, _, err := net.SplitHostPort(z.Name); err == nil {
		return strings.ToLower(h)
	}
	return strings.ToLower(z.Name)
}

// Label is the label of a host, as a request names it, that is an endpoint's.
func (z Zone) Label(host string) (label string, ok bool) {
	if z.Name == "" {
		return "", false
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	label, ok = strings.CutSuffix(strings.TrimSuffix(strings.ToLower(host), "."), "."+z.Host())
	return label, ok && label != "" && !strings.Contains(label, ".")
}

// Endpoint is what a label names: an endpoint, and the mark of its workspace, "" for Home.
func (z Zone) Endpoint(label string) (name, of string) {
	if !marked(label) {
		return label, ""
	}
	at := len(label) - markLength
	return label[:at-2], label[at:]
}
