package ssh

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// document is what a compute's document says of the machines of a pool.
type document struct {
	machines []listed
	jobs     string // on each machine: a number, jobsAuto, or empty for one
}

// listed is a machine in the list of a pool.
type listed struct {
	name, peer string
	body       []byte // as the document of a single machine
}

// mostMachines is how many machines a pool can have.
const mostMachines = 1000

// readDocument reads the machines of a pool; there are none where the document is that of a single
// machine. What a machine does not say of itself is as the document says it for all.
func readDocument(properties []byte) (document, error) {
	var v struct {
		Properties struct {
			Properties map[string]any `json:"properties"`
		} `json:"properties"`
	}
	if len(properties) == 0 {
		return document{}, nil
	}
	if err := json.Unmarshal(properties, &v); err != nil {
		return document{}, berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	all := v.Properties.Properties
	list, ok := all["machines"].([]any)
	if !ok && all["machines"] != nil {
		return document{}, berth.Errorf(berth.Invalid, "properties.properties.machines must be a list")
	}
	out := document{}
	switch jobs := all["jobsPerNode"].(type) {
	case nil:
	case string:
		out.jobs = strings.ToLower(jobs)
	case float64:
		out.jobs = strconv.Itoa(int(jobs))
	}
	if n, err := strconv.Atoi(out.jobs); out.jobs != "" && out.jobs != jobsAuto && (err != nil || n < 1 || n > mostMachines) {
		return out, berth.Errorf(berth.Invalid, "properties.properties.jobsPerNode must be a number from 1 to %d, or %s", mostMachines, jobsAuto)
	}
	if len(list) > mostMachines {
		return out, berth.Errorf(berth.Limit, "properties.properties.machines has %d machines, and %d is the limit", len(list), mostMachines)
	}
	seen := map[string]bool{}
	for i, x := range list {
		m, err := readListed(all, x)
		switch {
		case err != nil:
			return out, berth.Errorf(berth.CodeOf(err), "properties.properties.machines[%d]: %w", i, err)
		case seen[m.name]:
			return out, berth.Errorf(berth.Invalid, "properties.properties.machines[%d]: there are two machines %s; give them names", i, m.name)
		}
		seen[m.name] = true
		out.machines = append(out.machines, m)
	}
	return out, nil
}

// readListed reads a machine of the list.
func readListed(all map[string]any, x any) (listed, error) {
	one, ok := x.(map[string]any)
	if !ok {
		return listed{}, berth.Errorf(berth.Invalid, "must be an object with an address")
	}
	own := map[string]any{}
	for k, v := range all {
		switch k {
		case "machines", "jobsPerNode", "address", "hostKey":
		default:
			own[k] = v
		}
	}
	var name, peer string
	for k, v := range one {
		switch text, _ := v.(string); k {
		case "name":
			name = text
		case "peerAddress":
			peer = text
		case "username":
			own["administratorAccount"] = map[string]any{"username": text}
		case "address", "sshPort", "jumpHosts", "hostKey":
			own[k] = v
		default:
			return listed{}, berth.Errorf(berth.Invalid, "%s is not a property of a machine; there are name, address, peerAddress, sshPort, username, jumpHosts and hostKey", k)
		}
	}
	body, err := json.Marshal(map[string]any{"properties": map[string]any{"properties": own}})
	if err != nil {
		return listed{}, err
	}
	m, err := readMachine(body)
	if err != nil {
		return listed{}, err
	}
	if name == "" {
		name = m.Address
		if m.Port != 22 {
			name = net.JoinHostPort(m.Address, strconv.Itoa(m.Port))
		}
	}
	if peer == "" {
		peer = m.Address
	}
	if len(name) > 100 || strings.ContainsAny(name, "/ \t\r\n") || strings.ContainsAny(peer, "/, \t\r\n@") {
		return listed{}, berth.Errorf(berth.Invalid, "name %q and peerAddress %q must have no spaces, commas or slashes", name, peer)
	}
	return listed{name: name, peer: peer, body: body}, nil
}
