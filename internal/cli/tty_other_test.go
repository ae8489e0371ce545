//go:build !linux

package cli_test

import "github.com/rogpeppe/go-internal/testscript"

func tty(ts *testscript.TestScript, _ bool, _ []string) { ts.Fatalf("no terminals here") }
