package berth

import (
	"cmp"
	"strings"
	"time"
)

// AttachedState is the state of an attached machine.
type AttachedState struct {
	// TokenHash is the SHA-256 of the agent's token, in hexadecimal. It is never shown.
	TokenHash string `json:"tokenHash,omitempty"`
	// Machine is the id of the agent that used the token first; no other agent is accepted.
	Machine   string    `json:"machine,omitempty"`
	Host      string    `json:"host,omitempty"`    // what the machine calls itself
	Version   string    `json:"version,omitempty"` // of its agent
	Connected bool      `json:"connected,omitempty"`
	Session   string    `json:"session,omitempty"` // tells the connections apart
	Since     time.Time `json:"since,omitzero"`    // when Connected became what it is
	Why       string    `json:"why,omitempty"`     // why it is not connected
	// What it could do when it was last asked:

	CPUs        float64  `json:"cpus,omitempty"`
	Memory      int64    `json:"memory,omitempty"` // bytes
	GPUs        int      `json:"gpus,omitempty"`
	OS          string   `json:"os,omitempty"`
	Arch        string   `json:"arch,omitempty"`
	Slots       int      `json:"slots,omitempty"`       // tasks at once
	Distributed bool     `json:"distributed,omitempty"` // processes of tasks can reach one another
	Address     string   `json:"address,omitempty"`     // where they do
	SharedDisk  bool     `json:"sharedDisk,omitempty"`  // tasks see the server's files
	Queues      bool     `json:"queues,omitempty"`      // it keeps tasks above its slots in line
	MaxNodes    int      `json:"maxNodes,omitempty"`    // of one job; 0 is one
	Dials       bool     `json:"dials,omitempty"`       // ports of tasks can be reached
	Warnings    []string `json:"warnings,omitempty"`
	// Machines are those of a compute that consists of several, each of which is a node.
	Machines []AttachedMachine `json:"machines,omitempty"`
	// HostKeys are the host keys first presented by a machine reached over SSH, and by its jump
	// hosts, by address.
	HostKeys map[string]string `json:"hostKeys,omitempty"`
}

// AttachedMachine is one of several machines that are attached as one compute.
type AttachedMachine struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`           // where tasks on the others reach it
	Machine string    `json:"machine,omitempty"` // the id of its agent; no other agent is accepted
	Away    string    `json:"away,omitempty"`    // why it is not connected, and takes no tasks
	Drained string    `json:"drained,omitempty"` // why it takes no tasks although it is there
	Since   time.Time `json:"since,omitzero"`    // when these became what they are
	CPUs    float64   `json:"cpus,omitempty"`
	Memory  int64     `json:"memory,omitempty"` // bytes
	GPUs    int       `json:"gpus,omitempty"`
	OS      string    `json:"os,omitempty"`
	Arch    string    `json:"arch,omitempty"`
	Slots   int       `json:"slots,omitempty"` // tasks at once
}

// Refuses returns why the machine takes no tasks now, "" if it does.
func (m AttachedMachine) Refuses() string { return cmp.Or(m.Away, m.Drained) }

// ShareOfGPUs returns how many GPUs of a machine of several a job has that does not say how many it
// needs: one that runs several jobs at once divides them. 0 is that it sees all.
func ShareOfGPUs(gpus, slots int) int {
	if slots > 1 && gpus > 0 {
		return max(1, gpus/slots)
	}
	return 0
}

// Several reports whether the compute consists of several machines, each of which is a node.
func (a *AttachedState) Several() bool { return a != nil && len(a.Machines) > 0 }

// Short returns why fewer machines take tasks than there are, "" if all do.
func (a *AttachedState) Short() string {
	var away []string
	for _, m := range a.Machines {
		if why := m.Refuses(); why != "" {
			away = append(away, m.Name+" is drained: "+why)
		}
	}
	return strings.Join(away, "; ")
}

// Says returns the state of a machine in one word, and a sentence about it.
func (a *AttachedState) Says(compute string) (state, reason string) {
	if away := a.Away(compute); away != "" {
		return "Disconnected", away
	}
	return "Connected", "its machine " + a.Host + " has been connected since " + a.Since.UTC().Format(time.DateTime) + " UTC"
}

// Reached reports whether the machine is one that the server connects to, instead of one that
// connects to the server.
func (a *AttachedState) Reached() bool {
	return a != nil && a.TokenHash == "" && (a.Why != "" || a.Host != "")
}

// Unasked reports whether it is not known what the machine can do, because it has never been
// connected.
func (a *AttachedState) Unasked() bool { return a == nil || !a.Connected && a.Slots == 0 }

// Away returns why a machine takes no tasks now, "" if it does.
func (a *AttachedState) Away(compute string) string {
	switch {
	case a.Reached() && !a.Connected && a.Host == "":
		return "its machine has not been reached yet: " + a.Why
	case a == nil || a.TokenHash == "" && !a.Reached():
		return "its machine has not joined yet; `berth agent join " + compute + "` creates the file that it joins with"
	case a.Machine == "":
		return "its machine has not connected yet; run `berth agent run --join FILE` there"
	case !a.Connected:
		return "its machine " + a.Host + " has not been connected since " + a.Since.UTC().Format(time.DateTime) + " UTC: " + a.Why
	}
	return ""
}
