// Command berth is the whole of Berth in one binary: the command line, the server and the runner.
package main

import (
	"os"

	"github.com/berthml/berth/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
