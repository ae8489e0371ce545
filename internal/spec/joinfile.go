package spec

import (
	"encoding/json"
	"io"
	"os"
	"strings"
)

// A file of `berth agent join` is a JSON object that begins like this, of a few KiB with the
// server's certificate authority.
const (
	joinBegins = `{"server":"https://`
	joinMost   = 64 << 10
)

// isJoin says whether a file is one that a machine joins a server with. It holds a secret, lies
// where somebody made it for another machine, and is never part of the code.
func isJoin(file string) bool {
	const ending = ".json"
	if len(file) < len(ending) || !strings.EqualFold(file[len(file)-len(ending):], ending) {
		return false
	}
	f, err := os.Open(file)
	if err != nil {
		return false // it will be said of the file when it is uploaded
	}
	defer f.Close()
	head := make([]byte, 64)
	n, _ := io.ReadFull(f, head) // a shorter file is none
	if !strings.HasPrefix(strings.Join(strings.Fields(string(head[:n])), ""), joinBegins) {
		return false
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false
	}
	var v struct{ Server, Compute, Token string }
	return json.NewDecoder(io.LimitReader(f, joinMost)).Decode(&v) == nil && v.Compute != "" && strings.HasPrefix(v.Token, "bertha_")
}
