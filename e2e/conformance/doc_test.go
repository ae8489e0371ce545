// Package conformance runs everything that a job can ask for on every kind of target, and writes
// what it saw into docs/conformance.md. Its tests need the engines.
package conformance_test
