// Package all lists the drivers this build has.
package all

import (
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/cluster"
	"github.com/berthml/berth/internal/driver/dialout"
	"github.com/berthml/berth/internal/driver/kubernetes"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/driver/provided"
	"github.com/berthml/berth/internal/driver/slurm"
	"github.com/berthml/berth/internal/driver/ssh"
)

// Local and Clusters are the targets that computes share: this machine, and the nodes that are made
// on it.
const (
	Local    = "local"
	Clusters = "clusters"
)

// types maps the driver of a compute, see [berth.ComputeProps.Driver], to how it is opened.
func types() map[string]driver.Type {
	return map[string]driver.Type{
		berth.LocalCompute:                  {Open: local.Open, Shared: Local},
		strings.ToLower(berth.TypeCluster):  {Open: cluster.Open, Shared: Clusters},
		strings.ToLower(berth.TypeInstance): {Open: cluster.Open, Shared: Clusters}, // a node of its user's own
		driver.Provided:                     {Open: provided.Open},                  // a cluster whose nodes another compute makes
		berth.ConnectionAgent:               {Open: dialout.Open},
		berth.ConnectionSSH:                 {Open: ssh.Open, Check: ssh.Check},
		kubernetes.Name: {
			Open: kubernetes.Open, Check: kubernetes.Check, Consent: "this server connects to the clusters that users name, at any address it can reach",
		},
		"slurm": {
			Open: slurm.Open, Check: slurm.Check, Asks: slurm.AsServer,
			Consent: "jobs on computes of type slurm without a login node (--ssh) run with the account of this server",
		},
	}
}

// Types are the types of compute, in lower case, that only their drivers know: not this machine,
// Azure's types, or ways to connect to a virtual machine.
func Types() (words []string) {
	for word, t := range types() {
		if t.Shared == "" && word != berth.ConnectionAgent && word != berth.ConnectionSSH && word != driver.Provided {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return words
}

// Lookup finds a type of compute by its driver.
func Lookup(name string) (driver.Type, bool) {
	t, ok := types()[name]
	return t, ok
}
