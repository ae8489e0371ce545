// Package pty makes terminals for the shells that people are given on instances and beside their
// tasks.
package pty
