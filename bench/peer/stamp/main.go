// Command stamp FILE writes the time its first instruction ran to FILE, which may be a named pipe.
// It stands in for stamp.c where there is no C compiler; its runtime makes it about a millisecond
// later.
package main

import (
	"os"
	"strconv"
	"time"
)

func main() {
	line := strconv.FormatInt(time.Now().UnixNano(), 10) + "\n"
	f := os.Stdout
	if len(os.Args) == 2 {
		var err error
		if f, err = os.OpenFile(os.Args[1], os.O_WRONLY|os.O_CREATE, 0o644); err != nil {
			os.Exit(1)
		}
	}
	if _, err := f.WriteString(line); err != nil {
		os.Exit(1)
	}
}
