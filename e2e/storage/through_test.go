package storage

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
)

// killBelow kills every process that has to do with a folder of the home: a runner host and what
// runs there.
func (y *story) killBelow(dir string) {
	y.t.Helper()
	pids := y.below(dir)
	if len(pids) == 0 {
		y.t.Fatalf("nothing runs in %s", dir)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			y.t.Fatal(err)
		}
	}
	for _, pid := range pids {
		for !world.Gone(pid) {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// node makes a cluster of one node and returns the folder of the node, below the home.
func (y *story) node(more ...string) string {
	y.t.Helper()
	y.berth(append([]string{"compute", "create", "--type", "amlcompute", "-n", "cpu", "--size", "Standard_DS1_v2", "--min-instances", "1", "--max-instances", "1", "-o", "none"}, more...)...)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if name := strings.TrimSpace(y.berth("compute", "list-nodes", "-n", "cpu", "--query", "[?node_state=='idle'].node_id", "-o", "tsv")); name != "" {
			return filepath.Join("nodes", name)
		}
	}
	y.t.Fatal("there is no node")
	return ""
}

// below are the processes that have to do with a folder of the home.
func (y *story) below(dir string) (pids []int) {
	dir = filepath.Join(y.s.Home, dir)
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		cmdline, _ := os.ReadFile(p + "/cmdline")
		environ, _ := os.ReadFile(p + "/environ")
		text := string(cmdline) + "\x00" + string(environ) + "\x00"
		if pid, err := strconv.Atoi(filepath.Base(p)); err == nil && (strings.Contains(text, dir+"/") || strings.Contains(text, dir+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// lose kills everything on a node and takes its disk, as if at once: the server starts what was
// killed again, which must not find the disk.
func (y *story) lose(node string) {
	y.t.Helper()
	for _, pid := range y.below(node) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && err != syscall.ESRCH {
			y.t.Fatal(err)
		}
	}
	lost := filepath.Join(y.s.Home, "lost")
	if err := os.Rename(filepath.Join(y.s.Home, node), lost); err != nil {
		y.t.Fatal(err)
	}
	y.killBelow(node)
	if err := os.RemoveAll(lost); err != nil {
		y.t.Fatal(err)
	}
}

// output is a file of an output of a job in the server's own storage; it is empty if there is none.
func (y *story) output(job, output, file string) string {
	y.t.Helper()
	to := y.t.TempDir()
	_ = y.command("job", "download", "-n", job, "--output-name", output+"="+to).Run()
	b, _ := os.ReadFile(filepath.Join(to, file))
	return string(b)
}

// TestNodeLost: what a job has written to its outputs is in the storage, the server's own and a
// bucket, when its node is lost with its disk, and is named as partial.
func TestNodeLost(t *testing.T) {
	s := startS3(t)
	writes := `
command: >-
  echo half > ${{outputs.own}}/x && mkdir ${{outputs.lake}}/sub && echo half > ${{outputs.lake}}/sub/x && echo one > ${{outputs.file}} &&
  (while sleep 0.1; do echo more >> ${{outputs.lake}}/grows; done)
outputs:
  own: {type: uri_folder, mode: MODE}
  lake: {type: uri_folder, path: azureml://datastores/lake/paths/NAME, mode: MODE}
  file: {type: uri_file, path: azureml://datastores/lake/paths/NAME.txt, mode: MODE}
`
	for name, tt := range map[string]struct {
		mode, on string
		lose     func(y *story, node string)
		want     string
	}{
		"node":  {"rw_mount", "cpu", (*story).lose, "output file, output lake, output own: partial, with the files that were uploaded before the task of attempt 1 ended"},
		"again": {"upload", "cpu", (*story).lose, "output file, output lake, output own: partial, with the files that were uploaded before the task of attempt 1 ended"},
		// The disk of the server's own machine is still there, so that the rest is uploaded too.
		"host": {"rw_mount", "local", func(y *story, _ string) { y.killBelow("host") }, "output file, output lake, output own: partial, as it was when the command ended without success"},
	} {
		t.Run(name, func(t *testing.T) {
			y := begin(t, "")
			y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
			node := ""
			if tt.on == "cpu" {
				node = y.node()
			}
			y.berth("job", "create", "--file", y.file("job.yaml", y.yaml("writes", "compute: azureml:"+tt.on+strings.NewReplacer("MODE", tt.mode, "NAME", name).Replace(writes))))
			there := func() bool {
				x, _ := os.ReadFile(filepath.Join(s.bucket, name, "sub", "x"))
				one, _ := os.ReadFile(filepath.Join(s.bucket, name+".txt"))
				return string(x) == "half\n" && string(one) == "one\n" && y.output("writes", "own", "x") == "half\n"
			}
			for end := time.Now().Add(2 * time.Minute); !there(); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the outputs are not there while the command runs:\n%s", y.berth("explain", "writes"))
				}
			}
			if _, err := os.Stat(filepath.Join(s.bucket, name, "grows")); err == nil {
				t.Error("a file is there that the command was writing all the time")
			}
			tt.lose(y, node)
			status, told := y.end("writes")
			if status != "Failed" || !strings.Contains(told, tt.want) {
				t.Errorf("%s:\n%s", status, told)
			}
			if !there() {
				t.Error("what was there is gone")
			}
		})
	}
}

// TestRemovedAgain: what a command removes after it was uploaded is removed from the storage too,
// the server's own and a bucket: while the command runs, and when it ends.
func TestRemovedAgain(t *testing.T) {
	s := startS3(t)
	y := begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
	y.removed("lake", func(name string) bool {
		_, err := os.Stat(filepath.Join(s.bucket, name))
		return err == nil
	})
}

// removed tells a job that removes what it wrote to the server's storage and to a datastore; there
// says whether the datastore has a file.
func (y *story) removed(datastore string, there func(name string) bool) {
	y.t.Helper()
	next := filepath.Join(y.dir, "next")
	y.berth("job", "create", "--file", y.file("job.yaml", y.yaml("removes", `
command: >-
  for d in ${{outputs.own}} ${{outputs.lake}}; do echo 1 > $d/first; echo 2 > $d/second; echo 3 > $d/third; done;
  while ! test -e `+next+`1; do sleep 0.05; done; rm ${{outputs.own}}/first ${{outputs.lake}}/first;
  while ! test -e `+next+`2; do sleep 0.05; done; rm ${{outputs.own}}/second ${{outputs.lake}}/second
outputs:
  own: {type: uri_folder}
  lake: {type: uri_folder, path: azureml://datastores/`+datastore+`/paths/removes}
`)))
	has := func(file string) (own, lake bool) {
		return y.output("removes", "own", file) != "", there("removes/" + file)
	}
	wait := func(what, file string, want bool) {
		y.t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			if own, lake := has(file); own == want && lake == want {
				return
			}
			if time.Now().After(end) {
				y.t.Fatalf("never: %s\n%s", what, y.berth("explain", "removes"))
			}
		}
	}
	for _, file := range []string{"first", "second", "third"} {
		wait("a file is uploaded", file, true)
	}
	y.file("next1", "")
	wait("a file that was removed is deleted", "first", false)
	y.file("next2", "")
	status, told := y.end("removes")
	if status != "Completed" || strings.Contains(told, "partial") || strings.Contains(told, "not deleted") {
		y.t.Errorf("%s:\n%s", status, told)
	}
	for file, want := range map[string]bool{"first": false, "second": false, "third": true} {
		if own, lake := has(file); own != want || lake != want {
			y.t.Errorf("%s is there: %v in the server's storage, %v in the datastore", file, own, lake)
		}
	}
}
