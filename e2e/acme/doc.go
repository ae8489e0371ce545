// Package acme has a server get its certificate from a real ACME authority, Pebble.
package acme
