// Package fence keeps jobs, which run with the server's account, from the server's secrets, where
// the kernel offers a way to that without root: Landlock.
//
// Landlock knows what is allowed and nothing else: everything beside the way down to the home is
// listed when a runner host starts, and what is made beside it later is not on the list. So the
// fence is put up only where nobody makes things beside that way: where the home lies neither in
// the account's own home directory nor below a directory that the account can write to.
package fence

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
)

// open are the parts of a home that hosts and their tasks work in.
var open = []string{"host", "nodes", "instances", "keep", "envs", "blobs/logs"}

// Missing says why jobs of a home can read its secrets; it is empty when they cannot.
func Missing(home string) string {
	if why := unsupported(); why != "" {
		return why
	}
	home, err := filepath.EvalSymlinks(home)
	if err != nil {
		return err.Error()
	}
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		if dir, err := filepath.EvalSymlinks(u.HomeDir); err == nil && (inside(dir, home) || inside(home, dir)) && dir != "/" {
			return fmt.Sprintf("%s and the account's own directory %s are not apart", home, u.HomeDir)
		}
	}
	for dir := filepath.Dir(home); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err.Error()
		}
		if writable(info) {
			return fmt.Sprintf("%s is below %s, where jobs can make files", home, dir)
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

func inside(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
