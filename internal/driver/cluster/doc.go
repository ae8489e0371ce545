// Package cluster is the driver of computes whose nodes are made and given back.
//
// Its provider is this machine: a node is an isolated runner host (package host) with the CPU and
// memory of its size as limits of control groups. Everything of a node is below one directory and
// in its groups, so that ending it leaves nothing.
//
// Directory layout:
//
//	DIR/NODE/node.json       what the node is; it takes tasks as long as this is there
//	DIR/NODE/removed.json    the same, of a node that is being given back
//	DIR/NODE/…               the directory of its host
package cluster
