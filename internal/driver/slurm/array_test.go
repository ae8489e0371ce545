package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// sbatch puts a program of that name on the PATH that notes its options and accepts arrays of at
// most so many tasks.
func sbatch(t *testing.T, most int) (calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf(`#!/bin/sh
cat > /dev/null
n=0
for a in "$@"; do case $a in --array=0-*) n=${a#--array=0-}; n=${n%%%%%%*};; esac; done
[ "$n" -lt %d ] || { echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy" >&2; exit 1; }
echo "$n" >> %s/calls
wc -l < %s/calls
`, most, dir, dir)
	if err := os.WriteFile(filepath.Join(dir, "sbatch"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() []string {
		b, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return strings.Fields(string(b))
	}
}

func openArrays(t *testing.T, dir string) *Driver {
	t.Helper()
	d, err := Open(driver.Config{Name: "site", Dir: dir, Properties: []byte("{}"), Program: func() (string, error) { return "abc", nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(*Driver).Close() })
	return d.(*Driver)
}

// startTogether starts n tasks that wait for the same call.
func startTogether(t *testing.T, d *Driver, n int) {
	t.Helper()
	for i, err := range tryTogether(t, d, n) {
		if err != nil {
			t.Errorf("task %d: %v", i, err)
		}
	}
}

func tryTogether(t *testing.T, d *Driver, n int) []error {
	d.gathering.mu.Lock()
	d.gathering.busy = true
	d.gathering.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			_, errs[i] = d.Start(t.Context(), berth.Launch{Task: berth.TaskID(fmt.Sprintf("job-%d.1", i))})
		})
	}
	for waiting := 0; waiting < n; {
		d.gathering.mu.Lock()
		waiting = len(d.gathering.waiting)
		d.gathering.mu.Unlock()
	}
	d.submitGathered(t.Context())
	wg.Wait()
	return errs
}

// TestArrayOfTasks: a thousand tasks are one call; each has a number of its own, which the next
// server knows, and one that was removed stays so.
func TestArrayOfTasks(t *testing.T) {
	calls := sbatch(t, 10000)
	dir := t.TempDir()
	d := openArrays(t, dir)
	startTogether(t, d, 1000)
	if got := calls(); len(got) != 1 || got[0] != "999" {
		t.Fatalf("calls of sbatch: %v", got)
	}
	numbers := map[string]bool{}
	for _, r := range d.records {
		numbers[r.Job] = true
	}
	if len(numbers) != 1000 || !numbers["1_0"] || !numbers["1_999"] {
		t.Errorf("%d numbers", len(numbers))
	}
	gone := d.records["job-7.1"]
	gone.Exit = &berth.Exit{}
	if err := d.Remove(t.Context(), handle("job-7.1")); err != nil {
		t.Fatal(err)
	}
	next := openArrays(t, dir)
	if _, err := next.Start(t.Context(), berth.Launch{Task: "job-8.1"}); err != nil || len(calls()) != 1 {
		t.Errorf("started again: %v, calls %v", err, calls())
	}
	if r := next.records["job-8.1"]; len(next.records) != 999 || r == nil || r.Job != d.records["job-8.1"].Job {
		t.Errorf("%d tasks, %+v", len(next.records), r)
	}
	for id, r := range next.records {
		r.Exit = &berth.Exit{}
		if err := next.Remove(t.Context(), handle(id)); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "tasks", "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestArrayTooLarge: where Slurm takes only so many tasks at once, they go in parts.
func TestArrayTooLarge(t *testing.T) {
	calls := sbatch(t, 10)
	d := openArrays(t, t.TempDir())
	startTogether(t, d, 40)
	total := 0
	for _, c := range calls() {
		n := 0
		fmt.Sscan(c, &n)
		total += n + 1
	}
	if n := len(calls()); total != 40 || n > 8 {
		t.Errorf("calls of sbatch: %v", calls())
	}
	d = openArrays(t, t.TempDir())
	d.maxArray.Store(5)
	before := len(calls())
	startTogether(t, d, 20)
	if n := len(calls()) - before; n != 4 {
		t.Errorf("%d calls of sbatch for arrays of 5", n)
	}
}

// TestArrayWithoutItsNumber: a server that is killed before it has written down the number of an
// array finds each task by the name of the array and its index.
func TestArrayWithoutItsNumber(t *testing.T) {
	sbatch(t, 10000)
	dir := t.TempDir()
	d := openArrays(t, dir)
	startTogether(t, d, 3)
	files, _ := filepath.Glob(filepath.Join(dir, "tasks", "*"+arraySuffix))
	if len(files) != 1 {
		t.Fatalf("files %v", files)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(b), "\n")
	if err := os.WriteFile(files[0], []byte(head+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	next := openArrays(t, dir)
	next.mu.Lock()
	defer next.mu.Unlock()
	if err := next.load(); err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSuffix(filepath.Base(files[0]), arraySuffix)
	for id, r := range next.records {
		was := d.records[id]
		if r.Job != "" || r.listedName() != nameOf(job{number: was.Job, name: name}) || !r.hasIndex(was.Job) {
			t.Errorf("%s: %q, %q; its job was %s", id, r.Job, r.listedName(), was.Job)
		}
	}
}

// TestAlike: tasks that ask for different things are different jobs.
func TestAlike(t *testing.T) {
	var all []*submission
	for _, l := range []berth.Launch{{CPUs: 1}, {CPUs: 2}, {CPUs: 1}, {CPUs: 1, Memory: 1}, {CPUs: 1, GPUCount: 1}, {CPUs: 1}} {
		all = append(all, &submission{l: l})
	}
	var sizes []int
	for _, like := range alike(all) {
		sizes = append(sizes, len(like))
	}
	if fmt.Sprint(sizes) != "[3 1 1 1]" {
		t.Errorf("groups of %v", sizes)
	}
}

// TestOneByOneWhileAway: where each task is a call of its own and Slurm is away, one call finds
// that out for all.
func TestOneByOneWhileAway(t *testing.T) {
	dir := t.TempDir()
	text := "#!/bin/sh\ncat >/dev/null\necho call >>" + dir + "/calls\necho 'sbatch: error: Unable to contact slurm controller' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "sbatch"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	d := openArrays(t, t.TempDir())
	d.maxArray.Store(1)
	for i, err := range tryTogether(t, d, 5) {
		if berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("task %d: %v", i, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "calls")); err != nil || strings.Count(string(b), "call") != 1 {
		t.Errorf("%q, %v", b, err)
	}
}
