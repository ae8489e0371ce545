package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// counted are two counters of the runner hosts of the home: the most memory any of them had, and
// the bytes that they read, all together.
func (y *story) counted() (memory, read int64) {
	y.t.Helper()
	field := func(pid int, file, name string) int64 {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, name+":"); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
				if err != nil {
					y.t.Error(err)
				}
				return n
			}
		}
		y.t.Errorf("process %d has no %s", pid, name)
		return 0
	}
	for _, pid := range y.workers() {
		memory = max(memory, field(pid, "status", "VmHWM")<<10)
		read += field(pid, "io", "rchar")
	}
	return memory, read
}

// TestSparse: a file with more bytes than the disk, nearly all of them holes, is refused with what
// is missing before it is read: in the folder of a data asset, and among a job's outputs, which
// wait for room until the job is cancelled.
func TestSparse(t *testing.T) {
	y := begin(t, "")
	var disk syscall.Statfs_t
	if err := syscall.Statfs(y.s.Home, &disk); err != nil {
		t.Fatal(err)
	}
	size := int64(max(200<<30, 2*disk.Blocks*uint64(disk.Bsize)))
	dir := filepath.Join(y.dir, "set")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Skipf("the file system has no files of %d bytes: %v", size, err)
	}
	const room = "has no room for this upload of "
	out, err := y.command("data", "create", "--name", "set", "--version", "1", "--type", "uri_folder", "--path", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), room+strconv.FormatInt(size, 10)) {
		t.Errorf("%v\n%s", err, out)
	}
	y.berth("job", "create", "--file", y.file("job.yaml", y.yaml("sparse", fmt.Sprintf(`
command: truncate -s %d ${{outputs.o}}/big
outputs:
  o: {type: uri_folder}
`, size))))
	y.until("sparse", room, "explain", "sparse")
	if memory, read := y.counted(); memory > 1<<30 || read > 4<<30 {
		t.Errorf("the runner host had %d MB of memory and read %d MB", memory>>20, read>>20)
	}
	y.berth("job", "cancel", "-n", "sparse")
	if status, told := y.end("sparse"); status != "Canceled" {
		t.Errorf("%s:\n%s", status, told)
	}
}
