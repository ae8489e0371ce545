package slurm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dir"
)

// Tasks that are started together and ask for the same go to Slurm as one array: one call of
// sbatch, with one script that has all launches in it. What is started while a call is under way
// waits for the next one. From then on each task is looked after by itself, by the number that its
// element of the array has.
//
// What is kept of an array is one file: its tasks, then the number of its job, then which of its
// tasks were removed. A task has a file of its own only once something happened to it.

// mostElements is how many tasks an array has at most.
const mostElements = 1000

// The first task is submitted at once. After each call of sbatch the next waits until within
// gatherStep no more tasks came, until there are mostElements, or for gatherTime: the larger an
// array is, the less each of its tasks costs.
const (
	gatherStep = 50 * time.Millisecond
	gatherTime = time.Second
)

// submission is a task that is to be submitted.
type submission struct {
	r    *record
	l    berth.Launch
	done chan struct{}
	job  string
	err  error
}

// gathering are the tasks that wait for the next call of sbatch.
type gathering struct {
	mu      sync.Mutex
	waiting []*submission
	busy    bool // a call is under way
}

// gather submits a task together with others, and returns the number of its job.
func (d *Driver) gather(ctx context.Context, r *record, l berth.Launch) (string, error) {
	s := &submission{r: r, l: l, done: make(chan struct{})}
	g := &d.gathering
	g.mu.Lock()
	g.waiting = append(g.waiting, s)
	mine := !g.busy
	g.busy = true
	g.mu.Unlock()
	if mine {
		go d.submitGathered(context.WithoutCancel(ctx))
	}
	<-s.done // each call has a time limit
	return s.job, s.err
}

// submitGathered submits what waits until nothing does.
func (d *Driver) submitGathered(ctx context.Context) {
	g := &d.gathering
	for {
		g.mu.Lock()
		all := g.waiting
		g.waiting = nil
		if len(all) == 0 {
			g.busy = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		for _, like := range alike(all) {
			d.submitLike(ctx, like)
		}
		g.await()
	}
}

// await waits until no more tasks come.
func (g *gathering) await() {
	for end, had := time.Now().Add(gatherTime), 0; time.Now().Before(end); time.Sleep(gatherStep) {
		g.mu.Lock()
		n := len(g.waiting)
		g.mu.Unlock()
		if n == had || n >= mostElements {
			return
		}
		had = n
	}
}

// alike divides submissions into those that ask for the same, at most as many as an array has.
func alike(all []*submission) (out [][]*submission) {
	type key struct {
		cpus   float64
		memory int64
		gpus   int
		url    string
	}
	at := map[key]int{}
	for _, s := range all {
		k := key{s.l.CPUs, s.l.Memory, s.l.GPUCount, s.l.Home.URL}
		i, ok := at[k]
		if !ok || len(out[i]) == mostElements {
			i = len(out)
			at[k], out = i, append(out, nil)
		}
		out[i] = append(out[i], s)
	}
	return out
}

// submitLike submits tasks that ask for the same. Where Slurm does not take all of them at once it
// may take some, up to a limit of its own.
func (d *Driver) submitLike(ctx context.Context, all []*submission) {
	if most := int(d.maxArray.Load()); most > 0 && len(all) > most {
		d.submitLike(ctx, all[:most])
		if err := all[0].err; berth.CodeOf(err) == berth.Unavailable { // the others were not asked for
			finish(all[most:], err)
			return
		}
		d.submitLike(ctx, all[most:])
		return
	}
	err := d.submitArray(ctx, all)
	_, refused := errors.AsType[*commandError](err)
	if len(all) > 1 && (refused && berth.CodeOf(err) == berth.Unavailable || errors.Is(err, errTooLong)) {
		d.submitLike(ctx, all[:len(all)/2])
		if last := all[len(all)/2-1]; last.err != nil && !errors.Is(err, errTooLong) { // not even half
			finish(all[len(all)/2:], last.err)
			return
		}
		d.submitLike(ctx, all[len(all)/2:])
		return
	}
	finish(all, err)
}

func finish(all []*submission, err error) {
	for _, s := range all {
		s.err = err
		close(s.done)
	}
}

// errTooLong says that a script is too long.
var errTooLong = errors.New("too long for a batch script")

// submitArray submits tasks as one job, and sets its numbers.
func (d *Driver) submitArray(ctx context.Context, all []*submission) error {
	hash, home, err := d.program()
	if err != nil {
		return err
	}
	first := all[0].l
	w := work{nodes: 1, cpus: first.CPUs, memory: first.Memory, gpus: first.GPUCount, about: "task " + string(first.Task), site: d.settings()}
	launches := make([]berth.Launch, len(all))
	for i, s := range all {
		launches[i] = s.l
	}
	name := ""
	if len(all) > 1 {
		name = arrayName(all)
	}
	if w.script, err = taskScript(hash, launches, home, name); err != nil {
		return err
	}
	if len(all) == 1 {
		d.mu.Lock()
		all[0].r.Array, all[0].r.Index, all[0].r.array = "", 0, nil
		err = d.save(all[0].r)
		d.mu.Unlock()
		if err == nil {
			all[0].job, err = d.slurm.submit(ctx, all[0].r.Name, w, 1)
		}
		return err
	}
	w.about += " and " + strconv.Itoa(len(all)-1) + " more"
	a, err := d.newArray(name, all)
	if err != nil {
		return err
	}
	number, err := d.slurm.submit(ctx, a.Name, w, len(all))
	if _, refused := errors.AsType[*commandError](err); refused || err != nil && berth.CodeOf(err) != berth.Unavailable {
		d.mu.Lock()
		defer d.mu.Unlock()
		return errors.Join(err, d.dropArray(a)) // Slurm has said that it does not have it
	}
	if err != nil {
		return err
	}
	for i, s := range all {
		s.job = number + "_" + strconv.Itoa(i)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return a.note(entry{Job: number}, true)
}

// arrayName is the name of an array: some of its tasks may have been in one before.
func arrayName(all []*submission) string {
	var names []string
	for _, s := range all {
		names = append(names, s.r.Name)
	}
	return driver.Key(append(names, berth.NewGUID())...)
}

// array is what is known of a job of several tasks.
type array struct {
	Name  string          `json:"name"`
	Tasks []berth.TaskID  `json:"tasks"` // by index
	Grace []time.Duration `json:"grace"` // of each
	// Turns says that its jobs ask which task they are to run, see turns.
	Turns bool `json:"turns,omitempty"`

	path  string
	job   string
	gone  map[int]bool // tasks that were removed
	turns turns
}

// entry is a line that is added to the file of an array.
type entry struct {
	Job     string `json:"job,omitempty"`
	Removed *int   `json:"removed,omitempty"`
	Given   []int  `json:"given,omitempty"` // a task, and the job that it was given to
}

const arraySuffix = ".array"

// newArray records that some tasks are submitted as an array.
func (d *Driver) newArray(name string, all []*submission) (*array, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := &array{Name: name, Turns: true, gone: map[int]bool{}, turns: newTurns(len(all))}
	for _, s := range all {
		a.Tasks, a.Grace = append(a.Tasks, s.r.Task), append(a.Grace, s.r.Grace)
	}
	a.path = filepath.Join(d.c.Dir, "tasks", a.Name+arraySuffix)
	b, err := json.Marshal(a)
	if err == nil {
		err = dir.WriteFile(a.path, append(b, '\n'))
	}
	if err != nil {
		return nil, berth.Errorf(berth.Unavailable, "the record of an array of tasks cannot be kept: %w", err)
	}
	for i, s := range all {
		s.r.Array, s.r.Index, s.r.array = a.Name, i, a
	}
	d.arrays[a.Name] = a
	return a, nil
}

// note adds a line to the file of an array. The mutex is held.
func (a *array) note(e entry, sure bool) error {
	if e.Job != "" {
		a.job = e.Job
	}
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(a.path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		err = appendLine(f, b, sure)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return berth.Errorf(berth.Unavailable, "the record of an array of tasks cannot be kept: %w", err)
	}
	a.turns.written++
	return nil
}

// appendLine adds a line to a file, or nothing of it: the next one would be glued to half a line.
func appendLine(f *os.File, line []byte, sure bool) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err = f.Write(append(line, '\n')); err != nil {
		return errors.Join(err, f.Truncate(info.Size()))
	}
	if sure {
		return f.Sync()
	}
	return nil
}

// found notes the number of the array's job, by that of one of its elements. The mutex is held.
func (a *array) found(number string) error {
	job, _, _ := strings.Cut(number, "_")
	if a.job != "" {
		return nil
	}
	return a.note(entry{Job: job}, true)
}

// dropArray forgets an array that Slurm does not have. The mutex is held.
func (d *Driver) dropArray(a *array) error {
	for _, id := range a.Tasks {
		if r := d.records[id]; r != nil && r.array == a {
			r.Array, r.Index, r.array = "", 0, nil
		}
	}
	delete(d.arrays, a.Name)
	return os.Remove(a.path)
}

// leave notes that a task was not submitted. The mutex is held.
func (d *Driver) leave(r *record) {
	if err := d.removed(r); err != nil {
		d.log.Warn("a task that was refused is still in the record of its array", "task", r.Task, "err", err)
	}
}

// removed notes that a task is removed, and removes the file of an array that has no others. A note
// that is lost in a power cut does no harm: the task is removed again. The mutex is held.
func (d *Driver) removed(r *record) error {
	a := r.array
	if a == nil || a.gone[r.Index] {
		return nil
	}
	a.gone[r.Index] = true
	if len(a.gone) < len(a.Tasks) {
		return a.note(entry{Removed: &r.Index}, false)
	}
	if err := os.Remove(a.path); err != nil && !os.IsNotExist(err) {
		return err
	}
	delete(d.arrays, a.Name)
	return nil
}

// loadArrays reads the files of arrays that are not known yet, and makes the records of their
// tasks. The mutex is held.
func (d *Driver) loadArrays() error {
	paths, err := filepath.Glob(filepath.Join(d.c.Dir, "tasks", "*"+arraySuffix))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if d.arrays[strings.TrimSuffix(filepath.Base(path), arraySuffix)] != nil {
			continue
		}
		a, err := readArray(path)
		if err != nil {
			return err
		}
		d.adopt(a)
	}
	return nil
}

// adopt makes the records of the tasks of an array. The mutex is held.
func (d *Driver) adopt(a *array) {
	d.arrays[a.Name] = a
	for i, id := range a.Tasks {
		r := d.records[id]
		switch {
		case a.gone[i]:
			continue
		case r != nil && r.Array == a.Name: // something happened to it
			r.array = a
		case r == nil:
			r = &record{Task: id, Name: driver.Key(d.id, string(id)), Array: a.Name, Index: i, Grace: a.Grace[i], array: a}
			d.records[id] = r
		default:
			a.gone[i] = true // it was submitted again, by another name
			continue
		}
		if r.Exit == nil && a.job != "" {
			r.Job = a.jobOf(i)
			if a.passed(i) {
				r.Exit = &berth.Exit{}
			}
		}
	}
	if len(a.turns.owner) > 0 {
		d.widenLater(a)
	}
}

// readArray reads the file of an array.
func readArray(path string) (*array, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if whole := bytes.LastIndexByte(b, '\n') + 1; whole < len(b) { // nobody heard of what was not written whole
		if err := os.Truncate(path, int64(whole)); err != nil {
			return nil, err
		}
		b = b[:whole]
	}
	lines := slices.Collect(bytes.Lines(b))
	a := &array{path: path, gone: map[int]bool{}}
	if len(lines) == 0 || json.Unmarshal(lines[0], a) != nil || len(a.Grace) != len(a.Tasks) {
		return nil, berth.Errorf(berth.Internal, "the record of an array of tasks at %s cannot be read", path)
	}
	a.turns = newTurns(len(a.Tasks))
	a.turns.written, a.turns.synced = len(lines), -1
	if a.turns.throttle.adopted = true; !a.Turns {
		a.turns.throttle.most = 0
	}
	for _, line := range lines[1:] {
		var e entry
		if json.Unmarshal(line, &e) != nil {
			return nil, berth.Errorf(berth.Internal, "the record of an array of tasks at %s cannot be read: %q", path, line)
		}
		if e.Job != "" {
			a.job = e.Job
		}
		if e.Removed != nil {
			a.gone[*e.Removed] = true
		}
		if len(e.Given) == 2 {
			a.turns.given(e.Given[0], e.Given[1])
		}
	}
	return a, nil
}
