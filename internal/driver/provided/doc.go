// Package provided is the driver of managed clusters whose nodes an attached compute makes: a Slurm
// site, or a Kubernetes cluster ([driver.Provider]).
//
// A node is a job of the provider that runs [Main] and nothing else. It connects to the server as
// an agent does (package dialout), and tasks are started on it over that connection. So the
// provider decides when and where a node is, and Berth everything else.
package provided
