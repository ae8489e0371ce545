package locate_test

import (
	"encoding/json"
	"testing"

	"github.com/berthml/berth/internal/locate"
)

func TestAllow(t *testing.T) {
	a := locate.Allow{Paths: []string{"/srv/data/", "/open"}, DockerArgs: []string{"--cap-add=SYS_PTRACE", "--ulimit", "--ipc host"}}
	for uri, want := range map[string]string{
		"file:///srv/data": "/srv/data", "file:///srv/data/a/../b": "/srv/data", "file:///open/x": "/open", "file:///open/%61": "/open",
		"file:///srv": "", "file:///srv/data2": "", "file:///open/../etc": "", "file:///open/%2e%2e/etc": "", "file://host/open": "", "file:/": "",
		"file:///open/x?/../../etc": "", "file:///open/x#/../../etc": "", "file:/open/x": "",
	} {
		if below, err := a.File(uri); below != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", uri, below, err)
		}
	}
	for args, ok := range map[string]bool{
		"": true, "--cap-add SYS_PTRACE": true, "--cap-add=SYS_PTRACE --ulimit=nofile=1:2": true, "--ipc=host": true, "--ipc host": true, "--shm-size 1g": true,
		"--cap-add=SYS_ADMIN": false, "--ipc=private": false, "--ulimit=nofile=1 --privileged": false, "loose": false,
	} {
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Options(raw); (err == nil) != ok {
			t.Errorf("%q: %v", args, err)
		}
	}
}
