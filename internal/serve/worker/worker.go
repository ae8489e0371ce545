// Package worker holds the program that a replica of an online deployment is: a scoring server in
// Python that needs no other packages.
package worker

import _ "embed"

// Source is the program.
//
//go:embed worker.py
var Source string
